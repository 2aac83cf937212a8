//! KCP from the perspective of watchers: a gateway that terminates TLS and forwards certificates, and an operator with the
//! listener.
//!
//! The gateway replaces Envoy and is not measured. It accepts clients with a certificate of the CA, adds
//! `X-Forwarded-Client-Cert`, and forwards at most [`UPSTREAM`] concurrent requests over kept-alive connections; it has no
//! routes and no retries. An event counts as received when the listener's stream yields it, which is when an operator would
//! process it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt as _;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use listener::{
    CertificateCheck, Event, Listener, Liveness, Notification, RuntimeIdFromCommonName,
    TrustAnchors,
};
use pem::{EncodeConfig, LineEnding, Pem};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use testkit::locked;
use testkit::pki::{Authority, Leaf};
use testkit::until::until;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::watcher::Reviews;
use crate::load::Exchange;
use crate::process::free_address;

/// KCP with an operator that records its events. It ends when the handle is dropped.
pub(super) struct Kcp {
    pub(super) authority: Authority,
    pub(super) gateway: Gateway,
    pub(super) events: Arc<ReceivedEvents>,
    operator: Operator,
}

impl Kcp {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let authority = Authority::new("bench")?;
        let events = Arc::<ReceivedEvents>::default();
        let recorded = Arc::clone(&events);
        let take = move |event: Event| recorded.record(event.watched.name, Instant::now());
        let operator = Operator::start(free_address()?, authority.pem(), take).await?;
        Ok(Self {
            gateway: Gateway::start(&authority, operator.address).await?,
            authority,
            events,
            operator,
        })
    }

    /// Changes the CAs of clients that gateway and listener accept, and the certificate of the gateway.
    pub(super) fn rotate(&self, trusted: &Trusted, leaf: &Leaf) -> anyhow::Result<()> {
        self.operator
            .trust_anchors
            .replace(trusted.pem.as_bytes())?;
        let config = leaf.server_config_of(&[], Some(trusted.roots.clone()))?;
        *locked(&self.gateway.forwarder.tls) = Arc::new(config);
        Ok(())
    }
}

/// A bundle of CAs.
pub(super) struct Trusted {
    pub(super) pem: String,
    pub(super) roots: RootCertStore,
}

