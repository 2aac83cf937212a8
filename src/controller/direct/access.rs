//! From the ID of a runtime to a client of the runtime.
//!
//! Invariant: the kubeconfig is read at the start of a reconcile, and zeroized once it is parsed; nothing of it is kept,
//! logged or written anywhere. Deliberately absent: what a kubeconfig may contain (`clients::kubeconfig`).

use std::collections::BTreeMap;

use api::kcp::{KUBECONFIG_KEY, kubeconfig_secret};
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::{Api, Client};
use policy::sync::status::{Unreached, chain};
use tokio::sync::Semaphore;
use zeroize::Zeroize as _;

use crate::clients::{CallError, Remote, RuntimeClients, RuntimeId, kubeconfig};

/// Requests to the control plane at the same time: enough for hundreds of reconciles per second, and few connections.
const AT_ONCE: usize = 32;

/// The status of an API server that did not reach the requested version in time.
const TIMED_OUT: u16 = 504;

/// Creates clients of runtimes.
pub(super) struct ClientFactory {
    secrets: Api<Secret>,
    fleet: RuntimeClients,
    permits: Semaphore,
}

/// The Secret with a kubeconfig, if it exists; its data is zeroized when it is dropped.
pub(super) struct KubeconfigSecret(Option<Secret>);

impl ClientFactory {
    pub(super) fn new(client: Client, namespace: &str, fleet: RuntimeClients) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            fleet,
            permits: Semaphore::new(AT_ONCE),
        }
    }

    /// Reads the Secret with the kubeconfig, as it is now or was since the version `seen`: an API server has that in its
    /// cache, and need not read each of thousands from its store.
    ///
    /// # Errors
    /// The control plane does not return the Secret.
    pub(super) async fn ask(
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
            // It has not reached that version, and never will after its store was restored from a backup: what it has
            // is valid then.
            Err(kube::Error::Api(status)) if status.code == TIMED_OUT && seen.is_some() => {
                self.secrets.get_opt(&name).await?
            }
            answer => Some(answer?),
        };
        Ok(KubeconfigSecret(found))
    }

    /// Creates a client of the runtime.
    ///
    /// # Errors
    /// The kubeconfig is missing or invalid.
    pub(super) fn open(
        &self,
        id: &RuntimeId,
        secret: KubeconfigSecret,
    ) -> Result<Remote, Unreached> {
        let name = kubeconfig_secret(id.as_str());
        let access = kubeconfig::parse(secret.content(&name)?)
            .map_err(|error| Unreached::InvalidKubeconfig(chain(&error)))?;
        drop(secret);
        self.fleet
            .open(access)
            .map_err(|error| Unreached::InvalidKubeconfig(chain(&error)))
    }
}

impl KubeconfigSecret {
    /// The kubeconfig. KIM renews the Secret in steps; the error names what is missing.
    fn content(&self, name: &str) -> Result<&[u8], Unreached> {
        let missing = |what: &str| Unreached::KubeconfigNotFound(format!("Secret {name}{what}"));
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

impl Drop for KubeconfigSecret {
    fn drop(&mut self) {
        let data = self.0.as_mut().and_then(|it| it.data.as_mut());
        data.into_iter()
            .flat_map(BTreeMap::values_mut)
            .for_each(|it| it.0.zeroize());
    }
}

/// What a failed request says about the connection to a runtime.
pub(super) fn unreached(error: &CallError) -> Unreached {
    match error {
        CallError::Unreachable(cause) => Unreached::ConnectionFailed(chain(cause)),
        CallError::TimedOut(..) => Unreached::Timeout(chain(error)),
        CallError::Tls(cause) => Unreached::TLSHandshakeFailed(chain(cause)),
        CallError::AddressRefused(_) => Unreached::InvalidKubeconfig(chain(error)),
        CallError::Refused { status: 401, .. } => Unreached::Unauthorized,
        _ => Unreached::APIServerError(chain(error)),
    }
}
