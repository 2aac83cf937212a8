//! Accepting connections, and draining them at the end.
//!
//! Invariant: accepting ends by the shutdown token alone. No request that arrived fully before accepting
//! ended is lost, unless its handler outlives the grace.

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

/// After an error of accepting that will not go away by itself, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be listened on.
    #[error("failed to listen on {address}")]
    Bind {
        /// The address that was given.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The drain ended with requests unanswered. The server is down all the same.
    #[error("{connections} connections aborted at the end of the shutdown timeout")]
    ShutdownTimeout {
        /// How many.
        connections: usize,
    },
}

/// Whether connections are encrypted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// HTTP without TLS.
    Plain,
    /// HTTP over TLS, with the certificate of this handle.
    #[cfg(feature = "tls")]
    Tls(TlsHandle),
}

/// How a server serves and how it ends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Whether connections are encrypted.
    pub transport: Transport,
    /// What peers may take.
    pub limits: Limits,
    /// After the shutdown token: how long it goes on accepting and serving, each response with
    /// `Connection: close`. Default 10 s.
    ///
    /// The API server goes on using its connections to a terminating Pod (kubernetes#127335), and other nodes
    /// learn late that the endpoint is gone.
    pub linger: Duration,
    /// After that: how long requests may take to end before their connections are aborted. Default 10 s.
    pub grace: Duration,
    /// Whether a request is answered 400 if it says more than once where its body ends, or if its header was not seen from
    /// its first byte (pipelining). Default true. A server without a proxy in front can do without: no proxy could have
    /// read another end.
    pub strict_framing: bool,
    /// Where the server counts; to be given if the counters are needed before it is bound.
    pub statistics: Statistics,
}

impl Options {
    /// The defaults, without TLS.
    #[must_use]
    pub fn plain() -> Self {
        Self::new(Transport::Plain)
    }

    /// The defaults, with the certificate of `tls`.
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
    /// Takes the address. Connections queue in the kernel until [`BoundServer::run`].
    ///
    /// # Errors
    /// [`Error::Bind`]: in use, not ours, or not permitted.
    pub async fn bind(address: SocketAddr, options: Options) -> Result<BoundServer, Error> {
        let refused = |source| Error::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        Self::on(listener, options).map_err(refused)
    }

    /// Takes a listener that is bound already, such as one with socket options of its own.
    ///
    /// # Errors
    /// When the operating system does not tell its address.
    pub fn on(listener: TcpListener, options: Options) -> io::Result<BoundServer> {
        let local = listener.local_addr()?;
        Ok(BoundServer {
            listener,
            local,
            options,
        })
    }
}

/// A server that holds its address.
#[derive(Debug)]
pub struct BoundServer {
    listener: TcpListener,
    local: SocketAddr,
    options: Options,
}

impl BoundServer {
    /// Where it listens; tells the port when 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The server's counters, to be read while it runs.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.options.statistics.clone()
    }

    /// Serves `router` until `shutdown` is cancelled, then drains: lingers, stops accepting, closes idle
    /// connections, waits for busy ones. Dropping the future ends everything at once.
    ///
    /// Each request carries [`ConnectInfo<SocketAddr>`](axum::extract::ConnectInfo) and, where the peer gave a
    /// certificate, `PeerCertificates` as extensions.
    ///
    /// # Errors
    /// [`Error::ShutdownTimeout`] alone, after the drain. While serving, nothing ends the server.
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

/// What all connections of one server share.
pub(crate) struct Shared {
    pub(crate) transport: Transport,
    pub(crate) limits: Limits,
    pub(crate) bodies: Arc<BodyBudget>,
    pub(crate) router: Router,
    pub(crate) statistics: Statistics,
    /// Responses ask their peers to close.
    pub(crate) closing: CancellationToken,
    /// Nothing new is accepted; idle connections go.
    pub(crate) stopping: CancellationToken,
}

/// The listener and the connections it has let in.
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
        // Fails only on a socket that is gone, which the handshake will find.
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

/// The next connection. An error concerns one peer or passes with time; it never ends the server.
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

/// A panic outside a handler's future, such as in a streamed response, has ended one connection.
fn note(statistics: &Statistics, ended: Result<(), JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        statistics.add_one(Counter::Panics);
    }
}

#[cfg(test)]
mod tests;
