//! Clients of thousands of API servers.
//!
//! kube's client is made for one cluster: it waits for ever for an answer, retries out of sight, speaks HTTP/1.1 only,
//! keeps idle sockets, and obeys a kubeconfig. This stack is made for many clusters of strangers, each contacted for
//! a moment:
//!
//! ```text
//! Remote ─ token bucket ─ connection's turn ─ place in the window ─ HTTP/2 or 1.1 ─ TLS ─ TCP ─ judged address
//! ```
//!
//! Invariants: nothing is retried here; every wait but the one for a place is bounded; every answer is bounded; what a
//! runtime costs ends with its [`Remote`] (connection, buffers) or soon after (token bucket, TLS session). Proxies,
//! redirects, compression, system roots and environment variables play no part.
//!
//! Deliberately absent: watches (a pass asks and goes), retries and back-off (the queue of passes), and reading
//! kubeconfigs ([`kubeconfig`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use self::dial::Target;
pub use self::error::{AccessError, Broken, CallError, Phase, TlsFault};
use self::kubeconfig::{Access, Credentials};
pub use self::metrics::FleetMetrics;
use self::pace::Pace;
pub use self::pace::Rate;
pub use self::reading::Owners;
pub use self::reason::Reason;
pub use self::remote::Remote;
use self::tls::Configurations;
pub(crate) use self::window::RequestLimiter;

mod address;
mod connection;
mod dial;
mod error;
mod exchange;
pub mod kubeconfig;
mod metrics;
mod pace;
mod reading;
mod reason;
mod remote;
mod tls;
mod window;

#[cfg(test)]
pub(crate) mod tests;

/// The largest answer, in bytes. Kubernetes' objects have at most 1.5 MiB.
pub const MAX_ANSWER: usize = 2 << 20;

/// The longest that an API server can keep us away with `Retry-After`.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// The id of a runtime: the value of its label. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeId(Arc<str>);

impl RuntimeId {
    /// The id as written.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The id as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuntimeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// How runtimes are called.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// How many calls are in flight over all runtimes; at most twice as many while some are slow.
    pub window: usize,
    /// After how long a call without an answer no longer takes part of the window.
    pub patience: Duration,
    /// The limit for name, TCP, TLS and HTTP set-up together.
    pub connect_timeout: Duration,
    /// The limit from the request to the last byte of its answer.
    pub call_timeout: Duration,
    /// The rate of calls to one runtime.
    pub per_runtime_rate: Rate,
    /// After how long without a call a connection is closed. API servers close after minutes, load balancers
    /// after one or less, and a pass pauses only to wait for a Deployment.
    pub idle: Duration,
    /// For how many runtimes, the last used, a TLS session is kept for resumption. 6 kB each.
    pub resumable: usize,
    /// Whether a runtime may be on this machine: for tests and local clusters alone. Link-local addresses and
    /// metadata services are refused in any case.
    pub allow_loopback: bool,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            window: 1024,
            patience: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            per_runtime_rate: Rate::PASS,
            idle: Duration::from_secs(30),
            resumable: 64,
            allow_loopback: false,
        }
    }
}

/// The clients of all runtimes. Clones share window, rates and sessions.
#[derive(Clone)]
pub struct RuntimeClients(Arc<Shared>);

/// What all remotes share.
struct Shared {
    options: FleetOptions,
    metrics: FleetMetrics,
    window: RequestLimiter,
    pace: Pace,
    configurations: Configurations,
}

impl RuntimeClients {
    /// Without any connection yet.
    #[must_use]
    pub fn new(options: FleetOptions, metrics: FleetMetrics) -> Self {
        Self(Arc::new(Shared {
            window: RequestLimiter::new(options.window, options.patience),
            pace: Pace::new(options.per_runtime_rate),
            configurations: Configurations::new(options.resumable),
            options,
            metrics,
        }))
    }

    /// A client of a runtime; it connects at the first call. `fingerprint` stands for the kubeconfig that `access` was
    /// read from (its Secret's `resourceVersion`): the same fingerprint may resume a TLS session of an earlier pass.
    ///
    /// # Errors
    /// The TLS library refuses the certificates or the key.
    pub fn open(
        &self,
        runtime: &RuntimeId,
        access: Access,
        fingerprint: &str,
    ) -> Result<Remote, AccessError> {
        let shared = &self.0;
        let server = access.server.clone();
        let server_name = access.server_name.clone();
        let authorization = authorization(&access.credentials)?;
        let configuration = shared
            .configurations
            .configuration(runtime, fingerprint, access)?;
        let bucket = shared.pace.bucket(runtime, tokio::time::Instant::now());
        Ok(Remote::new(remote::Inner {
            fleet: shared.clone(),
            target: Target {
                server,
                server_name,
                configuration,
                authorization,
            },
            bucket,
            slot: Arc::default(),
        }))
    }
}

fn authorization(credentials: &Credentials) -> Result<Option<HeaderValue>, AccessError> {
    let Credentials::Token(token) = credentials else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(AccessError::Token)?;
    value.set_sensitive(true);
    Ok(Some(value))
}

impl fmt::Debug for RuntimeClients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RuntimeClients")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}
