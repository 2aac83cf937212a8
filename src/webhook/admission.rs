//! `POST /mutate--v1-pod`: AdmissionReview in, AdmissionReview out.
//!
//! A Pod is never denied and never fails because of an error of this process: it is admitted unchanged with a warning
//! and a metric. A request that is not a review gets HTTP 400. Nothing of a request is logged but a malformed review's
//! kind and version, the position of an error, and 64 characters of the uid; and no client can cause a line with each
//! of its requests. The one await besides the body is for a Namespace that was not observed yet; it is bounded in
//! time and in number, and nothing but the body is held meanwhile: a parsed Pod may take eighty times its text.

mod answer;
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
use component_base::telemetry::{LogLimit, error_chain};
use policy::admission::review::{self, JsonError, PodError, Request, Review, ReviewError, Subject};
use policy::admission::{Context, decide};
use strum::{EnumCount, IntoStaticStr};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::snapshot::{KnownNamespace, SnapshotStore};

use self::answer::Answer;
pub use self::metrics::AdmissionMetrics;

/// How long a review may wait for the watch to bring its Namespace: a third of what the API server waits for the answer. A loaded
/// machine has taken more than 300 ms to deliver an event, and a Pod that is decided without its Namespace is missed.
const NAMESPACE_WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Reviews that may wait for their Namespace at a time, if each fits into one block: a quarter of the connections. A review
/// that waits keeps its connection and its body; any client could hold all of them with invented Namespaces, and the API
/// server would get no answer.
const NAMESPACE_WAITS: usize = 256;
/// Bytes of a waiting review that count as one wait, so that all of them hold at most 4 MiB, a quarter of what the server
/// keeps of bodies.
const NAMESPACE_WAIT_BLOCK: usize = 16 * 1024;

/// Characters of a uid that are logged; the API server's have 36.
const LOGGED_UID: usize = 64;

/// The least time between two lines of one kind. Each request is counted in the metrics all the same.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Why a Pod is admitted unchanged; the text is the warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, thiserror::Error)]
enum InternalError {
    #[error("runtime-bootstrapper: no valid configuration loaded, Pod not mutated")]
    ConfigurationNotLoaded,
    #[error("runtime-bootstrapper: invalid Pod, Pod not mutated")]
    InvalidPod,
    /// The rules of the webhook configuration send another kind.
    #[error("runtime-bootstrapper: expected a Pod, object not mutated")]
    UnexpectedResource,
    /// A decision panicked.
    #[error("runtime-bootstrapper: internal error, Pod not mutated")]
    Panic,
}

impl InternalError {
    /// The name of the variant: the label of metrics, and a reason in the audit annotation.
    fn code(self) -> &'static str {
        self.into()
    }
}

/// The routes of admission.
pub fn router(snapshots: SnapshotStore, metrics: AdmissionMetrics) -> Router {
    let endpoint = Endpoint {
        snapshots,
        metrics,
        malformed: LogLimit::new(LOG_INTERVAL),
        internal_errors: std::array::from_fn(|_| LogLimit::new(LOG_INTERVAL)),
        waits: Semaphore::new(NAMESPACE_WAITS),
    };
    Router::new()
        .route(WEBHOOK_PATH, post(admit))
        .with_state(Arc::new(endpoint))
}

/// What reviews are answered from, and one limit for each line that a request can cause.
struct Endpoint {
    snapshots: SnapshotStore,
    metrics: AdmissionMetrics,
    malformed: LogLimit,
    /// By the error's number.
    internal_errors: [LogLimit; InternalError::COUNT],
    /// What waits for Namespaces, in blocks.
    waits: Semaphore,
}

async fn admit(
    State(endpoint): State<Arc<Endpoint>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        // Cut off or too large; the server itself responds to the latter.
        return (StatusCode::BAD_REQUEST, "the body did not arrive\n").into_response();
    };
    let started = Instant::now();
    let response = endpoint.respond(&body).await;
    let duration = started.elapsed().as_secs_f64();
    endpoint.metrics.duration.observe(duration);
    response
}

