//! `POST /mutate--v1-pod`: receives an AdmissionReview, and responds with an AdmissionReview.
//!
//! A Pod is never denied and never fails because of an error of this process: it is admitted unchanged with a warning and a
//! metric. A request that is not a review gets HTTP 400. Logs contain no content of a request except the kind and version
//! of a malformed review, the position of an error, and 64 characters of the UID. A client cannot cause a log message with
//! each of its requests. Except for the body, the handler only awaits a Namespace that was not observed yet. The duration
//! and the number of these waits are limited. During a wait only the body is kept in memory, because a parsed Pod may take
//! eighty times the size of its text.

mod answer;
mod metrics;

#[cfg(test)]
mod tests;

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
use policy::admission::decide;
use policy::admission::review::{self, JsonError, PodError, Request, Review, ReviewError, Subject};
use strum::{EnumCount, EnumIter, IntoStaticStr};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::snapshot::{KnownNamespace, SnapshotStore};
use crate::survive;

use self::answer::Answer;
pub use self::metrics::AdmissionMetrics;

/// Maximum time that a review waits until the watch has observed its Namespace: a third of the webhook timeout of the API
/// server. On a loaded machine the delivery of an event has taken more than 300 ms, and a Pod that is decided without its
/// Namespace is missed.
const NAMESPACE_WAIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of reviews that wait for their Namespace at a time, if each fits into one block: a quarter of the
/// connections. A waiting review occupies its connection and its body. Without a limit, any client could block all
/// connections with invented Namespaces, and the API server would get no response.
const NAMESPACE_WAITS: usize = 256;
/// Number of bytes of a waiting review that count as one wait, so that all of them take at most 4 MiB, a quarter of the
/// body budget of the server.
const NAMESPACE_WAIT_BLOCK: usize = 16 * 1024;

/// Maximum number of logged characters of a UID. A UID of the API server has 36.
const LOGGED_UID: usize = 64;

/// Minimum time between two messages of one kind. The metrics count each request nevertheless.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Reason why a Pod is admitted unchanged. The text is the warning.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumCount, EnumIter, IntoStaticStr, thiserror::Error,
)]
enum InternalError {
    #[error("runtime-bootstrapper: no valid configuration loaded, Pod not mutated")]
    ConfigurationNotLoaded,
    #[error("runtime-bootstrapper: invalid Pod, Pod not mutated")]
    InvalidPod,
    /// The rules of the webhook configuration select another kind.
    #[error("runtime-bootstrapper: expected a Pod, object not mutated")]
    UnexpectedResource,
    /// The decision panicked.
    #[error("runtime-bootstrapper: internal error, Pod not mutated")]
    Panic,
}

impl InternalError {
    /// Returns the name of the variant, which is the label value of metrics, and a reason in the audit annotation.
    fn code(self) -> &'static str {
        self.into()
    }
}

/// Returns the router of the admission endpoint.
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

/// Shared state of the endpoint, with one rate limit for each log message that a request can cause.
struct Endpoint {
    snapshots: SnapshotStore,
    metrics: AdmissionMetrics,
    malformed: LogLimit,
    /// Rate limits, by the index of the error.
    internal_errors: [LogLimit; InternalError::COUNT],
    /// Permits for waits for Namespaces, in blocks.
    waits: Semaphore,
}

async fn admit(
    State(endpoint): State<Arc<Endpoint>>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else {
        // The body is incomplete or too large. In the second case the server itself responds.
        return (StatusCode::BAD_REQUEST, "the body did not arrive\n").into_response();
    };
    let started = Instant::now();
    let response = endpoint.respond(&body).await;
    let duration = started.elapsed().as_secs_f64();
    endpoint.metrics.duration.observe(duration);
    response
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
        // The whole review uses one revision.
        let active = self.snapshots.active();
        let fallback_policy = self.snapshots.fallback_policy();
        let context = active
            .context(&request.namespace, namespace, fallback_policy)
            .ok_or(InternalError::ConfigurationNotLoaded)?;
        let decision = survive(|| decide(request, &context)).ok_or(InternalError::Panic)?;
        self.metrics.decided(request.operation, decision.changed());
        self.metrics.found(&decision.findings);
        Ok(Answer::decided(decision))
    }

    /// Waits for the Namespace of a review with this number of bytes. Returns `None` if the Namespace is not observed in
    /// time, or if too many reviews wait.
    async fn await_namespace(&self, name: &str, bytes: usize) -> Option<Arc<KnownNamespace>> {
        let waits = &self.metrics.namespace_waits;
        let blocks = u32::try_from(bytes.div_ceil(NAMESPACE_WAIT_BLOCK)).unwrap_or(u32::MAX);
        let Ok(_permit) = self.waits.try_acquire_many(blocks) else {
            waits.get_or_create(&[("result", "limit")]).inc();
            return None;
        };
        let mut changes = self.snapshots.changes();
        let arrival = changes.wait_for(|_| self.snapshots.namespace(name).is_some());
        // After a timeout, or if the store was dropped, the lookup returns that the Namespace is unknown.
        let _ = timeout(NAMESPACE_WAIT_TIMEOUT, arrival).await;
        let namespace = self.snapshots.namespace(name);
        let result = namespace.as_ref().map_or("timeout", |_| "found");
        waits.get_or_create(&[("result", result)]).inc();
        namespace
    }
}
