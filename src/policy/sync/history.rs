//! The history of the sources: the last synchronized content, and its name. It distinguishes a deleted source from a
//! source that never existed.
//!
//! A deleted source is recorded permanently, since a runtime that was unreachable at the time still has the copy. A
//! source with another name is another source. An absent source that was never synchronized under its name is not a
//! deletion, so that a changed or mistyped flag deletes nothing.
//!
//! An absent source counts as deleted after a grace period. The start of the period is persisted, so that a restart
//! or another leader does not restart it. The clocks of leaders may differ, so each leader also observes the absence
//! for some time itself.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::SourceKind;
use super::content::{Hash, HashError};
use super::sources::{SourceState, Sources};

/// The current time and the grace period of absent sources.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// Wall-clock time. If it is set back, the grace period starts again.
    pub now: Timestamp,
    /// The time from the first observation of an absence to the deletion; zero deletes immediately.
    pub period: Duration,
}

/// The meaning of the absence of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// No source with this name was ever synchronized.
    NeverRolledOut,
    /// The source was synchronized with this content, and the grace period has not ended.
    Pending {
        /// The hash of the synchronized content.
        hash: Hash,
        /// The end of the grace period.
        at: Timestamp,
    },
    /// The source was synchronized and deleted.
    Deleted,
}

/// The history of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HistoryEntry {
    /// The name on KCP of the synchronized source; `None` if the state ConfigMap does not contain it.
    name: Option<String>,
    /// The hash of the last observed content; `None` if the source was deleted.
    content: Option<Hash>,
    missing: Option<Missing>,
}

/// A source that is absent and not deleted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missing {
    /// The first observation of the absence.
    since: Timestamp,
    /// The first observation of the absence by this process; `None` in a history that was read.
    observed: Option<Timestamp>,
    /// The end of the grace period.
    until: Timestamp,
}

/// The history of all sources. The default is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceHistory([Option<HistoryEntry>; 3]);

impl SourceHistory {
    /// Returns the meaning of the absence of a source with this name, after [`SourceHistory::advance`].
    #[must_use]
    pub fn absence(&self, kind: SourceKind, name: Option<&str>) -> Absence {
        let entry = self.0[kind as usize].as_ref();
        match entry.filter(|it| it.is_named(name)) {
            None => Absence::NeverRolledOut,
            Some(HistoryEntry {
                content: Some(hash),
                missing: Some(Missing { until, .. }),
                ..
            }) => Absence::Pending {
                hash: *hash,
                at: *until,
            },
            Some(_) => Absence::Deleted,
        }
    }

    /// Returns the hash of the three contents. A deleted source counts as a source that never existed.
    #[must_use]
    pub fn revision(&self) -> Hash {
        let contents = self.0.iter().map(|it| {
            let content = it.as_ref().and_then(|it| it.content);
            content.map(|it| it.to_string()).unwrap_or_default()
        });
        Hash::of_parts(contents)
    }

    /// Returns the end of the next grace period, after [`SourceHistory::advance`]; `None` while no source is missing.
    #[must_use]
    pub fn next_deletion(&self) -> Option<Timestamp> {
        let all = self.0.iter().flatten();
        all.filter_map(|it| it.missing).map(|it| it.until).min()
    }

    /// Records the current sources. Returns the sources whose content changed, including deleted sources.
    ///
    /// An invalid or unmanaged source is unchanged. A source that never existed under its name, or that is absent
    /// during its grace period, is unchanged, too. The history may change without a change of content: by a new name,
    /// or the start or end of an absence.
    pub fn advance(&mut self, sources: &Sources, grace: Grace) -> Vec<SourceKind> {
        let mut changed = Vec::new();
        for kind in SourceKind::ALL {
            let name = sources.names.get(kind);
            let slot = &mut self.0[kind as usize];
            let before = slot.as_ref().map(|it| it.content);
            let now = match (sources.get(kind), slot.take()) {
                (SourceState::Valid(hash), _) => HistoryEntry {
                    name: name.map(str::to_owned),
                    content: Some(hash),
                    missing: None,
                },
                (SourceState::Absent, Some(entry)) if entry.is_named(name) => entry.absent(grace),
                (_, Some(entry)) => HistoryEntry {
                    missing: None,
                    ..entry
                },
                (_, None) => continue,
            };
            if before != Some(now.content) {
                changed.push(kind);
            }
            *slot = Some(now);
        }
        changed
    }