/// A decision shares nothing but what it reads, so a panic leaves nothing half-done.
fn survive<T>(decision: impl FnOnce() -> T) -> Result<T, InternalError> {
    catch_unwind(AssertUnwindSafe(decision)).map_err(|_panic| InternalError::Panic)
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
        let known = self.snapshots.namespace(name);
        if known.is_some() || name.is_empty() || self.snapshots.configuration().is_none() {
            return self.answer(&review, known.as_deref());
        }
        let name = name.to_owned();
        drop(review);
        let known = self.await_namespace(&name, body.len()).await;
        match review::parse(body) {
            Ok(review) => self.answer(&review, known.as_deref()),
            Err(error) => self.reject(&error, body.len()),
        }
    }

    fn reject(&self, error: &ReviewError, bytes: usize) -> Response {
        self.metrics.malformed.inc();
        let error = error_chain(error);
        if let Some(suppressed) = self.malformed.permit() {
            tracing::warn!(error, bytes, suppressed, "malformed review rejected");
        }
        (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()
    }

    fn answer(&self, review: &Review<'_>, namespace: Option<&KnownNamespace>) -> Response {
        let answer = match &review.subject {
            Subject::Pod(request) => self.decide(request, namespace),
            Subject::Unreadable(_) => Err(InternalError::InvalidPod),
            Subject::Foreign => Err(InternalError::UnexpectedResource),
        };
        let answer = answer.unwrap_or_else(|error| {
            self.report(error, review);
            Answer::internal_error(error)
        });
        answer.into_response(&review.uid)
    }

    fn report(&self, internal: InternalError, review: &Review<'_>) {
        let errors = &self.metrics.internal_errors;
        errors.get_or_create(&[("reason", internal.code())]).inc();
        let limit = self.internal_errors.get(internal as usize);
        let Some(suppressed) = limit.and_then(LogLimit::permit) else {
            return;
        };
        let error = match &review.subject {
            Subject::Unreadable(PodError::Shape(error)) => Some(JsonError::from(error).to_string()),
            Subject::Unreadable(PodError::TooLarge) => Some(PodError::TooLarge.to_string()),
            Subject::Pod(_) | Subject::Foreign => None,
        };
        let uid: String = review.uid.chars().take(LOGGED_UID).collect();
        let reason = internal.code();
        tracing::error!(reason, uid, error, suppressed, "Pod not mutated");
    }

    fn decide(
        &self,
        request: &Request<'_>,
        namespace: Option<&KnownNamespace>,
    ) -> Result<Answer, InternalError> {
        // One revision for the whole review.
        let active = self.snapshots.active();
        let configuration = active
            .configuration
            .as_deref()
            .ok_or(InternalError::ConfigurationNotLoaded)?;
        let context = Context {
            configuration,
            namespace: namespace.map(|namespace| &namespace.view),
            pull_secret: &active.pull_secret.known,
            trust_bundle: active.trust_bundle,
            fallback_policy: self.snapshots.fallback_policy(),
        };
        let decision = survive(|| decide(request, &context))?;
        self.metrics.decided(request.operation, decision.changed());
        self.metrics.found(&decision.findings);
        Ok(Answer::decided(decision))
    }

    /// The Namespace of a review of so many bytes that is not known yet; `None` if it does not become known in time, or if
    /// too many reviews wait.
    async fn await_namespace(&self, name: &str, bytes: usize) -> Option<Arc<KnownNamespace>> {
        let waits = &self.metrics.namespace_waits;
        let blocks = u32::try_from(bytes.div_ceil(NAMESPACE_WAIT_BLOCK)).unwrap_or(u32::MAX);
        let Ok(_permit) = self.waits.try_acquire_many(blocks) else {
            waits.get_or_create(&[("result", "limit")]).inc();
            return None;
        };
        let mut changes = self.snapshots.changes();
        let arrival = changes.wait_for(|_| self.snapshots.namespace(name).is_some());
        // Without a result, or with the store gone, the look-up says that it is unknown.
        let _ = timeout(NAMESPACE_WAIT_TIMEOUT, arrival).await;
        let namespace = self.snapshots.namespace(name);
        let result = namespace.as_ref().map_or("timeout", |_| "found");
        waits.get_or_create(&[("result", result)]).inc();
        namespace
    }
}
