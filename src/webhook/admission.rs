//! `POST /mutate--v1-pod`: AdmissionReview in, AdmissionReview out.
//!
//! Invariant: a Pod is never denied and never fails because of us. What is no review gets HTTP 400; every fault of our
//! own is an allowed Pod with a warning and a metric, to be repaired later.
//! Nothing of a request is logged but a malformed review's kind and version, the place of an error, and 64 characters of
//! the uid; and no client can cause a line with each of its requests.
//! The one await besides the body is for a Namespace that the watch has not brought yet, and it is bounded. Nothing but
//! the body is held meanwhile: a Pod that is read may take eighty times its text, and many reviews may wait.

mod answer;
mod log_limit;
mod metrics;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::names::WEBHOOK_PATH;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use chassis::telemetry::error_chain;
use policy::admission::review::{self, JsonError, PodError, Request, Review, ReviewError, Subject};
use policy::admission::{Context, Decision, decide};
use tokio::time::timeout;

use crate::knowledge::{Knowledge, KnownNamespace};

use self::answer::Answer;
use self::log_limit::LogLimit;
pub use self::metrics::AdmissionMetrics;

/// How long a review may wait for the watch to bring its Namespace.
pub const NAMESPACE_PATIENCE: Duration = Duration::from_millis(300);

/// How many characters of a uid are logged; the API server's have 36.
const LOGGED_UID: usize = 64;

/// What answers reviews.
#[derive(Clone)]
pub struct Edge {
    /// The snapshots.
    pub knowledge: Knowledge,
    /// What is counted.
    pub metrics: AdmissionMetrics,
    /// How long to wait for an unknown Namespace.
    pub patience: Duration,
}

/// Our own fault: the Pod passes, and somebody must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// There is no valid configuration yet.
    ConfigurationNotLoaded,
    /// The Pod does not look like one.
    InvalidPod,
    /// The rules send something that is no Pod.
    UnexpectedResource,
    /// A decision panicked.
    Panic,
}

impl Fault {
    /// The number of faults.
    const COUNT: usize = Self::Panic as usize + 1;

    fn code(self) -> &'static str {
        match self {
            Self::ConfigurationNotLoaded => "ConfigurationNotLoaded",
            Self::InvalidPod => "InvalidPod",
            Self::UnexpectedResource => "UnexpectedResource",
            Self::Panic => "Panic",
        }
    }

    fn warning(self) -> &'static str {
        match self {
            Self::ConfigurationNotLoaded => {
                "runtime-bootstrapper: no valid configuration loaded, Pod not mutated"
            }
            Self::InvalidPod => "runtime-bootstrapper: invalid Pod, Pod not mutated",
            Self::UnexpectedResource => "runtime-bootstrapper: expected a Pod, object not mutated",
            Self::Panic => "runtime-bootstrapper: internal error, Pod not mutated",
        }
    }
}

/// The routes of admission.
pub fn router(edge: Edge) -> Router {
    Router::new()
        .route(WEBHOOK_PATH, post(admit))
        .with_state(Arc::new(Endpoint {
            edge,
            logs: Logs::default(),
        }))
}

/// What answers reviews, and what it may log.
struct Endpoint {
    edge: Edge,
    logs: Logs,
}

/// One limit for each line that a request can cause.
#[derive(Default)]
struct Logs {
    malformed: LogLimit,
    /// By the fault's number.
    faults: [LogLimit; Fault::COUNT],
}

async fn admit(
    State(endpoint): State<Arc<Endpoint>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        // Cut off or too large: the server below answers the latter, and for the former nobody listens.
        return (StatusCode::BAD_REQUEST, "the body did not arrive\n").into_response();
    };
    let started = Instant::now();
    let response = endpoint.respond(&body).await;
    endpoint.edge.metrics.answered(started.elapsed());
    response
}

/// A decision that panics is a fault of ours, like any other. Nothing is shared with it but what it reads, so nothing
/// is left half-done.
fn survive<T>(decision: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(decision)).map_err(|_panic| Fault::Panic)
}