    /// Writes the history to the data of a ConfigMap, with the keys `lastSeen.<source>`, `lastSeen.<source>.name` and
    /// `lastSeen.<source>.missing-since` (RFC 3339).
    pub fn write(&self, data: &mut BTreeMap<String, String>) {
        for kind in SourceKind::ALL {
            let Some(HistoryEntry {
                name,
                content,
                missing,
            }) = &self.0[kind as usize]
            else {
                continue;
            };
            let last = content.map_or_else(|| DELETED.to_owned(), |it| it.to_string());
            data.insert(key(kind), last);
            data.extend(name.clone().map(|name| (name_key(kind), name)));
            data.extend(missing.map(|it| (missing_key(kind), it.since.to_string())));
        }
    }

    /// Reads the data of [`SourceHistory::write`]. Absent keys mean that the source never existed. The source of an
    /// entry without a name is never deleted. An invalid time is ignored, so that the grace period starts again.
    ///
    /// # Errors
    /// A value is neither a hash nor `deleted`. An empty history instead would lose deletions.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, HistoryError> {
        let mut history = Self::default();
        for kind in SourceKind::ALL {
            let Some(text) = data.get(&key(kind)) else {
                continue;
            };
            let content = (text != DELETED).then(|| text.parse()).transpose();
            let since = data.get(&missing_key(kind));
            history.0[kind as usize] = Some(HistoryEntry {
                name: data.get(&name_key(kind)).cloned(),
                content: content.map_err(|source| HistoryError { kind, source })?,
                // The grace period is not persisted, so the end is computed by `advance`.
                missing: since.and_then(|it| it.parse().ok()).map(|since| Missing {
                    since,
                    observed: None,
                    until: since,
                }),
            });
        }
        Ok(history)
    }
}

impl HistoryEntry {
    fn is_named(&self, name: Option<&str>) -> bool {
        self.name.is_some() && self.name.as_deref() == name
    }

    /// Returns the entry of a source that does not exist now.
    fn absent(self, Grace { now, period }: Grace) -> Self {
        let end = |from: Timestamp, after| from.checked_add(after).unwrap_or(Timestamp::MAX);
        let earliest = |time: Option<Timestamp>| time.map_or(now, |it| it.min(now));
        let since = earliest(self.missing.map(|it| it.since));
        // The clock of the process that recorded the absence may be behind this clock.
        let observed = earliest(self.missing.and_then(|it| it.observed));
        let until = end(since, period).max(end(observed, period.min(OBSERVED)));
        if self.content.is_none() || until <= now {
            return Self {
                content: None,
                missing: None,
                ..self
            };
        }
        Self {
            missing: Some(Missing {
                since,
                observed: Some(observed),
                until,
            }),
            ..self
        }
    }
}

/// Time for which a process observes an absence that an earlier process recorded, before it counts as a deletion; at
/// most the grace period.
const OBSERVED: Duration = Duration::from_mins(1);

/// Error: an entry of the history is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lastSeen.{}", .kind.name())]
pub struct HistoryError {
    /// The source.
    pub kind: SourceKind,
    /// The cause.
    #[source]
    pub source: HashError,
}

fn key(kind: SourceKind) -> String {
    format!("lastSeen.{}", kind.name())
}

fn name_key(kind: SourceKind) -> String {
    format!("{}.name", key(kind))
}

fn missing_key(kind: SourceKind) -> String {
    format!("{}.missing-since", key(kind))
}

const DELETED: &str = "deleted";
