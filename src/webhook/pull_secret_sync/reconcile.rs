//! The loop that watches, and executes one task at a time for each namespace that is not in the desired state.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;

use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::watch_with_backoff;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, FuturesUnordered};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::PullSecretSync;
use super::progress::{Progress, note_failure};
use super::secret::SecretView;
use super::state::{CopyName, CopyTask, State};
use super::writer::{WriteError, WriteResult};
use crate::stored::StoredMetadata;

/// Maximum number of writes in progress: enough for a thousand namespaces within seconds, and few compared with the limit
/// of an API server for one client.
const CONCURRENCY: usize = 8;

/// Maximum number of objects in one page of a list.
const PAGE: u32 = 100;

/// Runs the synchronization that the parent module describes.
pub(super) struct Reconciler {
    sync: PullSecretSync,
    state: State,
    /// The namespaces that are not in the desired state, or had a recent write.
    tracked: HashMap<String, Progress>,
    /// The namespaces that must be decided, with the time of the decision.
    queue: BTreeSet<(Instant, String)>,
}

impl Reconciler {
    pub(super) fn new(sync: PullSecretSync, name: CopyName) -> Self {
        Self {
            state: State::new(sync.product_namespace.clone(), name),
            sync,
            tracked: HashMap::new(),
            queue: BTreeSet::new(),
        }
    }

    /// Runs until the token is canceled or the name of the Secret changes. Writes in progress are completed.
    pub(super) async fn run(mut self, token: &CancellationToken) {
        let sync = &self.sync.clone();
        let mut snapshots = sync.snapshots.changes();
        self.state.refresh(&sync.snapshots);
        let name = self.state.secret_name().map(str::to_owned);
        let mut secrets = name.as_ref().map_or(stream::pending().boxed(), |name| {
            let config = Config::default().fields(&format!("metadata.name={name}"));
            self.watch::<SecretView>(config, self.state.name.watch())
        });
        let mut pods = if self.state.is_former() {
            stream::pending().boxed()
        } else {
            self.watch::<StoredMetadata<Pod>>(Config::default(), "pull Secret Pods")
        };
        let mut writes = FuturesUnordered::new();
        loop {
            let due = self.queue.first().map(|it| it.0);
            let due = due.filter(|_| writes.len() < CONCURRENCY);
            let changed = tokio::select! {
                biased;
                () = token.cancelled() => break,
                Some((task, result)) = writes.next() => {
                    self.executed(task, result);
                    Vec::new()
                }
                Ok(()) = snapshots.changed() => {
                    let changed = self.state.refresh(&sync.snapshots);
                    if self.state.secret_name() != name.as_deref() {
                        self.renamed(name.as_deref());
                        break;
                    }
                    changed
                }
                Some(event) = secrets.next() => self.observe_secret(event),
                Some(event) = pods.next() => self.state.observe_pod(event),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Vec::new(),
            };
            for namespace in changed {
                self.changed(namespace);
            }
            while writes.len() < CONCURRENCY
                && let Some(task) = self.next_task()
            {
                writes.push(async move {
                    let result = sync.execute(&task).await;
                    (task, result)
                });
            }
        }
        while let Some((task, result)) = writes.next().await {
            self.executed(task, result);
        }
    }

    fn renamed(&self, old: Option<&str>) {
        if !self.state.is_former() && old.is_some() {
            let (new, left) = (self.state.secret_name(), self.state.copy_count());
            let text = "name of the pull Secret changed, copies under the old name are not updated";
            tracing::warn!(old, new, left, "{text}");
        }
    }

    fn observe_secret(&mut self, event: Event<SecretView>) -> Vec<String> {
        let is_listing = matches!(event, Event::Init | Event::InitApply(_));
        let changed = self.state.observe_secret(event);
        if !is_listing {
            self.count();
        }
        changed
    }

