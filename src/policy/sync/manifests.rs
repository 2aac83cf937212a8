//! The manifests of the webhook, and the order in which they are installed and deleted without missing a Pod.
//!
//! The webhook configuration makes the API server send Pods. It is installed after all replicas of the desired version are
//! available, followed only by objects in additional namespaces, and deleted first. If another version is serving (an upgrade or
//! an adoption), it remains active: until the new Pods are available, Services are not changed and Roles are only extended. Not in
//! here: YAML, which the caller parses.

use std::sync::Arc;

use api::kcp::{MANIFEST_HASH, VERSION_LABEL};
use api::names::CONFIG_MAP;
use serde_json::{Value, json};

use super::content::Hash;
use super::diff::is_applied;
use super::observed::{DeploymentStatus, Observed, annotation, label, text};
use super::target::{Target, TargetError};

/// The manifests to install.
#[derive(Clone, Debug, PartialEq)]
pub struct Installation {
    manifests: Vec<Manifest>,
    version: String,
    hash: Hash,
}

/// One object of an [`Installation`].
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The object's kind, namespace and name.
    pub target: Target,
    /// The phase of the installation.
    pub phase: Phase,
    /// The object for server-side apply, with its hash as annotation.
    pub object: Arc<Value>,
}

/// The phase in which an object is installed; deletion has the reverse order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requirements of Pods: ServiceAccounts, permissions, the Service.
    Prerequisites,
    /// The Pods.
    Deployment,
    /// The webhook configurations, which make the API server send Pods.
    Webhook,
}

impl Phase {
    /// Returns the phase of an object, by its kind.
    pub(super) fn of(target: &Target) -> Self {
        match target.kind() {
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Self::Webhook,
            "Deployment" => Self::Deployment,
            _ => Self::Prerequisites,
        }
    }
}

/// Reason why manifests cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallationError {
    /// An object has an unknown kind or no name.
    #[error("manifest {index} is invalid")]
    Target {
        /// The number of the object, from 1.
        index: usize,
        /// The cause.
        #[source]
        source: TargetError,
    },
    /// There are no objects.
    #[error("there are no manifests")]
    Empty,
    /// There is not exactly one Deployment, whose status would show the progress.
    #[error("the manifests contain {0} Deployments, expected one")]
    Deployments(usize),
    /// The Deployment has no version label.
    #[error("the Deployment has no label `{VERSION_LABEL}`")]
    Version,
    /// The manifests contain the configuration, which is synchronized from KCP.
    #[error("the manifests contain the ConfigMap `{CONFIG_MAP}`, which is synchronized from KCP")]
    Content,
}

impl Installation {
    /// Creates an installation from manifests.
    ///
    /// # Errors
    /// [`InstallationError`] if they cannot be installed.
    pub fn new(documents: Vec<Value>) -> Result<Self, InstallationError> {
        if documents.is_empty() {
            return Err(InstallationError::Empty);
        }
        let manifests: Vec<Manifest> = documents
            .into_iter()
            .enumerate()
            .map(|(index, document)| {
                manifest(document).map_err(|source| InstallationError::Target {
                    index: index + 1,
                    source,
                })
            })
            .collect::<Result<_, _>>()?;
        if manifests
            .iter()
            .any(|it| it.target.kind() == "ConfigMap" && it.target.name() == CONFIG_MAP)
        {
            return Err(InstallationError::Content);
        }
        let deployments: Vec<&Manifest> = manifests
            .iter()
            .filter(|it| it.phase == Phase::Deployment)
            .collect();
        let [deployment] = deployments[..] else {
            return Err(InstallationError::Deployments(deployments.len()));
        };
        let version = version_label(&deployment.object)
            .ok_or(InstallationError::Version)?
            .to_owned();
        let hashes = manifests.iter();
        let hashes = hashes.filter_map(|it| annotation(&it.object, MANIFEST_HASH));
        Ok(Self {
            version,
            hash: Hash::of_parts(hashes),
            manifests,
        })
    }

    /// Returns the objects, in the order of the manifests.
    #[must_use]
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// Returns the version of the webhook, by the Deployment's label.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the hash of all objects.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Returns the Deployment.
    #[must_use]
    pub fn deployment(&self) -> Option<&Target> {
        self.manifests
            .iter()
            .find(|it| it.phase == Phase::Deployment)
            .map(|it| &it.target)
    }
}

