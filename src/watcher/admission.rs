//! `/validate/<manager>`: reads an AdmissionReview, puts an event into the outbox, and responds with an AdmissionReview.
//!
//! A valid review is always allowed, regardless of the result of its event. Only in the mode [`DeliveryMode::Sync`] the
//! response waits for KCP. A body that is not a review gets a 4xx with a reason, where the public watcher responds 200 with
//! an empty body. The server below limits the size of bodies. The API server presents no client certificate, so any client
//! can post a review; an event is therefore only a hint.

mod answer;
mod log;
mod sync_delivery;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use policy::change::{Field, Outcome, ReviewDecision, ReviewError, SkipReason, Watcher, decide};
use watcher_types::{PathSegment, WatchEvent};

use crate::heartbeat::ReviewActivity;
use crate::metrics::WatcherMetrics;
use crate::outbox::{Outbox, Stored};

use self::answer::{Answer, FAILED, QUEUED, QUEUED_IN_MEMORY, refusal};
pub use self::log::RequestLog;
pub use self::sync_delivery::{DeliveryMode, MAX_SYNC_DELIVERIES, SyncDelivery};

/// Prefix of the path of a review. The name of the manager follows.
pub const PATH: &str = "/validate/";

/// Response to a review for a manager for which no events are stored.
const NOT_CONFIGURED: &str = "the manager in the path is not configured";

/// Service that responds to reviews.
#[derive(Clone)]
pub struct AdmissionService {
    /// Rules that select the changes that are sent.
    pub watchers: Watchers,
    /// Outbox into which events are put.
    pub outbox: Outbox,
    /// When events are delivered.
    pub delivery_mode: DeliveryMode,
    /// Metrics of the endpoint.
    pub metrics: WatcherMetrics,
    /// Counts of reviews that heartbeats report.
    pub reviews: ReviewActivity,
    /// Log of bad requests.
    pub log: RequestLog,
}

/// Returns the router of the admission endpoint. It accepts any method, as the public watcher does.
pub fn router(service: AdmissionService) -> Router {
    Router::new().fallback(admit).with_state(Arc::new(service))
}

async fn admit(State(service): State<Arc<AdmissionService>>, request: Request) -> Response {
    let uri = request.uri().clone();
    let Some(manager) = uri.path().strip_prefix(PATH) else {
        return refusal(StatusCode::NOT_FOUND, format!("only {PATH}MANAGER is here"));
    };
    service.metrics.reviews.inc();
    let manager = match service.manager(manager) {
        Ok(manager) => manager,
        Err(refused) => return *refused,
    };
    // The body is read only now, so that a request for another path gets its response before its body is read.
    let mut review = UnreadReview(Some((&service.outbox, &manager)));
    let Ok(body) = Bytes::from_request(request, &()).await else {
        // The server replaces the response if the body is too large, too slow, or one of too many.
        return refusal(StatusCode::BAD_REQUEST, "body not received".to_owned());
    };
    review.0 = None;
    let started = Instant::now();
    let response = service.answer(&manager, &uri, body).await;
    service.metrics.answered(started.elapsed());
    response
}

/// A review whose body is being read. If that fails, or the server gives up the request, a change may be missed.
struct UnreadReview<'a>(Option<(&'a Outbox, &'a PathSegment)>);

impl Drop for UnreadReview<'_> {
    fn drop(&mut self) {
        if let Some((outbox, manager)) = self.0 {
            outbox.mark_unread(manager, Instant::now());
        }
    }
}

impl AdmissionService {
    /// Returns the manager that the path names after [`PATH`], or the response if no events are stored for the manager. The
    /// body is not read before.
    fn manager(&self, name: &str) -> Result<PathSegment, Box<Response>> {
        if name.is_empty() {
            let text = format!("no manager follows {PATH} in the path");
            return Err(Box::new(refusal(StatusCode::NOT_FOUND, text)));
        }
        let manager = PathSegment::parse(name)
            .map_err(|error| Box::new(refusal(StatusCode::BAD_REQUEST, error.to_string())))?;
        if self.outbox.admits(&manager) {
            Ok(manager)
        } else {
            Err(Box::new(self.not_configured()))
        }
    }

    fn not_configured(&self) -> Response {
        self.metrics.not_configured();
        refusal(StatusCode::NOT_FOUND, NOT_CONFIGURED.to_owned())
    }

