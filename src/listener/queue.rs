//! The stream of notifications, and the limited queue behind it. The queue never makes a request wait.
//!
//! Invariant: a notification is accepted exactly if it, or an equal queued notification, reaches the operator. The queue
//! has a limit for all runtimes and a limit per runtime, which decreases as the queue fills (a dynamic threshold, as for
//! shared buffers in switches). Runtimes that flood the queue together take at most a quarter of it and one place each.
//! Runtimes are served in turn, so a flood of one runtime delays another runtime by at most one notification. Resyncs and
//! states have separate capacity, because there are at most two per runtime. A taken event does not coalesce with a later
//! equal event, because the object may have changed.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::Stream;
use futures::task::AtomicWaker;
use watcher_types::{Gvk, NamespacedName};

use crate::certificate::RuntimeId;

/// An object on a runtime has changed. The event contains only the identity of the object, so the operator must read the object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Event {
    /// ID of the runtime.
    pub runtime_id: RuntimeId,
    /// The changed object. Empty names are passed on, as in the public protocol.
    pub watched: NamespacedName,
    /// Type of the object.
    pub watched_gvk: Gvk,
}

/// A notification for the operator. Each notification is a reason to reconcile the object of the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Notification {
    /// An object on a runtime has changed.
    Changed(Event),
    /// Events of the runtime were lost, or may have been lost, so the operator must list the watched objects again. At most
    /// one per heartbeat interval.
    ResyncRequired {
        /// ID of the runtime.
        runtime_id: RuntimeId,
    },
    /// Changes on the runtime may be missed from now on, or for another reason than before.
    Unresponsive {
        /// ID of the runtime.
        runtime_id: RuntimeId,
        /// Reason why changes may be missed.
        reason: UnresponsiveReason,
    },
    /// The runtime is responsive again. A [`ResyncRequired`](Self::ResyncRequired) follows if changes may have been missed.
    Recovered {
        /// ID of the runtime.
        runtime_id: RuntimeId,
    },
}

/// Reason why changes on a runtime may be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnresponsiveReason {
    /// No watcher of the runtime has sent a heartbeat for three intervals, or one of its replicas has sent none and was not replaced:
    /// it may still answer reviews.
    HeartbeatMissing,
    /// TLS handshakes with all watchers fail and no admission review arrives. The `caBundle` of the webhook configuration
    /// is probably wrong, or another client, such as a probe, does not trust the certificate of the watcher.
    HandshakeFailed,
    /// No admission review arrived for a change announced by [`Liveness::expect_review`](crate::Liveness::expect_review):
    /// the webhook configuration is probably missing.
    ReviewMissing,
}

impl fmt::Display for UnresponsiveReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

impl Notification {
    /// Returns the ID of the runtime of the notification.
    #[must_use]
    pub fn runtime_id(&self) -> &RuntimeId {
        match self {
            Self::Changed(Event { runtime_id, .. })
            | Self::ResyncRequired { runtime_id }
            | Self::Unresponsive { runtime_id, .. }
            | Self::Recovered { runtime_id } => runtime_id,
        }
    }

    /// Returns the event, if the notification is [`Changed`](Self::Changed).
    #[must_use]
    pub fn event(&self) -> Option<&Event> {
        match self {
            Self::Changed(event) => Some(event),
            _ => None,
        }
    }

    /// Returns the index of the notification in [`State::queued`].
    fn kind(&self) -> usize {
        usize::from(self.event().is_none())
    }

