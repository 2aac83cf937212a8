//! Builder, options and run loop of a listener.
//!
//! Invariant: invalid options fail before the first request. An invalid name fails when the listener is built, and an
//! address in use fails when it is bound.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::HeaderValue;
#[cfg(feature = "metrics")]
use prometheus_client::registry::Registry;
use serve::BoundServer;
use tokio_util::sync::CancellationToken;
#[cfg(feature = "metrics")]
use watcher_types::Heartbeat;
use watcher_types::{EventError, HEARTBEAT_INTERVAL, PathSegment};

use crate::authentication::Authentication;
#[cfg(feature = "metrics")]
use crate::certificate::RuntimeId;
use crate::endpoint::{self, Endpoint};
use crate::liveness::Liveness;
use crate::queue::{Notifications, queue};
use crate::rejection::RejectionLog;

/// Reason why a listener does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the component is not a valid path segment.
    #[error("name of the component: not a valid path segment")]
    ComponentName(#[source] EventError),
    /// [`Builder::authentication`] was not called.
    #[error("authentication: not configured")]
    NoAuthentication,
    /// The address cannot be bound, or requests had no response at the end of the drain.
    #[error(transparent)]
    Server(#[from] serve::Error),
}

/// Transport between the gateway and the listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// Without encryption. Any client that can reach the port can claim to be any runtime. Use a NetworkPolicy or the
    /// authorization of the mesh to allow only the gateway.
    Plain,
    /// With TLS in both directions.
    #[cfg(feature = "tls")]
    MutualTls {
        /// TLS configuration, usually from [`gateway_tls`](crate::gateway_tls).
        tls: serve::TlsHandle,
        /// One of the subject alternative names of the certificate of the gateway: a URI, such as its SPIFFE ID, a DNS name
        /// or an IP address. The CA of a mesh signs certificates for all workloads, so verification by the CA is not
        /// sufficient.
        gateway: String,
    },
}

/// Options of a listener.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// How senders are authenticated. Required; there is no default.
    pub authentication: Option<Authentication>,
    /// Transport between the gateway and the listener. Default: plain.
    pub transport: Transport,
    /// Maximum number of events that wait for the operator, and of other notifications, each. A request beyond it gets a
    /// 503. Default 1024.
    pub queued_events: usize,
    /// Maximum number of queued events of one runtime. A request beyond it gets a 429. Default 64. As the queue fills, the
    /// limit decreases to the free part of the first quarter of the queue, and to one event when that is full. So runtimes
    /// that flood the queue together cannot block the first event of another runtime, for up to three quarters of
    /// `queued_events` runtimes.
    pub queued_events_per_runtime: usize,
    /// Maximum number of runtimes whose liveness is stored. Default 10 000.
    pub runtimes: usize,
    /// Whether metrics have series for each runtime: eight series per runtime, 80,000 for 10,000 runtimes. Default `false`:
    /// only sums.
    #[cfg(feature = "metrics")]
    pub runtime_metrics: bool,
    /// Interval of the heartbeats of watchers. A runtime is unresponsive after three intervals without a heartbeat. From 10
    /// ms to a day. Default [`HEARTBEAT_INTERVAL`], the interval of the watchers.
    pub heartbeat_interval: Duration,
    /// Time after which senders should retry after a 429 or 503, rounded up to whole seconds. Default 5 s.
    pub retry_after: Duration,
    /// Maximum number of concurrent connections. Default 1024.
    pub connections: usize,
    /// Time after the start of the shutdown in which new connections and requests are still served. Default 5 s.
    pub linger: Duration,
    /// Time after the linger period in which requests may end before they are aborted. Default 10 s.
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
    /// Returns the defaults, with this authentication.
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
        // The header contains forwarded certificates. The endpoint has lower limits for headers and bodies, with a response
        // and a metric.
        limits.header_bytes = 72 * 1024;
        limits.body = endpoint::BODY_TIMEOUT;
        limits.body_bytes = 4 * watcher_types::BODY_BYTES;
        // This is longer than the time for which gateways keep idle connections between two heartbeats.
        limits.idle = Duration::from_mins(5);
        // The gateway then connects again. This limits the time for which a removed CA of the mesh is trusted.
        limits.age = Some(Duration::from_hours(1));
        (server.linger, server.grace) = (self.linger, self.grace);
        server
    }
}