    /// Schedules a new decision about the namespace: at once, after the pause, or after the write in progress.
    fn changed(&mut self, namespace: String) {
        let now = Instant::now();
        match self.tracked.get(&namespace) {
            Some(progress) if progress.is_writing => {}
            Some(progress) => {
                let due = progress.paused_until.map_or(now, |it| it.max(now));
                self.enqueue(namespace, due);
            }
            None if self.state.task_for(&namespace).is_some() => self.enqueue(namespace, now),
            None => {}
        }
    }

    /// Queues a namespace. An earlier time is kept, so that the queue is in the order of the changes.
    fn enqueue(&mut self, namespace: String, due: Instant) {
        let progress = self.tracked.entry(namespace.clone()).or_default();
        if progress.queued.is_some_and(|queued| queued <= due) {
            return;
        }
        if let Some(later) = progress.queued.replace(due) {
            self.queue.remove(&(later, namespace.clone()));
        }
        self.queue.insert((due, namespace));
    }

    /// Returns the first due task.
    fn next_task(&mut self) -> Option<CopyTask> {
        let now = Instant::now();
        while self.queue.first().is_some_and(|(due, _)| *due <= now) {
            let (_, namespace) = self.queue.pop_first()?;
            let progress = self.tracked.entry(namespace.clone()).or_default();
            progress.queued = None;
            let conflicts = &self.sync.metrics.conflicts;
            conflicts.dec_by(progress.is_conflict().into());
            let Some(task) = self.state.task_for(&namespace) else {
                self.recovered(&namespace);
                self.tracked.remove(&namespace);
                continue;
            };
            let due = progress.due(&task, now);
            conflicts.inc_by(progress.is_conflict().into());
            match due {
                Some(due) if due > now => self.enqueue(namespace, due),
                Some(_) => {
                    progress.is_writing = true;
                    return Some(task);
                }
                None => {}
            }
        }
        None
    }

    fn executed(&mut self, task: CopyTask, result: Result<WriteResult, WriteError>) {
        let metrics = &self.sync.metrics;
        let progress = self.tracked.entry(task.namespace.clone()).or_default();
        let is_ok = result.is_ok();
        let paused_until = progress.executed(is_ok);
        match result {
            Ok(WriteResult::Written(state)) => {
                let action = [("action", task.action.name())];
                metrics.writes.get_or_create(&action).inc();
                self.state.copies.written(&task.namespace, state);
                self.count();
            }
            Ok(WriteResult::InUse(pod)) => progress.hold(&task.namespace, Some(pod)),
            Ok(WriteResult::Reported) => progress.hold(&task.namespace, None),
            // The snapshot will remove the namespace. Until then there is nothing to report.
            Err(WriteError::NamespaceGone) => {}
            Err(error) => {
                let reason = [("reason", error.reason())];
                metrics.errors.get_or_create(&reason).inc();
                if note_failure(&mut self.tracked, &task.namespace, Some(&error)).is_some() {
                    let (namespace, action) = (&task.namespace, task.action.name());
                    let error = error_chain(&error);
                    let text = "pull Secret synchronization failed";
                    tracing::warn!(namespace, action, error, "{text}");
                }
            }
        }
        if is_ok {
            self.recovered(&task.namespace);
        }
        self.enqueue(task.namespace, paused_until);
    }

    fn recovered(&mut self, namespace: &str) {
        if let Some(kind) = note_failure(&mut self.tracked, namespace, None) {
            tracing::info!(namespace, kind, "pull Secret synchronization recovered");
        }
    }

    /// Watches objects. A failing watch logs each change, but does not make the replica unready.
    fn watch<K>(&self, config: Config, name: &'static str) -> BoxStream<'static, Event<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let api = Api::all(self.sync.client.clone());
        let condition = Readiness::new(self.sync.watches.clone()).check(name);
        watch_with_backoff(api, config.page_size(PAGE), condition).boxed()
    }

    fn count(&self) {
        let count = i64::try_from(self.state.copy_count()).unwrap_or(i64::MAX);
        self.sync.metrics.copies.set(count);
    }
}

impl Drop for Reconciler {
    /// The next leader sets the gauges.
    fn drop(&mut self) {
        self.sync.metrics.copies.set(0);
        self.sync.metrics.conflicts.set(0);
    }
}
