//! A running server with handlers that respond at once, late, or incorrectly.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Extension, State};
use axum::routing::{get, post};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use testkit::pki::{Authority, Leaf, client_config_of};
use testkit::tls::RawTlsClient;
use testkit::until::until;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::pair::CertificatePair;
use crate::{Error, Limits, Options, PeerCertificates, Server, Statistics, TlsHandle};

/// Time limit of all waits. It is never reached if the server is correct.
const DEADLINE: Duration = Duration::from_secs(20);

/// Time that no step of a test reaches, even on a busy machine.
pub(super) const LONG: Duration = Duration::from_mins(1);

/// Size of the response of `/large` in bytes: more than the kernel buffers for a client that reads nothing.
pub(super) const LARGE: usize = 10_000_000;
pub(super) const TLS_1_2: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
pub(super) const TLS_1_3: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
pub(super) const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns a configuration that presents this certificate.
pub(super) fn presenting(leaf: &Leaf) -> ServerConfig {
    let pair = CertificatePair::from_pem(leaf.pem.as_bytes(), leaf.key_pem().as_bytes());
    crate::server_config(&pair.unwrap()).unwrap()
}

/// Returns the default limits, with times that only a test of this time reaches.
pub(super) fn limits() -> Limits {
    Limits {
        handshake: LONG,
        header: LONG,
        body: LONG,
        answer: LONG,
        ..Limits::default()
    }
}

/// A server that runs until the test ends.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) tls: TlsHandle,
    pub(super) authority: Authority,
    pub(super) shutdown: CancellationToken,
    /// Releases one request to `/wait`.
    pub(super) release: Arc<Notify>,
    pub(super) statistics: Statistics,
    serving: JoinHandle<Result<(), Error>>,
}

impl Running {
    pub(super) async fn with(limits: Limits) -> Self {
        Self::start(|options| options.limits = limits).await
    }

    pub(super) async fn start(change: impl FnOnce(&mut Options)) -> Self {
        let authority = Authority::new("one").unwrap();
        let leaf = authority.leaf("localhost").unwrap();
        let tls = TlsHandle::new(presenting(&leaf));
        let mut options = Options::tls(tls.clone());
        options.limits = limits();
        change(&mut options);
        let bound = Server::bind(([127, 0, 0, 1], 0).into(), options)
            .await
            .unwrap();
        let (address, statistics) = (bound.local_addr(), bound.statistics());
        let (shutdown, release) = (CancellationToken::new(), Arc::new(Notify::new()));
        let router = router(Arc::clone(&release));
        let serving = tokio::spawn(bound.run(router, shutdown.clone()));
        Self {
            address,
            tls,
            authority,
            shutdown,
            release,
            statistics,
            serving,
        }
    }

    pub(super) async fn connect(&self) -> RawTlsClient {
        self.try_connect(self.client_config(TLS_1_3)).await.unwrap()
    }

    pub(super) async fn try_connect(&self, config: ClientConfig) -> io::Result<RawTlsClient> {
        RawTlsClient::connect_tls(self.address, "localhost", config).await
    }

    /// Returns the configuration of a client that supports these TLS versions and trusts the CA of the server.
    pub(super) fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        client_config_of(versions, self.authority.roots(), None, &[]).unwrap()
    }

    /// Waits until the condition on the counters is true.
    pub(super) async fn until(&self, wanted: impl Fn(&Statistics) -> bool) {
        let reached = || async {
            let seen = &self.statistics;
            wanted(seen).then_some(()).ok_or(format!("{seen:?}"))
        };
        until("the counters", DEADLINE, reached).await.unwrap();
    }

    pub(super) async fn ended(self) -> Result<(), Error> {
        in_time(self.serving).await.unwrap()
    }
}

pub(super) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future)
        .await
        .expect("the deadline of the test has passed")
}

fn router(release: Arc<Notify>) -> Router {
    let peer = |ConnectInfo(peer): ConnectInfo<SocketAddr>,
                certificates: Option<Extension<PeerCertificates>>| async move {
        format!(
            "{peer} {}",
            certificates.map_or(0, |Extension(PeerCertificates(chain))| chain.len())
        )
    };
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route(
            "/size",
            post(|body: Bytes| async move { body.len().to_string() }),
        )
        .route("/unread", post(|| async { "not read" }))
        .route(
            "/stubborn",
            post(
                |body: Result<Bytes, axum::extract::rejection::BytesRejection>| async move {
                    if body.is_ok() {
                        "all read"
                    } else {
                        "never mind"
                    }
                },
            ),
        )
        .route("/peer", get(peer))
        .route("/large", get(|| async { vec![b'x'; LARGE] }))
        .route("/hold", post(hold))
        .route("/panic", get(defect))
        .route(
            "/wait",
            get(|State(release): State<Arc<Notify>>| async move {
                release.notified().await;
                "released"
            }),
        )
        .with_state(release)
}

/// Keeps the body that it has read until it is released.
async fn hold(State(release): State<Arc<Notify>>, body: Bytes) -> String {
    release.notified().await;
    body.len().to_string()
}

async fn defect() -> &'static str {
    panic!("a defect of the handler")
}
