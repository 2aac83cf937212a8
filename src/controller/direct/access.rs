//! From the ID of a runtime to a client of the runtime.
//!
//! Invariant: the kubeconfig is read at the start of a reconcile and dropped at its end; nothing of it is kept, logged or
//! written anywhere. Deliberately absent: what a kubeconfig may contain (`policy::sync::kubeconfig`).

use api::kcp::{KUBECONFIG_KEY, kubeconfig_secret};
use k8s_openapi::api::core::v1::Secret;
use kube::api::GetParams;
use kube::{Api, Client};
use policy::sync::kubeconfig;
use policy::sync::status::{Unreached, chain};
use tokio::sync::Semaphore;

use crate::clients::{CallError, Remote, RuntimeClients, RuntimeId};

/// Requests to the control plane at the same time: enough for hundreds of reconciles per second, and few connections.
const AT_ONCE: usize = 32;

/// The status of an API server that did not reach the requested version in time.
const TIMED_OUT: u16 = 504;

/// Creates clients of runtimes.
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

    /// Reads the Secret with the kubeconfig, as it is now or was since the version `seen`: an API server has that in its
    /// cache, and need not read each of thousands from its store.
    ///
    /// # Errors
    /// The control plane does not return the Secret.
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
            // It has not reached that version, and never will after its store was restored from a backup: what it has
            // is valid then.
            Err(kube::Error::Api(status)) if status.code == TIMED_OUT && seen.is_some() => {
                self.secrets.get_opt(&name).await
            }
            answer => answer.map(Some),
        }
    }

    /// Creates a client of the runtime.
    ///
    /// # Errors
    /// The kubeconfig is missing or invalid.
    pub(super) fn open(&self, id: &RuntimeId, secret: Option<Secret>) -> Result<Remote, Unreached> {
        let name = kubeconfig_secret(id.as_str());
        let secret = secret
            .ok_or_else(|| Unreached::KubeconfigNotFound(format!("Secret {name} not found")))?;
        let bytes = content(&secret, &name)?;
        let access = kubeconfig::parse(bytes)
            .map_err(|error| Unreached::InvalidKubeconfig(chain(&error)))?;
        self.fleet
            .open(access)
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
