//! Times since when Namespaces opt in, stored for the next leader.
//!
//! A field manager that opts a Namespace in and writes another of its fields later moves the time of its opt-in. A replica
//! keeps the earlier time while it runs, and this record keeps it beyond that: without it, the next leader would take each
//! Pod from before the later write for one from before the opt-in. Only Namespaces are stored whose field managers show a
//! later time, at most [`LARGEST`].

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::snapshot::{KnownNamespace, ObservedChanges, earliest};

/// Maximum size of one stored Namespace, in bytes. A name has at most 63.
const ENTRY: usize = 180;

/// Maximum number of stored Namespaces, the first ones by name. For others, the next leader uses the later time.
const LARGEST: usize = 1_000;

/// The earlier times, by Namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceTimes(BTreeMap<String, Times>);

/// The times of one Namespace, in seconds since the epoch, with digests of what the Namespace has had since then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Times {
    annotations: u32,
    annotated: Option<i64>,
    labels: u32,
    labelled: Option<i64>,
}

impl Times {
    /// Returns the times of a Namespace. Without a selector nothing depends on its labels, which may change often.
    fn of(namespace: &KnownNamespace, has_selector: bool) -> Self {
        let (uid, view) = (&namespace.uid, &namespace.view);
        let labelled = namespace.labelled.filter(|_| has_selector);
        Self {
            annotations: digest(&(uid, view.annotations)),
            annotated: namespace.annotated.map(Timestamp::as_second),
            labels: labelled.map_or(0, |_| digest(&(uid, &view.labels))),
            labelled: labelled.map(Timestamp::as_second),
        }
    }
}

impl NamespaceTimes {
    /// Parses a record; empty if another client wrote it.
    pub(super) fn parse(json: &[u8]) -> Self {
        Self(serde_json::from_slice(json).unwrap_or_default())
    }

    /// Returns the record with as many Namespaces as fit into `budget` bytes; `None` if there are none.
    pub(super) fn json(&self, budget: usize) -> Option<Vec<u8>> {
        let fitting: BTreeMap<_, _> = self.0.iter().take(budget / ENTRY).collect();
        let json = (!fitting.is_empty()).then(|| serde_json::to_vec(&fitting).ok());
        json.flatten()
    }

    /// Returns a Namespace with the earlier times that are stored, unless this process has observed a later change.
    pub(super) fn kept<'n>(
        &self,
        name: &str,
        namespace: &'n KnownNamespace,
    ) -> Cow<'n, KnownNamespace> {
        let Some(stored) = self.0.get(name) else {
            return Cow::Borrowed(namespace);
        };
        let (now, mut kept) = (Times::of(namespace, true), namespace.clone());
        let earlier = |now, stored: Option<i64>| {
            let stored = stored.and_then(|it| Timestamp::from_second(it).ok());
            earliest(now, stored)
        };
        let ObservedChanges {
            annotations,
            labels,
        } = namespace.observed;
        if stored.annotations == now.annotations && !annotations {
            kept.annotated = earlier(kept.annotated, stored.annotated);
        }
        if stored.labels == now.labels && !labels {
            kept.labelled = earlier(kept.labelled, stored.labelled);
        }
        Cow::Owned(kept)
    }

    /// Stores the earlier times of these Namespaces, and those of no other. Returns whether the record changed. The times of
    /// labels matter only where a selector of the document reads them.
    pub(super) fn follow(
        &mut self,
        namespaces: &HashMap<String, Arc<KnownNamespace>>,
        has_selector: bool,
    ) -> bool {
        // They are not listed yet.
        if namespaces.is_empty() {
            return false;
        }
        let earlier = namespaces.iter().filter_map(|(name, namespace)| {
            let kept = self.kept(name, namespace);
            let times = |it: &KnownNamespace| (it.annotated, it.labelled);
            let is_earlier = namespace.has_earlier_times || times(&kept) != times(namespace);
            let is_used = has_selector || kept.annotated.is_some();
            (is_earlier && is_used).then(|| (name.clone(), Times::of(&kept, has_selector)))
        });
        let mut earlier: BTreeMap<_, _> = earlier.collect();
        while earlier.len() > LARGEST {
            earlier.pop_last();
        }
        let is_changed = earlier != self.0;
        self.0 = earlier;
        is_changed
    }
}

fn digest(value: &impl Debug) -> u32 {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(format!("{value:?}")).into();
    u32::from_be_bytes([a, b, c, d])
}
