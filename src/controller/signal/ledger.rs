//! The record of the signal, as this process holds it, and whether the control plane holds the same.
//!
//! Invariants:
//! - a change is stored before anybody is signalled for it, so that whoever comes after a crash goes on with it;
//! - a record that cannot be used, or not be stored, opens nothing: nobody is signalled;
//! - what was done is stored some seconds later, together: a crash in between costs a signal given twice, never one
//!   that is missing.

use std::time::Duration;

use component_base::backoff::Backoff;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use policy::sync::SourceKind;
use policy::sync::known::{Grace, SourceHistory};
use policy::sync::signal as decide;
use policy::sync::signal::{Advance, Eligibility, Epoch, Keys, Seen, Step, Tally};
use policy::sync::sources::Sources;
use tokio::time::Instant;

use crate::state::{StateError, StateStore};

/// How long progress may wait to be stored.
const TOGETHER: Duration = Duration::from_secs(5);

/// After failures to read or write the record. An operator who mended it is noticed within the cap.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};

/// Why nobody is signalled.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("failed to load state")]
    StateStore(#[source] StateError),
    #[error("invalid state")]
    Garbage(#[source] decide::RecordError),
}

impl Refusal {
    /// The reason in metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::StateStore(StateError::Foreign { .. }) => "foreign",
            Self::StateStore(StateError::Oversized { .. }) => "oversized",
            Self::StateStore(StateError::Changed) => "changed",
            Self::StateStore(StateError::Deleted) => "deleted",
            Self::StateStore(StateError::Unavailable(_)) => "unavailable",
            Self::Garbage(_) => "garbage",
        }
    }

    /// Whether somebody has to do something about it; the others pass by themselves.
    pub(super) fn needs_somebody(&self) -> bool {
        match self {
            Self::StateStore(error) => {
                matches!(
                    error,
                    StateError::Foreign { .. } | StateError::Oversized { .. }
                )
            }
            Self::Garbage(_) => true,
        }
    }
}

/// What of the record the control plane does not hold yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsaved {
    Nothing,
    /// What was done since then.
    Progress(Instant),
    /// What has to be stored before anything is done.
    Promise,
}

/// What attending to it came to.
#[derive(Debug)]
pub(super) enum Attended {
    Nothing,
    Loaded,
    Stored,
    Refused(Refusal),
}

/// See the module.
pub(super) struct Ledger {
    kept: StateStore,
    /// `None` until it was read, and after somebody else wrote it.
    record: Option<decide::Record>,
    /// Of the record before.
    epoch: Epoch,
    unsaved: Unsaved,
    not_before: Option<Instant>,
    failures: u32,
}

