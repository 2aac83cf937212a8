//! Whose turn it is.
//!
//! A look at everything of an installation, and writing it, takes many times the calls and the memory of a look at the
//! content. Invariants: no more than [`WHOLE`] such passes run at once, twice as many while some of them take long, and
//! they begin when nobody is due for anything else, so new content goes everywhere before the webhook does; whoever
//! waits for such a pass and is to hold something new gets a quick one first.

use std::sync::Arc;

use policy::sync::desired::Desired;
use policy::sync::status::Goal;
use tokio::time::Instant;

use super::super::pass::purpose;
use super::{Conductor, YOUNG};

/// At a quarter of a megabyte each.
const WHOLE: usize = 48;

impl Conductor {
    /// When there is something to do next, if a pass could begin.
    pub(in super::super) fn next(&self) -> Option<Instant> {
        let now = Instant::now();
        // A pass grows old, or ends, which wakes us anyway.
        let soon = now + YOUNG / 8;
        let whole = self.whole.next().map(|due| {
            if self.has_room_for_whole(now) {
                due
            } else {
                due.max(soon)
            }
        });
        let due = [self.queue.next(), whole].into_iter().flatten().min()?;
        Some(if self.has_room(now) {
            due
        } else {
            due.max(soon)
        })
    }

    /// Begins every pass that is due and has room.
    pub(in super::super) fn begin_due(&mut self) {
        let now = Instant::now();
        let Some(desired) = self.desired.clone() else {
            return;
        };
        while self.has_room(now) && self.begin_next(&desired, now) {}
        self.statuses
            .set_low_priority(self.queue.next().is_some_and(|at| at <= now));
        let metrics = &self.common.metrics;
        let due = self.queue.due(now) + self.whole.due(now);
        metrics.stand(due, self.running.len());
    }

    /// Whether there was one.
    fn begin_next(&mut self, desired: &Arc<Desired>, now: Instant) -> bool {
        if let Some(name) = self.queue.pop(now) {
            if self.needs_whole(&name, now) {
                self.whole.set(&name, now);
            } else {
                let few = self.running.len() < WHOLE && self.whole.next().is_none();
                self.start(&name, desired, few);
            }
            return true;
        }
        if !self.has_room_for_whole(now) {
            return false;
        }
        let next = self.whole.pop(now);
        if let Some(name) = &next {
            self.start(name, desired, true);
        }
        next.is_some()
    }

    fn has_room(&self, now: Instant) -> bool {
        let young = self.running.values().filter(|it| it.is_young(now)).count();
        let most = self.settings.passes;
        young < most && self.running.len() < 2 * most
    }

    fn has_room_for_whole(&self, now: Instant) -> bool {
        let whole = || self.running.values().filter(|it| it.whole);
        whole().filter(|it| it.is_young(now)).count() < WHOLE && whole().count() < 2 * WHOLE
    }

    /// Whether the next pass over it will have to look at everything, as far as is known.
    fn needs_whole(&self, name: &str, now: Instant) -> bool {
        let Some(entry) = self.register.get(name) else {
            return false;
        };
        let leaves = entry
            .resource
            .as_ref()
            .is_some_and(|it| purpose(it.shape()) != Goal::Sync);
        leaves || (!self.is_fresh(name) && (entry.whole || self.is_overdue(name, now)))
    }

    /// Whether it is to hold something for which it had no pass yet.
    pub(super) fn is_fresh(&self, name: &str) -> bool {
        self.register
            .get(name)
            .is_some_and(|it| it.aim != self.aims)
    }

    /// Whether everything on it is to be looked at again.
    pub(super) fn is_overdue(&self, name: &str, now: Instant) -> bool {
        self.thorough_at.get(name).is_some_and(|at| *at <= now)
    }
}

impl super::Running {
    fn is_young(&self, now: Instant) -> bool {
        now.duration_since(self.since) < YOUNG
    }
}
