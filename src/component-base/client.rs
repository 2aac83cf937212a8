//! The Kubernetes client of a role, on a stack of our own.
//!
//! kube's default stack waits for ever for an answer, retries for minutes out of sight, and
//! never closes idle connections. Ours: every call has a deadline (a watch only until its first
//! byte), nothing is retried (the caller knows whether and when to), idle connections are
//! reaped, and every request is counted. Deliberately absent: HTTP/2, proxies, rate limits, and
//! any care about hostile kubeconfigs: the one read here belongs to whoever starts the process.
//!
//! ```text
//! kube::Client ─ RequestMetrics ─ Deadline ─ base URI ─ auth ─ headers ─ pool ─ rustls ─ TCP
//! ```

use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{InvalidHeaderValue, USER_AGENT};
use http::{Request, Response, Uri};
use hyper::body::{Body as HttpBody, Bytes, Incoming};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt};

use self::call::Call;
pub(crate) use self::deadline::STREAM_HEAD;
pub use self::deadline::{AnswerBody, Deadline, DeadlineExceeded, DeadlineService};
pub use self::metered::{Metered, RequestMetrics};

mod call;
mod deadline;
mod metered;

/// An API server closes idle connections after minutes, load balancers between us after one or
/// less; a request on a connection that the other side gave up costs an error.
const IDLE: Duration = Duration::from_secs(30);
/// Each watch has a connection of its own (HTTP/1.1); these are for the calls beside them. As many as any role makes at
/// once: with fewer, most of a burst of calls would begin with a TLS handshake.
const IDLE_CONNECTIONS: usize = 16;

/// How to reach one API server.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A kubeconfig file, of which the current context is taken. Without one the process runs
    /// in a Pod and uses its service account.
    pub kubeconfig: Option<PathBuf>,
    /// What to call ourselves in the audit log of the API server.
    pub user_agent: String,
    /// How long a call may take, connecting and reading the answer included.
    pub timeout: Duration,
}

/// No client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Not in a Pod, and no kubeconfig given.
    #[error("no kubeconfig given, and not in a Pod with a service account")]
    InCluster(#[source] InClusterError),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// The kubeconfig wants a proxy; going round it would be a surprise.
    #[error("proxy {0} in the kubeconfig is not supported")]
    Proxy(Uri),
    /// The user agent is no header value.
    #[error("user agent: not a valid header value")]
    UserAgent(#[source] InvalidHeaderValue),
    /// Credentials or TLS material cannot be used.
    #[error("invalid credentials for the API server")]
    Credentials(#[source] kube::Error),
}

/// A client for the API server that the options lead to. Nothing is sent yet.
///
/// # Errors
/// When the configuration is missing, broken or not supported.
pub async fn connect(
    options: ClientOptions,
    requests: &RequestMetrics,
) -> Result<Client, ClientError> {
    let ClientOptions {
        kubeconfig,
        user_agent,
        timeout,
    } = options;
    let mut config = load(kubeconfig).await?;
    if let Some(proxy) = config.proxy_url {
        return Err(ClientError::Proxy(proxy));
    }
    let user_agent = user_agent.parse().map_err(ClientError::UserAgent)?;
    config.headers.push((USER_AGENT, user_agent));
    let namespace = config.default_namespace.clone();
    let transport = transport(&config, timeout).map_err(ClientError::Credentials)?;
    Ok(over(
        transport,
        &namespace,
        Deadline::new(timeout),
        requests,
    ))
}

/// A client over any transport, with the deadline and the counter of this module: for tests with
/// a service in place of an API server, and for transports built elsewhere.
pub fn over<S, B>(
    transport: S,
    namespace: &str,
    deadline: Deadline,
    requests: &RequestMetrics,
) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Client::new(requests.layer(deadline.layer(transport)), namespace)
}

async fn load(kubeconfig: Option<PathBuf>) -> Result<Config, ClientError> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(ClientError::InCluster);
    };
    let read = async {
        let kubeconfig = Kubeconfig::read_from(&path)?;
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
    };
    read.await
        .map_err(|source| ClientError::Kubeconfig { path, source })
}

type Transport = tower::util::BoxService<Request<Body>, Response<Incoming>, BoxError>;

fn transport(config: &Config, timeout: Duration) -> kube::Result<Transport> {
    // `main` chooses the provider; this is for tests and tools that did not.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Losing the race against another thread leaves a provider too.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let pool = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        // Without a timer the idle timeout is looked at only when a connection is wanted.
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .build(bounded(tls, timeout));
    Ok(ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(pool)
        .boxed())
}

/// Connecting, the TLS handshake included, ends in time even when the call that wanted the
/// connection is gone: the pool goes on connecting without it.
fn bounded<C>(
    connector: C,
    limit: Duration,
) -> impl Service<
    Uri,
    Response = C::Response,
    Error = BoxError,
    Future = BoxFuture<'static, Result<C::Response, BoxError>>,
> + Clone
+ Send
+ Sync
+ 'static
where
    C: Service<Uri, Error = BoxError> + Clone + Send + Sync + 'static,
    C::Future: Send,
    C::Response: Send,
{
    tower::service_fn(move |uri| -> BoxFuture<'static, _> {
        let connecting = connector.clone().oneshot(uri);
        Box::pin(async move {
            tokio::time::timeout(limit, connecting)
                .await
                .map_err(|_| DeadlineExceeded::new(limit))?
        })
    })
}

#[cfg(test)]
mod tests;
