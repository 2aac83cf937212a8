//! From options to a running listener.
//!
//! Invariant: what can be wrong is said before the first request: a bad name when the listener is built, an address in use
//! when it is bound.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::HeaderValue;
#[cfg(feature = "metrics")]
use prometheus_client::registry::Registry;
use serve::BoundServer;
use tokio_util::sync::CancellationToken;
use watcher_types::{EventError, HEARTBEAT_INTERVAL, PathSegment};

use crate::authentication::Authentication;
use crate::endpoint::{self, Endpoint};
use crate::liveness::Liveness;
use crate::queue::{Notifications, queue};
use crate::rejection::RejectionLog;

/// Why a listener does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The component's name is no path segment.
    #[error("name of the component: not a valid path segment")]
    ComponentName(#[source] EventError),
    /// [`Builder::authentication`] was not called.
    #[error("authentication: not configured")]
    NoAuthentication,
    /// The address cannot be listened on, or requests were unanswered at the end of the drain.
    #[error(transparent)]
    Server(#[from] serve::Error),
}

/// How the gateway reaches the listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// Without encryption. Who can reach the port can claim to be any runtime: let a NetworkPolicy or the mesh's
    /// authorization see to it that only the gateway can.
    Plain,
    /// With TLS in both directions.
    #[cfg(feature = "tls")]
    MutualTls {
        /// Usually from [`gateway_tls`](crate::gateway_tls).
        tls: serve::TlsHandle,
        /// The gateway: one of the subject alternative names of its certificate, such as its SPIFFE id. An authority of
        /// a mesh signs for all workloads, so the authority alone says nothing.
        gateway: String,
    },
}

/// How a listener behaves.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// How senders are authenticated. Default: not configured; a listener is not built without it.
    pub authentication: Option<Authentication>,
    /// How the gateway reaches the listener. Default: plain.
    pub transport: Transport,
    /// Events that wait for the operator, and as many other notifications; further ones are answered 503. Default 1024.
    pub queued_events: usize,
    /// Events of one runtime among them; further ones of that runtime are answered 429. Default 64. As the queue fills, the
    /// limit falls to what is free of its first quarter, and to one event when nothing is. So runtimes that flood the queue
    /// together cannot keep the first event of another from being accepted, up to three quarters of `queued_events` runtimes.
    pub queued_events_per_runtime: usize,
    /// Runtimes whose liveness is remembered. Default 10 000.
    pub runtimes: usize,
    /// Whether metrics have series for each runtime: eight for each, 80,000 for 10,000 runtimes. Default `false`: sums alone.
    #[cfg(feature = "metrics")]
    pub runtime_metrics: bool,
    /// How often the watchers send heartbeats; a runtime is unresponsive after three of these without one. From 10 ms to a
    /// day. Default [`HEARTBEAT_INTERVAL`], the watchers' own.
    pub heartbeat_interval: Duration,
    /// After which time senders that were answered 429 or 503 should retry, rounded up to whole seconds. Default 5 s.
    pub retry_after: Duration,
    /// Connections at the same time. Default 1024.
    pub connections: usize,
    /// After the shutdown began: how long new connections and requests are still served. Default 5 s.
    pub linger: Duration,
    /// After that: how long requests may take to end before they are cut. Default 10 s.
    pub grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            authentication: None,
            transport: Transport::Plain,
            queued_events: 1024,
            queued_events_per_runtime: 64,
            #[cfg(feature = "metrics")]
            runtime_metrics: false,
            runtimes: 10_000,
            heartbeat_interval: HEARTBEAT_INTERVAL,
            retry_after: Duration::from_secs(5),
            connections: 1024,
            linger: Duration::from_secs(5),
            grace: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// The defaults, with this authentication.
    #[must_use]
    pub fn new(authentication: impl Into<Authentication>) -> Self {
        Self {
            authentication: Some(authentication.into()),
            ..Self::default()
        }
    }

    fn server(&self) -> serve::Options {
        let mut server = match &self.transport {
            Transport::Plain => serve::Options::plain(),
            #[cfg(feature = "tls")]
            Transport::MutualTls { tls, .. } => serve::Options::tls(tls.clone()),
        };
        let limits = &mut server.limits;
        limits.connections = self.connections;
        // Forwarded certificates are in the header. Behind the limits of headers and bodies are those of the endpoint,
        // which answer and count.
        limits.header_bytes = 72 * 1024;
        limits.body = endpoint::BODY_TIMEOUT;
        limits.body_bytes = 4 * watcher_types::BODY_BYTES;
        // Longer than gateways keep connections between two heartbeats.
        limits.idle = Duration::from_mins(5);
        // Then the gateway dials again: an authority of the mesh that was taken away is gone at the latest.
        limits.age = Some(Duration::from_hours(1));
        (server.linger, server.grace) = (self.linger, self.grace);
        server
    }
}

/// A listener before it is built; see [`Listener::builder`].
#[must_use = "a builder does nothing until it builds"]
pub struct Builder<'a> {
    address: SocketAddr,
    component: &'a str,
    options: Options,
}

