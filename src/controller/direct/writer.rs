//! Writes statuses of `RuntimeBootstrapper`s on KCP, and an Event if the condition Ready changed.
//!
//! Invariants: of several statuses of one runtime only the latest is written, and never two concurrently. All writes
//! share a rate limit and back off after a failure. A failed write is repeated unless a later status replaced it. A
//! status that also has an Event is written before others, unless its write has failed. A runtime has at most one Event
//! per minute. Reason: KCP has many clients, and thousands of runtimes may change at once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::bootstrapper::{
    Condition, ConditionStatus, GROUP, KIND, READY, RuntimeBootstrapper, RuntimeBootstrapperStatus,
    VERSION,
};
use api::kcp::CONTROLLER_FIELD_MANAGER;
use component_base::backoff::Backoff;
use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use policy::sync::rollout::Name;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::compact_status::CompactStatus;
use super::metrics::DirectMetrics;
use crate::kube_events::EventWriter;

/// Maximum number of concurrent writes: enough to reach the rate limit also if KCP responds slowly.
const MAX_CONCURRENT_WRITES: usize = 16;

/// Number of consecutive conflicts after which a status is dropped, because its resource was deleted and created again.
const MAX_CONFLICTS: u8 = 3;

/// Divisor of the rate limit while reconciles are due. Reconciles read kubeconfigs from KCP, and statuses can wait.
const LOW_PRIORITY_DIVISOR: u32 = 10;

/// Minimum interval between two Events of a runtime.
const EVENT_INTERVAL: Duration = Duration::from_mins(1);

/// Delay after a failed write.
const BACKOFF: Backoff = Backoff::WATCH;

/// A status to write.
pub(super) struct StatusUpdate {
    pub(super) name: Name,
    /// UID of the resource. A later resource with the same name has another UID.
    pub(super) uid: Option<String>,
    pub(super) status: CompactStatus,
    /// Whether the condition Ready changed so that an Event is written.
    pub(super) has_event: bool,
}

/// Sender of statuses to write.
#[derive(Clone)]
pub(super) struct StatusQueue {
    queue: mpsc::UnboundedSender<StatusUpdate>,
    low_priority: Arc<AtomicBool>,
}

impl StatusQueue {
    /// Queues a status.
    pub(super) fn send(&self, update: StatusUpdate) {
        // The send fails only if the writer has ended, which ends the controller, too.
        drop(self.queue.send(update));
    }

    /// Sets whether KCP has more urgent requests than statuses.
    pub(super) fn set_low_priority(&self, is_low: bool) {
        self.low_priority.store(is_low, Ordering::Relaxed);
    }
}

/// Creates the queue, and the future that writes its statuses until all queues are dropped.
pub(super) fn status_queue(
    events: EventWriter,
    namespace: &str,
    per_second: NonZeroU32,
    metrics: DirectMetrics,
) -> (StatusQueue, impl Future<Output = ()> + Send + use<>) {
    let (queue, receiver) = mpsc::unbounded_channel();
    let low_priority = Arc::<AtomicBool>::default();
    let writer = StatusWriter {
        resources: Api::namespaced(events.client.clone(), namespace),
        events: Events {
            writer: events,
            namespace: namespace.to_owned(),
            recent: VecDeque::new(),
            names: HashSet::new(),
        },
        waiting: HashMap::new(),
        urgent: VecDeque::new(),
        order: VecDeque::new(),
        writing: FuturesUnordered::new(),
        names: HashSet::new(),
        failures: 0,
        resume: Instant::now(),
        low_priority: Arc::clone(&low_priority),
        metrics,
    };
    (
        StatusQueue {
            queue,
            low_priority,
        },
        writer.run(receiver, per_second),
    )
}

struct StatusWriter {
    resources: Api<RuntimeBootstrapper>,
    events: Events,
    waiting: HashMap<Name, (StatusUpdate, u8)>,
    /// Runtimes whose condition Ready changed. They may also be in `order`.
    urgent: VecDeque<Name>,
    /// All other runtimes, and some that wait no longer.
    order: VecDeque<Name>,
    writing: FuturesUnordered<BoxFuture<'static, Written>>,
    /// Names whose status is being written.
    names: HashSet<Name>,
    failures: u32,
    resume: Instant,
    /// Set by [`StatusQueue::set_low_priority`].
    low_priority: Arc<AtomicBool>,
    metrics: DirectMetrics,
}

struct Written {
    update: StatusUpdate,
    conflicts: u8,
    result: kube::Result<()>,
}

impl StatusWriter {
    async fn run(
        mut self,
        mut arrivals: mpsc::UnboundedReceiver<StatusUpdate>,
        per_second: NonZeroU32,
    ) {
        let period = Duration::from_secs(1) / per_second.get();
        let [mut ticks, mut slow_ticks] = [period, period * LOW_PRIORITY_DIVISOR].map(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        slow_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let resume = self.resume;
            let has_work = !self.order.is_empty() || !self.urgent.is_empty();
            let tick = async {
                sleep_until(resume).await;
                if self.low_priority.load(Ordering::Relaxed) {
                    slow_ticks.tick().await
                } else {
                    ticks.tick().await
                }
            };
            tokio::select! {
                arrival = arrivals.recv() => match arrival {
                    Some(update) => self.enqueue(update, 0),
                    None => return,
                },
                Some(written) = self.writing.next() => self.complete(written),
                _ = tick, if has_work && self.names.len() < MAX_CONCURRENT_WRITES => self.write_next(),
            }
        }
    }

