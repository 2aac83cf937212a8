//! Creates the client of a runtime from its runtime ID.
//!
//! Invariant: the kubeconfig is read at the start of a reconcile, and zeroized once it is parsed. It is neither kept, nor logged,
//! nor written. Not in here: what a kubeconfig may contain (`clients::kubeconfig`).

use api::kcp::{KUBECONFIG_KEY, kubeconfig_secret};
use component_base::telemetry::error_chain;
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::{Api, Client};
use policy::sync::status::ConnectionError;
use tokio::sync::Semaphore;

use crate::clients::{CallError, Remote, RuntimeClients, RuntimeId, kubeconfig};
use crate::secret::ZeroizedSecret;

/// Maximum number of concurrent requests to KCP: enough for hundreds of reconciles per second, with few connections.
const MAX_CONCURRENT_READS: usize = 32;

/// Status code of an API server that did not reach the requested resource version in time.
const TIMED_OUT: u16 = 504;

/// Creates clients of runtimes.
pub(crate) struct ClientFactory {
    secrets: Api<Secret>,
    fleet: RuntimeClients,
    permits: Semaphore,
}

/// The Secret with a kubeconfig, if it exists; its data is zeroized when it is dropped.
pub(crate) struct KubeconfigSecret(Option<ZeroizedSecret>);

impl ClientFactory {
    pub(crate) fn new(client: Client, namespace: &str, fleet: RuntimeClients) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            fleet,
            permits: Semaphore::new(MAX_CONCURRENT_READS),
        }
    }

    /// Reads the kubeconfig Secret, at least at the resource version `seen`. The API server then responds from its
    /// cache, and does not read each of thousands of Secrets from etcd.
    ///
    /// # Errors
    /// KCP does not return the Secret.
    pub(crate) async fn read_kubeconfig(
        &self,
        id: &RuntimeId,
        seen: Option<&str>,
    ) -> kube::Result<KubeconfigSecret> {
        let parameters = GetParams {
            resource_version: seen.map(str::to_owned),
        };
        let _permit = self.permits.acquire().await;
        let name = kubeconfig_secret(id.as_str());
        let found = match self.secrets.get_with(&name, &parameters).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => None,
            // The API server has not reached the version of `seen`. After a restore of etcd from a backup it never
            // reaches that version. The latest version is valid in both cases.
            Err(kube::Error::Api(status)) if status.code == TIMED_OUT && seen.is_some() => {
                self.secrets.get_opt(&name).await?
            }
            response => Some(response?),
        };
        Ok(KubeconfigSecret(found.map(ZeroizedSecret)))
    }

    /// Creates a client of the runtime.
    ///
    /// # Errors
    /// The kubeconfig is missing or invalid.
    pub(crate) fn client(
        &self,
        id: &RuntimeId,
        secret: KubeconfigSecret,
    ) -> Result<Remote, ConnectionError> {
        let name = kubeconfig_secret(id.as_str());
        let access = kubeconfig::parse(secret.content(&name)?)
            .map_err(|error| ConnectionError::InvalidKubeconfig(error_chain(&error)))?;
        drop(secret);
        self.fleet
            .open(access)
            .map_err(|error| ConnectionError::InvalidKubeconfig(error_chain(&error)))
    }
}

impl KubeconfigSecret {
    /// Returns whether the Secret does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the bytes of the kubeconfig. The error names the missing part of the Secret, because KIM renews the
    /// Secret in several writes.
    fn content(&self, name: &str) -> Result<&[u8], ConnectionError> {
        let missing =
            |what: &str| ConnectionError::KubeconfigNotFound(format!("Secret {name}{what}"));
        let secret = self.0.as_ref().ok_or_else(|| missing(" not found"))?;
        let data = secret.data.as_ref().ok_or_else(|| missing(": no data"))?;
        let bytes = data
            .get(KUBECONFIG_KEY)
            .ok_or_else(|| missing(&format!(": key {KUBECONFIG_KEY} is missing")))?;
        if bytes.0.is_empty() {
            return Err(missing(&format!(": key {KUBECONFIG_KEY} is empty")));
        }
        Ok(&bytes.0)
    }
}

/// Maps a failed request to the reason why the runtime is not reachable.
pub(crate) fn unreached(error: &CallError) -> ConnectionError {
    match error {
        CallError::Unreachable(cause) => ConnectionError::ConnectionFailed(error_chain(cause)),
        CallError::TimedOut(..) => ConnectionError::Timeout(error_chain(error)),
        CallError::Tls(cause) => ConnectionError::TLSHandshakeFailed(error_chain(cause)),
        CallError::AddressRefused(_) => ConnectionError::InvalidKubeconfig(error_chain(error)),
        CallError::Refused { status: 401, .. } => ConnectionError::Unauthorized,
        _ => ConnectionError::APIServerError(error_chain(error)),
    }
}