    /// Returns whether `later`, of the same runtime, can replace this notification. States replace each other.
    fn coalesces_with(&self, later: &Self) -> bool {
        let is_state = |it: &Self| matches!(it, Self::Unresponsive { .. } | Self::Recovered { .. });
        self == later || is_state(self) && is_state(later)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnqueueResult {
    Accepted,
    /// The notification replaced a queued notification.
    Coalesced,
    /// The limit of the runtime is reached.
    RuntimeLimit,
    Full,
    /// The operator has dropped the stream.
    Closed,
}

/// A queue, and the task that takes from it.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    taker: AtomicWaker,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue and its limits.
#[derive(Default)]
struct State {
    /// Maximum number of events, and of other notifications, each.
    capacity: usize,
    /// Maximum number of events of one runtime.
    capacity_per_runtime: usize,
    /// Queued notifications by runtime; no list is empty.
    lanes: HashMap<RuntimeId, VecDeque<Notification>>,
    /// Runtimes in `lanes`, in the order in which they are served.
    turns: VecDeque<RuntimeId>,
    /// Number of queued events, and of queued other notifications.
    queued: [usize; 2],
    senders_ended: bool,
    closed: bool,
}

impl State {
    fn enqueue(&mut self, notification: Notification) -> EnqueueResult {
        if self.closed {
            return EnqueueResult::Closed;
        }
        let runtime_id = notification.runtime_id();
        let lane = self.lanes.get_mut(runtime_id);
        let mut events = 0;
        for queued in lane.into_iter().flatten() {
            if queued.coalesces_with(&notification) {
                *queued = notification;
                return EnqueueResult::Coalesced;
            }
            events += usize::from(queued.event().is_some());
        }
        let kind = notification.kind();
        if self.queued[kind] >= self.capacity {
            return EnqueueResult::Full;
        }
        let shared = (self.capacity / 4).saturating_sub(self.queued[kind]);
        let limit = self.capacity_per_runtime.min(shared).max(1);
        if notification.event().is_some() && events >= limit {
            return EnqueueResult::RuntimeLimit;
        }
        self.queued[kind] += 1;
        match self.lanes.entry(runtime_id.clone()) {
            Entry::Occupied(mut lane) => lane.get_mut().push_back(notification),
            Entry::Vacant(lane) => {
                self.turns.push_back(lane.key().clone());
                lane.insert([notification].into());
            }
        }
        EnqueueResult::Accepted
    }

    fn take(&mut self) -> Option<Notification> {
        let Entry::Occupied(mut lane) = self.lanes.entry(self.turns.pop_front()?) else {
            return None;
        };
        let taken = lane.get_mut().pop_front()?;
        self.queued[taken.kind()] -= 1;
        if lane.get().is_empty() {
            lane.remove();
        } else {
            self.turns.push_back(lane.key().clone());
        }
        Some(taken)
    }
}

/// Sending end of the queue.
pub(crate) struct Sender(Arc<Shared>);

/// Stream of notifications, in the order of arrival. It ends when the listener has ended and all accepted notifications are
/// taken.
#[must_use = "notifications that are not taken fill the queue, and senders are rejected"]
pub struct Notifications(Arc<Shared>);

impl fmt::Debug for Notifications {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued: usize = self.0.state().queued.iter().sum();
        formatter
            .debug_struct("Notifications")
            .field("queued", &queued)
            .finish_non_exhaustive()
    }
}

/// Creates a queue with these limits for all events and for events of one runtime.
pub(crate) fn queue(capacity: usize, capacity_per_runtime: usize) -> (Sender, Notifications) {
    let shared = Arc::new(Shared::default());
    let mut state = shared.state();
    (state.capacity, state.capacity_per_runtime) = (capacity, capacity_per_runtime);
    drop(state);
    (Sender(Arc::clone(&shared)), Notifications(shared))
}

impl Sender {
    /// Queues `notification` if the queue has capacity for it. Never waits.
    pub(crate) fn enqueue(&self, notification: Notification) -> EnqueueResult {
        let result = self.0.state().enqueue(notification);
        self.0.taker.wake();
        result
    }

    /// Returns whether an equal notification is queued.
    pub(crate) fn is_queued(&self, notification: &Notification) -> bool {
        let state = self.0.state();
        let lane = state.lanes.get(notification.runtime_id());
        lane.is_some_and(|lane| lane.contains(notification))
    }

    /// Returns a function that reads the number of queued notifications. The function does not keep the stream open, in
    /// contrast to a sender.
    #[cfg(feature = "metrics")]
    pub(crate) fn depth(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let shared = Arc::clone(&self.0);
        move || shared.state().queued.iter().sum()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.state().senders_ended = true;
        self.0.taker.wake();
    }
}

impl Stream for Notifications {
    type Item = Notification;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notification>> {
        self.0.taker.register(context.waker());
        let mut state = self.0.state();
        match state.take() {
            None if !state.senders_ended => Poll::Pending,
            taken => Poll::Ready(taken),
        }
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.0.state().closed = true;
    }
}

#[cfg(feature = "kube")]
impl Notifications {
    /// Returns the objects to reconcile, for `Controller::reconcile_on`: for each notification the object that `object`
    /// returns for the runtime, if any. The event is `None` if the notification concerns the whole runtime: resync,
    /// unresponsive, recovered.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::runtime::reflector::ObjectRef;
    ///
    /// fn requests(
    ///     notifications: runtime_watcher_listener::Notifications,
    /// ) -> impl futures::Stream<Item = ObjectRef<ConfigMap>> + Send + 'static {
    ///     notifications.object_refs(|runtime_id, _event| {
    ///         Some(ObjectRef::new(runtime_id.as_str()).within("kcp-system"))
    ///     })
    /// }
    /// ```
    pub fn object_refs<K, F>(
        self,
        mut object: F,
    ) -> impl Stream<Item = kube::runtime::reflector::ObjectRef<K>> + Send + 'static
    where
        K: kube::runtime::reflector::Lookup + 'static,
        K::DynamicType: Send,
        F: FnMut(&RuntimeId, Option<&Event>) -> Option<kube::runtime::reflector::ObjectRef<K>>
            + Send
            + 'static,
    {
        futures::StreamExt::filter_map(self, move |it| {
            futures::future::ready(object(it.runtime_id(), it.event()))
        })
    }
}

#[cfg(test)]
mod tests;
