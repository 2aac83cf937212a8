//! The persisted state of mode `signal`, in addition to the Runtimes: a few hundred bytes for any number of Runtimes.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Revisions;
use crate::sync::SourceKind;
use crate::sync::content::{Hash, HashError};
use crate::sync::history::{Grace, HistoryError, SourceHistory};
use crate::sync::sources::Sources;

const BASELINE: &str = "baseline";
const REVISION: &str = "revision";
/// RFC 3339 time, absent for the first revision.
const SINCE: &str = "revision.since";

/// The last observed sources, the current revision and the baseline. The default is the state before the first start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistedState {
    history: SourceHistory,
    revisions: Option<Revisions>,
}

/// Result of [`PersistedState::advance`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// There was no state: the current sources become the baseline, and no Runtime is signaled.
    First,
    /// Nothing changed.
    Unchanged,
    /// No content changed, but the state must be saved: a source has another name, is missing, or exists again.
    Noted,
    /// These sources changed: save the state, then signal.
    Changed(Vec<SourceKind>),
}

/// Error: the state cannot be read. An empty state instead would lose changes, so that an operator must correct or delete it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidState {
    /// An entry about a source is invalid.
    #[error("invalid entry of a source")]
    Source(#[source] HistoryError),
    /// A revision is invalid or missing.
    #[error("{0}: not a valid revision")]
    Revision(&'static str, #[source] HashError),
}

impl PersistedState {
    /// Processes the observed sources. Unless the result is [`Advance::Unchanged`], the state must be saved before a
    /// Runtime is signaled.
    ///
    /// A revision is the hash of the content. While Runtimes wait for a signal of the previous revision, it is also
    /// the hash of that revision and of the baseline. Content that returns is then a new revision, because KIM may
    /// have copied the intermediate content to Runtimes that were not signaled with it.
    pub fn advance(&mut self, sources: &Sources, grace: Grace) -> Advance {
        let before = self.history.clone();
        let changed = self.history.advance(sources, grace);
        let content = self.history.revision();
        let Some(revisions) = &mut self.revisions else {
            self.revisions = Some(Revisions {
                current: content,
                baseline: content,
                since: None,
            });
            return Advance::First;
        };
        if changed.is_empty() {
            return if self.history == before {
                Advance::Unchanged
            } else {
                Advance::Noted
            };
        }
        let Revisions {
            current, baseline, ..
        } = *revisions;
        revisions.since = Some(whole_seconds(grace.now));
        revisions.current = if current == baseline {
            content
        } else {
            Hash::of_parts([baseline, current, content].map(|it| it.to_string()))
        };
        Advance::Changed(changed)
    }

    /// Makes the current revision the baseline, when no selected Runtime waits for a signal. Returns whether the
    /// state must be saved.
    pub fn complete(&mut self) -> bool {
        let Some(revisions) = &mut self.revisions else {
            return false;
        };
        let is_new = revisions.baseline != revisions.current;
        if is_new {
            revisions.baseline = revisions.current;
        }
        is_new
    }

    /// Returns the revisions of the sources; `None` before the first [`PersistedState::advance`].
    #[must_use]
    pub fn revisions(&self) -> Option<Revisions> {
        self.revisions
    }

    /// Returns the last observed sources.
    #[must_use]
    pub fn history(&self) -> &SourceHistory {
        &self.history
    }

    /// Returns the state as data of a ConfigMap.
    #[must_use]
    pub fn write(&self) -> BTreeMap<String, String> {
        let mut data = BTreeMap::new();
        if let Some(Revisions {
            current,
            baseline,
            since,
        }) = self.revisions
        {
            data.insert(BASELINE.to_owned(), baseline.to_string());
            data.insert(REVISION.to_owned(), current.to_string());
            data.extend(since.map(|it| (SINCE.to_owned(), it.to_string())));
        }
        self.history.write(&mut data);
        data
    }

    /// Reads the data of [`PersistedState::write`]. Data without a baseline is the state before the first start.
    ///
    /// # Errors
    /// [`InvalidState`] if a value is invalid.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, InvalidState> {
        let revision = |key: &'static str| {
            let text = data.get(key).map_or("", String::as_str);
            text.parse()
                .map_err(|error| InvalidState::Revision(key, error))
        };
        let revisions = if data.contains_key(BASELINE) {
            Some(Revisions {
                current: revision(REVISION)?,
                baseline: revision(BASELINE)?,
                // A state of an earlier version has no time; an invalid one is ignored.
                since: data.get(SINCE).and_then(|it| it.parse().ok()),
            })
        } else {
            None
        };
        Ok(Self {
            history: SourceHistory::read(data).map_err(InvalidState::Source)?,
            revisions,
        })
    }
}

/// The time that an API server would write as `creationTimestamp`.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