/// The action for the object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ManifestAction {
    /// The object is up to date.
    Keep,
    /// Wait until the Pods of the desired version are available.
    Wait,
    /// Apply this object.
    Apply(Arc<Value>),
    /// Delete the object, then apply this one: an immutable field differs.
    Recreate(Arc<Value>),
    /// An immutable field differs, and deleting the object would leave the runtime without a webhook.
    ImmutableConflict,
}

/// Returns whether the Pods of the desired version are available.
pub(super) fn is_rolled_out(installation: &Installation, observed: &Observed) -> bool {
    installation
        .manifests
        .iter()
        .filter(|it| it.phase == Phase::Deployment)
        .all(|it| {
            live(it, observed).is_some_and(|live| is_applied(&it.object, live))
                && DeploymentStatus::of(observed.deployment.as_ref()) == DeploymentStatus::Available
        })
}

/// Returns the action for the object of a manifest.
pub(super) fn manifest_action(
    manifest: &Manifest,
    live: Option<&Value>,
    is_rolled_out: bool,
) -> ManifestAction {
    let Some(live) = live else {
        return if manifest.phase == Phase::Webhook && !is_rolled_out {
            ManifestAction::Wait
        } else {
            ManifestAction::Apply(Arc::clone(&manifest.object))
        };
    };
    if is_applied(&manifest.object, live) {
        return ManifestAction::Keep;
    }
    if immutable_differs(&manifest.object, live) {
        return match manifest.phase {
            Phase::Deployment => ManifestAction::ImmutableConflict,
            _ => ManifestAction::Recreate(Arc::clone(&manifest.object)),
        };
    }
    match (manifest.phase, manifest.target.kind()) {
        (Phase::Webhook, _) | (_, "Service") if !is_rolled_out => ManifestAction::Wait,
        (_, "Role" | "ClusterRole") if !is_rolled_out => {
            let extended = union_rules(&manifest.object, live);
            if is_applied(&extended, live) {
                ManifestAction::Wait
            } else {
                ManifestAction::Apply(Arc::new(extended))
            }
        }
        _ => ManifestAction::Apply(Arc::clone(&manifest.object)),
    }
}

/// Returns the live object of a manifest.
pub(super) fn live<'o>(manifest: &Manifest, observed: &'o Observed) -> Option<&'o Value> {
    if manifest.phase == Phase::Deployment {
        return observed.deployment.as_ref();
    }
    observed.installed.as_ref()?.get(&manifest.target)
}

/// Returns the version in the label of a Deployment.
pub(super) fn version_label(deployment: &Value) -> Option<&str> {
    label(deployment, VERSION_LABEL).filter(|version| !version.is_empty())
}

/// Returns the manifest of an object, with its hash as annotation.
pub(super) fn manifest(mut object: Value) -> Result<Manifest, TargetError> {
    let target = Target::of(&object)?;
    let phase = Phase::of(&target);
    let hash = Hash::of_value(&object).to_string();
    // `Target::of` requires a name, so there is metadata.
    object["metadata"]["annotations"][MANIFEST_HASH] = hash.into();
    if let Some(namespace) = target.namespace() {
        object["metadata"]["namespace"] = namespace.into();
    }
    Ok(Manifest {
        target,
        phase,
        object: Arc::new(object),
    })
}

/// Returns a Role with the rules of both versions, since Pods of both versions are running.
fn union_rules(desired: &Value, live: &Value) -> Value {
    let rules = |object: &Value| -> Vec<Value> {
        object
            .get("rules")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let mut all = rules(live);
    for rule in rules(desired) {
        if !all.contains(&rule) {
            all.push(rule);
        }
    }
    let mut extended = desired.clone();
    extended["rules"] = json!(all);
    extended
}

/// Returns whether an immutable field differs.
fn immutable_differs(desired: &Value, live: &Value) -> bool {
    let differs = |pointer: &str| {
        desired.pointer(pointer).is_some_and(|value| {
            live.pointer(pointer)
                .is_none_or(|it| !is_applied(value, it))
        })
    };
    match text(desired, "/kind") {
        Some("Deployment") => differs("/spec/selector"),
        Some("RoleBinding" | "ClusterRoleBinding") => differs("/roleRef"),
        Some("PriorityClass") => differs("/value") || differs("/preemptionPolicy"),
        _ => false,
    }
}
