//! The two paths of the listener, and the processing of a request.
//!
//! Invariant: the sender is authenticated before its body is read, and every wait has a timeout.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::Response;
use axum::routing::post;
use axum::{BoxError, Router};
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use tokio::time::{MissedTickBehavior, timeout};
use watcher_types::{
    BODY_BYTES, BOOT_ID_HEADER, BootId, EventError, Heartbeat, PathSegment, SEQUENCE_HEADER,
    WatchEvent, event_path, heartbeat_path,
};

use crate::authentication::{Authentication, CertificateCheck};
use crate::certificate::{ClientCertificate, RuntimeId};
use crate::liveness::Liveness;
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::queue::{EnqueueResult, Event, Notification, Sender};
use crate::rejection::{Rejection, RejectionLog};
use crate::xfcc::XFCC_HEADER;

/// Maximum size of all headers except the forwarded certificate, including names.
const HEADER_BYTES: usize = 32 * 1024;

/// Maximum time from the end of the headers to the end of the body, for a gateway with a slow connection.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// State that the requests of one listener share.
pub(crate) struct Endpoint {
    pub(crate) authentication: Authentication,
    /// Required identity of a TLS peer.
    #[cfg(feature = "tls")]
    pub(crate) gateway: Option<crate::tls::Gateway>,
    pub(crate) queue: Sender,
    pub(crate) liveness: Liveness,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Metrics,
    pub(crate) log: RejectionLog,
    pub(crate) retry_after: HeaderValue,
}

/// An authenticated sender.
enum Peer<'a> {
    Client(&'a CertificateCheck, Arc<ClientCertificate>),
    Anyone(&'a RuntimeId),
}

/// Returns the router with the paths of `component`.
pub(crate) fn router(endpoint: Arc<Endpoint>, component: &PathSegment) -> Router {
    let v2 = PathSegment::V2;
    let mut routes = Router::new().route(&event_path(&v2, component), post(event));
    if matches!(endpoint.authentication, Authentication::Certificate(_)) {
        // A 404 makes watchers stop heartbeats.
        routes = routes.route(&heartbeat_path(&v2, component), post(heartbeat));
    }
    #[cfg(feature = "metrics")]
    let routes = endpoint.metrics.measure(routes);
    routes
        .layer(middleware::map_response(close_after_rejection))
        .with_state(endpoint)
}

/// Closes the connection after a rejection. The client may have sent more invalid data, so its next request must use a new
/// connection.
async fn close_after_rejection(mut response: Response) -> Response {
    let status = response.status();
    if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

async fn event(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let result = endpoint.accept_event(&head, body).await;
    endpoint.respond(&head, result)
}

async fn heartbeat(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let result = endpoint.accept_heartbeat(&head, body).await;
    endpoint.respond(&head, result)
}

impl Endpoint {
    /// Checks liveness periodically.
    pub(crate) async fn keep_checking(&self) -> Infallible {
        let mut ticks = tokio::time::interval(self.liveness.check_interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.liveness.check(&self.queue);
        }
    }

    async fn accept_event(&self, head: &Parts, body: Body) -> Result<(), Rejection> {
        let peer = self.peer(head)?;
        let event = WatchEvent::parse(&read(body).await?).map_err(Rejection::Body)?;
        let event = Arc::new(event);
        let (runtime_id, has_watcher) = match peer {
            Peer::Client(check, client) => {
                let runtime = check.runtime(client, Some(Arc::clone(&event)));
                (runtime.await?, true)
            }
            Peer::Anyone(runtime_id) => (runtime_id.clone(), false),
        };
        let event = Arc::unwrap_or_clone(event);
        let result = self.queue.enqueue(Notification::Changed(Event {
            runtime_id: runtime_id.clone(),
            watched: event.watched,
            watched_gvk: event.watched_gvk,
        }));
        #[cfg(feature = "metrics")]
        self.metrics.enqueued(result);
        accepted(result)?;
        if has_watcher {
            self.liveness.event(&runtime_id, number(&head.headers));
        }
        Ok(())
    }

    async fn accept_heartbeat(&self, head: &Parts, body: Body) -> Result<(), Rejection> {
        let peer = self.peer(head)?;
        let heartbeat = Heartbeat::parse(&read(body).await?).map_err(Rejection::Body)?;
        let Peer::Client(check, client) = peer else {
            return Ok(());
        };
        let runtime_id = check.runtime(client, None).await?;
        let result = self.liveness.heartbeat(&runtime_id, heartbeat, &self.queue);
        accepted(result)
    }

    fn peer(&self, head: &Parts) -> Result<Peer<'_>, Rejection> {
        if header_bytes(&head.headers) > HEADER_BYTES {
            return Err(Rejection::HeaderTooLarge);
        }
        #[cfg(feature = "tls")]
        if let Some(gateway) = &self.gateway
            && !gateway.has_sent(head)
        {
            return Err(Rejection::NotTheGateway);
        }
        match &self.authentication {
            Authentication::Certificate(check) => {
                Ok(Peer::Client(check, check.client(&head.headers)?))
            }
            Authentication::Disabled { runtime_id } => Ok(Peer::Anyone(runtime_id)),
        }
    }

    fn respond(&self, head: &Parts, result: Result<(), Rejection>) -> Response {
        let Err(rejection) = result else {
            return Response::default();
        };
        #[cfg(feature = "metrics")]
        self.metrics.rejection(&rejection, head.uri.path());
        let claimed = match &self.authentication {
            Authentication::Certificate(check) => check.claimed(&head.headers),
            Authentication::Disabled { .. } => None,
        };
        if let Some(name) = claimed.as_ref().and_then(|it| it.common_name()) {
            self.liveness.rejected(name, rejection.text());
        }
        self.log.write(&rejection, claimed.as_ref(), head);
        rejection.response(&self.retry_after)
    }
}

fn accepted(result: EnqueueResult) -> Result<(), Rejection> {
    match result {
        EnqueueResult::Accepted | EnqueueResult::Coalesced => Ok(()),
        EnqueueResult::RuntimeLimit => Err(Rejection::RuntimeLimit),
        EnqueueResult::Full => Err(Rejection::QueueFull),
        EnqueueResult::Closed => Err(Rejection::QueueClosed),
    }
}

/// Reads the body, within its limits.
async fn read(body: Body) -> Result<Bytes, Rejection> {
    let too_large = || Rejection::Body(EventError::TooLarge);
    if body.size_hint().lower() > u64::try_from(BODY_BYTES).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let whole = timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES).collect());
    match whole.await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(_lost)) => Err(Rejection::BodyIncomplete),
        Err(_elapsed) => Err(Rejection::BodyTimeout),
    }
}

fn is_length_limit(error: &BoxError) -> bool {
    error.is::<LengthLimitError>()
}

fn header_bytes(headers: &HeaderMap) -> usize {
    let others = headers.iter().filter(|(name, _)| *name != XFCC_HEADER);
    others
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum()
}

/// Returns the boot ID and the sequence number of an event. Public watchers send none. Invalid values are ignored, so that
/// the event is not lost.
fn number(headers: &HeaderMap) -> Option<(BootId, u64)> {
    let text = |name| headers.get(name)?.to_str().ok();
    let boot_id = BootId::parse(text(BOOT_ID_HEADER)?).ok()?;
    Some((boot_id, text(SEQUENCE_HEADER)?.parse().ok()?))
}
