//! Servers over TCP and TLS on a free port of loopback, which count connections and requests, and a client that sends arbitrary
//! bytes.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::raw::{Message, RawClient, RawResponse, RawTlsClient, read_message};
use crate::apiserver::ApiServer;
use crate::json::kubeconfig;
use crate::pki::Authority;

mod raw;

/// Body of a response; an error breaks the connection.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Counters of a server.
#[derive(Debug, Default)]
pub struct Seen {
    opened: AtomicUsize,
    open: AtomicUsize,
    requests: AtomicUsize,
    busy: AtomicUsize,
    busiest: AtomicUsize,
    retire: Notify,
}

/// A running server, which stops listening when it is dropped.
#[derive(Debug)]
pub struct TlsServer {
    address: SocketAddr,
    seen: Arc<Seen>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl TlsServer {
    /// Starts a server that calls the function for every request.
    pub async fn answering<F, A>(config: ServerConfig, answer: F) -> io::Result<Self>
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::over_tls(config, move |stream, seen| {
            serve(stream, seen, answer.clone())
        })
        .await
    }

    /// Starts a server for an API server in memory. A reset fault breaks the connection.
    pub async fn of(config: ServerConfig, server: ApiServer) -> io::Result<Self> {
        Self::answering(config, move |request| {
            let server = server.clone();
            async move {
                let reset = async { Err(io::ErrorKind::ConnectionReset.into()) };
                let broken = |_| streamed(futures::stream::once(reset));
                server.answer(request).await.unwrap_or_else(broken)
            }
        })
        .await
    }

    /// Starts a server that calls the function for every TLS session.
    pub async fn over_tls<F, S>(config: ServerConfig, serve: F) -> io::Result<Self>
    where
        F: Fn(TlsStream<TcpStream>, Arc<Seen>) -> S + Clone + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self::over_tcp(move |stream, seen| {
            let (acceptor, serve) = (acceptor.clone(), serve.clone());
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, seen).await;
                }
            }
        })
        .await
    }

    /// Starts a server that calls the function for every TCP connection.
    pub async fn over_tcp<F, S>(serve: F) -> io::Result<Self>
    where
        F: Fn(TcpStream, Arc<Seen>) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::<Seen>::default();
        let noted = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // If this fails, responses are only slower.
                let _ = stream.set_nodelay(true);
                noted.opened.fetch_add(1, Ordering::SeqCst);
                noted.open.fetch_add(1, Ordering::SeqCst);
                let served = serve(stream, Arc::clone(&noted));
                let noted = Arc::clone(&noted);
                tokio::spawn(async move {
                    served.await;
                    noted.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Ok(Self {
            address,
            seen,
            accepting,
        })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a kubeconfig for this server, whose certificate `authority` has signed, with a bearer token.
    pub fn kubeconfig(&self, authority: &Authority, token: &str) -> String {
        let cluster = json!({
            "server": format!("https://{}", self.address),
            "certificate-authority-data": STANDARD.encode(authority.pem()),
        });
        kubeconfig("test", &cluster, &json!({"token": token}))
    }

    /// Stops listening. After the call, connections are refused.
    pub async fn stop(mut self) {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
    }

    /// Returns the number of connections so far.
    pub fn opened(&self) -> usize {
        self.seen.opened.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    /// Returns the largest number of concurrent requests.
    pub fn busiest(&self) -> usize {
        self.seen.busiest.load(Ordering::SeqCst)
    }

    /// Starts a graceful shutdown of all connections (HTTP/2: GOAWAY).
    pub fn retire_connections(&self) {
        self.seen.retire.notify_waiters();
    }
}

/// Serves a TLS session with the protocol of the client.
async fn serve<F, A>(stream: TlsStream<TcpStream>, seen: Arc<Seen>, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Body>> + Send + 'static,
{
    let counted = Arc::clone(&seen);
    let service = service_fn(move |request| {
        let (seen, answer) = (Arc::clone(&counted), answer.clone());
        async move {
            seen.requests.fetch_add(1, Ordering::SeqCst);
            let busy = seen.busy.fetch_add(1, Ordering::SeqCst) + 1;
            seen.busiest.fetch_max(busy, Ordering::SeqCst);
            let response = answer(request).await;
            seen.busy.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, io::Error>(response)
        }
    });
    let builder = Builder::new(TokioExecutor::new());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = &mut connection => return,
        () = seen.retire.notified() => connection.as_mut().graceful_shutdown(),
    }
    // The result of the connection is not relevant, because requests are already counted.
    let _ = connection.await;
}

/// Returns a complete response.
pub fn answer(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
}

/// Returns a response with the stream as its body; an error breaks the connection.
pub fn streamed(frames: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(frames.map(|it| it.map(Frame::data)));
    Response::new(body.boxed_unsync())
}
