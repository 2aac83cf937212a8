//! Whether a kubeconfig leads to the cluster that it is believed to lead to. In doubt nothing is written.

use api::runtimes::{OWNER_CONTROL_PLANE, OWNER_RUNTIME_ID};
use serde_json::Value;

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
    /// `status.clusterId` of its `RuntimeBootstrapper`: the UID seen first.
    pub remembered: Option<&'a str>,
    /// The annotation that accepts a rebuilt cluster, or the runtime of a control plane that was restored: the UID seen now.
    pub accepted: Option<&'a str>,
    /// Another runtime that remembers the observed UID.
    pub claimed_by: Option<&'a str>,
}

/// Why nothing may be written to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The cluster did not tell its UID.
    #[error("the cluster does not tell the UID of its kube-system namespace")]
    Unidentified,
    /// Two kubeconfigs lead to one cluster.
    #[error("the cluster is already that of runtime `{runtime}`")]
    Claimed {
        /// The other runtime.
        runtime: String,
    },
    /// The marker on the cluster names somebody else.
    #[error("the cluster is marked as that of runtime `{runtime}`")]
    ForeignMarker {
        /// The runtime id of the marker, empty if it says none.
        runtime: String,
    },
    /// The marker on the cluster names this runtime and another control plane.
    #[error(
        "the cluster `{observed}` belongs to this runtime under another control plane: if that was restored or replaced, accept it by annotation `{annotation}`",
        annotation = api::runtimes::ACCEPT_CLUSTER
    )]
    ForeignControlPlane {
        /// The UID seen now.
        observed: String,
    },
    /// The kubeconfig leads to another cluster than before.
    #[error(
        "the cluster's UID is `{observed}`, not `{remembered}`: accept a rebuilt one by annotation `{annotation}`",
        annotation = api::runtimes::ACCEPT_CLUSTER
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
    if let Some(runtime) = claim.claimed_by.filter(|it| *it != owner.runtime_id) {
        return Err(Refusal::Claimed {
            runtime: runtime.to_owned(),
        });
    }
    let accepted = claim.accepted == Some(observed);
    if let Some(marker) = marker {
        let runtime = data(marker, OWNER_RUNTIME_ID).unwrap_or_default();
        if runtime != owner.runtime_id {
            return Err(Refusal::ForeignMarker {
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
