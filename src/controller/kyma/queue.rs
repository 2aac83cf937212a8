//! The queue of Kymas to reconcile.
//!
//! kube's scheduler takes a kilobyte of memory for each waiting reconcile, and never returns it. So only some Kymas wait there.
//! The others wait in [`Pass`], which takes a pointer for each.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, interval_at};

use super::KymaView;

/// Maximum number of Kymas that wait in the scheduler for the start of their reconcile.
const WAITING: usize = 256;

/// Number of parts of the interval in which all Kymas are reconciled again.
const RESYNC_PARTS: u32 = 60;

/// Kymas in the scheduler whose reconcile has not started.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<State>);

#[derive(Default)]
struct State {
    names: Mutex<HashSet<String>>,
    started: Notify,
}

impl Waiting {
    /// Notes that the reconcile of a Kyma has started, or that the Kyma does not exist.
    pub(crate) fn start(&self, kyma: &str) {
        if self.names().remove(kyma) {
            self.0.started.notify_one();
        }
    }

    /// Returns the items of a stream, as long as the scheduler has places.
    pub(super) fn limit(
        self,
        kymas: impl Stream<Item = ObjectRef<KymaView>> + Send + Unpin,
    ) -> impl Stream<Item = ObjectRef<KymaView>> + Send {
        stream::unfold((self, kymas), async |(waiting, mut kymas)| {
            while waiting.names().len() >= WAITING {
                waiting.0.started.notified().await;
            }
            let kyma = kymas.next().await?;
            waiting.names().insert(kyma.name.clone());
            Some((kyma, (waiting, kymas)))
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

/// Returns each Kyma once in an interval. The hash of its name selects the time, so that the Kymas are spread over the interval. A
/// Kyma is omitted if its next reconcile is scheduled, because the scheduler would start that reconcile at once.
pub(crate) fn resynced(
    store: Store<KymaView>,
    interval: Duration,
    is_scheduled: impl Fn(&str) -> bool + Clone + Send,
) -> impl Stream<Item = ObjectRef<KymaView>> + Send {
    let period = interval / RESYNC_PARTS;
    let ticks = interval_at(Instant::now() + period, period);
    let ticks = stream::unfold(ticks, async |mut ticks| {
        ticks.tick().await;
        Some(((), ticks))
    });
    let parts = ticks.zip(stream::iter((0..RESYNC_PARTS).cycle()));
    parts.flat_map(move |((), part)| {
        let (kymas, is_scheduled) = (store.state().into_iter(), is_scheduled.clone());
        stream::iter(kymas.filter_map(move |it| {
            let kyma = reference_of(&it);
            let mut hash = DefaultHasher::new();
            kyma.name.hash(&mut hash);
            let is_due = hash.finish() % u64::from(RESYNC_PARTS) == u64::from(part);
            (is_due && !is_scheduled(&kyma.name)).then_some(kyma)
        }))
    })
}

/// Returns the reference of a Kyma in queues. It has no resource version and no UID, because each entry would store them.
pub(super) fn reference_of(kyma: &KymaView) -> ObjectRef<KymaView> {
    ObjectRef::new(&kyma.name_any()).within(&kyma.namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests;