    async fn answer(&self, manager: &PathSegment, uri: &Uri, body: Bytes) -> Response {
        let decision = match self.watchers.decide(manager, &body) {
            Some(Ok(decision)) => decision,
            Some(Err(error)) => return self.reject(manager, &error, body.len()),
            None => return self.not_configured(),
        };
        // Frees the memory of the body before waiting for the disk or KCP.
        drop(body);
        self.reviews.record(manager);
        let answer = match &decision.outcome {
            Outcome::Skip(reason) => self.skip(manager, reason, &decision.uid),
            Outcome::Send(event) => {
                self.metrics.events.inc();
                match &self.delivery_mode {
                    DeliveryMode::Async => self.keep(manager, event).await,
                    DeliveryMode::Sync(delivery) => {
                        let limit = sync_delivery::answer_timeout(uri.query());
                        self.deliver(delivery, manager, event, limit).await
                    }
                }
            }
        };
        answer.into_response(&decision)
    }

    /// Puts the event into the outbox, which delivers it after the response.
    async fn keep(&self, manager: &PathSegment, event: &WatchEvent) -> Answer {
        let message = match self.put(manager, event).await {
            Stored::Full => {
                format!("{FAILED}\nthe outbox is full; a resync is pending")
            }
            Stored::TooManyManagers => {
                format!("{FAILED}\nthere are too many managers; no event sent")
            }
            Stored::NotConfigured => format!("{FAILED}\n{NOT_CONFIGURED}"),
            Stored::Spooled | Stored::Coalesced => QUEUED.to_owned(),
            Stored::MemoryOnly => QUEUED_IN_MEMORY.to_owned(),
        };
        Answer {
            message,
            warning: None,
        }
    }

    async fn put(&self, manager: &PathSegment, event: &WatchEvent) -> Stored {
        let stored = self.outbox.put_forced(manager, event, Instant::now()).await;
        self.metrics.stored(stored.name());
        stored
    }

    fn skip(&self, manager: &PathSegment, reason: &SkipReason, uid: &str) -> Answer {
        self.metrics.skipped(reason);
        let fault = reason.is_fault();
        if fault {
            self.log.unseen(reason, uid);
            self.outbox.mark_unread(manager, Instant::now());
        }
        Answer {
            message: reason.to_string(),
            warning: fault.then(|| format!("kyma watcher: {reason}; no event sent")),
        }
    }

    fn reject(&self, manager: &PathSegment, error: &ReviewError, bytes: usize) -> Response {
        self.metrics.rejected.inc();
        self.outbox.mark_unread(manager, Instant::now());
        let reason = log::reason(error);
        self.log.malformed(&reason, bytes);
        refusal(StatusCode::BAD_REQUEST, reason)
    }
}

/// The changes that are sent.
///
/// The default is the behavior of the public watcher: any manager in the path of a review, and each change that [`decide`]
/// finds in the reviews that the API server sends. The webhook rules of the API server are generated from the Watchers, so
/// a second list is not required.
#[derive(Clone, Debug, Default)]
pub struct Watchers {
    listed: Vec<Watcher>,
}

impl Watchers {
    /// Returns the rules of these Watchers. Several of them may name one manager. An empty list is the default.
    #[must_use]
    pub fn listed(listed: Vec<Watcher>) -> Self {
        Self { listed }
    }

    /// Decides on a review for `manager`; `None` if no Watcher on the list is of this manager.
    pub(super) fn decide(
        &self,
        manager: &PathSegment,
        body: &[u8],
    ) -> Option<Result<ReviewDecision, ReviewError>> {
        if self.listed.is_empty() {
            let any = Watcher {
                manager: manager.clone(),
                field: Field::Spec,
                resources: Vec::new(),
            };
            return Some(decide(&any, body));
        }
        let mut decision = None;
        for watcher in self.listed.iter().filter(|it| it.manager == *manager) {
            match decide(watcher, body) {
                Ok(next) => decision = Some(more_relevant(decision, next)),
                Err(error) => return Some(Err(error)),
            }
        }
        decision.map(Ok)
    }
}

/// Returns the more relevant of two decisions. A decision that sends an event has priority, then the decision whose Watcher
/// matches more of the review.
fn more_relevant(one: Option<ReviewDecision>, other: ReviewDecision) -> ReviewDecision {
    let rank = |decision: &ReviewDecision| match &decision.outcome {
        Outcome::Send(_) => 3,
        Outcome::Skip(SkipReason::NotWatched { .. }) => 0,
        Outcome::Skip(SkipReason::InvalidSubresource { .. }) => 1,
        Outcome::Skip(_) => 2,
    };
    match one {
        Some(one) if rank(&one) >= rank(&other) => one,
        _ => other,
    }
}
