//! HTTP client for KCP: HTTP/1.1 on persistent connections, with one generation of certificates. It uses no proxy, no CAs
//! of the system, and follows no redirects. Each step of connecting has a time limit.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use component_base::client::limited;
use http::{Extensions, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo, capture_connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use super::Timeouts;
use super::error::{PostError, StepTimeout};

/// Maximum size of the response headers in bytes, and size of the read buffer.
const HEAD_BYTES: usize = 16 << 10;

/// Maximum number of stored addresses of connections that have returned a response.
const REUSED: usize = 1_024;

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Client with one generation of certificates. Clones share the connections.
#[derive(Clone)]
pub(super) struct KcpClient {
    pub(super) tls: Arc<ClientConfig>,
    client: Client<BoxCloneSyncService<Uri, Stream, BoxError>, Full<Bytes>>,
    /// Local addresses of connections that have returned a response.
    answered: Arc<Mutex<HashSet<SocketAddr>>>,
    answer: Duration,
}

impl KcpClient {
    pub(super) fn new(config: &Arc<ClientConfig>, connections: usize, timeouts: &Timeouts) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(timeouts.connect));
        // The limit includes the resolution of the name.
        let tcp = limited(tcp, timeouts.connect, StepTimeout::Connect);
        let tls = HttpsConnector::from((tcp, Arc::clone(config)));
        let until_tls = timeouts.connect + timeouts.handshake;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(timeouts.idle)
            .pool_max_idle_per_host(connections)
            .http1_max_buf_size(HEAD_BYTES)
            .build(limited(tls, until_tls, StepTimeout::Handshake));
        Self {
            tls: Arc::clone(config),
            client,
            answered: Arc::default(),
            answer: timeouts.answer,
        }
    }

    /// Sends a request. Retries it for each idle connection that breaks during the request, because KCP may have closed
    /// that connection at the same time.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, PostError> {
        loop {
            match self.send_once(request.clone()).await? {
                Ok(response) => {
                    if let Some(info) = response.extensions().get::<HttpInfo>() {
                        self.remember(info.local_addr());
                    }
                    return Ok(response);
                }
                Err(error) if self.had_answered(&error) => {}
                Err(error) => return Err(PostError::Unreachable(error.into())),
            }
        }
    }

    async fn send_once(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Result<Response<Incoming>, Error>, PostError> {
        let mut connected = capture_connection(&mut request);
        let mut response = self.client.request(request);
        tokio::select! {
            response = &mut response => return Ok(response),
            _ = connected.wait_for_connection_metadata() => {}
        }
        let response = timeout(self.answer, response).await;
        response.map_err(|_| PostError::NoResponse)
    }

    fn remember(&self, connection: SocketAddr) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() >= REUSED {
            answered.clear();
        }
        answered.insert(connection);
    }

    fn had_answered(&self, error: &Error) -> bool {
        let mut extensions = Extensions::new();
        if let Some(connected) = error.connect_info() {
            connected.get_extras(&mut extensions);
        }
        let info = extensions.get::<HttpInfo>();
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        info.is_some_and(|info| answered.remove(&info.local_addr()))
    }
}
