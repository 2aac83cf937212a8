//! HTTP endpoints for kubelet and Prometheus: `/healthz`, `/readyz` and `/metrics`, without TLS.
//!
//! Health and metrics have separate servers, so that a NetworkPolicy can allow only one of them, and scrapers cannot use up
//! the connections of the kubelet. Invariants: a response never waits; at the connection limit a new client evicts a slow
//! or idle client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serve::{BoundServer, Options, Statistics};
use tokio_util::sync::CancellationToken;

use crate::listen::{ListenError, bind_server};
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::readiness::Readiness;

/// Connections per server. Two probes and a few scrapers need far fewer; 32 cost hardly any memory.
const CONNECTIONS: usize = 32;

/// Time limit of a response: the default scrape timeout of Prometheus.
const RESPONSE: Duration = Duration::from_secs(10);

/// Time for responses in progress when the server is stopped.
const GRACE: Duration = Duration::from_secs(1);

/// Addresses of the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminOptions {
    /// Address of `/healthz` and `/readyz`.
    pub health: SocketAddr,
    /// Address of `/metrics`.
    pub metrics: SocketAddr,
}

/// Both servers, bound but not serving yet.
#[derive(Debug)]
pub struct Admin {
    health: BoundServer,
    metrics: BoundServer,
}

impl Admin {
    /// Binds both addresses.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub fn bind(options: AdminOptions) -> Result<Self, ListenError> {
        Ok(Self {
            health: bind_server(options.health, "health", server_options())?,
            metrics: bind_server(options.metrics, "metrics", server_options())?,
        })
    }

    /// Returns the addresses, with the assigned ports if port 0 was requested.
    #[must_use]
    pub fn addresses(&self) -> AdminOptions {
        AdminOptions {
            health: self.health.local_addr(),
            metrics: self.metrics.local_addr(),
        }
    }

    /// Returns the name and the counters of each server, for the metrics.
    #[must_use]
    pub fn statistics(&self) -> [(&'static str, Statistics); 2] {
        [("health", &self.health), ("metrics", &self.metrics)]
            .map(|(name, server)| (name, server.statistics()))
    }

    /// Serves until the token is canceled. The token should be canceled after the drain, so that kubelet and Prometheus
    /// reach the process until it ends.
    pub async fn run(self, readiness: Readiness, metrics: Arc<Metrics>, end: CancellationToken) {
        // Responses that are aborted after the grace period would be aborted by the exit of the process anyway.
        let _aborted = tokio::join!(
            self.health.run(health_router(readiness), end.clone()),
            self.metrics.run(metrics_router(metrics), end),
        );
    }
}

/// Returns options for one request per connection, because persistent connections would use up the limit.
fn server_options() -> Options {
    let mut options = Options::plain();
    options.limits.connections = CONNECTIONS;
    options.limits.header_bytes = 8 * 1024;
    options.limits.body_bytes = 0;
    options.limits.bodies_bytes = 0;
    options.limits.answer = RESPONSE;
    options.limits.idle = RESPONSE;
    options.limits.age = Some(Duration::ZERO);
    options.linger = Duration::ZERO;
    options.grace = GRACE;
    options
}

/// Returns the router of `/healthz`, which returns 200, and of `/readyz`, which returns 200 or 503 with one line per check.
pub fn health_router(readiness: Readiness) -> Router {
    Router::new().route("/healthz", get(async || "ok\n")).route(
        "/readyz",
        get(async move || {
            let (ready, report) = readiness.probe();
            let status = if ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            (status, report)
        }),
    )
}

/// Returns the router of `/metrics`, which returns [`Metrics::encode`].
pub fn metrics_router(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(async move || scrape(&metrics)))
}

fn scrape(metrics: &Metrics) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "failed to encode metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests;
