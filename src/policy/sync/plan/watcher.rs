//! The plan for the watcher on one runtime: the objects to write, their order, and the removal.
//!
//! The webhook configuration makes the API server send changes to the watcher. It is created after the Pods are
//! available, and deleted before all other objects. While it exists it is written before the certificates, so that
//! the API server trusts the CA of a new certificate before a Pod presents it.
//!
//! Invariants: nothing is written to a cluster that is not verified; a plan that is computed after its own effect is empty; an
//! object of another owner is never deleted; objects are in the inventory before they are written.

mod planner;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kcp::{MANIFEST_HASH, OWNER_CONFIG_MAP, OWNER_WATCHER_INVENTORY};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::planner::Planner;
pub use self::planner::is_ours;
use super::{Blocked, Step};
use crate::sync::identity::{IdentityRecord, Owner, verify_identity};
use crate::sync::inventory;
use crate::sync::manifests::{Installation, InstallationError, Manifest, manifest};
use crate::sync::observed::{NamespaceState, is_terminating};
use crate::sync::target::Target;

/// The Secret with the certificate of the watcher.
pub const CERTIFICATE_SECRET: &str = "skr-webhook-tls";

/// The webhook configuration.
const CONFIGURATION: &str = "skr-webhook";

/// The desired watcher, which is the same for every runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredWatcher {
    namespace: String,
    installation: Arc<Installation>,
    /// The webhook configuration; `None` if the watcher must be removed.
    webhooks: Option<Manifest>,
    configuration: Target,
    /// Entries of the webhook configuration in which only the CAs are updated, because their Watchers cannot be read.
    kept: Vec<String>,
    /// CAs of the webhook configuration, as PEM in base64.
    bundle: String,
    /// The managers of the webhook configuration.
    managers: BTreeSet<String>,
}

/// The input that determines whether a runtime may be written.
#[derive(Clone, Copy, Debug)]
pub struct WatcherContext<'a> {
    /// The expected owner.
    pub owner: &'a Owner,
    /// The recorded identity of the cluster on KCP.
    pub record: IdentityRecord<'a>,
    /// Whether AdmissionReviews reach the watcher.
    pub reviews: Reviews,
    /// A text that no earlier plan had.
    pub nonce: &'a str,
}

/// Whether AdmissionReviews reach the watcher of a runtime, by its heartbeats. Only the end of an outage is relevant: the
/// managers did not receive what changed during it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reviews {
    /// No heartbeat shows it.
    #[default]
    Unknown,
    /// No review arrived since this time, although one was requested.
    Missing(Timestamp),
    /// The time of the last review.
    Last(Timestamp),
}

/// The objects of a runtime that a reconcile read.
#[derive(Clone, Default)]
pub struct ObservedWatcher {
    /// UID of the Namespace `kube-system`.
    pub cluster: Option<String>,
    /// The ownership ConfigMap.
    pub marker: Option<Value>,
    /// The namespace of the watcher.
    pub namespace: NamespaceState,
    /// Live objects, by [`DesiredWatcher::targets`] and [`DesiredWatcher::obsolete`].
    pub live: BTreeMap<Target, Value>,
    /// Missing permissions of objects that cannot be read.
    pub unread: Vec<String>,
    /// Whether the manifests are not in `live`, because they are known to be as desired and available.
    pub has_manifests: bool,
}

/// The actions for one runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatcherPlan {
    /// The steps in order; each is applied only if all actions of the previous one succeeded.
    pub steps: Vec<Step>,
    /// Reason why nothing may be written; if set, there are no steps.
    pub blocked: Option<Blocked>,
    /// The state before the first step.
    pub state: WatcherState,
}

/// The state of the watcher on a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WatcherState {
    /// The watcher is being installed, updated or removed, or its state is not known yet.
    #[default]
    Progressing,
    /// The watcher is available, and the API server sends it the changes that the Watchers select.
    Installed,
    /// All objects of the watcher are deleted.
    Removed,
    /// The progress deadline of the Deployment is exceeded.
    ProgressDeadlineExceeded,
    /// The Deployment cannot be updated.
    ImmutableField(Target),
}

