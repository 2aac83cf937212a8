//! What a manager heard, in the order of arrival.

use std::sync::{Arc, Mutex, PoisonError};

use listener::Event;

/// An object as events name it: type, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Watched {
    /// Group, version, kind.
    pub(super) gvk: (String, String, String),
    /// Empty without a namespace.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Everything of one manager. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Vec<Event>>>);

impl Heard {
    pub(super) fn add(&self, event: Event) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event);
    }

    /// Who told of an object, each time.
    pub(super) fn of(&self, wanted: &Watched) -> Vec<String> {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = heard.iter().filter(|event| Watched::of(event) == *wanted);
        of_it
            .map(|event| event.runtime_id.as_ref().map(|id| id.as_str().to_owned()))
            .map(Option::unwrap_or_default)
            .collect()
    }

    /// The names in a namespace of which it was told, each once.
    pub(super) fn names_in(&self, namespace: &str) -> std::collections::BTreeSet<String> {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there = heard.iter().filter(|it| it.watched.namespace == namespace);
        there.map(|event| event.watched.name.clone()).collect()
    }
}

impl Watched {
    fn of(event: &Event) -> Self {
        let gvk = &event.watched_gvk;
        Self {
            gvk: (gvk.group.clone(), gvk.version.clone(), gvk.kind.clone()),
            namespace: event.watched.namespace.clone(),
            name: event.watched.name.clone(),
        }
    }
}
