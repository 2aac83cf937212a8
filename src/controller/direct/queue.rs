//! Who is due when.
//!
//! Invariant: a name stands in the queue once, and who became due first goes first. Deliberately absent: the clock, and
//! why somebody is due.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

/// The name of a runtime's `Runtime` and `RuntimeBootstrapper`.
pub(super) type Name = Arc<str>;

/// Names by the time at which they are due.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The number breaks ties: first come, first served.
    order: BTreeSet<(Instant, u64, Name)>,
    places: HashMap<Name, (Instant, u64)>,
    arrivals: u64,
}

impl Queue {
    /// Makes a name due at `at`, whatever held before.
    pub(super) fn set(&mut self, name: &Name, at: Instant) {
        self.remove(name);
        self.arrivals += 1;
        self.order.insert((at, self.arrivals, Arc::clone(name)));
        self.places.insert(Arc::clone(name), (at, self.arrivals));
    }

    /// Makes a name due at `at` if it is not due before.
    pub(super) fn hasten(&mut self, name: &Name, at: Instant) {
        if self.places.get(name).is_none_or(|(due, _)| *due > at) {
            self.set(name, at);
        }
    }

    /// Forgets a name.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some((name, (at, arrival))) = self.places.remove_entry(name) {
            self.order.remove(&(at, arrival, name));
        }
    }

    /// Takes out who is due longest.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Name> {
        let first = self.order.first().filter(|(at, _, _)| *at <= now)?;
        let name = Arc::clone(&first.2);
        self.remove(&name);
        Some(name)
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _, _)| *at)
    }

    /// Whether a name stands in it.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Number of names that are due.
    pub(super) fn due(&self, now: Instant) -> usize {
        self.order.iter().take_while(|(at, ..)| *at <= now).count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names(queue: &mut Queue, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(now))
            .map(|name| name.to_string())
            .collect()
    }

    #[test]
    fn who_became_due_first_goes_first_and_nobody_twice() {
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        let mut queue = Queue::default();
        queue.set(&"c".into(), later);
        queue.set(&"b".into(), now);
        queue.set(&"a".into(), now);
        queue.hasten(&"b".into(), later);
        assert_eq!((queue.due(now), queue.due(later)), (2, 3));
        assert_eq!(queue.next(), Some(now));
        assert_eq!(names(&mut queue, now), ["b", "a"]);
        queue.hasten(&"c".into(), now);
        assert_eq!(names(&mut queue, now), ["c"]);
        assert_eq!((queue.next(), queue.places.len()), (None, 0));
    }

    #[test]
    fn a_later_time_can_be_set_and_a_name_can_leave() {
        let now = Instant::now();
        let later = now + Duration::from_secs(5);
        let mut queue = Queue::default();
        queue.set(&"a".into(), now);
        queue.set(&"a".into(), later);
        queue.set(&"b".into(), now);
        queue.remove("b");
        queue.remove("nobody");
        assert_eq!(names(&mut queue, now), [""; 0]);
        assert_eq!(names(&mut queue, later), ["a"]);
    }
}