impl DesiredWatcher {
    /// Creates the desired watcher from manifests and the webhook configuration. Without a webhook configuration, the
    /// watcher is removed.
    ///
    /// # Errors
    /// [`InstallationError`] if the manifests cannot be installed.
    pub fn new(
        namespace: &str,
        installation: Arc<Installation>,
        webhooks: Option<Value>,
        (kept, bundle): (Vec<String>, &str),
    ) -> Result<Self, InstallationError> {
        let managers = webhooks.as_ref().map(managers).unwrap_or_default();
        let webhooks = webhooks.map(manifest).transpose();
        let webhooks = webhooks.map_err(|source| InstallationError::Target {
            index: installation.manifests().len() + 1,
            source,
        })?;
        Ok(Self {
            namespace: namespace.to_owned(),
            installation,
            configuration: Target::validating_webhook_configuration(CONFIGURATION),
            webhooks,
            kept,
            bundle: bundle.to_owned(),
            managers,
        })
    }

    /// Returns whether the watcher must be removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.webhooks.is_none()
    }

    /// Returns the namespace of the watcher.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the managers whose changes the watcher reports, one per line. The watcher sends heartbeats to them
    /// before the first change, so that a manager receives heartbeats even from a watcher that never reports a
    /// change.
    #[must_use]
    pub fn managers(&self) -> String {
        let lines = self.managers.iter();
        lines.flat_map(|it| [it.as_str(), "\n"]).collect()
    }

    /// Returns whether an object is the webhook configuration.
    #[must_use]
    pub fn is_configuration(&self, target: &Target) -> bool {
        *target == self.configuration
    }

    /// Returns all objects that a reconcile must read, in addition to [`Self::obsolete`].
    #[must_use]
    pub fn targets(&self) -> BTreeSet<Target> {
        let manifests = self.installation.manifests().iter();
        let mut targets = self.variable_targets();
        targets.extend(manifests.map(|it| it.target.clone()));
        targets
    }

    /// Returns the objects that are not manifests: they depend on the Watchers, the CAs and the runtime.
    #[must_use]
    pub fn variable_targets(&self) -> BTreeSet<Target> {
        let secret = Target::secret(&self.namespace, CERTIFICATE_SECRET);
        BTreeSet::from([self.configuration.clone(), secret])
    }

    /// Returns whether both are to be installed with the same manifests.
    #[must_use]
    pub fn has_manifests_of(&self, other: &Self) -> bool {
        let is_installed = !self.is_removed() && !other.is_removed();
        is_installed && self.namespace == other.namespace && self.installation == other.installation
    }

    /// Returns the objects of the inventory that an earlier version of the controller wrote, and this version does not write.
    #[must_use]
    pub fn obsolete(&self, marker: Option<&Value>) -> BTreeSet<Target> {
        let mut listed = inventory::parse(marker, OWNER_WATCHER_INVENTORY);
        for target in self.targets() {
            listed.remove(&target);
        }
        listed.remove(&self.marker());
        listed
    }

    fn marker(&self) -> Target {
        Target::config_map(&self.namespace, OWNER_CONFIG_MAP)
    }

    /// Returns the webhook configuration for one runtime, with the live entries of Watchers that cannot be read, and with
    /// the CAs `bundle`.
    fn webhooks(&self, live: Option<&Value>, bundle: &str) -> Option<Manifest> {
        let desired = self.webhooks.as_ref()?;
        let entries = live.and_then(|it| it.get("webhooks")?.as_array());
        let entries = entries.into_iter().flatten();
        let is_kept = |it: &&Value| self.kept.iter().any(|name| it["name"] == **name);
        let kept: Vec<Value> = entries.filter(is_kept).cloned().collect();
        if kept.is_empty() && bundle == self.bundle {
            return Some(desired.clone());
        }
        let mut object = Value::clone(&desired.object);
        if let Some(all) = object["webhooks"].as_array_mut() {
            all.extend(kept);
            // All entries call the same Pods.
            for entry in all {
                entry["clientConfig"]["caBundle"] = bundle.into();
            }
        }
        // The hash is computed without the hash annotation.
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove(MANIFEST_HASH);
            if annotations.is_empty() {
                object["metadata"].as_object_mut()?.remove("annotations");
            }
        }
        // Kind and name are unchanged, so that no error is possible.
        manifest(object).ok()
    }
}

