//! The plain HTTP endpoints that a platform asks: `/healthz`, `/readyz` and `/metrics`.
//!
//! Health and metrics have a listener each, so that a NetworkPolicy can open one without the
//! other and a crowd of scrapers cannot keep the kubelet out. Invariant: no answer waits for
//! anything; a slow or silent client costs one of a few slots for at most a few seconds.
//! Deliberately absent: TLS, profiling, and any endpoint that changes something.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::listen::{ListenError, everywhere, listen};
use crate::metrics::{CONTENT_TYPE, Metrics};
use crate::readiness::Readiness;

mod serve;

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
    health: (TcpListener, Router),
    metrics: (TcpListener, Router),
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
            health: (listen(options.health, "health")?, health_router(readiness)),
            metrics: (listen(options.metrics, "metrics")?, metrics_router(metrics)),
        })
    }

    /// Where health is answered, after port 0 became a real one.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn health_address(&self) -> io::Result<SocketAddr> {
        self.health.0.local_addr()
    }

    /// Where metrics are answered, after port 0 became a real one.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn metrics_address(&self) -> io::Result<SocketAddr> {
        self.metrics.0.local_addr()
    }

    /// Answers until the token is cancelled. Give it a token of its own, cancelled after the
    /// drain: the kubelet and the scraper should see the process until it ends.
    pub async fn run(self, end: CancellationToken) {
        let Self { health, metrics } = self;
        tokio::join!(
            serve::serve(health.0, health.1, &end),
            serve::serve(metrics.0, metrics.1, &end),
        );
    }
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
