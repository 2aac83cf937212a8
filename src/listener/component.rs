//! From options to a running listener.
//!
//! Invariant: what can be wrong is said before the first request: a bad name when it is registered, an address in use when
//! it is bound. The public listener logged the latter and went on waiting.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::event::{EventError, HEARTBEAT_INTERVAL, PathSegment};
use axum::Router;
use http::HeaderValue;
use prometheus_client::registry::Registry;
use serve::TlsHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::authentication::Authentication;
use crate::endpoint::{self, Endpoint};
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::plain::{self, Cut, Manners};
use crate::queue::{Depth, Events, queue};

/// Why a listener does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The component's name is no path segment.
    #[error("name of the component: not a valid path segment")]
    ComponentName(#[source] EventError),
    /// The address cannot be listened on.
    #[error("failed to listen on {address}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The TLS server did not start or did not end well.
    #[error("TLS server failed")]
    Tls(#[source] serve::Error),
    /// The drain ended with requests unanswered. The listener is down all the same.
    #[error("{connections} connections aborted at the end of the shutdown timeout")]
    Cut {
        /// How many.
        connections: usize,
    },
}

/// How the gateway reaches the listener.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Without encryption. Who can reach the port can claim to be any runtime: let a NetworkPolicy or the mesh's
    /// authorization see to it that only the gateway can.
    Plain,
    /// With TLS in both directions.
    MutualTls {
        /// Usually from [`gateway_tls`](crate::gateway_tls).
        tls: TlsHandle,
        /// The gateway: one of the subject alternative names of its certificate, such as its SPIFFE id. An authority of
        /// a mesh signs for all workloads, so the authority alone says nothing.
        gateway: String,
    },
}

/// How a listener behaves.
#[derive(Clone)]
pub struct Options {
    /// Whether senders are told apart, and how.
    pub authentication: Authentication,
    /// How the gateway reaches the listener. Default: plain.
    pub transport: Transport,
    /// Different events that wait for the operator; at one more, senders are answered 503. Default 1024.
    pub queued_events: usize,
    /// Runtimes whose liveness is remembered. Default 10 000.
    pub runtimes: usize,
    /// How often the watchers send heartbeats; a runtime is silent after three of these without one. Default
    /// [`HEARTBEAT_INTERVAL`], the watchers' own.
    pub heartbeat_interval: Duration,
    /// After which time senders that were answered 503 should come again; whole seconds. Default 5 s.
    pub retry_after: Duration,
    /// Connections at the same time. Default 1024.
    pub connections: usize,
    /// After the shutdown began: how long new connections and requests are still served. Default 5 s.
    pub linger: Duration,
    /// After that: how long requests may take to end before they are cut. Default 10 s.
    pub grace: Duration,
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new(authentication: Authentication) -> Self {
        Self {
            authentication,
            transport: Transport::Plain,
            queued_events: 1024,
            runtimes: 10_000,
            heartbeat_interval: HEARTBEAT_INTERVAL,
            retry_after: Duration::from_secs(5),
            connections: 1024,
            linger: Duration::from_secs(5),
            grace: Duration::from_secs(10),
        }
    }
}

/// A listener that does not listen yet; it is the required runnable.
#[must_use = "a listener does nothing until it runs"]
pub struct Listener {
    address: SocketAddr,
    router: Router,
    liveness: Liveness,
    queued: Depth,
    metrics: Metrics,
    transport: Transport,
    manners: Manners,
}

