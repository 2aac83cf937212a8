//! KCP as watchers see it: a gateway that ends TLS and forwards certificates, and an operator with the listener.
//!
//! The gateway is a substitute for Envoy and is not measured: it accepts clients with a certificate of the authority, adds
//! `X-Forwarded-Client-Cert`, and forwards over at most [`UPSTREAM`] kept connections; it has no routes and no retries.
//! An event counts as received when it comes out of the listener's stream, which is when an operator would react to it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::StreamExt as _;
use listener::{
    Authentication, Authorities, CertificateCheck, Event, Liveness, Options,
    RuntimeIdFromCommonName, register_listener_component,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use testkit::pki::Authority;
use testkit::tls::{Message, RawResponse, read_message};
use testkit::until::until;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::load::{Connection, Target};
use crate::process::free_address;

/// How the gateway behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Events are accepted.
    Up,
    /// Connections are refused.
    Refusing,
    /// Handshakes and requests are accepted and never answered.
    Hanging,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Up, Self::Refusing, Self::Hanging];
}

/// An operator with the listener; it ends with this handle.
pub(super) struct Operator {
    pub(super) address: SocketAddr,
    pub(super) liveness: Liveness,
    _ends: DropGuard,
}

impl Operator {
    /// Calls `take` with every event.
    pub(super) async fn start(
        address: SocketAddr,
        authentication: Authentication,
        mut take: impl FnMut(Event) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let options = Options::new(authentication);
        let (runnable, mut events) = register_listener_component(address, MANAGER, options)?;
        let liveness = runnable.liveness();
        let bound = runnable.bind().await?;
        let address = bound.local_addr();
        let ending = CancellationToken::new();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                take(event);
            }
        });
        tokio::spawn(bound.run(ending.clone()));
        Ok(Self {
            address,
            liveness,
            _ends: ending.drop_guard(),
        })
    }
}

/// A listener that verifies certificates and takes their common name for the runtime.
pub(super) fn verifying(authority: &str) -> anyhow::Result<Authentication> {
    let authorities = Authorities::from_pem(authority.as_bytes())?;
    let check = CertificateCheck::new(authorities, RuntimeIdFromCommonName);
    Ok(Authentication::Certificate(check))
}

/// A gateway with a listener behind it; its address does not change. It ends with this handle.
pub(super) struct Gateway {
    pub(super) address: SocketAddr,
    forwarder: Arc<Forwarder>,
    open: Option<(CancellationToken, JoinHandle<()>)>,
    ending: CancellationToken,
    _ends: DropGuard,
}

impl Gateway {
    pub(super) async fn start(authority: &Authority, listener: SocketAddr) -> anyhow::Result<Self> {
        let leaf = authority.leaf("gateway")?;
        let ending = CancellationToken::new();
        let forwarder = Forwarder {
            tls: Arc::new(leaf.server_config(&[], Some(authority))?),
            upstream: Target {
                address: listener,
                tls: None,
            },
            handshakes: AtomicU64::new(0),
            idle: Mutex::default(),
            permits: Semaphore::new(UPSTREAM),
        };
        let mut gateway = Self {
            address: free_address()?,
            forwarder: Arc::new(forwarder),
            open: None,
            _ends: ending.clone().drop_guard(),
            ending,
        };
        gateway.set(Mode::Up).await?;
        Ok(gateway)
    }

    /// Changes the mode; open connections are closed.
    pub(super) async fn set(&mut self, mode: Mode) -> anyhow::Result<()> {
        if let Some((closing, closed)) = self.open.take() {
            closing.cancel();
            closed.await.map_err(|_| anyhow!("the gateway failed"))?;
        }
        if mode != Mode::Refusing {
            let listener = TcpListener::bind(self.address).await;
            let listener = listener.context("the gateway's port")?;
            let closing = self.ending.child_token();
            let running = Arc::clone(&self.forwarder).run(listener, mode, closing.clone());
            self.open = Some((closing, tokio::spawn(running)));
        }
        Ok(())
    }

    /// TLS handshakes so far.
    pub(super) fn handshakes(&self) -> u64 {
        self.forwarder.handshakes.load(Ordering::Relaxed)
    }
}

/// What the connections of a gateway share.
struct Forwarder {
    tls: Arc<ServerConfig>,
    upstream: Target,
    handshakes: AtomicU64,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Forwarder {
    async fn run(self: Arc<Self>, listener: TcpListener, mode: Mode, closing: CancellationToken) {
        let connections = TaskTracker::new();
        while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
            let Ok((tcp, _)) = accepted else { continue };
            let (forwarder, closing) = (Arc::clone(&self), closing.clone());
            connections.spawn(async move {
                // A client may break off; lost events are counted at the operator.
                let _ = closing
                    .run_until_cancelled(forwarder.serve(tcp, mode))
                    .await;
            });
        }
        connections.close();
        connections.wait().await;
    }

