//! Creates, deletes and finalizes `RuntimeBootstrapper`s, and signals KIM when a runtime is orphaned.
//!
//! Invariants: of an existing resource only the controller's finalizer is written, with the resource version as
//! precondition. A conflict is retried once, because status updates change the version too. Only resources that the
//! controller created are deleted. Of a Runtime only the keys and the annotation of signals are written.

use api::bootstrapper::{DeletionPolicy, FINALIZER, RuntimeBootstrapper, RuntimeBootstrapperSpec};
use api::kcp::{CONTROLLER_FIELD_MANAGER, SHOOT_NAME};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Patch;
use kube::{Api, Client, Resource as _, ResourceExt as _};
use policy::sync::signal::mark_stale;
use policy::sync::status::Goal;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::{DirectSettings, WEBHOOK_RECONCILES};
use crate::inventory::RuntimeView;
use crate::requests::{Answer as _, MANAGED_BY, deleting, own_label, patching, posting};
use crate::signal::pace::Pace;

/// Maximum number of concurrent requests. Each request has its own connection, and more requests do not increase the
/// throughput of KCP.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// Writes `RuntimeBootstrapper`s and signals.
pub(super) struct Lifecycle {
    resources: Api<RuntimeBootstrapper>,
    runtimes: Api<RuntimeView>,
    /// The merge patch by which KIM is signaled, or by which the controller `signal` is made to signal it.
    signal: Value,
    /// Rate limit of signals: each signal makes KIM reconcile the complete runtime.
    signal_limiter: Mutex<Pace>,
    /// Limits the reconciles that wait for the rate limit, because other runtimes need the places of the others.
    signal_waiters: Semaphore,
    permits: Semaphore,
}

impl Lifecycle {
    pub(super) fn new(client: Client, settings: &DirectSettings) -> Self {
        let namespace = &settings.namespace;
        let limiter = Pace::new(settings.signals_per_second, Instant::now());
        let reconciles = WEBHOOK_RECONCILES.min(settings.max_concurrent_reconciles);
        Self {
            resources: Api::namespaced(client.clone(), namespace),
            runtimes: Api::namespaced(client, namespace),
            signal: if settings.has_signal {
                mark_stale()
            } else {
                settings.signal_keys.set()
            },
            signal_limiter: Mutex::new(limiter),
            signal_waiters: Semaphore::new(reconciles.div_ceil(4)),
            permits: Semaphore::new(MAX_CONCURRENT_REQUESTS),
        }
    }

    /// Creates a resource for a Runtime in mode `direct`. An existing resource is kept.
    pub(super) async fn adopt(&self, name: &str, shoot: Option<&str>) -> Result<(), kube::Error> {
        let resource = adopted(name, shoot);
        let _permit = self.permits.acquire().await;
        let created = self.resources.create(&posting(), &resource).await;
        created.unless_exists().map(drop)
    }

    /// Deletes a resource that the controller created. The finalizer delays the deletion until the clean-up of the
    /// runtime is complete.
    pub(super) async fn delete(&self, resource: &RuntimeBootstrapper) -> Result<(), kube::Error> {
        let _permit = self.permits.acquire().await;
        let name = resource.name_any();
        let deleted = self.resources.delete(&name, &deleting(resource)).await;
        deleted.unless_gone().map(drop)
    }

    /// Adds the finalizer, before anything is written to the runtime.
    pub(super) async fn add_finalizer(
        &self,
        resource: &RuntimeBootstrapper,
        goal: Goal,
    ) -> Result<(), kube::Error> {
        if goal != Goal::Sync || has_finalizer(resource) {
            return Ok(());
        }
        self.set_finalizer(resource, true).await.map(drop)
    }

