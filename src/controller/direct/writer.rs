//! Writes statuses of `RuntimeBootstrapper`s on KCP, and an Event after a status with another condition Ready.
//!
//! Invariants: of several statuses of one runtime only the latest is written, and never two at once; writes of all runtimes
//! have a rate limit, and back off after a failure; a write that fails is repeated unless a later status replaced it; a runtime
//! has at most one Event a minute. Many clients use KCP, and thousands of runtimes may change at once.

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
use kube::api::{Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::compact_status::CompactStatus;
use super::metrics::DirectMetrics;
use policy::sync::rollout::Name;

/// Writes at once: a control plane that answers slowly still gets the full pace.
const AT_ONCE: usize = 16;

/// Conflicts of one status in a row before it is taken to be about a resource that is gone.
const CONFLICTS: u8 = 3;

/// How much slower statuses are written while passes wait for their turn: what they tell of can wait, and the control
/// plane has kubeconfigs to hand out meanwhile.
const SLOWER: u32 = 10;

/// Maximum length of the note of an Event; the API allows 1 kB.
const MAX_NOTE: usize = 900;

/// Time after an Event in which a runtime has no other one.
const EVENT_INTERVAL: Duration = Duration::from_mins(1);

/// After a write that the control plane did not do.
const PAUSE: Backoff = Backoff::WATCH;

/// A status on its way.
pub(super) struct StatusUpdate {
    pub(super) name: Name,
    /// Of the resource that it is about: a namesake that came later is another one.
    pub(super) uid: Option<String>,
    pub(super) status: CompactStatus,
    /// Whether its condition Ready is worth an Event.
    pub(super) has_event: bool,
}

/// Where statuses are handed in.
#[derive(Clone)]
pub(super) struct StatusQueue {
    desk: mpsc::UnboundedSender<StatusUpdate>,
    low_priority: Arc<AtomicBool>,
}

impl StatusQueue {
    /// Puts a status on its way.
    pub(super) fn say(&self, saying: StatusUpdate) {
        // Who does not listen any more is at its end, and so are we.
        drop(self.desk.send(saying));
    }

    /// Whether there is more urgent work for the control plane.
    pub(super) fn set_low_priority(&self, whether: bool) {
        self.low_priority.store(whether, Ordering::Relaxed);
    }
}

/// The desk and the future that works at it until the last hand-in is gone.
pub(super) fn desk(
    client: Client,
    namespace: &str,
    per_second: NonZeroU32,
    metrics: DirectMetrics,
    reporter: Reporter,
) -> (StatusQueue, impl Future<Output = ()> + Send + use<>) {
    let (desk, receiver) = mpsc::unbounded_channel();
    let low_priority = Arc::<AtomicBool>::default();
    let writer = Writer {
        resources: Api::namespaced(client.clone(), namespace),
        events: Events {
            client,
            namespace: namespace.to_owned(),
            reporter,
            recent: VecDeque::new(),
            names: HashSet::new(),
        },
        waiting: HashMap::new(),
        order: VecDeque::new(),
        writing: FuturesUnordered::new(),
        names: HashSet::new(),
        failures: 0,
        resume: Instant::now(),
        low_priority: Arc::clone(&low_priority),
        metrics,
    };
    (
        StatusQueue { desk, low_priority },
        writer.run(receiver, per_second),
    )
}

struct Writer {
    resources: Api<RuntimeBootstrapper>,
    events: Events,
    waiting: HashMap<Name, (StatusUpdate, u8)>,
    order: VecDeque<Name>,
    writing: FuturesUnordered<BoxFuture<'static, Written>>,
    /// Of those that are being written.
    names: HashSet<Name>,
    failures: u32,
    resume: Instant,
    /// Of the others.
    low_priority: Arc<AtomicBool>,
    metrics: DirectMetrics,
}

struct Written {
    saying: StatusUpdate,
    conflicts: u8,
    result: kube::Result<()>,
}

impl Writer {
    async fn run(
        mut self,
        mut arrivals: mpsc::UnboundedReceiver<StatusUpdate>,
        per_second: NonZeroU32,
    ) {
        let pace = Duration::from_secs(1) / per_second.get();
        let [mut turns, mut slow_turns] = [pace, pace * SLOWER].map(interval);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        slow_turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let (resume, has_turn) = (self.resume, !self.order.is_empty());
            let turn = async {
                sleep_until(resume).await;
                if self.low_priority.load(Ordering::Relaxed) {
                    slow_turns.tick().await
                } else {
                    turns.tick().await
                }
            };
            tokio::select! {
                arrival = arrivals.recv() => match arrival {
                    Some(saying) => self.take(saying, 0),
                    None => return,
                },
                Some(written) = self.writing.next() => self.end(written),
                _ = turn, if has_turn && self.names.len() < AT_ONCE => self.write_next(),
            }
        }
    }

    fn take(&mut self, mut saying: StatusUpdate, conflicts: u8) {
        let name = Name::clone(&saying.name);
        let replaced = self.waiting.remove(&name);
        let known = replaced.is_some();
        saying.has_event |= replaced.is_some_and(|(it, _)| it.has_event);
        self.waiting.insert(Name::clone(&name), (saying, conflicts));
        // One that is being written takes its place when that has ended.
        if !known && !self.names.contains(&name) {
            self.order.push_back(name);
        }
    }

    fn write_next(&mut self) {
        let Some((saying, conflicts)) = self
            .order
            .pop_front()
            .and_then(|name| self.waiting.remove(&name))
        else {
            return;
        };
        self.names.insert(Name::clone(&saying.name));
        let resources = self.resources.clone();
        let event = self.events.of(&saying);
        let write = async move {
            let result = write(&resources, &saying).await;
            if let (Ok(()), Some(event)) = (&result, event) {
                event.await;
            }
            Written {
                saying,
                conflicts,
                result,
            }
        };
        self.writing.push(Box::pin(write));
    }

    fn end(&mut self, written: Written) {
        let Written {
            saying,
            conflicts,
            result,
        } = written;
        self.metrics.status_written(result.is_ok());
        self.names.remove(&saying.name);
        if self.waiting.contains_key(&saying.name) {
            self.order.push_back(Name::clone(&saying.name));
        }
        match result {
            Ok(()) => self.failures = 0,
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            // Another one of that name, or somebody who wrote at the same time.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                if conflicts + 1 < CONFLICTS && !self.waiting.contains_key(&saying.name) {
                    self.take(saying, conflicts + 1);
                }
            }
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                let (runtime, reason) = (&*saying.name, status.message);
                tracing::error!(runtime, reason, "invalid status rejected by the API server");
            }
            Err(error) => self.pause(saying, conflicts, &error),
        }
    }

    fn pause(&mut self, saying: StatusUpdate, conflicts: u8, error: &kube::Error) {
        // Those that were on their way when the first one failed are the same failure.
        if self.resume <= Instant::now() {
            let error = error_chain(error);
            tracing::warn!(runtime = &*saying.name, error, "status updates backing off");
            self.resume = Instant::now() + PAUSE.delay(self.failures, fastrand::u64(..));
            self.failures += 1;
        }
        if !self.waiting.contains_key(&saying.name) {
            self.take(saying, conflicts);
        }
    }
}

