//! A queue of names, ordered by the time at which they are due.
//!
//! Invariant: a name is in the queue at most once, and the name that became due first is returned first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::sync::rollout::Name;

/// Names by the time at which they are due.
#[derive(Debug, Default)]
pub(super) struct DueQueue {
    /// The number preserves the order of arrival of names that are due at the same time.
    order: BTreeSet<(Duration, u64, Name)>,
    entries: HashMap<Name, (Duration, u64)>,
    arrivals: u64,
}

impl DueQueue {
    /// Makes a name due at `at`, independently of its previous time.
    pub(super) fn set(&mut self, name: &Name, at: Duration) {
        self.remove(name);
        self.arrivals += 1;
        self.order.insert((at, self.arrivals, Arc::clone(name)));
        self.entries.insert(Arc::clone(name), (at, self.arrivals));
    }

    /// Makes a name due at `at`, unless it is due earlier.
    pub(super) fn hasten(&mut self, name: &Name, at: Duration) {
        if self.at(name).is_none_or(|due| due > at) {
            self.set(name, at);
        }
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some((name, (at, arrival))) = self.entries.remove_entry(name) {
            self.order.remove(&(at, arrival, name));
        }
    }

    /// Removes and returns the name that has been due for the longest time.
    pub(super) fn pop(&mut self, now: Duration) -> Option<Name> {
        let (at, _, name) = self.order.first()?;
        if *at > now {
            return None;
        }
        let name = Arc::clone(name);
        self.remove(&name);
        Some(name)
    }

    /// Returns the time at which the next name is due.
    pub(super) fn next(&self) -> Option<Duration> {
        self.order.first().map(|(at, ..)| *at)
    }

    /// Returns the time at which a name is due.
    pub(super) fn at(&self, name: &str) -> Option<Duration> {
        self.entries.get(name).map(|(at, _)| *at)
    }

    /// Returns the names that are due.
    pub(super) fn due(&self, now: Duration) -> impl Iterator<Item = &Name> {
        let due = self.order.iter().take_while(move |(at, ..)| *at <= now);
        due.map(|(.., name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn names(queue: &mut DueQueue, now: Duration) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(now))
            .map(|name| name.to_string())
            .collect()
    }

    #[test]
    fn names_are_taken_once_in_the_order_in_which_they_became_due() {
        let mut queue = DueQueue::default();
        queue.set(&"c".into(), seconds(5));
        queue.set(&"b".into(), seconds(0));
        queue.set(&"a".into(), seconds(0));
        queue.hasten(&"b".into(), seconds(5));
        assert_eq!(queue.due(seconds(0)).count(), 2);
        assert_eq!(queue.due(seconds(5)).count(), 3);
        assert_eq!(names(&mut queue, seconds(0)), ["b", "a"]);
        queue.hasten(&"c".into(), seconds(1));
        assert_eq!(queue.next(), Some(seconds(1)));
        assert_eq!(names(&mut queue, seconds(1)), ["c"]);
        assert_eq!((queue.next(), queue.entries.len()), (None, 0));
    }

    #[test]
    fn a_later_time_can_be_set_and_a_name_can_be_removed() {
        let mut queue = DueQueue::default();
        queue.set(&"a".into(), seconds(0));
        queue.set(&"a".into(), seconds(5));
        queue.set(&"b".into(), seconds(0));
        queue.remove("b");
        queue.remove("unknown");
        assert_eq!(names(&mut queue, seconds(4)), [""; 0]);
        assert_eq!(names(&mut queue, seconds(5)), ["a"]);
    }
}
