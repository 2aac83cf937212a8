//! One request and its response: bounds in front of the router, manners behind it.
//!
//! Invariant: every request whose header was read gets exactly one response, whatever the router does. The
//! router is not asked about a request that is refused here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit};
use futures::FutureExt as _;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::body::{BodyFault, BoundedBody, ClosingBody};
use crate::framing::is_framed_twice;
use crate::pulse::Pulse;
use crate::server::Shared;

/// The peer's certificates, leaf first, as the handshake verified them. A request extension, present only if
/// the [`rustls::ServerConfig`] asks for client certificates and the peer gave one.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// What all requests of one connection share.
pub(crate) struct Exchange {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) peer: SocketAddr,
    pub(crate) certificates: Option<PeerCertificates>,
    /// From then on responses ask the peer to dial again.
    pub(crate) expires: Option<Instant>,
}

/// Why the server answers in the router's place.
enum Refusal {
    FramedTwice,
    TooLarge,
    TooSlow,
    OverBudget,
    Panicked,
}

impl Exchange {
    /// Answers one request. The part before the first await runs inside hyper's parsing, when the raw header
    /// that the pulse has kept is this request's.
    pub(crate) fn call(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ClosingBody>, Infallible>> + use<> {
        let headers = request.headers();
        let has_body =
            headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        let method = request.method().as_str();
        let refused = self
            .pulse
            .begin(|header| has_body && is_framed_twice(header, method));
        self.shared.statistics.counters().requests.add_one();

        let exchange = Arc::clone(self);
        async move {
            let outcome = if refused {
                exchange.pulse.leave_unread();
                Err(Refusal::FramedTwice)
            } else {
                exchange.route(request).await
            };
            Ok(exchange.finish(outcome))
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let limits = &self.shared.limits;
        let share = self.shared.bodies.share();
        let request =
            request.map(|body| BoundedBody::new(body, limits, share, Arc::clone(&self.pulse)));
        if request.body().is_announced_too_large() {
            return Err(Refusal::TooLarge);
        }
        let report = request.body().report();
        let mut request = request.map(BoundedBody::into_body);
        // axum's extractors would stop at 2 MB; the body is bounded already.
        DefaultBodyLimit::disable().apply(&mut request);
        request.extensions_mut().insert(ConnectInfo(self.peer));
        if let Some(certificates) = &self.certificates {
            request.extensions_mut().insert(certificates.clone());
        }

        let answer = AssertUnwindSafe(self.shared.router.clone().oneshot(request))
            .catch_unwind()
            .await;
        // The handler has seen an error where the body was cut, and cannot know what it means on the wire.
        match report.fault() {
            Some(BodyFault::TooLarge) => return Err(Refusal::TooLarge),
            Some(BodyFault::TooSlow) => return Err(Refusal::TooSlow),
            Some(BodyFault::OverBudget) => return Err(Refusal::OverBudget),
            None => {}
        }
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(_panic) => Err(Refusal::Panicked),
        }
    }

    fn finish(&self, outcome: Result<Response<Body>, Refusal>) -> Response<ClosingBody> {
        let mut response = outcome.unwrap_or_else(|refusal| {
            refusal.count(&self.shared);
            refusal.response(&self.shared)
        });
        if self.ends() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        response.map(|body| ClosingBody::new(body, Arc::clone(&self.pulse)))
    }

    /// Whether this response is the connection's last. Behind a body that was not read to its end there is no
    /// next request to find.
    fn ends(&self) -> bool {
        self.pulse.is_unread()
            || self.shared.closing.is_cancelled()
            || self.expires.is_some_and(|at| Instant::now() >= at)
    }
}

impl Refusal {
    fn count(&self, shared: &Shared) {
        let counters = shared.statistics.counters();
        match self {
            Self::FramedTwice => counters.bad_requests.add_one(),
            Self::TooLarge => counters.body_too_large.add_one(),
            Self::TooSlow => counters.body_timeouts.add_one(),
            Self::OverBudget => counters.body_over_budget.add_one(),
            Self::Panicked => counters.panics.add_one(),
        }
    }

    fn response(&self, shared: &Shared) -> Response<Body> {
        let (status, text) = match self {
            Self::FramedTwice => (
                StatusCode::BAD_REQUEST,
                "the length of the body is given twice\n".to_owned(),
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                too_large(shared.limits.body_bytes),
            ),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, too_slow(shared.limits.body)),
            Self::OverBudget => (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many bytes of request bodies in flight\n".to_owned(),
            ),
            Self::Panicked => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error\n".to_owned(),
            ),
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        response
    }
}

fn too_large(limit: usize) -> String {
    format!("the body is larger than {limit} bytes\n")
}

fn too_slow(limit: Duration) -> String {
    format!("the body did not arrive within {limit:?}\n")
}
