//! What tests of all crates share.
//!
//! An API server in memory ([`apiserver`]), its objects ([`json`]), certificates ([`pki`]), servers over TLS ([`tls`]), readers of logs ([`logs`]) and
//! metrics ([`metrics`]), and waiting for a condition ([`until`]). It imports no crate of `src`, so that these may use it.
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
pub mod json;
pub mod logs;
pub mod matching;
pub mod metrics;
pub mod pki;
pub mod tls;
pub mod until;

use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// The configuration of a client of the cluster that a kubeconfig names. It retries nothing: every answer is an answer.
pub async fn client_config(kubeconfig: &str) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.default_retry = false;
    Ok(config)
}

/// The value, also when a thread panicked that had it. The guard must not be held across an await.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The plural of its kind.
    pub resource: String,
    /// Empty for cluster scope.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
