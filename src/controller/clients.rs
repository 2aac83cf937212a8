//! HTTPS clients of the API servers of thousands of runtimes.
//!
//! kube's client is made for one cluster: it waits for a response without a limit, retries internally, supports
//! HTTP/1.1 only, keeps idle sockets, and trusts every setting of a kubeconfig. This stack is made for many clusters
//! of other owners, each contacted for one reconcile:
//!
//! ```text
//! Remote ─ permit ─ connection ─ HTTP/2 or 1.1 ─ TLS ─ TCP ─ checked address ─ resolver
//! ```
//!
//! Invariants: nothing is retried here; every response is bounded. Every wait is bounded, except the wait for a
//! permit or for the connection, which other requests of the same reconcile hold for a bounded time. A [`Remote`]
//! exists for one reconcile, and none of its connections, keys and TLS sessions exist afterwards. Proxies, redirects,
//! compression, system roots and environment variables are not used.
//!
//! Deliberately absent: watches (a reconcile reads and ends), retries, and backoff and rates per runtime. Reconciles
//! of one runtime are seconds apart and never overlap, see [`crate::direct`], which also limits all runtimes
//! together.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

use self::body::Bodies;
pub use self::decode::ManagedFields;
use self::dial::Target;
pub use self::error::{AccessError, AddressError, CallError, Phase, TlsError, TransportError};
use self::kubeconfig::Access;
pub(crate) use self::limiter::{ConnectionLimits, RequestLimiter};
pub use self::metrics::ClientMetrics;
pub use self::reason::Reason;
pub use self::remote::Remote;
use self::resolver::Resolver;

mod address;
mod body;
mod connection;
mod decode;
mod dial;
mod error;
mod exchange;
pub mod kubeconfig;
mod limiter;
mod metrics;
mod reason;
mod remote;
mod resolver;
mod tls;

#[cfg(test)]
pub(crate) mod tests;

/// The largest body of a response, in bytes. Kubernetes objects have at most 1.5 MiB.
pub const MAX_BODY: usize = 2 << 20;

/// Maximum estimated memory of a decoded response, in bytes. A reconcile reads several objects at once; as many keys as an API server
/// stores in one object need most of it.
pub const MAX_DECODED: usize = 12 << 20;

/// The longest pause that an API server can require with `Retry-After`.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// The ID of a runtime: the value of its label. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeId(Arc<str>);

impl RuntimeId {
    /// Creates an ID with unchanged text.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// Returns the ID with unchanged text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for RuntimeId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuntimeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Options of the clients.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time limit of name resolution, TCP, TLS and HTTP set-up together.
    pub connect_timeout: Duration,
    /// Time limit from sending a request to the last byte of its response.
    pub call_timeout: Duration,
    /// Whether loopback addresses are allowed: for tests and local clusters only. Link-local addresses and metadata
    /// services are refused in any case.
    pub allow_loopback: bool,
    /// The host of the API server of the control plane, which is not a runtime: an IP address, or a name.
    pub control_plane: Option<String>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            allow_loopback: false,
            control_plane: None,
        }
    }
}

/// Factory of clients. Clones share all state.
#[derive(Clone)]
pub struct RuntimeClients(Arc<Shared>);

/// State that all remotes share.
struct Shared {
    options: ClientOptions,
    metrics: ClientMetrics,
    provider: Arc<CryptoProvider>,
    resolver: Resolver,
    bodies: Bodies,
}

impl RuntimeClients {
    /// Creates the factory. The cryptographic provider is always explicit, never the default of the process.
    #[must_use]
    pub fn new(options: ClientOptions, metrics: ClientMetrics) -> Self {
        // Less than the whole timeout, so that an error names the resolver.
        let resolver = Resolver::new(options.connect_timeout / 5 * 4);
        Self::with_resolver(options, metrics, resolver)
    }

    fn with_resolver(options: ClientOptions, metrics: ClientMetrics, resolver: Resolver) -> Self {
        Self(Arc::new(Shared {
            options,
            metrics,
            provider: Arc::new(aws_lc_rs::default_provider()),
            resolver,
            bodies: Bodies::default(),
        }))
    }

    /// Creates a client for one reconcile of a runtime; it connects at the first request.
    ///
    /// # Errors
    /// The TLS library rejects the certificates or the key.
    pub fn open(&self, access: Access) -> Result<Remote, AccessError> {
        let shared = self.0.clone();
        let target = Target {
            server: access.server,
            server_name: access.server_name,
            authorization: tls::authorization(&access.credentials)?,
            tls: tls::client_config(&shared.provider, access.authority, &access.credentials)?,
        };
        Ok(Remote::new(shared, target))
    }
}
