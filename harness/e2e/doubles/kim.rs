//! KIM: obeys a key of the Runtime, brings the three sources to the runtime, installs the webhook where there is none.
//!
//! Like the public manager (<https://github.com/kyma-project/infrastructure-manager>) it removes the key *before* it reads
//! the sources, and skips a Runtime that is suspended or being deleted. Unlike the public manager it removes a source that
//! was deleted on KCP. It has nothing of Gardener.

mod copy;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::runtimes::{FORCE_RECONCILIATION, KCP_NAMESPACE, SUSPEND_RECONCILIATION};
use futures::StreamExt as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use copy::{Copies, Sources};
use testkit::until::until;

/// Which of the two keys it obeys; the requirement names the label, the public manager reads the annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obeys {
    /// The label.
    Label,
    /// The annotation.
    Annotation,
}

impl Obeys {
    fn field(self) -> &'static str {
        match self {
            Self::Label => "labels",
            Self::Annotation => "annotations",
        }
    }

    fn is_asked(self, runtime: &DynamicObject) -> bool {
        let keys = match self {
            Self::Label => runtime.labels(),
            Self::Annotation => runtime.annotations(),
        };
        keys.get(FORCE_RECONCILIATION)
            .is_some_and(|it| it == "true")
    }
}

/// Where a runtime is and what is to be installed there.
#[derive(Clone)]
pub struct Destination {
    /// The runtime's API server.
    pub client: Client,
    /// The webhook's manifests, applied when there is no Deployment yet.
    pub manifests: Vec<Value>,
}

/// The running double.
pub struct Kim {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    kcp: Client,
    obeys: Obeys,
    destinations: Mutex<BTreeMap<String, Destination>>,
    counts: Mutex<BTreeMap<String, u64>>,
    /// While it is false, signals are seen and not taken.
    takes: watch::Sender<bool>,
}

impl Kim {
    /// Starts it. A Runtime that it was never told of ([`Kim::serve`]) has its key taken away and nothing else.
    #[must_use]
    pub fn start(kcp: Client, obeys: Obeys) -> Self {
        let shared = Arc::new(Shared {
            kcp,
            obeys,
            destinations: Mutex::default(),
            counts: Mutex::default(),
            takes: watch::Sender::new(true),
        });
        let task = tokio::spawn(Arc::clone(&shared).run());
        Self { shared, task }
    }

    /// From now on it brings the sources to the runtime of this Runtime.
    pub fn serve(&self, runtime: &str, destination: Destination) {
        self.shared
            .destinations()
            .insert(runtime.to_owned(), destination);
    }

    /// How often it reconciled each Runtime.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.counts().clone()
    }

    /// Makes it busy: signals stand until [`Kim::go_on`].
    pub fn hold(&self) {
        self.shared.takes.send_replace(false);
    }

    /// Lets it take the signals that stand.
    pub fn go_on(&self) {
        self.shared.takes.send_replace(true);
    }
}

impl Drop for Kim {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn destinations(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Destination>> {
        self.destinations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn runtimes(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.kcp.clone(), KCP_NAMESPACE, &runtime_resource())
    }

    async fn run(self: Arc<Self>) {
        let asked = watcher(self.runtimes(), watcher::Config::default())
            .default_backoff()
            .applied_objects()
            .filter_map(|event| async { event.ok() });
        // As the real one: a fixed number of workers, and a failure is tried again after a pause.
        asked
            .for_each_concurrent(WORKERS, |runtime| self.look(runtime))
            .await;
    }

    async fn look(&self, seen: DynamicObject) {
        let name = seen.name_any();
        if let Err(error) = self.reconcile(&name).await {
            tracing::warn!(runtime = name, %error, "KIM gives up until the Runtime changes");
        }
    }

    async fn reconcile(&self, name: &str) -> anyhow::Result<()> {
        if !until("KIM takes the signal", PATIENCE, || self.take(name)).await? {
            return Ok(());
        }
        let destination = self.destinations().get(name).cloned();
        if let Some(destination) = &destination {
            until("KIM brings the sources", PATIENCE, || async {
                let sources = Sources::read(&self.kcp).await?;
                Copies::to(destination).bring(&sources).await
            })
            .await?;
        }
        *self.counts().entry(name.to_owned()).or_default() += 1;
        Ok(())
    }

    fn is_due(&self, runtime: &DynamicObject) -> bool {
        let suspended = runtime.annotations().get(SUSPEND_RECONCILIATION);
        runtime.metadata.deletion_timestamp.is_none()
            && suspended.is_none_or(|it| it != "true")
            && self.obeys.is_asked(runtime)
    }

    /// Takes the key away; says whether it was there and meant something.
    async fn take(&self, name: &str) -> anyhow::Result<bool> {
        let mut gate = self.takes.subscribe();
        loop {
            let Some(runtime) = self.runtimes().get_opt(name).await? else {
                return Ok(false);
            };
            if !self.is_due(&runtime) {
                return Ok(false);
            }
            // Asked after the signal was seen: it may have come while this one was already being looked at.
            if *gate.borrow_and_update() {
                break;
            }
            gate.changed().await?;
        }
        let taken =
            json!({ "metadata": { (self.obeys.field()): { (FORCE_RECONCILIATION): null } } });
        self.runtimes()
            .patch(name, &PatchParams::default(), &Patch::Merge(&taken))
            .await?;
        Ok(true)
    }
}

fn runtime_resource() -> kube::api::ApiResource {
    use api::runtimes::{RUNTIME_GROUP, RUNTIME_KIND, RUNTIME_PLURAL, RUNTIME_VERSION};
    let kind = kube::core::GroupVersionKind::gvk(RUNTIME_GROUP, RUNTIME_VERSION, RUNTIME_KIND);
    kube::api::ApiResource::from_gvk_with_plural(&kind, RUNTIME_PLURAL)
}

/// The real one's default.
const WORKERS: usize = 25;
const PATIENCE: Duration = Duration::from_mins(1);
