//! Test utilities of all crates.
//!
//! The crate contains an API server in memory ([`apiserver`]), a client of any API server ([`client`]), objects ([`json`]),
//! certificates ([`pki`]), servers over TLS ([`tls`]), readers of logs ([`logs`]) and metrics ([`metrics`]), waiting for a condition
//! ([`until`]), and a check of how the time of an algorithm grows ([`growth`]). It does not import crates of `src`, so that all of
//! them may use it.
#![expect(
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "a value that a test does not use does no harm"
)]
#![expect(
    clippy::missing_errors_doc,
    reason = "an error ends the test with its own text; no caller tells errors apart"
)]

pub mod apiserver;
pub mod client;
pub mod flood;
pub mod growth;
pub mod json;
pub mod logs;
pub mod matching;
pub mod metrics;
pub mod pki;
pub mod tls;
pub mod until;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Time limit for an answer of an API server, which itself ends every request but watches after a minute.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(70);

/// Returns the configuration of a client for the cluster of a kubeconfig. The client does not retry, so that tests see every
/// error. A request fails if the API server sends nothing for [`ANSWER_LIMIT`]. A client for watches, on which longer silence is
/// normal, needs a longer `read_timeout`.
pub async fn client_config(kubeconfig: &str) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.default_retry = false;
    config.read_timeout = Some(ANSWER_LIMIT);
    // The limit counts from the request, and not from the time since which a pooled connection is idle.
    config.reset_reader_on_write = true;
    Ok(config)
}

/// Locks a mutex and returns its guard, even if another thread panicked with the lock. The guard must not be held across an
/// await.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Location of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use serde_json::json;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio::time::{pause, timeout};

    use super::*;

    /// Without a time limit, a test of a broken cluster would never end.
    #[tokio::test]
    async fn request_without_an_answer_fails_at_the_time_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let kubeconfig = json!({
            "current-context": "a",
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "users": [{"name": "a", "user": {}}],
        });
        let config = client_config(&kubeconfig.to_string()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        let request = tokio::spawn(async move { client.request_text(request).await });
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.read_u8().await.unwrap();
        // From here on, only the time limits can end the wait. A clock that was paused before would end the connecting, too.
        pause();
        let ended = timeout(2 * ANSWER_LIMIT, request).await;
        ended.expect("the request ends").unwrap().unwrap_err();
    }
}
