//! The queue of Kymas to reconcile.
//!
//! kube's scheduler takes a kilobyte of memory for each waiting reconcile, and never returns it. So only some Kymas and all retries
//! wait there. The others wait in [`Pending`], which takes some hundred bytes for each.
//!
//! The scheduler starts reconciles in any order. So it starts them at once, and they wait for a permit in the order of their start:
//! retries of thousands of unreachable runtimes do not keep a changed Kyma from its turn.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::Fuse;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::KymaView;

/// Maximum number of Kymas that wait for a permit, retries not counted.
const WAITING: usize = 256;

/// Number of parts of the interval in which all Kymas are reconciled again.
const RESYNC_PARTS: u32 = 60;

/// Why a Kyma left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A value that concerns all Kymas changed, and nothing else.
    All,
    /// The Kyma itself may have changed, or it is reconciled again without a change.
    Kyma,
}

/// The start of reconciles: limits their number, and the number of Kymas that wait for it.
#[derive(Clone)]
pub(crate) struct ReconcileStarts(Arc<State>);

struct State {
    /// Kymas that have left the queue and whose reconcile has no permit.
    names: Mutex<HashMap<String, Trigger>>,
    /// Notified when `names` gets smaller.
    started: Notify,
    permits: Semaphore,
}

impl ReconcileStarts {
    /// Creates the limit of concurrent reconciles.
    pub(crate) fn new(concurrency: usize) -> Self {
        Self(Arc::new(State {
            names: Mutex::default(),
            started: Notify::new(),
            permits: Semaphore::new(concurrency),
        }))
    }

    /// Waits for the permit of the reconcile of a Kyma. Reconciles get permits in the order of their calls. Returns the Kyma as it
    /// is then, and why it is reconciled; `None` if it was deleted meanwhile, which the watch reports, too.
    pub(crate) async fn start(
        &self,
        kyma: &KymaView,
        store: &Store<KymaView>,
    ) -> Option<(SemaphorePermit<'_>, Arc<KymaView>, Trigger)> {
        // The semaphore is never closed.
        let permit = self.0.permits.acquire().await.ok()?;
        // A retry does not come from the queue.
        let trigger = self.remove(&kyma.name_any()).unwrap_or(Trigger::Kyma);
        Some((permit, store.get(&reference_of(kyma))?, trigger))
    }

    /// Notes that a Kyma does not wait, because it does not exist.
    pub(crate) fn forget(&self, kyma: &str) {
        let _ = self.remove(kyma);
    }

    fn remove(&self, kyma: &str) -> Option<Trigger> {
        let removed = self.names().remove(kyma);
        if removed.is_some() {
            self.0.started.notify_one();
        }
        removed
    }

    /// Returns the items of a stream, as long as few Kymas wait.
    pub(super) fn limit(
        self,
        kymas: impl Stream<Item = (ObjectRef<KymaView>, Trigger)> + Send + Unpin,
    ) -> impl Stream<Item = ObjectRef<KymaView>> + Send {
        stream::unfold((self, kymas), async |(starts, mut kymas)| {
            while starts.names().len() >= WAITING {
                starts.0.started.notified().await;
            }
            let (kyma, trigger) = kymas.next().await?;
            // One that waits for a permit leaves the queue again, because it may have been deleted since.
            let mut names = starts.names();
            let waiting = names.entry(kyma.name.clone()).or_insert(trigger);
            if trigger == Trigger::Kyma {
                *waiting = trigger;
            }
            drop(names);
            Some((kyma, (starts, kymas)))
        })
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, Trigger>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Kymas that wait to leave the queue, each once: all Kymas after each change of a value, and those of a stream. Both take turns,
/// so that a changed Kyma does not wait for a pass over all of them. At its start the controller gets each Kyma from several
/// watches; one reconcile, which reads the Kyma when it starts, is enough for them.
struct Pending<T, S> {
    store: Store<KymaView>,
    namespace: String,
    value: watch::Receiver<T>,
    kymas: Fuse<S>,
    changed: Names,
    all: Names,
    is_turn_of_all: bool,
}

/// Returns all Kymas after each change of a value, and the Kymas of a stream, until its last item and the drop of the value's sender.
/// A Kyma that waits for both reasons is returned once, as one of the stream. A change of the value while Kymas wait keeps their places, so that frequent changes delay no Kyma for longer than a pass.
pub(super) fn pending<T: Send + Sync + 'static>(
    (store, namespace): (Store<KymaView>, String),
    value: watch::Receiver<T>,
    kymas: impl Stream<Item = ObjectRef<KymaView>> + Send + Unpin,
) -> impl Stream<Item = (ObjectRef<KymaView>, Trigger)> + Send {
    let pending = Pending {
        store,
        namespace,
        value,
        kymas: kymas.fuse(),
        changed: Names::default(),
        all: Names::default(),
        is_turn_of_all: false,
    };
    stream::unfold(pending, async |mut pending| {
        Some((pending.next().await?, pending))
    })
}

impl<T, S: Stream<Item = ObjectRef<KymaView>> + Unpin> Pending<T, S> {
    async fn next(&mut self) -> Option<(ObjectRef<KymaView>, Trigger)> {
        loop {
            while let Some(Some(kyma)) = self.kymas.next().now_or_never() {
                self.changed.push(kyma.name.into());
            }
            if self.value.has_changed().unwrap_or(false) {
                self.add_all();
            }
            if let Some((name, trigger)) = self.pop() {
                return Some((ObjectRef::new(&name).within(&self.namespace), trigger));
            }
            tokio::select! {
                Some(kyma) = self.kymas.next() => self.changed.push(kyma.name.into()),
                Ok(()) = self.value.changed() => self.add_all(),
                else => return None,
            }
        }
    }

