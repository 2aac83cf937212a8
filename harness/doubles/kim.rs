//! Double of the Kyma Infrastructure Manager; `kim/README.md` says what it implements.

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

/// What makes clusters.
pub trait Provider: Send + Sync {
    /// Starts the cluster of that name, or finds it; gives the text of its kubeconfig once its API server is ready.
    fn provision<'a>(&'a self, shoot: &'a str) -> BoxFuture<'a, Result<String>>;

    /// Deletes it; one that does not exist is no error.
    fn deprovision<'a>(&'a self, shoot: &'a str) -> BoxFuture<'a, Result<()>>;
}

/// The garden: the provider, and the generation of the Runtime that was applied to each of its clusters.
#[derive(Clone)]
pub struct Garden {
    provider: Arc<dyn Provider>,
    applied: Arc<Mutex<BTreeMap<String, i64>>>,
}

impl Garden {
    /// A garden without clusters.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        let applied = Arc::default();
        Self { provider, applied }
    }
}

/// Delays and the settings that a landscape chooses; the defaults are those of the public manager.
#[derive(Clone)]
pub struct Settings {
    /// Label selector of the Runtimes that it manages.
    pub selector: String,
    /// What it installs on runtimes; `None` where the feature is switched off.
    pub bootstrapper: Option<Bootstrapper>,
    /// The part of the metadata in which it looks for the key of the signal: `annotations` or `labels`.
    pub signal: &'static str,
    /// Between two looks at an installation, and after an error of it.
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

/// The manager of one control plane.
pub struct Kim {
    kcp: Objects,
    garden: Garden,
    settings: Settings,
}

impl Kim {
    /// Starts it; it ends when the handle is dropped.
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

    /// Decides like the public state machine which of its paths a Runtime takes.
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

/// The default of the public manager.
const WORKERS: u16 = 25;

#[cfg(test)]
mod tests;
