//! Verifies that the cluster of a kubeconfig is the cluster of its runtime. Nothing is written to a cluster that is
//! not verified.

use api::kcp::{OWNER_CONFIG_MAP, OWNER_CONTROL_PLANE, OWNER_RUNTIME_ID};
use serde_json::Value;

use super::Salt;
use super::observed::data;

/// The expected owner in the ownership ConfigMap of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The runtime ID.
    pub runtime_id: String,
    /// The ID of KCP, see [`super::Salt::control_plane`].
    pub control_plane: String,
}

/// The recorded identity of the cluster of a runtime on KCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityRecord<'a> {
    /// `status.clusterUID` of the `RuntimeBootstrapper`: the UID that was observed first.
    pub recorded_uid: Option<&'a str>,
    /// The annotation by which an operator accepts a cluster: its current UID.
    pub accepted_uid: Option<&'a str>,
    /// Another runtime with the observed UID.
    pub claimed_by: Option<&'a str>,
}

/// Reason why a cluster is not verified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The UID of the cluster is unknown.
    #[error("Namespace kube-system of the cluster has no UID")]
    ClusterUIDUnknown,
    /// The cluster of the kubeconfig is KCP.
    #[error(
        "the cluster is KCP, expected a runtime: the kubeconfig leads to the control plane itself"
    )]
    ClusterIsKCP,
    /// The kubeconfigs of two runtimes have the same cluster.
    #[error("cluster is already managed as runtime {runtime}")]
    ClusterAlreadyManaged {
        /// The other runtime.
        runtime: String,
    },
    /// The ownership ConfigMap names another runtime.
    #[error("ConfigMap {OWNER_CONFIG_MAP} of the cluster names runtime {runtime:?}")]
    OwnershipConflict {
        /// The runtime ID in the ConfigMap, empty if there is none.
        runtime: String,
    },
    /// The ownership ConfigMap names this runtime and another KCP.
    #[error(
        "ConfigMap {OWNER_CONFIG_MAP} of the cluster names another KCP; if KCP was restored or replaced, accept the cluster \
by annotation {annotation}={observed}",
        annotation = api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION
    )]
    OtherKCP {
        /// The current UID.
        observed: String,
    },
    /// The cluster of the kubeconfig is another cluster than before.
    #[error(
        "cluster UID is {observed}, expected {recorded_uid}; if the cluster was rebuilt, accept it by annotation \
{annotation}={observed}",
        annotation = api::kcp::ACCEPT_CLUSTER_UID_ANNOTATION
    )]
    ClusterUIDChanged {
        /// The UID that was observed first.
        recorded_uid: String,
        /// The current UID.
        observed: String,
    },
}

/// Verifies a cluster by the UID of its `kube-system` and by its ownership ConfigMap. Returns the UID to record.
///
/// # Errors
/// [`IdentityError`] if the cluster may be the wrong cluster. An accepted UID covers a rebuilt cluster. It also
/// covers an ownership ConfigMap with the same runtime and another KCP, as after a restore of KCP with a new
/// `kube-system`. It does not cover the cluster of another runtime.
pub fn verify_identity<'o>(
    owner: &Owner,
    record: IdentityRecord<'_>,
    observed: Option<&'o str>,
    marker: Option<&Value>,
) -> Result<&'o str, IdentityError> {
    let observed = observed
        .filter(|uid| !uid.is_empty())
        .ok_or(IdentityError::ClusterUIDUnknown)?;
    // An accepted UID does not cover this case: the webhook would be installed on KCP, or objects of KCP with the
    // same names would be deleted.
    if Salt::new(observed).control_plane() == owner.control_plane {
        return Err(IdentityError::ClusterIsKCP);
    }
    if let Some(runtime) = record.claimed_by.filter(|it| *it != owner.runtime_id) {
        return Err(IdentityError::ClusterAlreadyManaged {
            runtime: runtime.to_owned(),
        });
    }
    let accepted = record.accepted_uid == Some(observed);
    if let Some(marker) = marker {
        let runtime = data(marker, OWNER_RUNTIME_ID).unwrap_or_default();
        if runtime != owner.runtime_id {
            return Err(IdentityError::OwnershipConflict {
                runtime: runtime.to_owned(),
            });
        }
        if data(marker, OWNER_CONTROL_PLANE) != Some(&owner.control_plane) && !accepted {
            return Err(IdentityError::OtherKCP {
                observed: observed.to_owned(),
            });
        }
    }
    match record.recorded_uid {
        Some(recorded_uid) if recorded_uid != observed && !accepted => {
            Err(IdentityError::ClusterUIDChanged {
                recorded_uid: recorded_uid.to_owned(),
                observed: observed.to_owned(),
            })
        }
        _ => Ok(observed),
    }
}
