//! Which runtime is written next, and which have to wait.
//!
//! Invariant: a runtime is in one place at most: ready, running or held; a mark that comes while it runs or is held is
//! not lost. Fair: first marked, first taken. Nothing is kept of a runtime that has nothing to do and did not fail.
//! No clock: the instant is an argument.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<Arc<str>>,
    places: HashMap<Arc<str>, Place>,
    held: BTreeSet<(Instant, Arc<str>)>,
    /// Failures in a row.
    failures: HashMap<Arc<str>, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Running { again: bool },
    Held,
}

impl Queue {
    /// The runtime has to be looked at.
    pub(super) fn mark(&mut self, runtime: &Arc<str>) {
        match self.places.get_mut(runtime) {
            Some(Place::Running { again }) => *again = true,
            Some(Place::Ready | Place::Held) => {}
            None => {
                self.places.insert(runtime.clone(), Place::Ready);
                self.ready.push_back(runtime.clone());
            }
        }
    }

    /// Makes ready what was held until now.
    pub(super) fn advance(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, runtime)) = self.held.pop_first() else {
                return;
            };
            self.places.insert(runtime.clone(), Place::Ready);
            self.ready.push_back(runtime);
        }
    }

    /// When [`Queue::advance`] has something to release next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.first().map(|(due, _)| *due)
    }

    /// The next runtime; it runs until [`Queue::succeeded`] or [`Queue::hold`].
    pub(super) fn take(&mut self) -> Option<Arc<str>> {
        let runtime = self.ready.pop_front()?;
        self.places
            .insert(runtime.clone(), Place::Running { again: false });
        Some(runtime)
    }

    /// Whether something waits for nothing but its turn.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// It ran, or had nothing to run for.
    pub(super) fn succeeded(&mut self, runtime: &Arc<str>) {
        self.failures.remove(runtime);
        if self.places.remove(runtime) == Some(Place::Running { again: true }) {
            self.mark(runtime);
        }
    }

    /// Failures in a row before the one that is about to be told to [`Queue::hold`].
    pub(super) fn failures(&self, runtime: &str) -> u32 {
        self.failures.get(runtime).copied().unwrap_or_default()
    }

    /// It failed and is looked at again at that time.
    pub(super) fn hold(&mut self, runtime: &Arc<str>, until: Instant) {
        let failures = self.failures.entry(runtime.clone()).or_default();
        *failures = failures.saturating_add(1);
        self.places.insert(runtime.clone(), Place::Held);
        self.held.insert((until, runtime.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(text: &str) -> Arc<str> {
        text.into()
    }

    fn drained(queue: &mut Queue) -> Vec<Arc<str>> {
        std::iter::from_fn(|| queue.take()).collect()
    }

    #[test]
    fn first_marked_is_first_taken_and_once() {
        let mut queue = Queue::default();
        for runtime in ["b", "a", "b", "c"] {
            queue.mark(&name(runtime));
        }
        assert!(queue.has_ready());
        assert_eq!(drained(&mut queue), [name("b"), name("a"), name("c")]);
        assert!(!queue.has_ready());
    }

    #[test]
    fn a_mark_while_it_runs_is_not_lost() {
        let mut queue = Queue::default();
        let a = name("a");
        queue.mark(&a);
        queue.take();
        queue.mark(&a);
        assert_eq!(queue.take(), None);
        queue.succeeded(&a);
        assert_eq!(queue.take(), Some(a.clone()));
        queue.succeeded(&a);
        assert!(queue.places.is_empty() && queue.failures.is_empty());
    }

    #[test]
    fn a_failed_one_is_held_whatever_marks_it_and_delays_nobody() {
        let mut queue = Queue::default();
        let (a, b) = (name("a"), name("b"));
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        queue.mark(&a);
        queue.take();
        assert_eq!(queue.failures("a"), 0);
        queue.hold(&a, later);
        assert_eq!(queue.failures("a"), 1);
        queue.mark(&a);
        queue.mark(&b);
        queue.advance(now);
        assert_eq!(drained(&mut queue), std::slice::from_ref(&b));
        assert_eq!(queue.next_due(), Some(later));
        queue.advance(later);
        assert_eq!(queue.take(), Some(a.clone()));
        queue.succeeded(&a);
        assert_eq!(queue.failures("a"), 0);
        assert_eq!(queue.next_due(), None);
    }
}
