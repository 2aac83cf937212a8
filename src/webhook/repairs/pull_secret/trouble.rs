//! What goes wrong where, to be said once for each change.
//!
//! Invariant: a namespace that keeps failing alike is news once, and so is its recovery; a right that is missing
//! everywhere is one line, not one for each namespace. Deliberately absent: the log itself.

use std::collections::HashMap;

use super::apply::ApplyError;

const FORBIDDEN: &str = "forbidden";

/// The namespaces that fail, and how.
#[derive(Debug, Default)]
pub(super) struct Troubles(HashMap<String, &'static str>);

impl Troubles {
    /// Whether this failure is news.
    pub(super) fn failed(&mut self, namespace: &str, error: &ApplyError) -> bool {
        let kind = error.kind();
        let spoken_of = self.is_spoken_of(kind);
        let before = self.0.insert(namespace.to_owned(), kind);
        before != Some(kind) && !spoken_of && !error.is_expected()
    }

    /// How it failed, if that it fails no more is news.
    pub(super) fn settled(&mut self, namespace: &str) -> Option<&'static str> {
        let kind = self.0.remove(namespace)?;
        (!self.is_spoken_of(kind)).then_some(kind)
    }

    /// Rights are missing in many places or in none.
    fn is_spoken_of(&self, kind: &str) -> bool {
        kind == FORBIDDEN && self.0.values().any(|other| *other == FORBIDDEN)
    }
}
