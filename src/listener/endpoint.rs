//! The HTTP face: two paths, and what happens to a request on them, in order.
//!
//! Invariant: who the sender is comes before what it sends, so no unauthenticated body is read; and every wait on
//! the way to the answer has an end.
//! Deliberately absent: sockets and TLS; contract versions other than `v2`, which are not found.

use std::sync::Arc;
use std::time::Duration;

use api::event::{
    BODY_BYTES, BOOT_ID_HEADER, BootId, EventError, Heartbeat, PathSegment, SEQUENCE_HEADER,
    WatchEvent, event_path, heartbeat_path,
};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use axum::{BoxError, Router};
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;
use serve::PeerCertificates;
use tokio::time::timeout;

use crate::answer::Refused;
use crate::authentication::{Authentication, CertificateCheck, is_gateway};
use crate::certificate::ClientCertificate;
use crate::forwarded::XFCC_HEADER;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::queue::{Event, Offer, Sender};

/// What all headers but the forwarded certificate may take together, names included.
const HEADER_BYTES: usize = 32 * 1024;

/// From the end of the header to the end of the body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);

/// What the requests of one listener share.
pub(crate) struct Endpoint {
    pub(crate) authentication: Authentication,
    /// The TLS peer's name, where peers have one.
    pub(crate) gateway: Option<String>,
    pub(crate) queue: Sender,
    pub(crate) liveness: Liveness,
    pub(crate) metrics: Metrics,
    pub(crate) retry_after: HeaderValue,
}

/// A sender whose certificate holds, and who judges it.
struct Sent<'a> {
    check: &'a CertificateCheck,
    client: Arc<ClientCertificate>,
}

/// The paths of `component`.
pub(crate) fn router(endpoint: Arc<Endpoint>, component: &PathSegment) -> Router {
    let v2 = PathSegment::V2;
    let mut routes = Router::new().route(&event_path(&v2, component), post(event));
    if matches!(endpoint.authentication, Authentication::Certificate(_)) {
        // Without an identity there is nobody to whom a heartbeat belongs; 404 tells the watcher to stop.
        routes = routes.route(&heartbeat_path(&v2, component), post(heartbeat));
    }
    routes
        .route_layer(middleware::from_fn_with_state(
            Arc::clone(&endpoint),
            measure,
        ))
        .layer(middleware::map_response(close_after_refusal))
        .with_state(endpoint)
}

async fn measure(State(endpoint): State<Arc<Endpoint>>, request: Request, next: Next) -> Response {
    let measured = endpoint.metrics.begin();
    let response = next.run(request).await;
    measured.answered(response.status());
    response
}

/// Whoever sent something wrong has perhaps sent more; its next request begins on a clean connection.
async fn close_after_refusal(mut response: Response) -> Response {
    if response.status().is_client_error() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

async fn event(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let outcome = endpoint.accept_event(request).await;
    endpoint.answer(&path, outcome)
}

async fn heartbeat(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let outcome = endpoint.accept_heartbeat(request).await;
    endpoint.answer(&path, outcome)
}

impl Endpoint {
    async fn accept_event(&self, request: Request) -> Result<(), Refused> {
        let (head, body) = request.into_parts();
        let sent = self.sender(&head)?;
        let event = WatchEvent::parse(&read(body).await?).map_err(Refused::Body)?;
        let runtime_id = match &sent {
            Some(sent) => Some(sent.check.runtime(&sent.client, Some(&event)).await?),
            None => None,
        };
        let WatchEvent {
            watched,
            watched_gvk,
        } = event;
        self.enqueue(Event {
            runtime_id: runtime_id.clone(),
            watched,
            watched_gvk,
        })?;
        if let Some(runtime_id) = runtime_id {
            self.liveness.event(&runtime_id, number(&head.headers));
        }
        Ok(())
    }

    async fn accept_heartbeat(&self, request: Request) -> Result<(), Refused> {
        let (head, body) = request.into_parts();
        let sent = self.sender(&head)?;
        let heartbeat = Heartbeat::parse(&read(body).await?).map_err(Refused::Body)?;
        if let Some(Sent { check, client }) = sent {
            let runtime_id = check.runtime(&client, None).await?;
            self.liveness.heartbeat(&runtime_id, heartbeat);
        }
        Ok(())
    }

    /// Who sent the request; `None` if nobody asks.
    fn sender(&self, head: &Parts) -> Result<Option<Sent<'_>>, Refused> {
        if header_bytes(&head.headers) > HEADER_BYTES {
            return Err(Refused::HeaderTooLarge);
        }
        if let Some(gateway) = &self.gateway {
            let peer = head.extensions.get::<PeerCertificates>();
            let leaf = peer.and_then(|PeerCertificates(chain)| chain.first());
            if !leaf.is_some_and(|leaf| is_gateway(leaf, gateway)) {
                return Err(Refused::NotTheGateway);
            }
        }
        match &self.authentication {
            Authentication::None => Ok(None),
            Authentication::Certificate(check) => {
                let client = check.client(&head.headers)?;
                Ok(Some(Sent { check, client }))
            }
        }
    }

    fn enqueue(&self, event: Event) -> Result<(), Refused> {
        let offer = self.queue.offer(event);
        let metrics = &self.metrics;
        match offer {
            Offer::Accepted => metrics.accepted.inc(),
            Offer::Coalesced => metrics.coalesced.inc(),
            Offer::Full | Offer::Abandoned => metrics.turned_away.inc(),
        };
        match offer {
            Offer::Accepted | Offer::Coalesced => Ok(()),
            Offer::Full => Err(Refused::QueueFull),
            Offer::Abandoned => Err(Refused::Abandoned),
        }
    }

    fn answer(&self, path: &str, outcome: Result<(), Refused>) -> Response {
        let Err(refused) = outcome else {
            return Response::default();
        };
        if refused.is_verification() {
            self.metrics.refuse(path);
        }
        let (status, reason) = (refused.status(), refused.reason());
        if status.is_server_error() {
            // May concern the whole fleet at once; the metrics tell it.
            tracing::debug!(%status, reason, "request rejected, to be retried");
        } else {
            tracing::info!(%status, reason, "request rejected");
        }
        refused.response(&self.retry_after)
    }
}

/// The whole body, within its bounds.
async fn read(body: Body) -> Result<Bytes, Refused> {
    let too_large = || Refused::Body(EventError::TooLarge);
    if body.size_hint().lower() > u64::try_from(BODY_BYTES).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let whole = timeout(BODY_PATIENCE, Limited::new(body, BODY_BYTES).collect());
    match whole.await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if is_length_limit(&error) => Err(too_large()),
        Ok(Err(_lost)) => Err(Refused::BodyLost),
        Err(_elapsed) => Err(Refused::BodyLate),
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

/// Which event of which life of the watcher this is. Public watchers do not say; a number that cannot be read is none,
/// since the event counts more than the bookkeeping.
fn number(headers: &HeaderMap) -> Option<(BootId, u64)> {
    let text = |name| headers.get(name)?.to_str().ok();
    let boot_id = BootId::parse(text(BOOT_ID_HEADER)?).ok()?;
    Some((boot_id, text(SEQUENCE_HEADER)?.parse().ok()?))
}
