//! Test utilities of all crates.
//!
//! The crate contains an API server in memory ([`apiserver`]), its objects ([`json`]), certificates ([`pki`]), servers over TLS
//! ([`tls`]), readers of logs ([`logs`]) and metrics ([`metrics`]), waiting for a condition ([`until`]), and a check of how the time
//! of an algorithm grows ([`growth`]). It does not import crates of `src`, so that all of them may use it.
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
pub mod growth;
pub mod json;
pub mod logs;
pub mod matching;
pub mod metrics;
pub mod pki;
pub mod tls;
pub mod until;

use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Returns the configuration of a client for the cluster of a kubeconfig. The client does not retry, so that tests see every
/// error.
pub async fn client_config(kubeconfig: &str) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.default_retry = false;
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
