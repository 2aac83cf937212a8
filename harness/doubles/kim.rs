//! Double of the Kyma Infrastructure Manager; `kim/README.md` describes the scope of the double.

mod bootstrapper;
mod runtime;

pub use bootstrapper::{Bootstrapper, public_webhook};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use api::kcp::{
    KCP_NAMESPACE, RUNTIME_GROUP, RUNTIME_KIND, RUNTIME_PLURAL, RUNTIME_VERSION,
    SUSPEND_RECONCILIATION,
};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use testkit::locked;
use tokio_util::task::AbortOnDropHandle;

use crate::{Objects, ReconcileError};
use runtime::RuntimeReconcile;

/// Creates and deletes clusters.
pub trait Provider: Send + Sync {
    /// Starts the cluster with this name, or finds an existing one. Returns its kubeconfig once its API server is ready.
    fn provision<'a>(&'a self, shoot: &'a str) -> BoxFuture<'a, Result<String>>;

    /// Deletes the cluster with this name. A cluster that does not exist is not an error.
    fn deprovision<'a>(&'a self, shoot: &'a str) -> BoxFuture<'a, Result<()>>;
}

/// Double of Gardener: the provider, and the generation of the Runtime that was applied to each of its clusters.
#[derive(Clone)]
pub struct Garden {
    provider: Arc<dyn Provider>,
    applied: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Garden {
    /// Returns a garden without clusters.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        let applied = Arc::default();
        Self { provider, applied }
    }
}

/// Delays and the settings of a landscape; the defaults are those of the public KIM.
#[derive(Clone)]
pub struct Settings {
    /// Label selector of the Runtimes that KIM manages.
    pub selector: String,
    /// Objects that KIM installs on runtimes; `None` if the feature is off.
    pub bootstrapper: Option<Bootstrapper>,
    /// Field of the metadata in which KIM reads the key of the signal: `annotations` or `labels`.
    pub signal: &'static str,
    /// Delay until KIM checks an installation again, also after an error of the installation.
    pub bootstrapper_requeue: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            selector: String::new(),
            bootstrapper: None,
            signal: "annotations",
            bootstrapper_requeue: Duration::from_secs(30),
        }
    }
}

/// KIM of one control plane.
pub struct Kim {
    kcp: Objects,
    garden: Garden,
    settings: Settings,
}

impl Kim {
    /// Starts the controller, which runs until the handle is dropped.
    pub fn start(client: Client, garden: Garden, settings: Settings) -> AbortOnDropHandle<()> {
        let kind = GroupVersionKind::gvk(RUNTIME_GROUP, RUNTIME_VERSION, RUNTIME_KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, RUNTIME_PLURAL);
        let runtimes: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), KCP_NAMESPACE, &resource);
        let selected = watcher::Config::default().labels(&settings.selector);
        let kim = Arc::new(Self {
            kcp: Objects::new(client),
            garden,
            settings,
        });
        let running = Controller::new_with(runtimes, selected, resource)
            .with_config(Config::default().concurrency(WORKERS))
            .run(reconcile, after_error, kim)
            .for_each(|_| async {});
        AbortOnDropHandle::new(tokio::spawn(running))
    }

    /// Selects the path of a Runtime as the public state machine does.
    async fn reconcile(&self, runtime: &DynamicObject) -> Result<Action> {
        let mut run = RuntimeReconcile::new(self, runtime)?;
        if runtime.metadata.deletion_timestamp.is_some() {
            return run.deprovision().await;
        }
        let suspended = runtime.annotations().get(SUSPEND_RECONCILIATION);
        let is_suspended = suspended.is_some_and(|it| it == "true");
        let applied = locked(&self.garden.applied)
            .get(&runtime.name_any())
            .copied();
        let is_outdated = run.is_signaled() || applied < runtime.metadata.generation;
        // Suspension prevents a patch; it prevents neither the creation of a cluster nor the steps after it.
        let must_patch = applied.is_none() || (is_outdated && !is_suspended);
        let is_quiet = ["Ready", "Failed"].contains(&run.state());
        if is_quiet && !must_patch {
            return Ok(Action::await_change());
        }
        run.provision(must_patch).await
    }
}

async fn reconcile(runtime: Arc<DynamicObject>, kim: Arc<Kim>) -> Result<Action, ReconcileError> {
    kim.reconcile(&runtime).await.map_err(ReconcileError)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of kube")]
fn after_error(runtime: Arc<DynamicObject>, error: &ReconcileError, _: Arc<Kim>) -> Action {
    tracing::info!(runtime = runtime.name_any(), %error, "the KIM double retries");
    Action::requeue(Duration::from_secs(1))
}

/// Largest number of Runtimes that KIM reconciles at the same time: the default of the public KIM.
const WORKERS: u16 = 25;

#[cfg(test)]
mod tests;
