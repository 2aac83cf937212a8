//! Client of the API server in the cluster of a component.
//!
//! The default stack of kube has no timeout for responses, retries for minutes without a log message, and never closes idle
//! connections. In this stack each request has a deadline (a watch only until its first byte), nothing is retried (the
//! caller decides), idle connections are closed, and each request is counted. Not in here: HTTP/2, proxies, rate limits,
//! and protection against a malicious kubeconfig, because it comes from the user who starts the process.
//!
//! ```text
//! kube::Client ─ RequestService (counter, deadline) ─ base URI ─ auth ─ headers ─ pool ─ rustls ─ TCP
//! ```

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{InvalidHeaderValue, USER_AGENT};
use http::{Request, Response, Uri};
use hyper::body::{Body as HttpBody, Bytes, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{AuthError, Body, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::time::timeout;
use tower::util::{BoxCloneSyncService, BoxService};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

use self::call::Call;
pub use self::deadline::DeadlineExceeded;
pub(crate) use self::deadline::STREAM_HEAD_TIMEOUT;
use self::deadline::{ResponseBody, within_deadline};
use self::metered::InflightRequest;
pub use self::metered::RequestMetrics;

mod call;
mod deadline;
mod metered;

/// Time after which an idle connection is closed. An API server closes it after minutes, a load balancer after a minute or
/// less. A request on a connection that the other side has closed fails.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum number of idle connections. Each watch has a separate connection (HTTP/1.1). The idle connections are for other
/// requests, as many as a component sends concurrently. With fewer, most requests of a burst would need a TLS handshake.
const IDLE_CONNECTIONS: usize = 16;

/// Time without a packet after which the kernel probes a connection. The connection is closed after three unanswered probes
/// within the same time again. A watch only receives data: without probes it would detect an unreachable API server only
/// after five minutes, and its objects would be outdated until then.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Path of a kubeconfig, or of several as kubectl merges them, of which the current context is used; `None` means the service
    /// account of the Pod.
    pub kubeconfig: Option<PathBuf>,
    /// Value of the `User-Agent` header, which appears in the audit log of the API server.
    pub user_agent: String,
    /// Time limit of a request, from connecting to the last byte of the response.
    pub timeout: Duration,
}

/// Reason why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no kubeconfig, and the process does not run in a Pod.
    #[error("no kubeconfig given, and not in a Pod with a service account")]
    InCluster(#[source] InClusterError),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}: {reason}")]
    Kubeconfig {
        /// The path of the kubeconfig.
        path: PathBuf,
        /// The cause, without content of the kubeconfig.
        reason: String,
    },
    /// A proxy is configured. It is rejected, because ignoring it would send requests by an unexpected route. Only the host
    /// and the port are reported, because the URL may contain a password.
    #[error(
        "proxy {0} is not supported: remove proxy-url from the kubeconfig, or HTTPS_PROXY from the environment"
    )]
    Proxy(String),
    /// The user agent is not a valid header value.
    #[error("user agent: not a valid header value")]
    UserAgent(#[source] InvalidHeaderValue),
    /// Credentials or TLS material cannot be used.
    #[error("invalid credentials for the API server")]
    Credentials(#[source] BoxError),
}

/// Creates a client. No request is sent yet.
///
/// # Errors
/// The configuration is missing, invalid or not supported.
pub async fn connect(
    options: ClientOptions,
    requests: &RequestMetrics,
) -> Result<Client, ClientError> {
    let timeout = options.timeout;
    let mut config = load(options.kubeconfig).await?;
    if let Some(proxy) = config.proxy_url {
        let host = proxy.host().unwrap_or_default();
        let port = proxy.port().map_or_else(String::new, |it| format!(":{it}"));
        return Err(ClientError::Proxy(format!("{host}{port}")));
    }
    let user_agent = options.user_agent.parse().map_err(ClientError::UserAgent)?;
    config.headers.push((USER_AGENT, user_agent));
    let namespace = config.default_namespace.clone();
    let transport = transport(&config, timeout).map_err(|error| {
        ClientError::Credentials(match error {
            kube::Error::Auth(error) => without_output(error.into()),
            error => error.into(),
        })
    })?;
    Ok(with_transport(transport, &namespace, timeout, requests))
}

/// Creates a client with any transport, with a time limit of requests and the request counter: for tests with a service
/// instead of an API server, and for transports of other modules.
pub fn with_transport<S, B>(
    transport: S,
    namespace: &str,
    timeout: Duration,
    requests: &RequestMetrics,
) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service = RequestService {
        transport,
        timeout,
        requests: requests.clone(),
    };
    Client::new(service, namespace)
}

