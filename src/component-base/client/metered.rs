//! A counter of all requests to an API server.
//!
//! Invariant: each request is counted exactly once, even if its caller stops waiting, so that the metric shows whether
//! requests were sent.

use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::metrics::family;

/// `rest_client_requests_total{method,resource,code}`. Clones share the counters.
///
/// `method` is the HTTP method, `resource` the plural with its subresource. `code` is the HTTP status, or `<error>` for a
/// request without a response: a failed connection, a timeout, or a caller that stopped waiting.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics(Family<[(&'static str, String); 3], Counter>);

impl RequestMetrics {
    /// Registers the counters.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let help = "Number of requests to the API server, by method, resource and code";
        Self(family(
            registry,
            "rest_client_requests",
            help,
            ["method", "resource", "code"],
        ))
    }
}

/// A request in progress, which is counted when it is dropped.
pub(super) struct InflightRequest {
    pub(super) requests: RequestMetrics,
    pub(super) method: Method,
    pub(super) resource: String,
    /// Status of the response, after it has arrived.
    pub(super) status: Option<StatusCode>,
}

impl InflightRequest {
    pub(super) fn ended(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for InflightRequest {
    fn drop(&mut self) {
        // The code of a request without a response, as in client-go.
        let code = self.status.as_ref().map_or("<error>", StatusCode::as_str);
        let labels = [
            ("method", self.method.to_string()),
            ("resource", std::mem::take(&mut self.resource)),
            ("code", code.to_owned()),
        ];
        self.requests.0.get_or_create(&labels).inc();
    }
}
