//! The plan for the watcher on one runtime: what is written, in which order, and how it is removed.
//!
//! The webhook configuration makes the API server send changes to the watcher. It is created after the Pods are available, and
//! deleted before anything else. While it exists it is written before the certificates, so that the API server trusts the CA of
//! a new certificate before a Pod presents it.
//!
//! Invariants: nothing is written to a cluster that is not verified; a plan that is computed after its own effect is empty; an
//! object of another owner is never deleted; objects are in the inventory before they are written.

mod planner;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::kcp::{MANIFEST_HASH, OWNER_CONFIG_MAP, OWNER_WATCHER_INVENTORY};
use serde_json::{Value, json};

use self::planner::Planner;
pub use self::planner::is_ours;
use super::{Blocked, Step};
use crate::sync::identity::{IdentityRecord, Owner, verify_identity};
use crate::sync::inventory;
use crate::sync::manifests::{Installation, InstallationError, Manifest, manifest};
use crate::sync::observed::NamespaceState;
use crate::sync::target::Target;

/// The Secret with the certificate of the watcher.
pub const CERTIFICATE_SECRET: &str = "skr-webhook-tls";

/// The webhook configuration.
const CONFIGURATION: &str = "skr-webhook";

/// The watcher as every runtime gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredWatcher {
    namespace: String,
    installation: Arc<Installation>,
    /// The webhook configuration; `None` if the watcher is to be removed.
    webhooks: Option<Manifest>,
    configuration: Target,
    /// Entries of the webhook configuration that stay as they are but for the CAs, because their Watchers cannot be read.
    kept: Vec<String>,
    /// CAs of the webhook configuration, as PEM in base64.
    bundle: String,
    /// The managers of the webhook configuration.
    managers: BTreeSet<String>,
}

/// What determines whether a runtime may be written to.
#[derive(Clone, Copy, Debug)]
pub struct WatcherContext<'a> {
    /// The expected owner.
    pub owner: &'a Owner,
    /// What KCP knows of the cluster.
    pub record: IdentityRecord<'a>,
}

/// What a reconcile read of a runtime.
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
    /// Objects that cannot be read, as missing permissions.
    pub unread: Vec<String>,
}

/// The actions for one runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatcherPlan {
    /// The steps in order; each is applied only if all actions of the previous one succeeded.
    pub steps: Vec<Step>,
    /// Why nothing may be written; if set, there are no steps.
    pub blocked: Option<Blocked>,
    /// The state before the first step.
    pub state: WatcherState,
}

/// The state of the watcher on a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WatcherState {
    /// It is being installed, updated or removed, or nothing is known yet.
    #[default]
    Progressing,
    /// It is available, and the API server sends it what the Watchers name.
    Installed,
    /// Nothing of it is left.
    Removed,
    /// The progress deadline of the Deployment is exceeded.
    ProgressDeadlineExceeded,
    /// The Deployment cannot be updated.
    ImmutableField(Target),
}

impl DesiredWatcher {
    /// Creates the desired watcher of manifests and of the webhook configuration; without one it is removed.
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

    /// Whether the watcher is to be removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.webhooks.is_none()
    }

    /// The namespace of the watcher.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The managers whose changes the watcher reports, one a line. It sends heartbeats to them before there is a change, so that a
    /// manager is told of a watcher that never reports one.
    #[must_use]
    pub fn managers(&self) -> String {
        let lines = self.managers.iter();
        lines.flat_map(|it| [it.as_str(), "\n"]).collect()
    }

    /// All objects that a reconcile has to read, besides [`Self::obsolete`].
    #[must_use]
    pub fn targets(&self) -> BTreeSet<Target> {
        let manifests = self.installation.manifests().iter();
        let mut targets: BTreeSet<Target> = manifests.map(|it| it.target.clone()).collect();
        targets.insert(self.configuration.clone());
        targets.insert(Target::secret(&self.namespace, CERTIFICATE_SECRET));
        targets
    }

    /// Objects of the inventory that an earlier version of the controller wrote, and this one does not.
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

    /// The webhook configuration for one runtime, with the live entries of Watchers that cannot be read. Without a certificate for
    /// the runtime its Pods keep the one that they have, and the live CAs, by which the API server trusts it, stay too.
    fn webhooks(&self, live: Option<&Value>, has_certificate: bool) -> Option<Manifest> {
        let desired = self.webhooks.as_ref()?;
        let entries = live.and_then(|it| it.get("webhooks")?.as_array());
        let entries = entries.into_iter().flatten();
        let is_kept = |it: &&Value| self.kept.iter().any(|name| it["name"] == **name);
        let kept: Vec<Value> = entries.clone().filter(is_kept).cloned().collect();
        let mut bundles = entries.filter_map(|it| it["clientConfig"]["caBundle"].as_str());
        let bundle = match bundles.find(|it| !it.is_empty()) {
            Some(live) if !has_certificate => live,
            _ => &self.bundle,
        };
        if kept.is_empty() && bundle == self.bundle {
            return Some(desired.clone());
        }
        let mut object = Value::clone(&desired.object);
        if let Some(all) = object["webhooks"].as_array_mut() {
            all.extend(kept);
            // All entries lead to the same Pods.
            for entry in all {
                entry["clientConfig"]["caBundle"] = bundle.into();
            }
        }
        // The hash is that of the object without it.
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove(MANIFEST_HASH);
            if annotations.is_empty() {
                object["metadata"].as_object_mut()?.remove("annotations");
            }
        }
        // The same kind and name as before.
        manifest(object).ok()
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

/// The Secret of the watcher, for [`plan_watcher`]: its certificate, as PEM in base64, and [`DesiredWatcher::managers`], in base64.
/// It is mounted, so that another manager reaches the watcher without a rollout.
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

/// The plan for one runtime. Without a certificate nothing is installed, and what is installed keeps the one that it has.
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