/// Builder of a listener; see [`Listener::builder`].
#[must_use = "a builder does nothing until it builds"]
pub struct Builder<'a> {
    address: SocketAddr,
    component: &'a str,
    options: Options,
}

impl Builder<'_> {
    /// Sets the authentication of senders, usually a [`CertificateCheck`](crate::CertificateCheck).
    pub fn authentication(mut self, authentication: impl Into<Authentication>) -> Self {
        self.options.authentication = Some(authentication.into());
        self
    }

    /// Changes options.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Builds the listener and the stream of its notifications.
    ///
    /// # Errors
    /// [`Error::ComponentName`] or [`Error::NoAuthentication`]. The address is bound when the listener runs.
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

/// Builds a listener with these options, as [`Listener::builder`] does.
///
/// # Errors
/// The errors of [`Builder::build`].
pub fn register_listener_component(
    address: SocketAddr,
    component_name: &str,
    options: Options,
) -> Result<(Listener, Notifications), Error> {
    Listener::builder(address, component_name)
        .options(|it| *it = options)
        .build()
}

/// A listener that is not bound to its address yet. It is the runnable of the component.
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
    /// Returns a builder of a listener for the events of the Watchers whose manager is `component`. It serves
    /// `/v2/<component>/event` at `address`.
    pub fn builder(address: SocketAddr, component: &str) -> Builder<'_> {
        let options = Options::default();
        Builder {
            address,
            component,
            options,
        }
    }

    /// Returns the liveness of the runtimes. Get it before the listener runs.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.endpoint.liveness.clone()
    }

    /// Registers the metrics of the listener in `registry`.
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

    /// Creates one series in each family of metrics, those of a runtime included, because only a series contains the labels.
    /// Used for the reference of the project (docs/reference/metrics.md).
    #[cfg(feature = "metrics")]
    #[doc(hidden)]
    pub fn create_metric_series(&self) {
        self.endpoint.metrics.create_series();
        let heartbeat = concat!(
            r#"{"bootId":"b1","sequence":0,"spoolDepth":0,"oldestAgeSeconds":0,"version":"1","#,
            r#""reviewsSeen":1,"lastReviewAgeSeconds":0,"certificateNotAfter":1}"#,
        );
        let parsed = (
            RuntimeId::parse("r1"),
            Heartbeat::parse(heartbeat.as_bytes()),
        );
        if let (Some(runtime), Ok(heartbeat)) = parsed {
            let _ = self
                .liveness()
                .heartbeat(&runtime, heartbeat, &self.endpoint.queue);
        }
    }

    /// Binds the address. Connections queue in the kernel until [`BoundListener::run`].
    ///
    /// # Errors
    /// The address is in use, not available on this machine, or not permitted.
    pub async fn bind(self) -> Result<BoundListener, Error> {
        Ok(BoundListener {
            server: serve::Server::bind(self.address, self.server).await?,
            router: endpoint::router(Arc::clone(&self.endpoint), &self.component),
            endpoint: self.endpoint,
        })
    }

    /// Calls [`Listener::bind`], then [`BoundListener::run`].
    ///
    /// # Errors
    /// The errors of both methods.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        self.bind().await?.run(shutdown).await
    }
}

/// A listener that is bound to its address.
#[must_use = "requests are answered only while it runs"]
pub struct BoundListener {
    server: BoundServer,
    router: Router,
    endpoint: Arc<Endpoint>,
}

impl BoundListener {
    /// Returns the bound address, which contains the assigned port if the port was 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until `shutdown` is canceled, and then drains: continues for the linger time, stops accepting connections,
    /// and responds to requests in progress. The stream of notifications ends when all accepted notifications are taken.
    ///
    /// # Errors
    /// Requests exceeded the grace time and were aborted. No other event ends the listener while it serves.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        tokio::select! {
            result = self.server.run(self.router, shutdown) => Ok(result?),
            never = self.endpoint.keep_checking() => match never {},
        }
    }
}

#[cfg(test)]
mod tests;
