//! Double of KIM: it acknowledges a key of the Runtime, copies the three sources to the runtime, and installs the webhook if
//! there is none.
//!
//! Like the public KIM (<https://github.com/kyma-project/infrastructure-manager>), it removes the key before it reads the
//! sources, and copies none while one does not exist. It never deletes a copy, and skips a Runtime that is suspended or being
//! deleted. Unlike the public KIM it does not write the status of Runtimes, and has no Gardener features. It creates objects of
//! the manifests with the default field manager, and applies those that exist.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use api::kcp::{
    FORCE_RECONCILE_KEY, KCP_NAMESPACE, KIM_FIELD_MANAGER, RUNTIME_GROUP, RUNTIME_KIND,
    RUNTIME_PLURAL, RUNTIME_VERSION, SUSPEND_RECONCILIATION,
};
use api::names::CA_BUNDLE_MANAGER;
use futures::StreamExt as _;
use http::Method;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::control_plane::{ControlPlane, runtime_path};
use super::runtime_cluster::{deployment_path, webhook_path};
use super::source::{Source, content};
use crate::definitions::PATIENCE;
use testkit::client::Client;
use testkit::until::until;

/// Handle of the double, which ends when the handle is dropped.
pub(crate) type Running = AbortOnDropHandle<()>;

/// A runtime that the double synchronizes.
#[derive(Clone)]
pub(crate) struct Destination {
    pub(crate) api: Client,
    /// Manifests of the webhook, which are applied if there is no Deployment yet.
    pub(crate) manifests: Vec<Value>,
}

pub(crate) struct Kim {
    kcp: Client,
    field: &'static str,
    destinations: Mutex<BTreeMap<String, Destination>>,
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Kim {
    /// Starts the double, which runs until the handle is dropped. It reads and removes the key in a field of the metadata; the
    /// public KIM uses annotations. For a Runtime without a destination it removes the key and writes nothing.
    pub(crate) fn start(kcp: &ControlPlane, field: &'static str) -> (Arc<Self>, Running) {
        let kind = GroupVersionKind::gvk(RUNTIME_GROUP, RUNTIME_VERSION, RUNTIME_KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, RUNTIME_PLURAL);
        let runtimes =
            Api::namespaced_with(kcp.cluster.watching_client(), KCP_NAMESPACE, &resource);
        let kim = Arc::new(Self {
            kcp: kcp.api.clone(),
            field,
            destinations: Mutex::default(),
            counts: Mutex::default(),
        });
        let task = tokio::spawn(Arc::clone(&kim).run(runtimes));
        (kim, AbortOnDropHandle::new(task))
    }

    /// Sets the runtime to which a Runtime is synchronized from now on.
    pub(crate) fn serve(&self, runtime: &str, destination: Destination) {
        testkit::locked(&self.destinations).insert(runtime.to_owned(), destination);
    }

    /// Returns how often the double reconciled each Runtime.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        testkit::locked(&self.counts).clone()
    }

    async fn run(self: Arc<Self>, runtimes: Api<DynamicObject>) {
        let changed = watcher(runtimes, watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .filter_map(|event| async { event.ok() });
        changed
            .for_each_concurrent(WORKERS, async |runtime| {
                let runtime = runtime.name_any();
                if let Err(error) = self.reconcile(&runtime).await {
                    tracing::warn!(runtime, %error, "the KIM double waits for the next change");
                }
            })
            .await;
    }

    async fn reconcile(&self, name: &str) -> Result<()> {
        let acknowledge = || self.acknowledge(name);
        if !until("KIM acknowledges the signal", PATIENCE, acknowledge).await? {
            return Ok(());
        }
        *testkit::locked(&self.counts)
            .entry(name.to_owned())
            .or_default() += 1;
        let destination = testkit::locked(&self.destinations).get(name).cloned();
        if let Some(destination) = destination {
            let synchronize = || destination.synchronize(&self.kcp);
            until("KIM copies the sources", PATIENCE, synchronize).await?;
        }
        Ok(())
    }

    /// Removes the key. Returns false if the Runtime has none, is suspended, or is being deleted.
    async fn acknowledge(&self, name: &str) -> Result<bool> {
        let path = runtime_path(name);
        let runtime = self.kcp.find(&path).await?;
        let (metadata, field) = (&runtime["metadata"], self.field);
        let is_due = metadata[field][FORCE_RECONCILE_KEY] == "true"
            && metadata["annotations"][SUSPEND_RECONCILIATION] != "true"
            && metadata["deletionTimestamp"].is_null();
        if is_due {
            let version = &metadata["resourceVersion"];
            let without = json!({
                "metadata": { "resourceVersion": version, (field): { (FORCE_RECONCILE_KEY): null } },
            });
            self.kcp.patch(&path, &without).await?;
        }
        Ok(is_due)
    }
}

impl Destination {
    async fn synchronize(&self, kcp: &Client) -> Result<()> {
        let mut originals = Vec::new();
        for source in Source::ALL {
            let original = kcp.find(&source.on_kcp()).await?;
            ensure!(!original.is_null(), "{source:?} does not exist on KCP");
            originals.push((source.on_skr(), original));
        }
        for (path, original) in originals {
            let copy = self.api.find(&path).await?;
            if copy.is_null() || content(&copy) != content(&original) {
                let copy = bare(&original);
                self.api.apply_at(KIM_FIELD_MANAGER, &path, &copy).await?;
            }
        }
        let deployment = self.api.find(&deployment_path()).await?;
        if !deployment.is_null() {
            // A Deployment that is being deleted stays until its Pods have ended; the webhook is installed afterwards.
            let stays = deployment["metadata"]["deletionTimestamp"].is_null();
            ensure!(stays, "the Deployment is being deleted");
            return Ok(());
        }
        for manifest in &self.manifests {
            let path = self.api.path(manifest).await?;
            if !self.api.find(&path).await?.is_null() {
                self.api.apply(KIM_FIELD_MANAGER, manifest).await?;
                continue;
            }
            let (collection, _) = path.rsplit_once('/').context("a path without a name")?;
            let path = format!("{collection}?fieldManager={DEFAULT_MANAGER}");
            let created = self.api.ask(Method::POST, &path, Some(manifest));
            created.await?.good_for(path)?;
        }
        Ok(())
    }
}

/// Applies the webhook configuration as a whole, as the public webhook does when it writes the `caBundle`.
pub(crate) async fn apply_configuration(api: &Client) -> Result<()> {
    let path = webhook_path();
    let mut live = api.get(&path).await?.object;
    let metadata = live["metadata"].as_object_mut().context("no metadata")?;
    metadata.retain(|field, _| ["annotations", "labels", "name"].contains(&field.as_str()));
    api.apply_at(CA_BUNDLE_MANAGER, &path, &live)
        .await
        .map(drop)
}

/// Returns an object of KCP with only the name in its metadata.
fn bare(object: &Value) -> Value {
    let mut bare = json!({ "metadata": { "name": object["metadata"]["name"] } });
    for key in ["apiVersion", "kind", "type", "data", "spec"] {
        if let Some(value) = object.get(key) {
            bare[key] = value.clone();
        }
    }
    bare
}

/// Field manager that an API server records for KIM if KIM names none: its binary, from the `User-Agent`.
const DEFAULT_MANAGER: &str = "manager";

/// Number of parallel reconciles: the default of the public KIM.
const WORKERS: usize = 25;
