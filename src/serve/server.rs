//! Accepts connections, and drains them at the end.
//!
//! Invariant: only the shutdown token ends accepting. A request that arrived completely before the end of accepting is not
//! lost, unless its handler exceeds the grace time.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::budget::BodyBudget;
use crate::connection;
use crate::limiter::ConnectionLimiter;
use crate::limits::Limits;
use crate::metrics::{Counter, Statistics};
#[cfg(feature = "tls")]
use crate::tls::TlsHandle;

/// Pause after an error of accepting that persists, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reason why a server could not start, or did not end cleanly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be bound.
    #[error("failed to listen on {address}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The drain ended before all requests had a response. The server has ended nevertheless.
    #[error("{connections} connections aborted at the end of the shutdown timeout")]
    ShutdownTimeout {
        /// Number of aborted connections.
        connections: usize,
    },
}

/// Transport of connections.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// HTTP without TLS.
    Plain,
    /// HTTP over TLS, with the certificate of this handle.
    #[cfg(feature = "tls")]
    Tls(TlsHandle),
}

/// Options of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Transport of connections.
    pub transport: Transport,
    /// Limits for clients.
    pub limits: Limits,
    /// Time after the shutdown token in which the server continues to accept and serve, with `Connection: close` in each
    /// response. Default 10 s.
    ///
    /// The API server continues to use its connections to a terminating Pod (kubernetes#127335), and other nodes are
    /// notified late that the endpoint was removed.
    pub linger: Duration,
    /// Time after `linger` in which requests may end before their connections are aborted. Default 10 s.
    pub grace: Duration,
    /// Whether a request gets a 400 if its header specifies the end of the body more than once, or if the header was not
    /// scanned from its first byte (pipelining). Default true. Not required for a server without a proxy in front, because
    /// then no proxy can interpret the end differently.
    pub strict_framing: bool,
    /// Counters of the server. Set it if the counters are required before the server is bound.
    pub statistics: Statistics,
}

impl Options {
    /// Returns the defaults, without TLS.
    #[must_use]
    pub fn plain() -> Self {
        Self::new(Transport::Plain)
    }

    /// Returns the defaults, with the certificate of `tls`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(tls: TlsHandle) -> Self {
        Self::new(Transport::Tls(tls))
    }

    fn new(transport: Transport) -> Self {
        let ten_seconds = Duration::from_secs(10);
        Self {
            transport,
            limits: Limits::default(),
            linger: ten_seconds,
            grace: ten_seconds,
            strict_framing: true,
            statistics: Statistics::default(),
        }
    }
}

/// A server for an axum [`Router`].
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Binds the address. Connections queue in the kernel until [`BoundServer::run`].
    ///
    /// # Errors
    /// [`Error::Bind`] if the address is in use, not available on this machine, or not permitted.
    pub async fn bind(address: SocketAddr, options: Options) -> Result<BoundServer, Error> {
        let refused = |source| Error::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        Self::on(listener, options).map_err(refused)
    }

    /// Uses a listener that is already bound, for example with special socket options.
    ///
    /// # Errors
    /// The operating system does not return the address of the listener.
    pub fn on(listener: TcpListener, options: Options) -> io::Result<BoundServer> {
        let local = listener.local_addr()?;
        Ok(BoundServer {
            listener,
            local,
            options,
        })
    }
}

/// A server that is bound to its address.
#[derive(Debug)]
pub struct BoundServer {
    listener: TcpListener,
    local: SocketAddr,
    options: Options,
}

impl BoundServer {
    /// Returns the bound address, which contains the assigned port if the port was 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the counters of the server, which can be read while it runs.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.options.statistics.clone()
    }

    /// Serves `router` until `shutdown` is canceled, and then drains: lingers, stops accepting, closes idle connections,
    /// and waits for requests in progress. Dropping the future ends everything at once.
    ///
    /// Each request has [`ConnectInfo<SocketAddr>`](axum::extract::ConnectInfo) and, if the client presented a certificate,
    /// `PeerCertificates` as extensions.
    ///
    /// # Errors
    /// Only [`Error::ShutdownTimeout`], after the drain. No other event ends the server while it serves.
    pub async fn run(self, router: Router, shutdown: CancellationToken) -> Result<(), Error> {
        let Options {
            transport,
            limits,
            linger,
            grace,
            strict_framing,
            statistics,
        } = self.options;
        let mut acceptor = Acceptor {
            listener: self.listener,
            limiter: ConnectionLimiter::new(&limits, strict_framing, statistics.clone()),
            shared: Arc::new(Shared {
                transport,
                bodies: BodyBudget::new(limits.bodies_bytes, statistics.clone()),
                limits,
                router,
                statistics,
                closing: shutdown.clone(),
                stopping: CancellationToken::new(),
            }),
            connections: JoinSet::new(),
        };
        acceptor.accept_until(shutdown.cancelled()).await;
        acceptor.accept_until(sleep(linger)).await;
        acceptor.stop(grace).await
    }
}

/// State that all connections of one server share.
pub(crate) struct Shared {
    pub(crate) transport: Transport,
    pub(crate) limits: Limits,
    pub(crate) bodies: Arc<BodyBudget>,
    pub(crate) router: Router,
    pub(crate) statistics: Statistics,
    /// Canceled when responses must request their clients to close.
    pub(crate) closing: CancellationToken,
    /// Canceled when no connections are accepted anymore, and idle connections are closed.
    pub(crate) stopping: CancellationToken,
}

/// The listener and the accepted connections.
struct Acceptor {
    listener: TcpListener,
    limiter: Arc<ConnectionLimiter>,
    shared: Arc<Shared>,
    connections: JoinSet<()>,
}

impl Acceptor {
    async fn accept_until(&mut self, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                () = &mut end => return,
                Some(ended) = self.connections.join_next() => note(&self.shared.statistics, ended),
                (tcp, peer) = accepted(|| self.listener.accept(), &self.shared.statistics) => self.admit(tcp, peer),
            }
        }
    }

    fn admit(&mut self, tcp: TcpStream, peer: SocketAddr) {
        self.shared.statistics.add_one(Counter::Accepted);
        let Some(permit) = self.limiter.admit() else {
            return;
        };
        // Fails only on a closed socket, which the handshake detects.
        let _ = tcp.set_nodelay(true);
        let shared = Arc::clone(&self.shared);
        self.connections
            .spawn(connection::serve(shared, permit, tcp, peer));
    }

    async fn stop(mut self, grace: Duration) -> Result<(), Error> {
        drop(self.listener);
        self.shared.stopping.cancel();
        let statistics = &self.shared.statistics;
        let all_ended = async {
            while let Some(ended) = self.connections.join_next().await {
                note(statistics, ended);
            }
        };
        if timeout(grace, all_ended).await.is_ok() {
            return Ok(());
        }
        let connections = self.connections.len();
        statistics.add(Counter::Aborted, connections as u64);
        self.connections.shutdown().await;
        Err(Error::ShutdownTimeout { connections })
    }
}

/// Returns the next connection. An error concerns one client or is temporary, and never ends the server.
async fn accepted<T, F: Future<Output = io::Result<T>>>(
    accept: impl Fn() -> F,
    statistics: &Statistics,
) -> T {
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(error) => {
                statistics.add_one(Counter::AcceptErrors);
                if !concerns_one_peer(&error) {
                    tracing::warn!(%error, "failed to accept connection, retrying");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn concerns_one_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// Counts a panic outside the future of a handler, such as in a streamed response, which has ended one connection.
fn note(statistics: &Statistics, ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        statistics.add_one(Counter::Panics);
    }
}

#[cfg(test)]
mod tests;
