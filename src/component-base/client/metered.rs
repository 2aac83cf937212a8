//! A counter of all requests to an API server.
//!
//! Invariant: each request is counted exactly once, also when its caller stops waiting, so that the metric shows
//! whether requests were sent.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::{BoxError, Layer, Service};

use super::Call;

/// `rest_client_requests_total{method,resource,code}`, and the layer that counts. Clones share the counters.
///
/// `method` is the HTTP method, `resource` the plural with its subresource. `code` is the HTTP status, or `<error>` for a
/// request without a response: a failed connection, a timeout, or a caller that stopped waiting.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics(Family<Labels, Counter>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: String,
    resource: String,
    code: String,
}

impl RequestMetrics {
    /// Registers the counters.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Self::default();
        registry.register(
            "rest_client_requests",
            "Number of requests to the API server, by method, resource and code",
            requests.0.clone(),
        );
        requests
    }

    /// Creates one series in the family, for the generated reference: see [`crate::metrics::create_series`].
    pub fn create_series(&self) {
        crate::metrics::create_series(&self.0);
    }
}

impl<S> Layer<S> for RequestMetrics {
    type Service = RequestMetricsService<S>;

    fn layer(&self, inner: S) -> RequestMetricsService<S> {
        RequestMetricsService {
            inner,
            requests: self.clone(),
        }
    }
}

/// The service of [`RequestMetrics`].
#[derive(Clone, Debug)]
pub struct RequestMetricsService<S> {
    inner: S,
    requests: RequestMetrics,
}

impl<S, Q, A> Service<Request<Q>> for RequestMetricsService<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<A>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<A>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let inflight = InflightRequest {
            requests: self.requests.clone(),
            call: Call::of(&request),
            method: request.method().to_string(),
            code: NO_RESPONSE.to_owned(),
        };
        let response = self.inner.call(request);
        Box::pin(async move {
            let response = response.await.map_err(Into::into);
            inflight.ended(code(&response));
            response
        })
    }
}

fn code<A>(response: &Result<Response<A>, BoxError>) -> String {
    let code = response.as_ref().map(Response::status);
    code.map_or_else(|_| NO_RESPONSE.to_owned(), |code| code.as_str().to_owned())
}

/// The code of a request without a response, as in client-go.
const NO_RESPONSE: &str = "<error>";

/// A request in flight, which is counted when it is dropped.
struct InflightRequest {
    requests: RequestMetrics,
    call: Call,
    method: String,
    code: String,
}

impl InflightRequest {
    fn ended(mut self, code: String) {
        self.code = code;
    }
}

impl Drop for InflightRequest {
    fn drop(&mut self) {
        let labels = Labels {
            method: std::mem::take(&mut self.method),
            resource: std::mem::take(&mut self.call.resource),
            code: std::mem::take(&mut self.code),
        };
        self.requests.0.get_or_create(&labels).inc();
    }
}
