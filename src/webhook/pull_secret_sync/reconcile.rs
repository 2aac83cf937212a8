//! The loop that watches, and starts a task for each namespace that is not as it should be.
//!
//! All futures belong to one task of the runtime: none outlives it, and the locks are never contended.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chassis::readiness::Readiness;
use chassis::watch::keep_watching;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, FuturesUnordered};
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::PullSecretSync;
use super::namespace_task::{ErrorLog, NamespaceTask};
use super::secret::SecretView;
use super::state::{Copies, State};

/// Writes in flight: enough for a thousand namespaces within seconds, few beside what an API server allows one client.
const CONCURRENCY: usize = 8;

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// See the module.
pub(super) struct Reconciler {
    pub(super) sync: PullSecretSync,
    pub(super) token: CancellationToken,
    /// Permits of writes.
    pub(super) slots: Semaphore,
    state: Mutex<State>,
    pub(super) errors: Mutex<ErrorLog>,
}

impl Reconciler {
    pub(super) fn new(sync: PullSecretSync, token: CancellationToken) -> Self {
        Self {
            state: Mutex::new(State::new(sync.product_namespace.clone())),
            sync,
            token,
            slots: Semaphore::new(CONCURRENCY),
            errors: Mutex::default(),
        }
    }

    /// Runs until the token is canceled or the name of the Secret changes; writes in flight are then completed.
    pub(super) async fn run(self) {
        let mut snapshots = self.sync.snapshots.changes();
        self.state().refresh(&self.sync.snapshots);
        let name = self.state().secret_name();
        let mut secrets = name.as_ref().map_or(stream::pending().boxed(), |name| {
            let config = Config::default().fields(&format!("metadata.name={name}"));
            self.watch::<SecretView>(config, "pull Secret copies")
        });
        let mut pods = self.watch::<PartialObjectMeta<Pod>>(Config::default(), "pull Secret Pods");
        let mut tasks = HashMap::<String, Arc<Notify>>::new();
        let mut running = FuturesUnordered::new();
        loop {
            let changed = tokio::select! {
                biased;
                () = self.token.cancelled() => break,
                Some(namespace) = running.next() => {
                    tasks.remove(&namespace);
                    vec![namespace]
                }
                Ok(()) = snapshots.changed() => {
                    let mut state = self.state();
                    let changed = state.refresh(&self.sync.snapshots);
                    let new = state.secret_name();
                    if new != name {
                        if let Some(old) = name {
                            let left = state.copies.count();
                            let text = "name of the pull Secret changed, copies under the old name are not updated";
                            tracing::warn!(old, new, left, "{text}");
                        }
                        break;
                    }
                    changed
                }
                Some(event) = secrets.next() => {
                    let is_listing = matches!(event, Event::Init | Event::InitApply(_));
                    let mut state = self.state();
                    let changed = state.observe_secret(event);
                    if !is_listing {
                        self.count(&state.copies);
                    }
                    changed
                }
                Some(event) = pods.next() => self.state().observe_pod(event),
            };
            for namespace in changed {
                if let Some(task) = tasks.get(&namespace) {
                    task.notify_one();
                } else if self.state().task_for(&namespace).is_some() {
                    let task = Arc::<Notify>::default();
                    tasks.insert(namespace.clone(), Arc::clone(&task));
                    running.push(NamespaceTask::new(&self, namespace, task).run());
                }
            }
        }
        self.token.cancel();
        while running.next().await.is_some() {}
    }

    /// A watch that fails logs each change, but does not make the replica unready.
    fn watch<K>(&self, config: Config, name: &'static str) -> BoxStream<'static, Event<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let api = Api::all(self.sync.client.clone());
        let condition = Readiness::default().condition(name);
        keep_watching(api, config.page_size(PAGE), condition).boxed()
    }

    pub(super) fn count(&self, copies: &Copies) {
        let count = i64::try_from(copies.count()).unwrap_or(i64::MAX);
        self.sync.metrics.copies.set(count);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reconciler {
    /// The next leader counts from now on.
    fn drop(&mut self) {
        self.sync.metrics.copies.set(0);
    }
}
