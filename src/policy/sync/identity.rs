//! Verifies that a kubeconfig leads to the cluster of its runtime. In doubt nothing is written.

use api::kcp::{OWNER_CONFIG_MAP, OWNER_CONTROL_PLANE, OWNER_RUNTIME_ID};
use serde_json::Value;

use super::Salt;
use super::observed::data;

/// Who a runtime is for us, and who we are for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The runtime id.
    pub runtime_id: String,
    /// [`super::Salt::control_plane`].
    pub control_plane: String,
}

/// What is known about a runtime's identity besides what it says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim<'a> {
    /// `status.clusterUID` of its `RuntimeBootstrapper`: the UID seen first.
    pub remembered: Option<&'a str>,
    /// The annotation that accepts a rebuilt cluster, or the runtime of a control plane that was restored: the UID seen now.
    pub accepted: Option<&'a str>,
    /// Another runtime that remembers the observed UID.
    pub claimed_by: Option<&'a str>,
}

/// Why the cluster is not verified, so that nothing is written to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The cluster did not tell its UID.
    #[error("Namespace kube-system of the cluster has no UID")]
    Unidentified,
    /// The kubeconfig leads to KCP.
    #[error(
        "the cluster is KCP, expected a runtime: the kubeconfig leads to the control plane itself"
    )]
    ControlPlane,
    /// Two kubeconfigs lead to one cluster.
    #[error("cluster is already managed as runtime {runtime}")]
    Claimed {
        /// The other runtime.
        runtime: String,
    },
    /// The marker on the cluster names somebody else.
    #[error("ConfigMap {OWNER_CONFIG_MAP} of the cluster names runtime {runtime:?}")]
    OwnershipConflict {
        /// The runtime id of the marker, empty if it says none.
        runtime: String,
    },
    /// The marker on the cluster names this runtime and another control plane.
    #[error(
        "ConfigMap {OWNER_CONFIG_MAP} of the cluster names another control plane; if KCP was restored or replaced, accept the cluster \
by annotation {annotation}={observed}",
        annotation = api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION
    )]
    ForeignControlPlane {
        /// The UID seen now.
        observed: String,
    },
    /// The kubeconfig leads to another cluster than before.
    #[error(
        "cluster UID is {observed}, expected {remembered}; if the cluster was rebuilt, accept it by annotation \
{annotation}={observed}",
        annotation = api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION
    )]
    Rebuilt {
        /// The UID seen first.
        remembered: String,
        /// The UID seen now.
        observed: String,
    },
}

/// Judges a cluster by its `kube-system` UID and by the marker that it carries; gives the UID to remember.
///
/// # Errors
/// [`Refusal`] if anything speaks against writing to it. An acknowledgement of the UID seen now covers a rebuilt cluster,
/// and a marker that names the same runtime of another control plane, as every runtime has it after a restore under a new
/// `kube-system`; it covers no other runtime's cluster.
pub fn guard<'o>(
    owner: &Owner,
    claim: Claim<'_>,
    observed: Option<&'o str>,
    marker: Option<&Value>,
) -> Result<&'o str, Refusal> {
    let observed = observed
        .filter(|uid| !uid.is_empty())
        .ok_or(Refusal::Unidentified)?;
    // No acceptance covers this: the webhook would be installed on KCP, or what KCP keeps under the same names be deleted.
    if Salt::new(observed).control_plane() == owner.control_plane {
        return Err(Refusal::ControlPlane);
    }
    if let Some(runtime) = claim.claimed_by.filter(|it| *it != owner.runtime_id) {
        return Err(Refusal::Claimed {
            runtime: runtime.to_owned(),
        });
    }
    let accepted = claim.accepted == Some(observed);
    if let Some(marker) = marker {
        let runtime = data(marker, OWNER_RUNTIME_ID).unwrap_or_default();
        if runtime != owner.runtime_id {
            return Err(Refusal::OwnershipConflict {
                runtime: runtime.to_owned(),
            });
        }
        if data(marker, OWNER_CONTROL_PLANE) != Some(&owner.control_plane) && !accepted {
            return Err(Refusal::ForeignControlPlane {
                observed: observed.to_owned(),
            });
        }
    }
    match claim.remembered {
        Some(remembered) if remembered != observed && !accepted => Err(Refusal::Rebuilt {
            remembered: remembered.to_owned(),
            observed: observed.to_owned(),
        }),
        _ => Ok(observed),
    }
}
