//! `/validate/<manager>`: AdmissionReview in, event into the outbox, AdmissionReview out.
//!
//! Invariant: a proper review is allowed, whatever becomes of its event, and its answer waits for KCP in the mode
//! [`Notify::Sync`] alone. What is no review gets a 4xx with a reason, where the public watcher answers 200 with nothing.
//! Bodies are bounded by the server below. Deliberately absent: whether a change is worth an event
//! (`policy::change`), and who the caller is: the API server shows no certificate, and an event is but a hint.

mod answer;
mod log;
mod now;
mod watchers;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use api::event::{PathSegment, WatchEvent};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use policy::change::{Outcome, ReviewError, Silence};

use crate::metrics::WatcherMetrics;
use crate::outbox::{Outbox, Stored};

use self::answer::{Answer, FAILED, QUEUED, QUEUED_IN_MEMORY, refusal};
pub use self::log::RequestLog;
pub use self::now::Notify;
pub use self::watchers::Watchers;

/// What the path of a review begins with; the manager follows.
pub const PATH: &str = "/validate/";

/// The answer to a review for a manager that events are not kept for.
const NOT_CONFIGURED: &str = "the manager in the path is not configured";

/// What answers reviews.
#[derive(Clone)]
pub struct Edge {
    /// Which changes are sent.
    pub watchers: Watchers,
    /// Where events go.
    pub outbox: Outbox,
    /// When KCP is told.
    pub notify: Notify,
    /// What is counted.
    pub metrics: WatcherMetrics,
    /// What is logged of bad requests.
    pub log: RequestLog,
}

/// The routes of admission. Any method is taken, as the public watcher does.
pub fn router(edge: Edge) -> Router {
    Router::new().fallback(admit).with_state(Arc::new(edge))
}

async fn admit(State(edge): State<Arc<Edge>>, request: Request) -> Response {
    let uri = request.uri().clone();
    let Some(manager) = uri.path().strip_prefix(PATH) else {
        return refusal(StatusCode::NOT_FOUND, format!("only {PATH}MANAGER is here"));
    };
    edge.metrics.asked();
    let manager = match edge.manager(manager) {
        Ok(manager) => manager,
        Err(refused) => return *refused,
    };
    // Read only now: a request for another path is answered before its body.
    let Ok(body) = Bytes::from_request(request, &()).await else {
        // Cut off or too large: the server below answers the latter, and for the former nobody listens.
        return refusal(StatusCode::BAD_REQUEST, "body not received".to_owned());
    };
    let started = Instant::now();
    let response = edge.answer(&manager, &uri, &body).await;
    edge.metrics.answered(started.elapsed());
    response
}

impl Edge {
    /// The manager that a path names behind [`PATH`]; of one that is not told the answer, before the body is read.
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

    async fn answer(&self, manager: &PathSegment, uri: &Uri, body: &[u8]) -> Response {
        let verdict = match self.watchers.decide(manager, body) {
            Some(Ok(verdict)) => verdict,
            Some(Err(error)) => return self.reject(&error, body.len()),
            None => return self.not_configured(),
        };
        let answer = match &verdict.outcome {
            Outcome::Send(event) => self.tell(manager, event, uri).await,
            Outcome::Silent(silence) => self.pass(silence, &verdict.uid),
        };
        answer.into_response(&verdict)
    }

    async fn tell(&self, manager: &PathSegment, event: &WatchEvent, uri: &Uri) -> Answer {
        self.metrics.to_be_told();
        match &self.notify {
            Notify::Spool => self.keep(manager, event),
            Notify::Sync(channel) => {
                let patience = now::patience(uri.query());
                self.tell_now(channel, manager, event, patience).await
            }
        }
    }

    /// Into the outbox; from there it is delivered after the answer.
    fn keep(&self, manager: &PathSegment, event: &WatchEvent) -> Answer {
        let stored = self.outbox.put(manager, event, Instant::now());
        self.metrics.stored(stored.name());
        let message = match stored {
            Stored::Full => {
                format!("{FAILED}\nthe outbox is full; KCP is told to look at everything")
            }
            Stored::TooManyManagers => {
                format!("{FAILED}\nthere are too many managers; KCP is not told")
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

    fn pass(&self, silence: &Silence, uid: &str) -> Answer {
        self.metrics.silent(silence);
        let fault = silence.is_fault();
        if fault {
            self.log.unseen(silence, uid);
        }
        Answer {
            message: silence.to_string(),
            warning: fault.then(|| format!("kyma watcher: {silence}; KCP is not told")),
        }
    }

    fn reject(&self, error: &ReviewError, bytes: usize) -> Response {
        self.metrics.rejected();
        let reason = log::reason(error);
        self.log.malformed(&reason, bytes);
        refusal(StatusCode::BAD_REQUEST, reason)
    }
}
