//! Writes statuses on the control plane, evenly and no more than needed.
//!
//! Invariants: of several statuses of one runtime only the latest is written, and never two at once; no more than so
//! many a second over all runtimes, and none for a growing while after a failure; a write that fails is made again
//! unless a later status took its place. The control plane is everyone's, and thousands of runtimes may change at once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::bootstrapper::{GROUP, KIND, RuntimeBootstrapper, VERSION};
use api::kcp::CONTROLLER_FIELD_MANAGER;
use component_base::backoff::Backoff;
use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use kube::api::{Patch, PatchParams};
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

/// After a write that the control plane did not do.
const PAUSE: Backoff = Backoff::WATCH;

/// A status on its way.
pub(super) struct StatusUpdate {
    pub(super) name: Name,
    /// Of the resource that it is about: a namesake that came later is another one.
    pub(super) uid: Option<String>,
    pub(super) status: CompactStatus,
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
) -> (StatusQueue, impl Future<Output = ()> + Send + use<>) {
    let (desk, receiver) = mpsc::unbounded_channel();
    let low_priority = Arc::<AtomicBool>::default();
    let writer = Writer {
        resources: Api::namespaced(client, namespace),
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

    fn take(&mut self, saying: StatusUpdate, conflicts: u8) {
        let name = Name::clone(&saying.name);
        let known = self
            .waiting
            .insert(Name::clone(&name), (saying, conflicts))
            .is_some();
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
        let write = async move {
            let result = write(&resources, &saying).await;
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
