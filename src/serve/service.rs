//! One request and its response: bounds in front of the router, `Connection: close` behind it.
//!
//! Invariant: every request whose header was read gets exactly one response, whatever the router does. The
//! router is not asked about a request that is refused here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit};
use axum::response::IntoResponse as _;
use futures::FutureExt as _;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::body::{BodyFault, ClosingBody, bounded};
use crate::metrics::Counter;
use crate::server::Shared;
use crate::state::ConnectionState;

/// What all requests of one connection share.
pub(crate) struct RequestService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) peer: SocketAddr,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<crate::tls::PeerCertificates>,
    /// From then on responses ask the peer to dial again.
    pub(crate) expires: Option<Instant>,
}

/// Why the server answers in the router's place.
enum Refusal {
    Ambiguous,
    Body(BodyFault),
    Panicked,
}

impl RequestService {
    /// Answers one request. The part before the first await runs inside hyper's parsing, when the header that the state
    /// has seen is this request's.
    pub(crate) fn call(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ClosingBody>, Infallible>> + use<> {
        let accepted = self.state.begin(request.method().as_str());
        self.shared.statistics.add_one(Counter::Requests);
        let service = Arc::clone(self);
        async move {
            let outcome = if accepted {
                service.route(request).await
            } else {
                service.state.leave_unread();
                Err(Refusal::Ambiguous)
            };
            Ok(service.finish(outcome))
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let limits = &self.shared.limits;
        let share = self.shared.bodies.share();
        let mut request = request.map(|body| bounded(body, limits, share, Arc::clone(&self.state)));
        // axum's extractors would stop at 2 MB; the body is bounded already.
        DefaultBodyLimit::disable().apply(&mut request);
        request.extensions_mut().insert(ConnectInfo(self.peer));
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            request.extensions_mut().insert(certificates.clone());
        }

        let answer = AssertUnwindSafe(self.shared.router.clone().oneshot(request))
            .catch_unwind()
            .await;
        // The handler has seen an error where the body was cut off, and cannot know what it means on the wire.
        if let Some(fault) = self.state.body_fault() {
            return Err(Refusal::Body(fault));
        }
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(_panic) => Err(Refusal::Panicked),
        }
    }

    fn finish(&self, outcome: Result<Response<Body>, Refusal>) -> Response<ClosingBody> {
        let mut response = outcome.unwrap_or_else(|refusal| self.refuse(&refusal));
        if self.ends() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let bytes = response.size_hint().lower();
        self.state
            .answer(usize::try_from(bytes).unwrap_or(usize::MAX));
        response.map(|body| ClosingBody::new(body, Arc::clone(&self.state)))
    }

    /// Whether this response is the connection's last. Behind a body that was not read to its end there is no
    /// next request to find.
    fn ends(&self) -> bool {
        self.state.is_unread()
            || self.shared.closing.is_cancelled()
            || self.expires.is_some_and(|at| Instant::now() >= at)
    }

    /// Counts the refusal; gives the response.
    fn refuse(&self, refusal: &Refusal) -> Response<Body> {
        let limits = &self.shared.limits;
        let (counter, status, text) = match refusal {
            Refusal::Ambiguous => (
                Counter::BadRequests,
                StatusCode::BAD_REQUEST,
                "the end of the request is ambiguous\n".to_owned(),
            ),
            Refusal::Body(BodyFault::TooLarge) => (
                Counter::BodyTooLarge,
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is larger than {} bytes\n", limits.body_bytes),
            ),
            Refusal::Body(BodyFault::TooSlow) => (
                Counter::BodyTimeouts,
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {:?}\n", limits.body),
            ),
            Refusal::Body(BodyFault::OverBudget) => (
                Counter::BodyOverBudget,
                StatusCode::SERVICE_UNAVAILABLE,
                "too many bytes of request bodies in flight\n".to_owned(),
            ),
            Refusal::Panicked => (
                Counter::Panics,
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error\n".to_owned(),
            ),
        };
        self.shared.statistics.add_one(counter);
        // Strings are sent as text/plain in UTF-8.
        (status, text).into_response()
    }
}