    fn enqueue(&mut self, mut update: StatusUpdate, conflicts: u8) {
        let name = Name::clone(&update.name);
        let replaced = self.waiting.remove(&name);
        let before = replaced.map(|(it, _)| it.has_event);
        update.has_event |= before.unwrap_or_default();
        let is_queued = before == Some(true) || before == Some(update.has_event);
        self.waiting.insert(Name::clone(&name), (update, conflicts));
        // If the previous status is being written, the new status is queued when that write ends.
        if !is_queued && !self.names.contains(&name) {
            self.queue(name);
        }
    }

    fn queue(&mut self, name: Name) {
        match self.waiting.get(&name) {
            Some((update, _)) if update.has_event => self.urgent.push_back(name),
            _ => self.order.push_back(name),
        }
    }

    fn write_next(&mut self) {
        let next = loop {
            let queued = self.urgent.pop_front().or_else(|| self.order.pop_front());
            let Some(name) = queued else {
                return;
            };
            // A status that was urgent and was written, or is being written, may still be in the queue.
            if !self.names.contains(&name)
                && let Some(next) = self.waiting.remove(&name)
            {
                break next;
            }
        };
        let (update, conflicts) = next;
        self.names.insert(Name::clone(&update.name));
        let resources = self.resources.clone();
        let event = self.events.prepare(&update);
        let write = async move {
            let result = write(&resources, &update).await;
            if let (Ok(()), Some(event)) = (&result, event) {
                event.await;
            }
            Written {
                update,
                conflicts,
                result,
            }
        };
        self.writing.push(Box::pin(write));
    }

    fn complete(&mut self, written: Written) {
        let Written {
            update,
            conflicts,
            result,
        } = written;
        self.metrics.status_written(result.is_ok());
        self.names.remove(&update.name);
        if self.waiting.contains_key(&update.name) {
            self.queue(Name::clone(&update.name));
        }
        match result {
            Ok(()) => self.failures = 0,
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            // The resource was deleted and created again, or another client wrote it concurrently.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                if conflicts + 1 < MAX_CONFLICTS {
                    self.again(update, conflicts + 1);
                }
            }
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                let (runtime, reason) = (&*update.name, status.message);
                tracing::error!(runtime, reason, "invalid status rejected by the API server");
            }
            Err(error) => self.back_off(update, conflicts, &error),
        }
    }

    fn back_off(&mut self, update: StatusUpdate, conflicts: u8, error: &kube::Error) {
        // Later failures of writes that were in flight during the first failure do not increase the backoff.
        if self.resume <= Instant::now() {
            let error = error_chain(error);
            tracing::warn!(runtime = &*update.name, error, "status updates backing off");
            self.resume = Instant::now() + BACKOFF.delay(self.failures, fastrand::u64(..));
            self.failures += 1;
        }
        self.again(update, conflicts);
    }

    /// Queues a status that was not written behind all others, unless there is a later one.
    fn again(&mut self, update: StatusUpdate, conflicts: u8) {
        let name = Name::clone(&update.name);
        if let Entry::Vacant(waiting) = self.waiting.entry(Name::clone(&name)) {
            waiting.insert((update, conflicts));
            self.order.push_back(name);
        }
    }
}

/// Writer of Events about the condition Ready.
struct Events {
    writer: EventWriter,
    namespace: String,
    /// Runtimes that had an Event within the last [`EVENT_INTERVAL`], with the latest at the end.
    recent: VecDeque<(Instant, Name)>,
    names: HashSet<Name>,
}

impl Events {
    /// Returns the future that writes the Event of a status, if it has an Event. A failure is logged and not retried,
    /// because the condition has the same content.
    fn prepare(&mut self, update: &StatusUpdate) -> Option<BoxFuture<'static, ()>> {
        let now = Instant::now();
        let is_old = |(at, _): &(Instant, Name)| now.duration_since(*at) >= EVENT_INTERVAL;
        while self.recent.front().is_some_and(is_old) {
            if let Some((_, name)) = self.recent.pop_front() {
                self.names.remove(&name);
            }
        }
        if !update.has_event || !self.names.insert(Name::clone(&update.name)) {
            return None;
        }
        self.recent.push_back((now, Name::clone(&update.name)));
        let status = update.status.expand();
        let ready = status.conditions.iter().find(|it| it.kind == READY)?;
        let reference = ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(KIND.to_owned()),
            name: Some(update.name.to_string()),
            namespace: Some(self.namespace.clone()),
            uid: update.uid.clone(),
            ..ObjectReference::default()
        };
        let type_ = if ready.status == ConditionStatus::True {
            EventType::Normal
        } else {
            EventType::Warning
        };
        let event = (type_, ready.reason.as_str());
        Some(self.writer.write(event, note(ready, &status), reference))
    }
}

/// Returns the note of an Event: the message of the condition Ready, and the versions on the runtime.
fn note(ready: &Condition, status: &RuntimeBootstrapperStatus) -> String {
    let configuration = status.configuration.as_ref();
    let parts = [
        ("", Some(ready.message.as_str()).filter(|it| !it.is_empty())),
        ("runtime ID ", status.runtime_id.as_deref()),
        (
            "configuration ",
            configuration.and_then(|it| it.revision.as_deref()),
        ),
        (
            "webhook ",
            status.webhook.as_ref().and_then(|it| it.version.as_deref()),
        ),
    ];
    let parts = parts
        .iter()
        .filter_map(|(what, value)| Some(format!("{what}{}", (*value)?)));
    parts.collect::<Vec<_>>().join("; ")
}

async fn write(resources: &Api<RuntimeBootstrapper>, update: &StatusUpdate) -> kube::Result<()> {
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": { "name": &*update.name, "uid": update.uid },
        "status": update.status.expand(),
    });
    let parameters = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
    resources
        .patch_status(&update.name, &parameters, &Patch::Apply(&body))
        .await
        .map(drop)
}

#[cfg(test)]
mod tests;
