//! The Secrets of the pull Secret's name, by namespace.
//!
//! Invariant: a state that is certainly older than the one held never replaces it; the answer to a write of ours may
//! come before the events that led up to it.

use std::collections::HashMap;
use std::mem;

use kube::runtime::watcher::Event;

use super::found::Found;
use super::state::Dirty;

/// What the watch and our own writes told.
#[derive(Debug, Default)]
pub(super) struct Copies {
    found: HashMap<String, Found>,
    listed: HashMap<String, Found>,
    known: bool,
}

impl Copies {
    /// Whether a complete list has arrived: before it, absence means nothing.
    pub(super) fn known(&self) -> bool {
        self.known
    }

    pub(super) fn of(&self, namespace: &str) -> Option<&Found> {
        self.found.get(namespace)
    }

    /// How many of them are ours.
    pub(super) fn ours(&self) -> usize {
        self.found.values().filter(|found| found.is_ours()).count()
    }

    pub(super) fn see(&mut self, event: Event<(String, Found)>) -> Dirty {
        match event {
            Event::Init => {
                self.listed = HashMap::new();
                Dirty::Nothing
            }
            Event::InitApply((namespace, found)) => {
                self.listed.insert(namespace, found);
                Dirty::Nothing
            }
            Event::InitDone => {
                self.replace();
                Dirty::All
            }
            Event::Apply((namespace, found)) => self.put(namespace, found),
            Event::Delete((namespace, found)) => match self.found.get(&namespace) {
                Some(held) if !found.is_older_than(held) => {
                    self.found.remove(&namespace);
                    Dirty::Namespace(namespace)
                }
                _ => Dirty::Nothing,
            },
        }
    }

    /// We wrote it ourselves.
    pub(super) fn wrote(&mut self, namespace: &str, found: Found) {
        self.put(namespace.to_owned(), found);
    }

    /// We removed it ourselves.
    pub(super) fn removed(&mut self, namespace: &str) {
        self.found.remove(namespace);
    }

    fn replace(&mut self) {
        let before = mem::replace(&mut self.found, mem::take(&mut self.listed));
        for (namespace, held) in before {
            if let Some(found) = self.found.get_mut(&namespace)
                && found.is_older_than(&held)
            {
                *found = held;
            }
        }
        self.known = true;
    }

    fn put(&mut self, namespace: String, found: Found) -> Dirty {
        match self.found.get(&namespace) {
            Some(held) if found.is_older_than(held) || found == *held => Dirty::Nothing,
            _ => {
                self.found.insert(namespace.clone(), found);
                Dirty::Namespace(namespace)
            }
        }
    }
}
