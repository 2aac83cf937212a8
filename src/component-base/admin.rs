//! The plain HTTP endpoints that a platform asks: `/healthz`, `/readyz` and `/metrics`.
//!
//! Health and metrics have a server each, so that a NetworkPolicy can open one without the
//! other and many scrapers cannot keep the kubelet out. Invariant: no answer waits for
//! anything, and at the connection limit a slow or silent client is evicted by the next one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serve::{BoundServer, Options};
use tokio_util::sync::CancellationToken;

use crate::listen::{ListenError, bind_server, everywhere};
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::readiness::Readiness;

/// Far above two probes and a few scrapers, far below what memory would notice.
const CONNECTIONS: usize = 32;

/// The usual scrape timeout.
const RESPONSE: Duration = Duration::from_secs(10);

/// How long responses in flight may take once the end has been asked for.
const GRACE: Duration = Duration::from_secs(1);

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminOptions {
    /// `/healthz` and `/readyz`.
    pub health: SocketAddr,
    /// `/metrics`.
    pub metrics: SocketAddr,
}

impl Default for AdminOptions {
    /// Every address; 8081 for health and 8080 for metrics, as controller-runtime projects
    /// have it.
    fn default() -> Self {
        Self {
            health: everywhere(8081),
            metrics: everywhere(8080),
        }
    }
}

/// Both endpoints, bound and not yet answering.
#[derive(Debug)]
pub struct Admin {
    health: (BoundServer, Router),
    metrics: (BoundServer, Router),
}

impl Admin {
    /// Binds both addresses.
    ///
    /// # Errors
    /// When one of them cannot be bound.
    pub fn bind(
        options: AdminOptions,
        readiness: Readiness,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ListenError> {
        Ok(Self {
            health: (
                bind_server(options.health, "health", server_options())?,
                health_router(readiness),
            ),
            metrics: (
                bind_server(options.metrics, "metrics", server_options())?,
                metrics_router(metrics),
            ),
        })
    }

    /// Where health is answered, after port 0 became a real one.
    #[must_use]
    pub fn health_address(&self) -> SocketAddr {
        self.health.0.local_addr()
    }

    /// Where metrics are answered, after port 0 became a real one.
    #[must_use]
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics.0.local_addr()
    }

    /// Answers until the token is cancelled. Give it a token of its own, cancelled after the
    /// drain: the kubelet and the scraper should see the process until it ends.
    pub async fn run(self, end: CancellationToken) {
        let Self { health, metrics } = self;
        // Responses that are aborted at the end of the grace are aborted by the end of the process anyway.
        let _aborted = tokio::join!(
            health.0.run(health.1, end.clone()),
            metrics.0.run(metrics.1, end),
        );
    }
}

/// One request a connection: kept-alive ones would only take the place of others.
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

/// `/healthz` answers 200 while the process runs; `/readyz` answers 200 or 503 with one line a
/// condition.
pub fn health_router(readiness: Readiness) -> Router {
    Router::new().route("/healthz", get(async || "ok\n")).route(
        "/readyz",
        get(async move || {
            let (ready, report) = readiness.report();
            let status = if ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            (status, report)
        }),
    )
}

/// `/metrics` answers with [`Metrics::encode`].
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
