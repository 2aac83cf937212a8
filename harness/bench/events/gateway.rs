//! A model of KCP's gateway: ends the senders' TLS, writes who they are into their requests, and hands these on over
//! connections that it keeps, as Envoy does it.
//!
//! Invariants: a sender without a certificate of the authority gets no further than the handshake; the listener sees at
//! most [`UPSTREAM`] connections, the others wait here. Deliberately absent: routes, retries, and what a real Envoy
//! costs: this one is a part of the bench and is not measured.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::authority::forwarded;
use super::wire::{Message, Wire};

/// What the connections of one gateway share.
pub(super) struct Gateway {
    tls: Arc<ServerConfig>,
    /// Where the listener is.
    upstream: SocketAddr,
    /// Of senders, that were completed.
    pub(super) handshakes: AtomicU64,
    idle: Mutex<Vec<Wire<TcpStream>>>,
    places: Semaphore,
}

/// What it does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Hands them on.
    Serve,
    /// Takes them, and never answers.
    Hang,
}

impl Gateway {
    pub(super) fn new(tls: Arc<ServerConfig>, upstream: SocketAddr) -> Self {
        Self {
            tls,
            upstream,
            handshakes: AtomicU64::new(0),
            idle: Mutex::default(),
            places: Semaphore::new(UPSTREAM),
        }
    }

    /// Accepts until `closing`; then all connections are cut.
    pub(super) async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        manner: Manner,
        closing: CancellationToken,
    ) {
        let acceptor = TlsAcceptor::from(self.tls.clone());
        let connections = TaskTracker::new();
        while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
            let Ok((tcp, _)) = accepted else { continue };
            let (gateway, acceptor, closing) = (self.clone(), acceptor.clone(), closing.clone());
            connections.spawn(async move {
                // Whoever breaks off has its reasons; that nothing is lost is counted where events arrive.
                let conversation = gateway.converse(tcp, acceptor, manner);
                let _ = closing.run_until_cancelled(conversation).await;
            });
        }
        connections.close();
        connections.wait().await;
    }

    async fn converse(
        &self,
        tcp: TcpStream,
        acceptor: TlsAcceptor,
        manner: Manner,
    ) -> anyhow::Result<()> {
        tcp.set_nodelay(true)?;
        let stream = acceptor.accept(tcp).await?;
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        let chain = stream.get_ref().1.peer_certificates();
        let leaf = chain.and_then(<[_]>::first).context("no certificate")?;
        let who = forwarded(leaf, "bench");
        let mut downstream = Wire::new(stream);
        while let Some(request) = downstream.read().await? {
            if manner == Manner::Hang {
                std::future::pending::<()>().await;
            }
            let answer = self.hand_on(&request, &who).await?;
            downstream.write(answer.bytes()).await?;
            if answer.closes() {
                break;
            }
        }
        Ok(())
    }

    async fn hand_on(&self, request: &Message, who: &str) -> anyhow::Result<Message> {
        let head = request.head();
        let line = head.windows(2).position(|it| it == b"\r\n");
        let (line, rest) = request
            .bytes()
            .split_at(line.context("no request line")? + 2);
        let request = [line, who.as_bytes(), rest].concat();
        let _place = self.places.acquire().await?;
        let kept = self.lock().pop();
        let mut upstream = match kept {
            Some(kept) => kept,
            None => Wire::plain(self.upstream).await?,
        };
        let answer = upstream.ask(&request).await?;
        if !answer.closes() {
            self.lock().push(upstream);
        }
        Ok(answer)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Wire<TcpStream>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A quarter of what the listener takes.
const UPSTREAM: usize = 256;
