//! API servers of all kinds, over TLS on this machine.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

pub(crate) static PKI: LazyLock<Pki> = LazyLock::new(|| Pki::new("kubernetes"));

/// One authority for servers and clients.
pub(crate) struct Pki {
    pub(crate) authority: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        Self { authority, issuer }
    }

    /// A certificate for this machine's address and "api.example", bent.
    pub(crate) fn leaf(&self, bend: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1", "api.example"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "leaf");
        bend(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        (certificate.der().clone(), key.into())
    }
}

/// How a server speaks.
pub(crate) struct Manner {
    pub(crate) pair: Pair,
    pub(crate) alpn: &'static [&'static str],
    pub(crate) wants_certificate: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            pair: PKI.leaf(|_| ()),
            alpn: &["h2", "http/1.1"],
            wants_certificate: false,
        }
    }
}

impl Manner {
    pub(crate) fn only(protocol: &'static [&'static str]) -> Self {
        Self {
            alpn: protocol,
            ..Self::default()
        }
    }

    fn acceptor(self) -> TlsAcceptor {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if self.wants_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(PKI.authority.clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let (certificate, key) = self.pair;
        let mut config = builder.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = self.alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        Arc::new(config).into()
    }
}

/// What happened at a server.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) opened: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    busy: AtomicUsize,
    pub(crate) busiest: AtomicUsize,
    /// Asks all connections to close gracefully (HTTP/2: GOAWAY).
    pub(crate) retire: Notify,
}

pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl ApiServer {
    /// Answers every request by the function.
    pub(crate) async fn answering<F, A>(manner: Manner, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::over_tls(manner, move |stream, seen| {
            Box::pin(serve(stream, seen, answer.clone()))
        })
        .await
    }

    /// Hands every TLS session to the function.
    pub(crate) async fn over_tls<F>(manner: Manner, serve: F) -> Self
    where
        F: Fn(TlsStream<TcpStream>, Arc<Seen>) -> BoxFuture<'static, ()>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let acceptor = manner.acceptor();
        Self::over_tcp(move |stream, seen| {
            let (acceptor, serve) = (acceptor.clone(), serve.clone());
            Box::pin(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, seen).await;
                }
            })
        })
        .await
    }

    /// Hands every TCP connection to the function.
    pub(crate) async fn over_tcp<F>(serve: F) -> Self
    where
        F: Fn(TcpStream, Arc<Seen>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Seen>::default();
        let noted = seen.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                noted.opened.fetch_add(1, Ordering::SeqCst);
                noted.open.fetch_add(1, Ordering::SeqCst);
                let served = serve(stream, noted.clone());
                let noted = noted.clone();
                tokio::spawn(async move {
                    served.await;
                    noted.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self {
            address,
            seen,
            accepting,
        }
    }

    /// Nobody listens any more when this returns.
    pub(crate) async fn stop(mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    pub(crate) fn opened(&self) -> usize {
        self.seen.opened.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }
}

async fn serve<F, A>(stream: TlsStream<TcpStream>, seen: Arc<Seen>, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let multiplexed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let counted = seen.clone();
    let service = service_fn(move |request| {
        let (seen, answer) = (counted.clone(), answer.clone());
        async move {
            seen.requests.fetch_add(1, Ordering::SeqCst);
            let busy = seen.busy.fetch_add(1, Ordering::SeqCst) + 1;
            seen.busiest.fetch_max(busy, Ordering::SeqCst);
            let response = answer(request).await;
            seen.busy.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, io::Error>(response)
        }
    });
    let io = TokioIo::new(stream);
    if multiplexed {
        let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = &mut connection => return,
            () = seen.retire.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    } else {
        let connection = http1::Builder::new().serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = &mut connection => return,
            () = seen.retire.notified() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// A complete answer.
pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {});
    Response::builder()
        .status(status)
        .body(body.boxed_unsync())
        .unwrap()
}

/// An answer whose body is what the stream yields; an error breaks it off.
pub(crate) fn streamed(
    frames: impl stream::Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response<Body> {
    use futures::StreamExt as _;
    let body = StreamBody::new(frames.map(|it| it.map(Frame::data)));
    Response::new(body.boxed_unsync())
}