    fn add_all(&mut self) {
        self.value.mark_unchanged();
        let all = self.store.state();
        let mut names: Vec<Arc<str>> = all.iter().map(|it| it.name_any().into()).collect();
        names.sort_unstable();
        for name in names {
            self.all.push(name);
        }
    }

    fn pop(&mut self) -> Option<(Arc<str>, Trigger)> {
        self.is_turn_of_all = !self.is_turn_of_all;
        let (first, second) = if self.is_turn_of_all {
            (&mut self.all, &mut self.changed)
        } else {
            (&mut self.changed, &mut self.all)
        };
        let name = first.next().or_else(|| second.next())?;
        self.all.waiting.remove(&name);
        let is_changed = self.changed.waiting.remove(&name);
        let trigger = if is_changed {
            Trigger::Kyma
        } else {
            Trigger::All
        };
        Some((name, trigger))
    }
}

/// Names in the order in which they were added, each once.
#[derive(Default)]
struct Names {
    /// Also has names that are not waiting any more.
    order: VecDeque<Arc<str>>,
    waiting: HashSet<Arc<str>>,
}

impl Names {
    fn push(&mut self, name: Arc<str>) {
        if self.waiting.insert(Arc::clone(&name)) {
            self.order.push_back(name);
        }
    }

    /// Returns the first name that is waiting. It is no longer in the order, but still among those that are waiting.
    fn next(&mut self) -> Option<Arc<str>> {
        loop {
            let Some(name) = self.order.pop_front() else {
                // Returns the memory of a pass over thousands of Kymas.
                *self = Self::default();
                return None;
            };
            if self.waiting.contains(&name) {
                return Some(name);
            }
        }
    }
}

/// Returns each Kyma for which `is_resynced` returns true once in an interval. The hash of its name selects the time, so that the Kymas are spread over the interval. The
/// others are omitted: the scheduler would start a scheduled reconcile at once.
pub(crate) fn resynced(
    store: Store<KymaView>,
    interval: Duration,
    is_resynced: impl Fn(&str) -> bool + Clone + Send,
) -> impl Stream<Item = ObjectRef<KymaView>> + Send {
    let period = interval / RESYNC_PARTS;
    let mut ticks = interval_at(Instant::now() + period, period);
    // While no Kyma leaves the queue, missed ticks do not add up.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ticks = stream::unfold(ticks, async |mut ticks| {
        ticks.tick().await;
        Some(((), ticks))
    });
    let parts = ticks.zip(stream::iter((0..RESYNC_PARTS).cycle()));
    parts.flat_map(move |((), part)| {
        let (kymas, is_resynced) = (store.state().into_iter(), is_resynced.clone());
        stream::iter(kymas.filter_map(move |it| {
            let kyma = reference_of(&it);
            let mut hash = DefaultHasher::new();
            kyma.name.hash(&mut hash);
            let is_due = hash.finish() % u64::from(RESYNC_PARTS) == u64::from(part);
            (is_due && is_resynced(&kyma.name)).then_some(kyma)
        }))
    })
}

/// Returns the reference of a Kyma in queues. It has no resource version and no UID, because each entry would store them.
pub(super) fn reference_of(kyma: &KymaView) -> ObjectRef<KymaView> {
    ObjectRef::new(&kyma.name_any()).within(&kyma.namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests;
