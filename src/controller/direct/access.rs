//! From a runtime id to a client of the runtime.
//!
//! Invariant: the kubeconfig is asked for when a pass begins and is gone when it ends; nothing of it is kept, logged or
//! written anywhere. Deliberately absent: what a kubeconfig may hold (`clients::kubeconfig`).

use api::kcp::{KUBECONFIG_KEY, kubeconfig_secret};
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::{Api, Client};
use policy::sync::status::{Unreached, chain};
use tokio::sync::Semaphore;

use crate::clients::{CallError, Remote, RuntimeClients, RuntimeId, kubeconfig};

/// Calls to the control plane at once: enough for hundreds of passes a second, and few connections.
const AT_ONCE: usize = 32;

/// What an API server answers that waited for a version in vain.
const TIMED_OUT: u16 = 504;

/// Opens runtimes.
pub(super) struct ClientFactory {
    secrets: Api<Secret>,
    fleet: RuntimeClients,
    turns: Semaphore,
}

impl ClientFactory {
    pub(super) fn new(client: Client, namespace: &str, fleet: RuntimeClients) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            fleet,
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// The Secret with the kubeconfig that holds now, or held since the version that was `seen`: an API server has that
    /// at hand, and need not ask its store for each of thousands.
    ///
    /// # Errors
    /// The control plane does not say what it is.
    pub(super) async fn ask(
        &self,
        id: &RuntimeId,
        seen: Option<&str>,
    ) -> kube::Result<Option<Secret>> {
        let parameters = GetParams {
            resource_version: seen.map(str::to_owned),
        };
        let _turn = self.turns.acquire().await;
        let name = kubeconfig_secret(id.as_str());
        match self.secrets.get_with(&name, &parameters).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            // It has not come so far, and never will if its store was put back to a backup: what it has holds then.
            Err(kube::Error::Api(status)) if status.code == TIMED_OUT && seen.is_some() => {
                self.secrets.get_opt(&name).await
            }
            answer => answer.map(Some),
        }
    }

    /// A client of the runtime.
    ///
    /// # Errors
    /// The runtime's fault, or its manager's.
    pub(super) fn open(&self, id: &RuntimeId, secret: Option<Secret>) -> Result<Remote, Unreached> {
        let name = kubeconfig_secret(id.as_str());
        let secret = secret
            .ok_or_else(|| Unreached::KubeconfigNotFound(format!("Secret {name} not found")))?;
        let bytes = content(&secret, &name)?;
        let access = kubeconfig::parse(bytes)
            .map_err(|error| Unreached::InvalidKubeconfig(chain(&error)))?;
        let fingerprint = secret.metadata.resource_version.as_deref();
        self.fleet
            .open(id, access, fingerprint.unwrap_or_default())
            .map_err(|error| Unreached::InvalidKubeconfig(chain(&error)))
    }
}

/// The kubeconfig in its Secret. KIM renews it in steps; the error names what is missing.
fn content<'s>(secret: &'s Secret, name: &str) -> Result<&'s [u8], Unreached> {
    let missing = Unreached::KubeconfigNotFound;
    let data = secret
        .data
        .as_ref()
        .ok_or_else(|| missing(format!("Secret {name}: no data")))?;
    let bytes = data
        .get(KUBECONFIG_KEY)
        .ok_or_else(|| missing(format!("Secret {name}: key {KUBECONFIG_KEY} is missing")))?;
    if bytes.0.is_empty() {
        let what = format!("Secret {name}: key {KUBECONFIG_KEY} is empty");
        return Err(missing(what));
    }
    Ok(&bytes.0)
}

/// What a failed call says about reaching a runtime at all.
pub(super) fn unreached(error: &CallError) -> Unreached {
    match error {
        CallError::Unreachable(broken) => Unreached::ConnectionFailed(chain(broken)),
        CallError::TimedOut(..) => Unreached::Timeout(chain(error)),
        CallError::Tls(fault) => Unreached::TLSHandshakeFailed(chain(fault)),
        CallError::AddressRefused => Unreached::InvalidKubeconfig(chain(error)),
        CallError::Refused { status: 401, .. } => Unreached::Unauthorized,
        _ => Unreached::APIServerError(chain(error)),
    }
}
