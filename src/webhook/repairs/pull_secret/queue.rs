//! Which namespace is looked at next, and which have to wait.
//!
//! Invariant: a namespace is in one place at most: ready, running or held; a mark that comes while it runs or is held
//! is not lost. No clock: the instant is an argument. Fair: first marked, first taken.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use tokio::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<String>,
    is_ready: HashSet<String>,
    /// Whether it was marked again meanwhile.
    running: HashMap<String, bool>,
    held: HashMap<String, Instant>,
    timers: BTreeSet<(Instant, String)>,
    /// Failures in a row.
    failures: HashMap<String, u32>,
}

impl Queue {
    /// The namespace has to be looked at.
    pub(super) fn mark(&mut self, namespace: &str) {
        if let Some(again) = self.running.get_mut(namespace) {
            *again = true;
        } else if !self.held.contains_key(namespace) && !self.is_ready.contains(namespace) {
            self.is_ready.insert(namespace.to_owned());
            self.ready.push_back(namespace.to_owned());
        }
    }

    /// Marks it at that time.
    pub(super) fn mark_at(&mut self, namespace: &str, instant: Instant) {
        self.timers.insert((instant, namespace.to_owned()));
    }

    /// Releases what waited until now.
    pub(super) fn advance(&mut self, now: Instant) {
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, namespace)) = self.timers.pop_first() else {
                return;
            };
            if self.held.get(&namespace).is_some_and(|until| *until <= now) {
                self.held.remove(&namespace);
            }
            self.mark(&namespace);
        }
    }

    /// When [`Queue::advance`] has something to release next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The next namespace; it runs until [`Queue::done`].
    pub(super) fn take(&mut self) -> Option<String> {
        let namespace = self.ready.pop_front()?;
        self.is_ready.remove(&namespace);
        self.running.insert(namespace.clone(), false);
        Some(namespace)
    }

    /// It ran and is not looked at again before that time, if there is one.
    pub(super) fn done(&mut self, namespace: &str, not_before: Option<Instant>) {
        let again = self.running.remove(namespace).unwrap_or_default();
        if let Some(until) = not_before {
            self.held.insert(namespace.to_owned(), until);
            self.mark_at(namespace, until);
        } else if again {
            self.mark(namespace);
        }
    }

    /// Counts a failure and gives the number of those in a row before it.
    pub(super) fn failed(&mut self, namespace: &str) -> u32 {
        let failures = self.failures.entry(namespace.to_owned()).or_default();
        let earlier = *failures;
        *failures = earlier.saturating_add(1);
        earlier
    }

    pub(super) fn succeeded(&mut self, namespace: &str) {
        self.failures.remove(namespace);
    }
}
