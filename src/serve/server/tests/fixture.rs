//! A running server, a router with handlers of every temper, and a client that speaks raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Extension, State};
use axum::routing::{get, post};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Identity, Limits, Options, PeerCertificates, Server, Snapshot, Statistics, TlsHandle,
};

/// No wait in these tests is longer, and none ends by it when all is well.
const DEADLINE: Duration = Duration::from_secs(20);

pub(super) const TLS_1_2: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
pub(super) const TLS_1_3: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
pub(super) const GET: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A self-signed leaf: its own trust root.
pub(super) struct Leaf {
    pub(super) cert: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Leaf {
    pub(super) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        Self {
            cert: made.cert.der().clone(),
            key: made.signing_key.serialize_der(),
        }
    }

    pub(super) fn identity(&self) -> Identity {
        Identity {
            chain: vec![self.cert.clone()],
            key: self.key(),
        }
    }

    pub(super) fn config(&self) -> ServerConfig {
        crate::server_config(self.identity()).unwrap()
    }

    pub(super) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.cert.clone()).unwrap();
        roots
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.clone()).unwrap()
    }
}

/// A server that runs until the test ends.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) tls: TlsHandle,
    pub(super) leaf: Leaf,
    pub(super) shutdown: CancellationToken,
    /// Lets one request to `/wait` go on.
    pub(super) release: Arc<Notify>,
    pub(super) statistics: Statistics,
    serving: JoinHandle<Result<(), Error>>,
}

impl Running {
    pub(super) async fn with(limits: Limits) -> Self {
        Self::start(|options| options.limits = limits).await
    }

    pub(super) async fn start(change: impl FnOnce(&mut Options)) -> Self {
        let leaf = Leaf::new();
        let mut options = Options::new(TlsHandle::new(leaf.config()));
        change(&mut options);
        let tls = options.tls.clone();
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
            leaf,
            shutdown,
            release,
            statistics,
            serving,
        }
    }

    pub(super) async fn connect(&self) -> Client {
        self.try_connect(self.client_config(TLS_1_3)).await.unwrap()
    }

    pub(super) async fn try_connect(&self, config: ClientConfig) -> std::io::Result<Client> {
        let tcp = TcpStream::connect(self.address).await?;
        let name = "localhost".try_into().unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, tcp);
        Ok(Client {
            stream: in_time(connecting).await?,
            read: Vec::new(),
        })
    }

    pub(super) fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        client_builder(versions)
            .with_root_certificates(self.leaf.roots())
            .with_no_client_auth()
    }

    /// Waits until the counters are as wanted.
    pub(super) async fn until(&self, wanted: impl Fn(&Snapshot) -> bool) {
        let reached = async {
            while !wanted(&self.statistics.snapshot()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let reached = timeout(DEADLINE, reached).await;
        assert!(
            reached.is_ok(),
            "never reached: {:?}",
            self.statistics.snapshot()
        );
    }

    pub(super) async fn ended(self) -> Result<(), Error> {
        in_time(self.serving).await.unwrap()
    }
}

pub(super) fn client_builder(
    versions: &[&'static SupportedProtocolVersion],
) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
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

/// One TLS connection.
pub(super) struct Client {
    pub(super) stream: TlsStream<TcpStream>,
    read: Vec<u8>,
}

/// A response, its header in lower case.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) header: String,
    pub(super) body: String,
}

impl Response {
    pub(super) fn closes(&self) -> bool {
        self.header.contains("\r\nconnection: close\r\n")
    }
}

impl Client {
    pub(super) async fn ask(&mut self, request: &str) -> Response {
        self.send(request).await;
        self.response().await
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(super) async fn response(&mut self) -> Response {
        let end = loop {
            if let Some(at) = self
                .read
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                break at + 4;
            }
            assert_ne!(self.more().await, 0, "closed without an answer");
        };
        let header = String::from_utf8(self.read.drain(..end).collect())
            .unwrap()
            .to_lowercase();
        let field = |line: &str| {
            line.strip_prefix("content-length: ")
                .map(|length| length.parse().unwrap())
        };
        let length: usize = header.lines().find_map(field).unwrap_or(0);
        while self.read.len() < length {
            assert_ne!(self.more().await, 0, "closed within an answer");
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        let status = header.split(' ').nth(1).unwrap().parse().unwrap();
        Response {
            status,
            header,
            body,
        }
    }

    /// Waits for the server's end of the connection; nothing more may come.
    pub(super) async fn closed(&mut self) {
        assert_eq!(
            self.more().await,
            0,
            "{:?}",
            String::from_utf8_lossy(&self.read)
        );
    }

    /// Zero at the end, however rude.
    async fn more(&mut self) -> usize {
        in_time(self.stream.read_buf(&mut self.read))
            .await
            .unwrap_or(0)
    }
}