    async fn serve(&self, tcp: TcpStream, mode: Mode) -> anyhow::Result<()> {
        tcp.set_nodelay(true)?;
        let mut stream = TlsAcceptor::from(Arc::clone(&self.tls)).accept(tcp).await?;
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        let chain = stream.get_ref().1.peer_certificates();
        let header = forwarded(chain.and_then(<[_]>::first).context("no certificate")?);
        let mut received = Vec::new();
        loop {
            let request = read_message(&mut stream, &mut received, KEEP_ALIVE).await?;
            if mode == Mode::Hanging {
                std::future::pending::<()>().await;
            }
            let response = self.forward(&request, &header).await?;
            let RawResponse { head, body, .. } = &response;
            stream
                .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
                .await?;
            stream.flush().await?;
            if response.closes() {
                return Ok(());
            }
        }
    }

    async fn forward(&self, request: &Message, header: &str) -> anyhow::Result<RawResponse> {
        let _permit = self.permits.acquire().await?;
        let idle = self.idle().pop();
        let mut upstream = match idle {
            Some(idle) => idle,
            None => self.upstream.connect().await?,
        };
        let Message { head, body, .. } = request;
        let (line, headers) = head.split_once("\r\n").context("no headers")?;
        let request = format!("{line}\r\n{header}{headers}\r\n\r\n{body}");
        let response = upstream.ask(request).await?;
        if !response.closes() {
            self.idle().push(upstream);
        }
        Ok(response)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The header line of a gateway for requests of this client (Envoy, `SANITIZE_SET` with `cert` and `subject`).
pub(super) fn forwarded(client: &CertificateDer<'_>) -> String {
    let hash = Sha256::digest(client);
    let base64 = BASE64.encode(client).into_bytes();
    let lines = base64
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line) + "\n");
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n",
        lines.collect::<String>()
    );
    let certificate = utf8_percent_encode(&pem, ENCODED);
    format!(
        "x-forwarded-client-cert: Hash={hash:x};Cert=\"{certificate}\";Subject=\"CN=bench\"\r\n"
    )
}

/// When events of an object were received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    pub(super) first: Instant,
    pub(super) last: Instant,
}

/// The events that an operator received, by the name of the object.
#[derive(Default)]
pub(super) struct ReceivedEvents(Mutex<HashMap<String, Received>>);

impl ReceivedEvents {
    /// An operator that records its events.
    pub(super) async fn recorded(authority: &str) -> anyhow::Result<(Operator, Arc<Self>)> {
        let events = Arc::new(Self::default());
        let recorded = Arc::clone(&events);
        let take = move |event: Event| recorded.record(event.watched.name, Instant::now());
        Ok((
            Operator::start(free_address()?, verifying(authority)?, take).await?,
            events,
        ))
    }

    pub(super) fn record(&self, object: String, now: Instant) {
        let mut objects = self.objects();
        let first = Received {
            first: now,
            last: now,
        };
        objects.entry(object).or_insert(first).last = now;
    }

    pub(super) fn of(&self, object: &str) -> Option<Received> {
        self.objects().get(object).copied()
    }

    /// The times of the first events of all objects with this prefix.
    pub(super) fn first_of(&self, prefix: &str) -> Vec<Instant> {
        let objects = self.objects();
        let chosen = objects.iter().filter(|(name, _)| name.starts_with(prefix));
        chosen.map(|(_, received)| received.first).collect()
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<String, Received>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What KCP has to receive in the end: for each object, an event that was received after its last answered review. An event
/// that was received before the answer does not count.
#[derive(Default)]
pub(super) struct Expected {
    answered: HashMap<String, Instant>,
    pub(super) reviews: u64,
}

impl Expected {
    /// A review of this object was answered.
    pub(super) fn add(&mut self, object: String, at: Instant) {
        let known = self.answered.entry(object).or_insert(at);
        *known = at.max(*known);
        self.reviews += 1;
    }

    pub(super) fn objects(&self) -> usize {
        self.answered.len()
    }

    /// Objects whose final state KCP has not received.
    pub(super) fn unknown(&self, events: &ReceivedEvents) -> usize {
        let unknown = |(object, at): &(&String, &Instant)| {
            events
                .of(object)
                .is_none_or(|received| received.last < **at)
        };
        self.answered.iter().filter(unknown).count()
    }

    /// Waits until KCP has received every final state; gives the number of those lost after the deadline, and the time.
    pub(super) async fn settle(
        &self,
        events: &ReceivedEvents,
        deadline: Duration,
    ) -> (usize, Duration) {
        let begin = Instant::now();
        let known = || async { self.unknown(events) == 0 };
        // What is unknown after the deadline is the result.
        let _ = until("every final state", deadline, known).await;
        (self.unknown(events), begin.elapsed())
    }
}

/// The manager that all events are for.
pub(super) const MANAGER: &str = "bench";
/// What Envoy encodes in a certificate.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
/// How long connections without a request are kept.
const KEEP_ALIVE: Duration = Duration::from_hours(1);
/// A quarter of what the listener accepts.
const UPSTREAM: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_forwarded_as_envoy_does_it() {
        let line = forwarded(&CertificateDer::from(vec![0_u8; 60]));
        assert!(line.starts_with("x-forwarded-client-cert: Hash="), "{line}");
        let line_of_64 = format!(
            "Cert=\"-----BEGIN%20CERTIFICATE-----%0A{}%0AA",
            "A".repeat(64)
        );
        assert!(line.contains(&line_of_64), "{line}");
        let end = "-----END%20CERTIFICATE-----%0A\";Subject=\"CN=bench\"\r\n";
        assert!(line.ends_with(end), "{line}");
    }

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