impl Trusted {
    pub(super) fn new(authorities: &[&Authority]) -> Self {
        let roots = authorities.iter().flat_map(|it| it.roots().roots);
        Self {
            pem: authorities.iter().map(|it| it.pem()).collect(),
            roots: roots.collect(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Up,
    Refusing,
    /// Connections and requests are accepted and never answered.
    Hanging,
}

/// An operator with the listener. It ends when the handle is dropped.
pub(super) struct Operator {
    address: SocketAddr,
    pub(super) liveness: Liveness,
    trust_anchors: TrustAnchors,
    _ends: DropGuard,
}

impl Operator {
    /// Calls `take` with every event of a watcher whose certificate is from the authority (PEM). The common name of the
    /// certificate is the runtime.
    pub(super) async fn start(
        address: SocketAddr,
        authority: &str,
        mut take: impl FnMut(Event) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let trust_anchors = TrustAnchors::from_pem(authority.as_bytes())?;
        let check = CertificateCheck::new(trust_anchors.clone(), RuntimeIdFromCommonName);
        let builder = Listener::builder(address, MANAGER).authentication(check);
        let (runnable, mut notifications) = builder.build()?;
        let liveness = runnable.liveness();
        let bound = runnable.bind().await?;
        let address = bound.local_addr();
        let ending = CancellationToken::new();
        tokio::spawn(async move {
            while let Some(notification) = notifications.next().await {
                if let Notification::Changed(event) = notification {
                    take(event);
                }
            }
        });
        tokio::spawn(bound.run(ending.clone()));
        Ok(Self {
            address,
            liveness,
            trust_anchors,
            _ends: ending.drop_guard(),
        })
    }
}

/// A gateway in front of a listener, with a constant address. It ends when the handle is dropped.
pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    forwarder: Arc<Forwarder>,
    open: Option<(DropGuard, JoinHandle<()>)>,
}

impl Gateway {
    pub(super) async fn start(authority: &Authority, listener: SocketAddr) -> anyhow::Result<Self> {
        let leaf = authority.leaf("gateway")?;
        let forwarder = Forwarder {
            tls: Mutex::new(Arc::new(leaf.server_config(&[], Some(authority))?)),
            listener,
            client: Client::builder(TokioExecutor::new()).build_http(),
            handshakes: AtomicU64::new(0),
            failed_handshakes: AtomicU64::new(0),
            permits: Semaphore::new(UPSTREAM),
        };
        let mut gateway = Self {
            address: free_address()?,
            forwarder: Arc::new(forwarder),
            open: None,
        };
        gateway.set(Mode::Up).await?;
        Ok(gateway)
    }

    /// Changes the mode, and closes open connections.
    pub(super) async fn set(&mut self, mode: Mode) -> anyhow::Result<()> {
        if let Some((closing, closed)) = self.open.take() {
            drop(closing);
            closed.await?;
        }
        if mode != Mode::Refusing {
            let listener = TcpListener::bind(self.address).await;
            let listener = listener.context("the gateway's port")?;
            let closing = CancellationToken::new();
            let running = Arc::clone(&self.forwarder).run(listener, mode, closing.clone());
            self.open = Some((closing.drop_guard(), tokio::spawn(running)));
        }
        Ok(())
    }

    pub(super) fn handshakes(&self) -> u64 {
        self.forwarder.handshakes.load(Ordering::Relaxed)
    }

    pub(super) fn failed_handshakes(&self) -> u64 {
        self.forwarder.failed_handshakes.load(Ordering::Relaxed)
    }
}

struct Forwarder {
    /// Configuration of new connections. Those with an earlier one are closed after their next response, as Envoy drains the
    /// connections of a listener that has changed.
    tls: Mutex<Arc<ServerConfig>>,
    listener: SocketAddr,
    client: Client<HttpConnector, Incoming>,
    handshakes: AtomicU64,
    failed_handshakes: AtomicU64,
    permits: Semaphore,
}

impl Forwarder {
    async fn run(self: Arc<Self>, listener: TcpListener, mode: Mode, closing: CancellationToken) {
        let mut connections = JoinSet::new();
        while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
            let Ok((tcp, _)) = accepted else { continue };
            // A client may disconnect at any time; lost events are counted at the operator.
            connections.spawn(Arc::clone(&self).serve(tcp, mode));
        }
        connections.shutdown().await;
    }

    async fn serve(self: Arc<Self>, tcp: TcpStream, mode: Mode) -> anyhow::Result<()> {
        tcp.set_nodelay(true)?;
        let tls = Arc::clone(&locked(&self.tls));
        let accepted = TlsAcceptor::from(Arc::clone(&tls)).accept(tcp).await;
        let counter = match &accepted {
            Ok(_) => &self.handshakes,
            Err(_) => &self.failed_handshakes,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let stream = accepted?;
        let chain = stream.get_ref().1.peer_certificates();
        let certificate = chain.and_then(<[_]>::first).context("no certificate")?;
        let header = HeaderValue::try_from(forwarded(certificate))?;
        let service = service_fn(async |request| {
            if mode == Mode::Hanging {
                std::future::pending::<()>().await;
            }
            let mut response = self.forward(request, header.clone()).await?;
            if !Arc::ptr_eq(&tls, &locked(&self.tls)) {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            anyhow::Ok(response)
        });
        let io = TokioIo::new(stream);
        Ok(http1::Builder::new().serve_connection(io, service).await?)
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        header: HeaderValue,
    ) -> anyhow::Result<Response<Incoming>> {
        let _permit = self.permits.acquire().await?;
        *request.uri_mut() = format!("http://{}{}", self.listener, request.uri()).parse()?;
        request.headers_mut().insert(XFCC_HEADER, header);
        Ok(self.client.request(request).await?)
    }
}

/// Returns the value of [`XFCC_HEADER`] that a gateway adds to requests of this client (Envoy, `SANITIZE_SET` with `cert` and
/// `subject`).
pub(super) fn forwarded(client: &CertificateDer<'_>) -> String {
    let hash = Sha256::digest(client);
    let unix = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let pem = pem::encode_config(&Pem::new("CERTIFICATE", client.as_ref()), unix);
    let certificate = utf8_percent_encode(&pem, ENCODED);
    format!("Hash={hash:x};Cert=\"{certificate}\";Subject=\"CN=bench\"")
}

/// Times at which the first and the last event of each object were received, by the name of the object.
#[derive(Default)]
pub(super) struct ReceivedEvents(Mutex<HashMap<String, [Instant; 2]>>);

impl ReceivedEvents {
    fn record(&self, object: String, now: Instant) {
        locked(&self.0).entry(object).or_insert([now; 2])[1] = now;
    }

    pub(super) fn first(&self, object: &str) -> Option<Instant> {
        Some(locked(&self.0).get(object)?[0])
    }

    /// Returns the times of the first events of all objects with this prefix.
    pub(super) fn first_of(&self, prefix: &str) -> Vec<Instant> {
        let objects = locked(&self.0);
        let chosen = objects.iter().filter(|(name, _)| name.starts_with(prefix));
        chosen.map(|(_, received)| received[0]).collect()
    }
}

/// The final states that KCP must receive: for each object, an event that was received after its last answered review.
#[derive(Default)]
pub(super) struct Expected {
    answered: HashMap<String, Instant>,
    pub(super) reviews: u64,
}

impl Expected {
    pub(super) fn add_reviews(&mut self, reviews: &Reviews, exchanges: &[Exchange]) {
        for exchange in exchanges.iter().filter(|it| it.answered) {
            self.add(reviews.object(exchange.number), exchange.end);
        }
    }

    fn add(&mut self, object: String, at: Instant) {
        let known = self.answered.entry(object).or_insert(at);
        *known = at.max(*known);
        self.reviews += 1;
    }

    pub(super) fn objects(&self) -> usize {
        self.answered.len()
    }

    fn unknown(&self, events: &ReceivedEvents) -> usize {
        let received = locked(&events.0);
        let is_known = |object: &String, at: &Instant| {
            received.get(object).is_some_and(|[_, last]| last >= at)
        };
        let answered = self.answered.iter();
        answered
            .filter(|(object, at)| !is_known(object, at))
            .count()
    }

    /// Waits until KCP has received every final state. Returns the number of states that are lost at the deadline, and the
    /// duration.
    pub(super) async fn settle(
        &self,
        events: &ReceivedEvents,
        deadline: Duration,
    ) -> (usize, Duration) {
        let begin = Instant::now();
        let known = || async { self.unknown(events) == 0 };
        // The result contains the states that are missing at the deadline.
        let _ = until("every final state", deadline, known).await;
        (self.unknown(events), begin.elapsed())
    }
}

pub(super) const MANAGER: &str = "bench";
pub(super) const XFCC_HEADER: &str = "x-forwarded-client-cert";
/// Characters that Envoy encodes in a certificate.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// Largest number of concurrent requests: a quarter of the listener's limit.
const UPSTREAM: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn final_state_is_unknown_until_an_event_follows_its_answer() {
        let (events, mut expected) = (ReceivedEvents::default(), Expected::default());
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        expected.add("a".to_owned(), at(1));
        assert_eq!(expected.unknown(&events), 1, "no event");
        events.record("a".to_owned(), at(0));
        assert_eq!(expected.unknown(&events), 1, "an event before the answer");
        events.record("a".to_owned(), at(2));
        assert_eq!(expected.unknown(&events), 0);
        expected.add("a".to_owned(), at(3));
        assert_eq!(
            (expected.unknown(&events), expected.reviews),
            (1, 2),
            "changed again"
        );
    }
}
