//! The foreign Secrets in the way, each to be reported once.
//!
//! Invariant: the same object (by uid) is reported once as long as it stays in the way, whatever is edited in it.

use std::collections::HashMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Foreigners(HashMap<String, Foreigner>);

#[derive(Debug)]
struct Foreigner {
    uid: Option<String>,
    reported: bool,
}

/// What is left to say of a foreign Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsaid {
    /// Everything.
    All,
    /// It was seen, but could not be reported yet.
    Report,
    Nothing,
}

impl Foreigners {
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// It is in the way.
    pub(super) fn seen(&mut self, namespace: &str, uid: Option<&str>) -> Unsaid {
        if let Some(known) = self.0.get(namespace)
            && known.uid.as_deref() == uid
        {
            return if known.reported {
                Unsaid::Nothing
            } else {
                Unsaid::Report
            };
        }
        let foreigner = Foreigner {
            uid: uid.map(str::to_owned),
            reported: false,
        };
        self.0.insert(namespace.to_owned(), foreigner);
        Unsaid::All
    }

    pub(super) fn reported(&mut self, namespace: &str) {
        if let Some(foreigner) = self.0.get_mut(namespace) {
            foreigner.reported = true;
        }
    }

    /// There is none, or it is in nobody's way.
    pub(super) fn none_in(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }
}
