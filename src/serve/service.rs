//! Processing of one request: limits before the router, and `Connection: close` after it.
//!
//! Invariant: each request whose header was read gets exactly one response, independent of the router. The router gets no
//! request that is rejected here.

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

/// State that all requests of one connection share.
pub(crate) struct RequestService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: Arc<ConnectionState>,
    pub(crate) peer: SocketAddr,
    #[cfg(feature = "tls")]
    pub(crate) certificates: Option<crate::tls::PeerCertificates>,
    /// Time from which on responses request the client to reconnect.
    pub(crate) expires: Option<Instant>,
}

/// Reason why the server responds instead of the router.
enum Refusal {
    Ambiguous,
    Body(BodyFault),
    Panicked,
}

impl RequestService {
    /// Responds to one request. The part before the first await runs inside the parser of hyper, when the scanned header in
    /// the state belongs to this request.
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
        // Otherwise the extractors of axum would reject bodies over 2 MB. The body already has a limit.
        DefaultBodyLimit::disable().apply(&mut request);
        request.extensions_mut().insert(ConnectInfo(self.peer));
        #[cfg(feature = "tls")]
        if let Some(certificates) = &self.certificates {
            request.extensions_mut().insert(certificates.clone());
        }

        let answer = AssertUnwindSafe(self.shared.router.clone().oneshot(request))
            .catch_unwind()
            .await;
        // The handler got an error for the truncated body, and cannot determine the correct status.
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

    /// Returns whether this response is the last of the connection. After a body that was not read to its end, the next
    /// request cannot be found.
    fn ends(&self) -> bool {
        self.state.is_unread()
            || self.shared.closing.is_cancelled()
            || self.expires.is_some_and(|at| Instant::now() >= at)
    }

    /// Counts the rejection, and returns the response.
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
