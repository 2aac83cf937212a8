//! The webhook's manifests: understood once, installed and removed in an order in which no Pod is missed.
//!
//! The webhook configuration is what makes the API server send Pods, so it comes last, after every replica of the wanted
//! version is available, and goes first. Where another version already serves (an upgrade, or today's installer's), it
//! stays in force all the while: until the new Pods have taken over, Services stay as they are and roles only grow.
//! Deliberately absent: YAML. Whoever renders the manifests parses them, so that no text is ever split.

use std::sync::Arc;

use api::kcp::{MANIFEST_HASH, VERSION_LABEL};
use api::names::CONFIG_MAP;
use serde_json::{Value, json};

use super::content::Hash;
use super::differs::contained;
use super::observed::{DeploymentStatus, Observed, text};
use super::target::{Target, TargetError};

/// What has to be installed.
#[derive(Clone, Debug, PartialEq)]
pub struct Installation {
    manifests: Vec<Manifest>,
    version: String,
    hash: Hash,
}

/// One object of an [`Installation`].
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Where it goes.
    pub target: Target,
    /// When it goes there.
    pub phase: Phase,
    /// The object, ready for server-side apply, its hash included.
    pub object: Arc<Value>,
}

/// When an object is installed; the order of removal is the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// What the Pods need: accounts, rights, the Service.
    Foundation,
    /// The Pods.
    Deployment,
    /// What sends the Pods' reviews to them.
    Webhook,
}

impl Phase {
    /// The phase of an object, by its kind.
    pub(super) fn of(target: &Target) -> Self {
        match target.kind() {
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => Self::Webhook,
            "Deployment" => Self::Deployment,
            _ => Self::Foundation,
        }
    }
}

/// Why manifests cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallationError {
    /// An object without a known place.
    #[error("manifest {index} cannot be placed")]
    Target {
        /// Counted from 1.
        index: usize,
        /// Why.
        #[source]
        source: TargetError,
    },
    /// No object at all.
    #[error("there are no manifests")]
    Empty,
    /// There is nothing whose progress could be observed, or more than one.
    #[error("the manifests hold {0} Deployments instead of one")]
    Deployments(usize),
    /// The Deployment does not say its version.
    #[error("the Deployment lacks the label `{VERSION_LABEL}`")]
    Version,
    /// The document comes from KCP, never from the manifests.
    #[error("the manifests hold the ConfigMap `{CONFIG_MAP}`, which is synchronised")]
    Content,
}

impl Installation {
    /// Understands manifests.
    ///
    /// # Errors
    /// [`InstallationError`] if they cannot be installed as a whole.
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
        let hashes: Vec<&[u8]> = manifests
            .iter()
            .filter_map(|it| super::observed::annotation(&it.object, MANIFEST_HASH))
            .map(str::as_bytes)
            .collect();
        Ok(Self {
            version,
            hash: Hash::of_parts(&hashes),
            manifests,
        })
    }

    /// The objects, in the order of the documents.
    #[must_use]
    pub fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    /// The version of the webhook, by the Deployment's label.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Hash of all objects.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Where the Deployment is.
    #[must_use]
    pub fn deployment(&self) -> Option<&Target> {
        self.manifests
            .iter()
            .find(|it| it.phase == Phase::Deployment)
            .map(|it| &it.target)
    }
}

/// What to do about one manifest.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing.
    Keep,
    /// Nothing yet: the Pods have to take over first.
    Wait,
    /// Write this.
    Apply(Arc<Value>),
    /// Remove it, then write this: a field differs that cannot be changed in place.
    Recreate(Arc<Value>),
    /// Nothing can be done: replacing it would leave the runtime without a webhook.
    Stuck,
}

/// Whether the Pods of the wanted version have taken over.
pub(super) fn settled(installation: &Installation, observed: &Observed) -> bool {
    installation
        .manifests
        .iter()
        .filter(|it| it.phase == Phase::Deployment)
        .all(|it| {
            live(it, observed).is_some_and(|live| contained(&it.object, live))
                && DeploymentStatus::of(observed.deployment.as_ref()) == DeploymentStatus::Available
        })
}

/// Decides about one manifest.
pub(super) fn step(manifest: &Manifest, live: Option<&Value>, settled: bool) -> Step {
    let Some(live) = live else {
        return if manifest.phase == Phase::Webhook && !settled {
            Step::Wait
        } else {
            Step::Apply(Arc::clone(&manifest.object))
        };
    };
    if contained(&manifest.object, live) {
        return Step::Keep;
    }
    if immutable_differs(&manifest.object, live) {
        return match manifest.phase {
            Phase::Deployment => Step::Stuck,
            _ => Step::Recreate(Arc::clone(&manifest.object)),
        };
    }
    match (manifest.phase, manifest.target.kind()) {
        (Phase::Webhook, _) | (_, "Service") if !settled => Step::Wait,
        (_, "Role" | "ClusterRole") if !settled => {
            let grown = grown(&manifest.object, live);
            if contained(&grown, live) {
                Step::Wait
            } else {
                Step::Apply(Arc::new(grown))
            }
        }
        _ => Step::Apply(Arc::clone(&manifest.object)),
    }
}

/// The live object of a manifest.
pub(super) fn live<'o>(manifest: &Manifest, observed: &'o Observed) -> Option<&'o Value> {
    if manifest.phase == Phase::Deployment {
        return observed.deployment.as_ref();
    }
    observed.installed.as_ref()?.get(&manifest.target)
}

/// The version that a Deployment says it has.
pub(super) fn version_label(deployment: &Value) -> Option<&str> {
    deployment
        .get("metadata")?
        .get("labels")?
        .get(VERSION_LABEL)?
        .as_str()
        .filter(|version| !version.is_empty())
}

fn manifest(mut object: Value) -> Result<Manifest, TargetError> {
    let target = Target::of(&object)?;
    let phase = Phase::of(&target);
    let hash = Hash::of_value(&object).to_string();
    // `Target::of` found a name, so there is metadata.
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

/// The old Pods still need their rights, and the new ones theirs.
fn grown(desired: &Value, live: &Value) -> Value {
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
    let mut grown = desired.clone();
    grown["rules"] = json!(all);
    grown
}

/// Fields that the API server does not let anyone change.
fn immutable_differs(desired: &Value, live: &Value) -> bool {
    let differs = |pointer: &str| {
        desired
            .pointer(pointer)
            .is_some_and(|value| live.pointer(pointer).is_none_or(|it| !contained(value, it)))
    };
    match text(desired, "/kind") {
        Some("Deployment") => differs("/spec/selector"),
        Some("RoleBinding" | "ClusterRoleBinding") => differs("/roleRef"),
        Some("PriorityClass") => differs("/value") || differs("/preemptionPolicy"),
        _ => false,
    }
}
