//! Between the requests and the operator: a bounded queue that never makes a request wait.
//!
//! Invariant: an event is accepted exactly if it will reach the operator, or an equal one that still waits will. So what
//! was answered 200 is seen, whatever else happens to this process's queue short of its end. An event that the operator
//! has already taken is no reason to drop a later equal one: the object may have changed since.
//!
//! Deliberately absent: priorities, persistence (senders keep what was not accepted), and ordering between objects.

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use api::event::{Gvk, NamespacedName};
use futures::Stream;

use crate::certificate::RuntimeId;

/// A hint that an object on a runtime has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The runtime; `None` only under [`Authentication::None`](crate::Authentication::None).
    pub runtime_id: Option<RuntimeId>,
    /// The object. Empty names are passed on, as in the public protocol.
    pub watched: NamespacedName,
    /// Its type.
    pub watched_gvk: Gvk,
}

/// What became of an offered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Accepted,
    /// An equal event waits already.
    Coalesced,
    Full,
    /// The operator has let go of the stream.
    Abandoned,
}

struct Shared {
    state: Mutex<State>,
    capacity: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Event>,
    members: HashSet<Event>,
    waker: Option<Waker>,
    senders_ended: bool,
    abandoned: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the queue at which requests stand.
pub(crate) struct Sender(Arc<Shared>);

/// The events, as they arrive. Ends when the listener has ended and everything accepted was taken.
#[must_use = "events that nobody takes fill the queue, and senders are turned away"]
pub struct Events(Arc<Shared>);

/// A queue for at most `capacity` events.
pub(crate) fn queue(capacity: usize) -> (Sender, Events) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        capacity,
    });
    (Sender(Arc::clone(&shared)), Events(shared))
}

impl Sender {
    /// Takes `event` if there is room for it. Never waits.
    pub(crate) fn offer(&self, event: Event) -> Offer {
        let waker = {
            let mut state = self.0.state();
            if state.abandoned {
                return Offer::Abandoned;
            }
            if state.members.contains(&event) {
                return Offer::Coalesced;
            }
            if state.waiting.len() >= self.0.capacity {
                return Offer::Full;
            }
            state.members.insert(event.clone());
            state.waiting.push_back(event);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
        Offer::Accepted
    }

    /// The number of events that wait, to be read at any time.
    pub(crate) fn depth(&self) -> Depth {
        Depth(Arc::clone(&self.0))
    }
}

/// The number of events that wait. It does not keep the stream of events open, as a [`Sender`] does.
pub(crate) struct Depth(Arc<Shared>);

impl Depth {
    /// The number at this moment.
    pub(crate) fn get(&self) -> usize {
        self.0.state().waiting.len()
    }
}

impl Clone for Depth {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl std::fmt::Debug for Depth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Depth").field(&self.get()).finish()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.state();
            state.senders_ended = true;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.0.state();
        if let Some(event) = state.waiting.pop_front() {
            state.members.remove(&event);
            return Poll::Ready(Some(event));
        }
        if state.senders_ended {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.0.state().abandoned = true;
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.0.state().waiting.len();
        formatter
            .debug_struct("Events")
            .field("waiting", &waiting)
            .finish()
    }
}

#[cfg(test)]
mod tests;
