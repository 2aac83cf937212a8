//! The queue of Kymas to reconcile.
//!
//! kube's scheduler takes a kilobyte of memory for each waiting reconcile, and never returns it. So only some Kymas and all retries
//! wait there. After a change that concerns all Kymas, the others wait in [`Pass`], which takes a pointer for each.
//!
//! The scheduler starts reconciles in any order. So it starts them at once, and they wait for a permit in the order of their start:
//! retries of thousands of unreachable runtimes do not keep a changed Kyma from its turn.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::KymaView;

/// Maximum number of Kymas that wait for a permit, retries not counted.
const WAITING: usize = 256;

/// Number of parts of the interval in which all Kymas are reconciled again.
const RESYNC_PARTS: u32 = 60;

/// The start of reconciles: limits their number, and the number of Kymas that wait for it.
#[derive(Clone)]
pub(crate) struct ReconcileStarts(Arc<State>);

struct State {
    /// Kymas that have left the queue and whose reconcile has no permit.
    names: Mutex<HashSet<String>>,
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
    /// is then; `None` if it was deleted meanwhile, which the watch reports, too.
    pub(crate) async fn start(
        &self,
        kyma: &KymaView,
        store: &Store<KymaView>,
    ) -> Option<(SemaphorePermit<'_>, Arc<KymaView>)> {
        // The semaphore is never closed.
        let permit = self.0.permits.acquire().await.ok()?;
        self.forget(&kyma.name_any());
        Some((permit, store.get(&reference_of(kyma))?))
    }

    /// Notes that a Kyma does not wait, because it does not exist.
    pub(crate) fn forget(&self, kyma: &str) {
        if self.names().remove(kyma) {
            self.0.started.notify_one();
        }
    }

    /// Returns the items of a stream, as long as few Kymas wait.
    pub(super) fn limit(
        self,
        kymas: impl Stream<Item = ObjectRef<KymaView>> + Send + Unpin,
    ) -> impl Stream<Item = ObjectRef<KymaView>> + Send {
        stream::unfold((self, kymas), async |(starts, mut kymas)| {
            while starts.names().len() >= WAITING {
                starts.0.started.notified().await;
            }
            let kyma = kymas.next().await?;
            starts.names().insert(kyma.name.clone());
            Some((kyma, (starts, kymas)))
        })
    }

    fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All Kymas after each change of a value. A change during a pass begins another one, which continues after the last returned
/// Kyma, so that frequent changes delay no Kyma for longer than a pass.
struct Pass<T> {
    store: Store<KymaView>,
    value: watch::Receiver<T>,
    /// The Kymas that are not returned yet, in reverse order.
    left: Vec<Arc<KymaView>>,
    last: Option<String>,
}

/// Returns all Kymas after each change of a value, until its sender is dropped.
pub(super) fn after_changes<T: Send + Sync + 'static>(
    store: Store<KymaView>,
    value: watch::Receiver<T>,
) -> impl Stream<Item = ObjectRef<KymaView>> + Send {
    let pass = Pass {
        store,
        value,
        left: Vec::new(),
        last: None,
    };
    stream::unfold(pass, async |mut pass| Some((pass.next().await?, pass)))
}

impl<T> Pass<T> {
    async fn next(&mut self) -> Option<ObjectRef<KymaView>> {
        loop {
            if self.value.has_changed().unwrap_or(false) {
                self.begin();
            }
            if let Some(kyma) = self.left.pop() {
                let kyma = reference_of(&kyma);
                self.last = Some(kyma.name.clone());
                return Some(kyma);
            }
            self.value.changed().await.ok()?;
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.value.mark_unchanged();
        let last = self.last.take();
        self.left = self.store.state();
        self.left.sort_by_cached_key(|it| {
            let name = Some(it.name_any());
            Reverse((name <= last, name))
        });
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
