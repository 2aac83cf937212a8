//! The `RuntimeBootstrapper` itself: it is held until its runtime is clean, and made where a Runtime asks for direct mode;
//! and the word to today's manager at its end.
//!
//! Invariant: of an existing resource only our own finalizer is ever written, guarded by the resource version (our own
//! statuses change it too, so a conflict is looked at once more); only a resource that we made is ever deleted; of a
//! Runtime nothing is written but the signal's key.

use api::bootstrapper::{DeletionPolicy, FINALIZER, RuntimeBootstrapper, RuntimeBootstrapperSpec};
use api::kcp::{CONTROLLER_FIELD_MANAGER, SHOOT_NAME};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use policy::sync::status::Goal;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::DirectSettings;
use crate::signal::pace::Pace;
use crate::signal::runtime::RuntimeView;

/// The label by which a resource is one that we made; its value is [`CONTROLLER_FIELD_MANAGER`].
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Calls at once: each has a connection of its own, and the control plane does not become quicker by more of them.
const AT_ONCE: usize = 16;

/// Creates, holds and releases.
pub(super) struct Lifecycle {
    resources: Api<RuntimeBootstrapper>,
    runtimes: Api<RuntimeView>,
    signal: Value,
    /// Of signals: each costs the manager a reconciliation of the whole runtime.
    pace: Mutex<Pace>,
    turns: Semaphore,
}

impl Lifecycle {
    pub(super) fn new(client: Client, settings: &DirectSettings) -> Self {
        let namespace = &settings.namespace;
        let pace = Pace::new(settings.signals_per_second, Instant::now());
        Self {
            resources: Api::namespaced(client.clone(), namespace),
            runtimes: Api::namespaced(client, namespace),
            signal: settings.signal_keys.set(),
            pace: Mutex::new(pace),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Creates one for a Runtime that asks for it, with the name of its shoot. One that somebody else created is kept.
    pub(super) async fn adopt(&self, name: &str, shoot: Option<&str>) -> Result<(), kube::Error> {
        let spec = RuntimeBootstrapperSpec {
            deletion_policy: DeletionPolicy::Orphan,
            ..RuntimeBootstrapperSpec::default()
        };
        let mut resource = RuntimeBootstrapper::new(name, spec);
        resource
            .labels_mut()
            .insert(MANAGED_BY.to_owned(), CONTROLLER_FIELD_MANAGER.to_owned());
        if let Some(shoot) = shoot {
            let labels = resource.labels_mut();
            labels.insert(SHOOT_NAME.to_owned(), shoot.to_owned());
        }
        // Held from the beginning, which saves a write of each.
        resource.finalizers_mut().push(FINALIZER.to_owned());
        let parameters = PostParams {
            field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let _turn = self.turns.acquire().await;
        match self.resources.create(&parameters, &resource).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Deletes one that we made; the finalizer does the rest.
    pub(super) async fn dismiss(&self, resource: &RuntimeBootstrapper) -> Result<(), kube::Error> {
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: resource.uid(),
            resource_version: None,
        });
        let _turn = self.turns.acquire().await;
        match self
            .resources
            .delete(&resource.name_any(), &parameters)
            .await
        {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Puts our finalizer there before anything is written to the runtime.
    pub(super) async fn hold(
        &self,
        resource: &RuntimeBootstrapper,
        purpose: Goal,
    ) -> Result<(), kube::Error> {
        if purpose != Goal::Sync || is_held(resource) {
            return Ok(());
        }
        self.set(resource, true).await
    }

    /// Tells today's manager that a runtime is its own again, when its turn has come. A Runtime that is gone is nobody's.
    pub(super) async fn tell(&self, name: &str) -> Result<(), kube::Error> {
        let parameters = PatchParams {
            field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(&self.signal);
        {
            let mut pace = self.pace.lock().await;
            sleep_until(pace.next()).await;
            pace.goes(Instant::now(), fastrand::u64(..));
        }
        let _turn = self.turns.acquire().await;
        let told = self.runtimes.patch_metadata(name, &parameters, &patch);
        match told.await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Takes our finalizer away.
    pub(super) async fn let_go(&self, resource: &RuntimeBootstrapper) -> Result<(), kube::Error> {
        if !is_held(resource) {
            return Ok(());
        }
        match self.set(resource, false).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result,
        }
    }

    async fn set(&self, resource: &RuntimeBootstrapper, held: bool) -> Result<(), kube::Error> {
        let name = resource.name_any();
        let _turn = self.turns.acquire().await;
        match self.patch(&name, resource.meta(), held).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let fresh = self.resources.get_metadata(&name).await?.metadata;
                let leaves = fresh.deletion_timestamp.is_some();
                if fresh.uid != resource.uid() || (held && leaves) {
                    return Err(kube::Error::Api(status));
                }
                self.patch(&name, &fresh, held).await
            }
            result => result,
        }
    }

    async fn patch(&self, name: &str, meta: &ObjectMeta, held: bool) -> Result<(), kube::Error> {
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|it| it == FINALIZER) == held {
            return Ok(());
        }
        finalizers.retain(|it| it != FINALIZER);
        finalizers.extend(held.then(|| FINALIZER.to_owned()));
        // With the version, or somebody else's finalizer that came meanwhile would be lost.
        let patch = json!({ "metadata": {
            "resourceVersion": meta.resource_version,
            "finalizers": finalizers,
        }});
        let parameters = PatchParams {
            field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.resources
            .patch_metadata(name, &parameters, &Patch::Merge(&patch))
            .await
            .map(drop)
    }
}

/// Whether our finalizer is there.
pub(super) fn is_held(resource: &RuntimeBootstrapper) -> bool {
    resource.finalizers().iter().any(|it| it == FINALIZER)
}

/// Whether we made it.
pub(super) fn is_made_by_us(resource: &RuntimeBootstrapper) -> bool {
    resource
        .labels()
        .get(MANAGED_BY)
        .is_some_and(|it| it == CONTROLLER_FIELD_MANAGER)
}