impl Ledger {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            kept: StateStore::new(client, namespace, name),
            record: None,
            epoch: Epoch::default(),
            unsaved: Unsaved::Nothing,
            not_before: None,
            failures: 0,
        }
    }

    /// Whether anything may be set.
    pub(super) fn is_open(&self) -> bool {
        self.record.is_some() && self.unsaved != Unsaved::Promise
    }

    /// When it needs to be attended to; `None` if it does not.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let wanted = match (&self.record, self.unsaved) {
            (None, _) | (_, Unsaved::Promise) => now,
            (Some(_), Unsaved::Progress(since)) => since + TOGETHER,
            (Some(_), Unsaved::Nothing) => return None,
        };
        Some(self.not_before.map_or(wanted, |it| it.max(wanted)))
    }

    /// Reads or stores it, if that is due.
    pub(super) async fn attend(&mut self, now: Instant) -> Attended {
        if self.due(now).is_none_or(|due| due > now) {
            return Attended::Nothing;
        }
        let attended = match &self.record {
            None => self.load().await,
            Some(_) => self.store().await,
        };
        if let Attended::Refused(_) = attended {
            let delay = RETRY.delay(self.failures, fastrand::u64(..));
            self.failures = self.failures.saturating_add(1);
            self.not_before = Some(Instant::now() + delay);
        } else {
            self.failures = 0;
            self.not_before = None;
        }
        attended
    }

    /// Stores what is not stored, whatever is due.
    pub(super) async fn flush(&mut self) -> Attended {
        if self.record.is_none() || self.unsaved == Unsaved::Nothing {
            return Attended::Nothing;
        }
        self.store().await
    }

    async fn load(&mut self) -> Attended {
        let data = match self.kept.load().await {
            Ok(data) => data.unwrap_or_default(),
            Err(error) => return Attended::Refused(Refusal::StateStore(error)),
        };
        match decide::Record::read(&data) {
            Ok(record) => {
                self.record = Some(record.following(self.epoch));
                self.unsaved = Unsaved::Nothing;
                Attended::Loaded
            }
            Err(error) => Attended::Refused(Refusal::Garbage(error)),
        }
    }

    async fn store(&mut self) -> Attended {
        let Some(record) = &self.record else {
            return Attended::Nothing;
        };
        match self.kept.save(record.write()).await {
            Ok(()) => {
                self.unsaved = Unsaved::Nothing;
                Attended::Stored
            }
            Err(error) => {
                if let StateError::Changed = error {
                    // What is there now decides; what we did shows on the Runtimes.
                    self.epoch = record.epoch();
                    self.record = None;
                }
                Attended::Refused(Refusal::StateStore(error))
            }
        }
    }

    /// For Events.
    pub(super) fn reference(&self) -> ObjectReference {
        self.kept.reference()
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.record.is_some()
    }

    /// Takes note of the sources; gives those that changed, and `None` at the first start ever.
    pub(super) fn advance<'a>(
        &mut self,
        sources: &Sources,
        grace: Grace,
        affected: impl IntoIterator<Item = &'a str>,
    ) -> Option<Vec<SourceKind>> {
        let advance = self.record.as_mut().map_or(Advance::Unchanged, |it| {
            it.advance(sources, grace, affected)
        });
        if advance != Advance::Unchanged {
            self.unsaved = Unsaved::Promise;
        }
        match advance {
            Advance::First => None,
            Advance::Unchanged | Advance::Noted => Some(Vec::new()),
            Advance::Changed(kinds) => Some(kinds),
        }
    }

    /// What was ever rolled out.
    pub(super) fn known(&self) -> SourceHistory {
        let record = self.record.as_ref();
        record.map(decide::Record::known).unwrap_or_default()
    }

    /// When the sources have to be looked at again although none changed.
    pub(super) fn next_deletion(&self) -> Option<Timestamp> {
        self.record.as_ref()?.next_deletion()
    }

    pub(super) fn decide(&self, name: &str, standing: Eligibility, keys: Keys, seen: Seen) -> Step {
        self.record
            .as_ref()
            .map_or(Step::Nothing, |it| it.decide(name, standing, keys, seen))
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.record
            .as_ref()
            .map(decide::Record::epoch)
            .unwrap_or_default()
    }

    pub(super) fn done(&mut self, name: &str, step: Step, since: Epoch) {
        let Some(record) = &mut self.record else {
            return;
        };
        record.done(name, step, since);
        if !matches!(step, Step::Nothing | Step::Withhold) {
            self.progressed();
        }
    }

    /// Direct mode left a signal on a runtime.
    pub(super) fn adopt(&mut self, name: &str) {
        if let Some(record) = &mut self.record {
            record.adopt(name);
            self.progressed();
        }
    }

    fn progressed(&mut self) {
        if self.unsaved == Unsaved::Nothing {
            self.unsaved = Unsaved::Progress(Instant::now());
        }
    }

    /// Runtimes whose signal is due or stands.
    pub(super) fn pending(&self) -> impl Iterator<Item = &str> {
        self.record.iter().flat_map(decide::Record::pending)
    }

    pub(super) fn tally(&self) -> Tally {
        self.record
            .as_ref()
            .map(decide::Record::tally)
            .unwrap_or_default()
    }
}