/// Events about the condition Ready.
struct Events {
    client: Client,
    namespace: String,
    reporter: Reporter,
    /// Runtimes that had one within the last [`EVENT_INTERVAL`], the latest at the end, and their names.
    recent: VecDeque<(Instant, Name)>,
    names: HashSet<Name>,
}

impl Events {
    /// Publishes the Event of a status, if it is to have one. A failure is logged, not repeated: the condition says the same.
    fn of(&mut self, saying: &StatusUpdate) -> Option<impl Future<Output = ()> + Send + use<>> {
        let now = Instant::now();
        let is_old = |(at, _): &(Instant, Name)| now.duration_since(*at) >= EVENT_INTERVAL;
        while self.recent.front().is_some_and(is_old) {
            if let Some((_, name)) = self.recent.pop_front() {
                self.names.remove(&name);
            }
        }
        if !saying.has_event || !self.names.insert(Name::clone(&saying.name)) {
            return None;
        }
        self.recent.push_back((now, Name::clone(&saying.name)));
        let status = saying.status.open();
        let ready = status.conditions.iter().find(|it| it.kind == READY)?;
        let reference = ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(KIND.to_owned()),
            name: Some(saying.name.to_string()),
            namespace: Some(self.namespace.clone()),
            uid: saying.uid.clone(),
            ..ObjectReference::default()
        };
        let event = ready_event(ready, &status);
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let name = Name::clone(&saying.name);
        Some(async move {
            if let Err(error) = recorder.publish(&event, &reference).await {
                let error = error_chain(&error);
                tracing::warn!(runtime = &*name, error, "failed to write Event");
            }
        })
    }
}

fn ready_event(ready: &Condition, status: &RuntimeBootstrapperStatus) -> Event {
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
    let note = parts.collect::<Vec<_>>().join("; ");
    Event {
        type_: if ready.status == ConditionStatus::True {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: ready.reason.clone(),
        note: Some(note.chars().take(MAX_NOTE).collect()),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

async fn write(resources: &Api<RuntimeBootstrapper>, saying: &StatusUpdate) -> kube::Result<()> {
    let body = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": { "name": &*saying.name, "uid": saying.uid },
        "status": saying.status.open(),
    });
    let parameters = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
    resources
        .patch_status(&saying.name, &parameters, &Patch::Apply(&body))
        .await
        .map(drop)
}