impl ObservedWatcher {
    /// Returns whether a plan without the manifests is possible: other clients have left the namespace, the ownership ConfigMap and
    /// the other objects. If one of them is missing, so may be the Pods.
    #[must_use]
    pub fn is_intact(&self, desired: &DesiredWatcher) -> bool {
        let is_kept = |target: &Target| {
            let live = self.live.get(target);
            live.is_some_and(|it| is_ours(it) && !is_terminating(it))
        };
        self.namespace == NamespaceState::Active
            && self.marker.is_some()
            && desired.variable_targets().iter().all(is_kept)
    }
}

/// The managers of a webhook configuration.
fn managers(webhooks: &Value) -> BTreeSet<String> {
    let entries = webhooks["webhooks"].as_array().into_iter().flatten();
    entries.filter_map(manager_of).map(str::to_owned).collect()
}

/// The manager of an entry: its path ends with it.
fn manager_of(entry: &Value) -> Option<&str> {
    let path = entry["clientConfig"]["service"]["path"].as_str()?;
    Some(path.rsplit_once('/')?.1)
}

/// Returns the Secret of the watcher, for [`plan_watcher`]: its certificate, as PEM in base64, and
/// [`DesiredWatcher::managers`], in base64. The Secret is mounted, so that the watcher receives another manager
/// without a rollout.
#[must_use]
pub fn certificate_secret(
    namespace: &str,
    [ca, certificate, key]: [&str; 3],
    managers: &str,
) -> Arc<Value> {
    let hash = crate::sync::Hash::of_parts([ca, certificate, managers]).to_string();
    Arc::new(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": CERTIFICATE_SECRET,
            "namespace": namespace,
            "labels": { "app": "skr-webhook", api::watcher::MANAGED_BY_LABEL: "kyma" },
            "annotations": { MANIFEST_HASH: hash },
        },
        "data": { "ca.crt": ca, "tls.crt": certificate, "tls.key": key, "managers": managers },
    }))
}

/// Returns the plan for one runtime. Without a certificate nothing is installed, and an installed watcher keeps its
/// certificate.
#[must_use]
pub fn plan_watcher(
    context: WatcherContext<'_>,
    desired: &DesiredWatcher,
    certificate: Option<&Arc<Value>>,
    observed: &ObservedWatcher,
) -> WatcherPlan {
    let identity = verify_identity(
        context.owner,
        context.record,
        observed.cluster.as_deref(),
        observed.marker.as_ref(),
    );
    let permitted = match identity {
        Err(error) => Err(Blocked::Identity(error)),
        Ok(_) if !observed.unread.is_empty() => {
            Err(Blocked::MissingPermissions(observed.unread.clone()))
        }
        Ok(_) => Ok(()),
    };
    let namespace = || desired.namespace.clone();
    let permitted = permitted.and_then(|()| match observed.namespace {
        _ if desired.is_removed() => Ok(()),
        NamespaceState::Missing => Err(Blocked::NamespaceNotFound(namespace())),
        NamespaceState::Terminating => Err(Blocked::NamespaceTerminating(namespace())),
        NamespaceState::Active => Ok(()),
    });
    if let Err(blocked) = permitted {
        return WatcherPlan {
            blocked: Some(blocked),
            ..WatcherPlan::default()
        };
    }
    let planner = Planner {
        context,
        desired,
        observed,
    };
    let (mut steps, state) = match planner.webhooks(certificate.is_some()) {
        Some(webhooks) => planner.install(&webhooks, certificate),
        None => planner.remove(),
    };
    steps.retain(|step| !step.is_empty());
    WatcherPlan {
        steps,
        blocked: None,
        state,
    }
}