impl Endpoint {
    async fn respond(&self, body: &[u8]) -> Response {
        let review = match review::parse(body) {
            Ok(review) => review,
            Err(error) => return self.reject(&error, body.len()),
        };
        let name = match &review.subject {
            Subject::Pod(request) => &*request.namespace,
            Subject::Unreadable(_) | Subject::Foreign => "",
        };
        let known = self.edge.knowledge.namespace(name);
        if known.is_some() || name.is_empty() || self.edge.knowledge.configuration().is_none() {
            return self.answer(&review, known.as_deref());
        }
        let name = name.to_owned();
        drop(review);
        let known = self.edge.await_namespace(&name).await;
        match review::parse(body) {
            Ok(review) => self.answer(&review, known.as_deref()),
            Err(error) => self.reject(&error, body.len()),
        }
    }

    fn reject(&self, error: &ReviewError, bytes: usize) -> Response {
        self.edge.metrics.rejected();
        let error = error_chain(error);
        if let Some(suppressed) = self.logs.malformed.permit() {
            tracing::warn!(error, bytes, suppressed, "malformed review rejected");
        }
        (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()
    }

    fn answer(&self, review: &Review<'_>, namespace: Option<&KnownNamespace>) -> Response {
        let answer = match &review.subject {
            Subject::Pod(request) => {
                (self.edge.decide(request, namespace)).unwrap_or_else(Answer::fault)
            }
            Subject::Unreadable(_) => Answer::fault(Fault::InvalidPod),
            Subject::Foreign => Answer::fault(Fault::UnexpectedResource),
        };
        if let Some(fault) = answer.own_fault() {
            self.report(fault, review);
        }
        answer.into_response(&review.uid)
    }

    fn report(&self, fault: Fault, review: &Review<'_>) {
        self.edge.metrics.fault(fault.code());
        let limit = self.logs.faults.get(fault as usize);
        let Some(suppressed) = limit.and_then(LogLimit::permit) else {
            return;
        };
        let error = match &review.subject {
            Subject::Unreadable(PodError::Shape(error)) => Some(JsonError::from(error).to_string()),
            Subject::Unreadable(PodError::TooLarge) => Some(PodError::TooLarge.to_string()),
            Subject::Pod(_) | Subject::Foreign => None,
        };
        let uid: String = review.uid.chars().take(LOGGED_UID).collect();
        let reason = fault.code();
        tracing::error!(reason, uid, error, suppressed, "Pod not mutated");
    }
}

impl Edge {
    fn decide(
        &self,
        request: &Request<'_>,
        namespace: Option<&KnownNamespace>,
    ) -> Result<Answer, Fault> {
        // One version for the whole review, whatever the watches bring meanwhile.
        let in_force = self.knowledge.in_force();
        let configuration = in_force
            .configuration
            .as_deref()
            .ok_or(Fault::ConfigurationNotLoaded)?;
        let context = Context {
            configuration,
            namespace: namespace.map(|namespace| &namespace.view),
            pull_secret: &in_force.pull_secret.known,
            trust_bundle: in_force.trust_bundle,
        };
        let decision = survive(|| decide(request, &context))?;
        self.count(request, &decision);
        Ok(Answer::decided(decision))
    }

    fn count(&self, request: &Request<'_>, decision: &Decision<'_>) {
        self.metrics.decided(request.operation, decision.changed());
        self.metrics.found(&decision.findings);
    }

    /// A Namespace that is not known yet; `None` if it does not become known in time.
    async fn await_namespace(&self, name: &str) -> Option<Arc<KnownNamespace>> {
        let mut revisions = self.knowledge.revisions();
        let arrival = async {
            loop {
                if let Some(namespace) = self.knowledge.namespace(name) {
                    return Some(namespace);
                }
                // Ends only with the knowledge itself.
                revisions.changed().await.ok()?;
            }
        };
        let namespace = timeout(self.patience, arrival).await.ok().flatten();
        self.metrics.waited_for_namespace(namespace.is_some());
        namespace
    }
}