/// Service that counts each request, and applies a deadline to it.
struct RequestService<S> {
    transport: S,
    timeout: Duration,
    requests: RequestMetrics,
}

impl<S, B> Service<Request<Body>> for RequestService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.transport.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Call { resource, streams } = Call::of(&request);
        let inflight = InflightRequest {
            requests: self.requests.clone(),
            method: request.method().clone(),
            resource,
            status: None,
        };
        let response = self.transport.call(request);
        let response = async { response.await.map_err(Into::into) };
        let response = within_deadline(self.timeout, streams, response);
        Box::pin(async move {
            let response = response.await?;
            inflight.ended(response.status());
            Ok(response)
        })
    }
}

async fn load(kubeconfig: Option<PathBuf>) -> Result<Config, ClientError> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(ClientError::InCluster);
    };
    let mut merged = Kubeconfig::default();
    for file in kubeconfig_files(&path) {
        let mut next = Kubeconfig::read_from(&file).map_err(|error| invalid(&file, error))?;
        next.current_context = next.current_context.filter(|it| !it.is_empty());
        let both = merged.merge(next);
        merged = both.map_err(|error| invalid(&path, error))?;
    }
    let config = Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await;
    config.map_err(|error| invalid(&path, error))
}

/// Returns the files of a list of paths, as kubectl reads it from `KUBECONFIG`: files that do not exist are skipped. A path that names a
/// file, or no file at all, is no list.
fn kubeconfig_files(path: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if !path.exists() {
        files.extend(std::env::split_paths(path).filter(|it| it.exists()));
    }
    if files.is_empty() {
        files.push(path.to_owned());
    }
    files
}

fn invalid(path: &Path, error: KubeconfigError) -> ClientError {
    let reason = match error {
        // The error of the parser quotes the document, which contains credentials.
        KubeconfigError::Parse(error) => {
            let line = error.location().map_or(1, |it| it.line());
            format!("line {line}: not a valid kubeconfig")
        }
        error => error.to_string(),
    };
    let path = path.to_owned();
    ClientError::Kubeconfig { path, reason }
}

/// Replaces an error that contains the output of a credential plugin, because that output may contain a token.
fn without_output(error: BoxError) -> BoxError {
    match error.downcast_ref::<AuthError>() {
        Some(AuthError::AuthExecRun { out, .. }) => {
            format!("credential plugin of the kubeconfig: {}", out.status).into()
        }
        Some(AuthError::AuthExecParse(_)) => {
            "credential plugin of the kubeconfig: its output is not an ExecCredential".into()
        }
        _ => error,
    }
}

type Transport = BoxService<Request<Body>, Response<Incoming>, BoxError>;

fn transport(config: &Config, limit: Duration) -> kube::Result<Transport> {
    // The main function installs the provider; tests and tools may not.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread was faster, its provider is installed.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE / 3));
    tcp.set_keepalive_retries(Some(3));
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let pool = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        // Without a timer, idle connections are closed only when a connection is requested.
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(limited(tls, limit, DeadlineExceeded { limit }));
    Ok(ServiceBuilder::new()
        .map_err(without_output)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(pool)
        .boxed())
}

/// Adds a time limit to connecting, including the TLS handshake. It also applies after the request that needed the
/// connection was dropped, because the pool continues to connect.
pub fn limited<C, E>(
    connector: C,
    limit: Duration,
    error: E,
) -> BoxCloneSyncService<Uri, C::Response, BoxError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
    E: Into<BoxError> + Copy + Send + Sync + 'static,
{
    BoxCloneSyncService::new(tower::service_fn(move |uri| {
        let connecting = connector.clone().oneshot(uri);
        async move {
            let connected = timeout(limit, connecting).await;
            connected.map_err(|_| error.into())?.map_err(Into::into)
        }
    }))
}

#[cfg(test)]
mod tests;
