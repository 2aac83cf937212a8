//! The objects of one manager in the queue, ordered by age, so that heartbeats and metrics do not visit each object while the
//! queue is locked.

use std::collections::BTreeSet;

use super::managers::Managers;
use super::{MonotonicTime, Slot};

/// The objects of one manager in the queue.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Objects whose last change is not delivered.
    pub(super) events: ByAge,
    /// Objects of which only the follow-up event must be sent.
    pub(super) follow_ups: ByAge,
}

/// Slots of objects, ordered by the time at which their next event became due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ByAge(BTreeSet<(MonotonicTime, u32)>);

impl Pending {
    pub(super) fn insert(&mut self, slot: u32, since: MonotonicTime, follow_up: bool) {
        self.of(follow_up).0.insert((since, slot));
    }

    pub(super) fn remove(&mut self, slot: u32, since: MonotonicTime, follow_up: bool) {
        self.of(follow_up).0.remove(&(since, slot));
    }

    fn of(&mut self, follow_up: bool) -> &mut ByAge {
        if follow_up {
            &mut self.follow_ups
        } else {
            &mut self.events
        }
    }

    /// Returns the slots of all objects.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let all = self.events.0.iter().chain(&self.follow_ups.0);
        all.map(|(_, slot)| *slot)
    }

    /// Returns when the first event became due, or will be due, follow-up events included.
    pub(super) fn oldest(&self) -> Option<MonotonicTime> {
        let parts = [&self.events, &self.follow_ups].into_iter();
        parts.filter_map(ByAge::oldest).min()
    }
}

impl Slot {
    /// Sets when the next event became due, and whether it is only the follow-up event.
    pub(super) fn set_pending(
        &mut self,
        id: u32,
        since: MonotonicTime,
        follow_up: bool,
        managers: &mut Managers,
    ) {
        let pending = &mut managers.at(self.manager).pending;
        pending.remove(id, self.since, self.follow_up);
        pending.insert(id, since, follow_up);
        (self.since, self.follow_up) = (since, follow_up);
    }
}

impl ByAge {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn oldest(&self) -> Option<MonotonicTime> {
        self.0.first().map(|(since, _)| *since)
    }
}
