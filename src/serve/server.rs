//! The listener: accepts, and drains when told.
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
use crate::crowd::Crowd;
use crate::limits::Limits;
use crate::statistics::Statistics;
use crate::tls::TlsHandle;

/// After an error of accepting that will not go away by itself, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a server could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be listened on.
    #[error("failed to listen on {address}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The drain ended with requests unanswered. The server is down all the same.
    #[error("{connections} connections aborted at the end of the shutdown timeout")]
    Cut {
        /// How many.
        connections: usize,
    },
}

/// How a server serves and how it ends.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it presents in handshakes.
    pub tls: TlsHandle,
    /// What peers may take.
    pub limits: Limits,
    /// After the shutdown token: how long it goes on accepting and serving, each response with
    /// `Connection: close`. Default 10 s.
    ///
    /// The API server goes on using its connections to a terminating Pod (kubernetes#127335), and other nodes
    /// learn late that the endpoint is gone.
    pub linger: Duration,
    /// After that: how long requests may take to end before they are cut. Default 10 s.
    pub grace: Duration,
    /// Whether a request that gives the length of its body twice is answered 400. Default true. A server without a proxy
    /// in front can do without: nothing before it could have read another length. It then keeps no second copy of each
    /// header.
    pub refuse_ambiguous_length: bool,
    /// Spreads [`Limits::age`] over connections; give each replica another one. Default 0.
    pub seed: u64,
}

impl Options {
    /// The defaults, with these certificates.
    #[must_use]
    pub fn new(tls: TlsHandle) -> Self {
        let ten_seconds = Duration::from_secs(10);
        Self {
            tls,
            limits: Limits::default(),
            linger: ten_seconds,
            grace: ten_seconds,
            refuse_ambiguous_length: true,
            seed: 0,
        }
    }
}

/// A TLS server for an axum [`Router`].
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Takes the address. Connections queue in the kernel until [`Bound::run`].
    ///
    /// # Errors
    /// [`Error::Bind`]: in use, not ours, or not permitted.
    pub async fn bind(address: SocketAddr, options: Options) -> Result<Bound, Error> {
        let refused = |source| Error::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        Self::on(listener, options).map_err(refused)
    }

    /// Takes a listener that is bound already, such as one with socket options of its own.
    ///
    /// # Errors
    /// When the operating system does not tell its address.
    pub fn on(listener: TcpListener, options: Options) -> io::Result<Bound> {
        let local = listener.local_addr()?;
        Ok(Bound {
            listener,
            local,
            options,
            statistics: Statistics::default(),
        })
    }
}

/// A server that holds its address.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    local: SocketAddr,
    options: Options,
    statistics: Statistics,
}

impl Bound {
    /// Where it listens; tells the port when 0 was asked for.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The server's counters, to be read while it runs.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics.clone()
    }

    /// Serves `router` until `shutdown` is cancelled, then drains: lingers, stops accepting, closes idle
    /// connections, waits for busy ones. Dropping the future ends everything at once.
    ///
    /// Each request carries [`ConnectInfo<SocketAddr>`](axum::extract::ConnectInfo) and, where the peer gave a
    /// certificate, [`PeerCertificates`](crate::PeerCertificates) as extensions.
    ///
    /// # Errors
    /// [`Error::Cut`] alone, after the drain. While serving, nothing ends the server.
    pub async fn run(self, router: Router, shutdown: CancellationToken) -> Result<(), Error> {
        let Self {
            listener,
            options,
            statistics,
            ..
        } = self;
        let Options {
            tls,
            limits,
            linger,
            grace,
            refuse_ambiguous_length,
            seed,
        } = options;
        let kept_header_bytes = if refuse_ambiguous_length {
            limits.header_bytes
        } else {
            0
        };
        let crowd = Crowd::new(limits.connections, kept_header_bytes, statistics.clone());
        let stopping = CancellationToken::new();
        let shared = Arc::new(Shared {
            tls,
            bodies: BodyBudget::new(limits.bodies_bytes, statistics.clone()),
            limits,
            seed,
            router,
            statistics,
            closing: shutdown,
            stopping,
        });
        let mut reception = Reception {
            listener,
            crowd,
            shared,
            connections: JoinSet::new(),
        };

        let shared = Arc::clone(&reception.shared);
        reception.accept_until(shared.closing.cancelled()).await;
        reception.accept_until(sleep(linger)).await;
        reception.stop(grace).await
    }
}

/// What all connections of one server share.
pub(crate) struct Shared {
    pub(crate) tls: TlsHandle,
    pub(crate) limits: Limits,
    pub(crate) bodies: Arc<BodyBudget>,
    pub(crate) seed: u64,
    pub(crate) router: Router,
    pub(crate) statistics: Statistics,
    /// Responses ask their peers to close.
    pub(crate) closing: CancellationToken,
    /// Nothing new is accepted; idle connections go.
    pub(crate) stopping: CancellationToken,
}

/// The listener and the connections it has let in.
struct Reception {
    listener: TcpListener,
    crowd: Arc<Crowd>,
    shared: Arc<Shared>,
    connections: JoinSet<()>,
}

impl Reception {
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
        self.shared.statistics.counters().accepted.add_one();
        let Some(seat) = self.crowd.admit() else {
            return;
        };
        // Fails only on a socket that is gone, which the handshake will find.
        let _ = tcp.set_nodelay(true);
        self.connections
            .spawn(connection::serve(Arc::clone(&self.shared), seat, tcp, peer));
    }

    async fn stop(self, grace: Duration) -> Result<(), Error> {
        let Self {
            listener,
            shared,
            mut connections,
            ..
        } = self;
        drop(listener);
        shared.stopping.cancel();
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                note(&shared.statistics, ended);
            }
        };
        if timeout(grace, all_ended).await.is_ok() {
            return Ok(());
        }
        let cut = connections.len();
        for _ in 0..cut {
            shared.statistics.counters().cut.add_one();
        }
        connections.shutdown().await;
        Err(Error::Cut { connections: cut })
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
                statistics.counters().accept_errors.add_one();
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
        statistics.counters().panics.add_one();
    }
}

#[cfg(test)]
mod tests;