    /// Signals KIM to reconcile an orphaned runtime, within the rate limit. A Runtime that does not exist is ignored. Returns
    /// false, and signals nothing, if too many other runtimes wait for the rate limit.
    pub(super) async fn signal_kim(&self, name: &str) -> Result<bool, kube::Error> {
        let patch = Patch::Merge(&self.signal);
        {
            let Ok(_waiting) = self.signal_waiters.try_acquire() else {
                return Ok(false);
            };
            let mut limiter = self.signal_limiter.lock().await;
            sleep_until(limiter.next()).await;
            limiter.goes(Instant::now(), fastrand::u64(..));
        }
        let _permit = self.permits.acquire().await;
        let parameters = patching();
        let signaled = self.runtimes.patch_metadata(name, &parameters, &patch);
        signaled.await.unless_gone()?;
        Ok(true)
    }

    /// Removes the finalizer. Returns whether the finalizer was removed: an earlier reconcile may have removed it
    /// already, while the resource in the store is older than the resource on KCP.
    pub(super) async fn remove_finalizer(
        &self,
        resource: &RuntimeBootstrapper,
    ) -> Result<bool, kube::Error> {
        if !has_finalizer(resource) {
            return Ok(false);
        }
        let removed = self.set_finalizer(resource, false).await.unless_gone()?;
        Ok(removed.unwrap_or_default())
    }

    /// Adds or removes the finalizer. Returns whether a write was necessary.
    async fn set_finalizer(
        &self,
        resource: &RuntimeBootstrapper,
        is_wanted: bool,
    ) -> Result<bool, kube::Error> {
        let name = resource.name_any();
        let _permit = self.permits.acquire().await;
        match self
            .patch_finalizers(&name, resource.meta(), is_wanted)
            .await
        {
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let fresh = self.resources.get_metadata(&name).await?.metadata;
                let is_terminating = fresh.deletion_timestamp.is_some();
                if fresh.uid != resource.uid() || (is_wanted && is_terminating) {
                    return Err(kube::Error::Api(status));
                }
                self.patch_finalizers(&name, &fresh, is_wanted).await
            }
            result => result,
        }
    }

    async fn patch_finalizers(
        &self,
        name: &str,
        meta: &ObjectMeta,
        is_wanted: bool,
    ) -> Result<bool, kube::Error> {
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|it| it == FINALIZER) == is_wanted {
            return Ok(false);
        }
        finalizers.retain(|it| it != FINALIZER);
        finalizers.extend(is_wanted.then(|| FINALIZER.to_owned()));
        // The resource version protects finalizers that other controllers add concurrently.
        let patch = json!({ "metadata": {
            "resourceVersion": meta.resource_version,
            "finalizers": finalizers,
        }});
        self.resources
            .patch_metadata(name, &patching(), &Patch::Merge(&patch))
            .await
            .map(|_| true)
    }
}

/// Returns the resource that the controller creates for a Runtime in mode `direct`, with the label of its shoot.
pub(super) fn adopted(name: &str, shoot: Option<&str>) -> RuntimeBootstrapper {
    let spec = RuntimeBootstrapperSpec {
        deletion_policy: DeletionPolicy::Orphan,
        ..RuntimeBootstrapperSpec::default()
    };
    let mut resource = RuntimeBootstrapper::new(name, spec);
    let shoot = shoot.map(|it| (SHOOT_NAME.to_owned(), it.to_owned()));
    resource.labels_mut().extend([own_label()]);
    resource.labels_mut().extend(shoot);
    // The finalizer is set at creation, which saves a write.
    resource.finalizers_mut().push(FINALIZER.to_owned());
    resource
}

/// Returns whether the resource has the controller's finalizer.
pub(super) fn has_finalizer(resource: &RuntimeBootstrapper) -> bool {
    resource.finalizers().iter().any(|it| it == FINALIZER)
}

/// Returns whether the controller created the resource.
pub(super) fn is_managed(resource: &RuntimeBootstrapper) -> bool {
    resource
        .labels()
        .get(MANAGED_BY)
        .is_some_and(|it| it == CONTROLLER_FIELD_MANAGER)
}