/// Makes a listener for the events of the Watchers whose manager is `component_name`, on `/v2/<component_name>/event` at
/// `address`, and the stream on which they arrive.
///
/// # Errors
/// [`Error::ComponentName`] alone; the address is bound when the listener runs.
pub fn register_listener_component(
    address: SocketAddr,
    component_name: &str,
    options: Options,
) -> Result<(Listener, Events), Error> {
    let component = PathSegment::parse(component_name).map_err(Error::ComponentName)?;
    let Options {
        authentication,
        transport,
        queued_events,
        runtimes,
        heartbeat_interval,
        retry_after,
        connections,
        linger,
        grace,
    } = options;
    let (sender, events) = queue(queued_events);
    let queued = sender.depth();
    let liveness = Liveness::new(runtimes, heartbeat_interval);
    let metrics = Metrics::new();
    let gateway = match &transport {
        Transport::Plain => None,
        Transport::MutualTls { gateway, .. } => Some(gateway.clone()),
    };
    let endpoint = Arc::new(Endpoint {
        authentication,
        gateway,
        queue: sender,
        liveness: liveness.clone(),
        metrics: metrics.clone(),
        retry_after: HeaderValue::from(retry_after.as_secs()),
    });
    let listener = Listener {
        address,
        router: endpoint::router(endpoint, &component),
        liveness,
        queued,
        metrics,
        transport,
        manners: Manners {
            connections,
            linger,
            grace,
        },
    };
    Ok((listener, events))
}

impl Listener {
    /// Which runtimes were heard from; to be kept while the listener runs.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.liveness.clone()
    }

    /// Puts the listener's metrics into `registry`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics
            .register(registry, &self.liveness, &self.queued);
    }

    /// Takes the address. Connections queue in the kernel until [`Bound::run`].
    ///
    /// # Errors
    /// [`Error::Bind`] or [`Error::Tls`]: in use, not ours, or not permitted.
    pub async fn bind(self) -> Result<Bound, Error> {
        let Self {
            address,
            router,
            transport,
            manners,
            ..
        } = self;
        let server = match transport {
            Transport::Plain => {
                let refused = |source| Error::Bind { address, source };
                let listener = TcpListener::bind(address).await.map_err(refused)?;
                let address = listener.local_addr().map_err(refused)?;
                Socket::Plain(listener, address)
            }
            Transport::MutualTls { tls, .. } => {
                let options = tls_options(tls, manners);
                let bound = serve::Server::bind(address, options).await;
                Socket::Tls(bound.map_err(Error::Tls)?)
            }
        };
        Ok(Bound {
            server,
            router,
            manners,
        })
    }

    /// [`Listener::bind`], then [`Bound::run`].
    ///
    /// # Errors
    /// Of either.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        self.bind().await?.run(shutdown).await
    }
}

/// A listener that holds its address.
#[must_use = "nobody is answered until it runs"]
pub struct Bound {
    server: Socket,
    router: Router,
    manners: Manners,
}

enum Socket {
    Plain(TcpListener, SocketAddr),
    Tls(serve::Bound),
}

impl Bound {
    /// Where it listens; tells the port when 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        match &self.server {
            Socket::Plain(_, address) => *address,
            Socket::Tls(bound) => bound.local_addr(),
        }
    }

    /// Serves until `shutdown` is cancelled, then drains: goes on for the linger, stops accepting, answers what is in
    /// flight. The stream of events ends when what was accepted is taken.
    ///
    /// # Errors
    /// Requests that outlived the grace were cut. While serving, nothing ends the listener.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self {
            server,
            router,
            manners,
        } = self;
        match server {
            Socket::Plain(listener, _) => plain::run(listener, router, manners, shutdown)
                .await
                .map_err(|Cut { connections }| Error::Cut { connections }),
            Socket::Tls(bound) => bound.run(router, shutdown).await.map_err(Error::Tls),
        }
    }
}

fn tls_options(tls: TlsHandle, manners: Manners) -> serve::Options {
    let limits = serve::Limits {
        // The endpoint's own bound answers and counts; this one is behind it.
        body_bytes: 4 * api::event::BODY_BYTES,
        connections: manners.connections,
        // Forwarded certificates are in the header; the endpoint's own bound answers and counts here as well.
        header_bytes: 64 * 1024,
        // An authority of the mesh that was taken away is gone after an hour at the latest.
        age: Some(Duration::from_hours(1)),
        ..serve::Limits::default()
    };
    serve::Options {
        limits,
        linger: manners.linger,
        grace: manners.grace,
        ..serve::Options::new(tls)
    }
}

#[cfg(test)]
mod tests;