impl Builder<'_> {
    /// How senders are authenticated: a [`CertificateCheck`](crate::CertificateCheck), usually.
    pub fn authentication(mut self, authentication: impl Into<Authentication>) -> Self {
        self.options.authentication = Some(authentication.into());
        self
    }

    /// Changes options that are to differ from the defaults.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// The listener, and the stream of its notifications.
    ///
    /// # Errors
    /// [`Error::ComponentName`] or [`Error::NoAuthentication`]; the address is bound when the listener runs.
    pub fn build(self) -> Result<(Listener, Notifications), Error> {
        let options = self.options;
        let component = PathSegment::parse(self.component).map_err(Error::ComponentName)?;
        let (sender, notifications) =
            queue(options.queued_events, options.queued_events_per_runtime);
        let retry_after = options.retry_after;
        let retry_after = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
        let listener = Listener {
            address: self.address,
            server: options.server(),
            #[cfg(feature = "metrics")]
            runtime_metrics: options.runtime_metrics,
            endpoint: Arc::new(Endpoint {
                authentication: options.authentication.ok_or(Error::NoAuthentication)?,
                #[cfg(feature = "tls")]
                gateway: match options.transport {
                    Transport::Plain => None,
                    Transport::MutualTls { gateway, .. } => Some(crate::tls::Gateway::new(gateway)),
                },
                queue: sender,
                liveness: Liveness::new(options.runtimes, options.heartbeat_interval),
                #[cfg(feature = "metrics")]
                metrics: crate::metrics::Metrics::new(),
                log: RejectionLog::default(),
                retry_after: HeaderValue::from(retry_after),
            }),
            component,
        };
        Ok((listener, notifications))
    }
}

/// [`Listener::builder`] with these options, built.
///
/// # Errors
/// As [`Builder::build`].
pub fn register_listener_component(
    address: SocketAddr,
    component_name: &str,
    options: Options,
) -> Result<(Listener, Notifications), Error> {
    Listener::builder(address, component_name)
        .options(|it| *it = options)
        .build()
}

/// A listener that does not listen yet; it is the required runnable.
#[must_use = "a listener does nothing until it runs"]
pub struct Listener {
    address: SocketAddr,
    endpoint: Arc<Endpoint>,
    component: PathSegment,
    #[cfg(feature = "metrics")]
    runtime_metrics: bool,
    server: serve::Options,
}

impl Listener {
    /// A listener for the events of the Watchers whose manager is `component`, on `/v2/<component>/event` at `address`.
    pub fn builder(address: SocketAddr, component: &str) -> Builder<'_> {
        let options = Options::default();
        Builder {
            address,
            component,
            options,
        }
    }

    /// What is known of the runtimes; to be kept while the listener runs.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.endpoint.liveness.clone()
    }

    /// Puts the listener's metrics into `registry`.
    #[cfg(feature = "metrics")]
    pub fn register_metrics(&self, registry: &mut Registry) {
        let labels = [
            ("server_name", "listener"),
            ("manager", self.component.as_str()),
        ];
        let labels = labels.map(|(name, value)| (name.into(), value.to_owned().into()));
        let registry = registry.sub_registry_with_labels(labels.into_iter());
        let collector = crate::metrics::Collected {
            liveness: self.liveness(),
            queued: Box::new(self.endpoint.queue.depth()),
            per_runtime: self.runtime_metrics,
        };
        self.endpoint.metrics.register(registry, collector);
        let registry = registry.sub_registry_with_prefix("watcher_listener");
        serve::metrics::register(registry, self.server.statistics.clone());
    }

    /// Creates one series in each family of metrics, because only a series names the labels; for the reference of the project
    /// (docs/reference/metrics.md).
    #[cfg(feature = "metrics")]
    #[doc(hidden)]
    pub fn create_metric_series(&self) {
        self.endpoint.metrics.create_series();
    }

    /// Takes the address. Connections queue in the kernel until [`BoundListener::run`].
    ///
    /// # Errors
    /// In use, not ours, or not permitted.
    pub async fn bind(self) -> Result<BoundListener, Error> {
        Ok(BoundListener {
            server: serve::Server::bind(self.address, self.server).await?,
            router: endpoint::router(Arc::clone(&self.endpoint), &self.component),
            endpoint: self.endpoint,
        })
    }

    /// [`Listener::bind`], then [`BoundListener::run`].
    ///
    /// # Errors
    /// Of either.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        self.bind().await?.run(shutdown).await
    }
}

/// A listener that holds its address.
#[must_use = "requests are answered only while it runs"]
pub struct BoundListener {
    server: BoundServer,
    router: Router,
    endpoint: Arc<Endpoint>,
}

impl BoundListener {
    /// Where it listens; tells the port when 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown` is cancelled, then drains: goes on for the linger, stops accepting, answers what is in
    /// flight. The stream of notifications ends when what was accepted is taken.
    ///
    /// # Errors
    /// Requests outlived the grace and were aborted. While serving, nothing ends the listener.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        tokio::select! {
            result = self.server.run(self.router, shutdown) => Ok(result?),
            never = self.endpoint.keep_checking() => match never {},
        }
    }
}

#[cfg(test)]
mod tests;
