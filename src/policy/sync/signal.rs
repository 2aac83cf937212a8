//! The interim mode: today's manager is told that a runtime needs the newest content, by a key on its `Runtime`.
//!
//! A signal *stands* from the write that sets it until the manager takes it, which shows in a key that goes away. What the
//! manager leaves of it is removed, so that the next change is a change again. A change that comes while a signal stands
//! is not lost: the manager may have read the sources before, so it is told again once it has taken the first signal.
//!
//! Whoever is signalled gets all three sources, those that cannot be used too: the manager does not look at what it copies.
//! So signals are *withheld* while there is one such source, and while one is missing whose deletion waits for the end of
//! its grace period: a signal would carry the deletion out. What changes meanwhile is recorded as ever, and due.
//!
//! Invariants: no signal without a change, but for a runtime that is handed back ([`is_told_of`]); after a change every
//! affected runtime is signalled at least once, whatever crashes in between, provided that the [`Record`] is stored when
//! [`Record::advance`] says so and before anything is set; no signal is set while a source cannot be used, and one that
//! stands by then is followed by another; a runtime in `direct`, or one that is being deleted, is never signalled.
//! Deliberately absent: pacing, and the writes themselves.

use std::collections::BTreeMap;

use api::kcp::FORCE_RECONCILE_KEY;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::SourceKind;
use super::known::{Grace, KnownError, SourceHistory};
use super::sources::Sources;
use super::status::Goal;

mod store;

/// Which keys of a Runtime a signal consists of. The public infrastructure manager reads and removes the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The label alone.
    Label,
    /// The annotation alone.
    Annotation,
    /// Both: the controller removes the one that the manager does not remove.
    Both,
}

/// Which of the keys a Runtime carries with the value `"true"`; any other value is no signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The label.
    pub label: bool,
    /// The annotation.
    pub annotation: bool,
}

/// How a Runtime is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// The selector matches it, it is not being deleted, and it is not in `direct`.
    Selected,
    /// It is in `direct`: no signal may stand on it.
    Direct,
    /// It is not matched, is being deleted, or is gone.
    NotSelected,
}

/// What to do about one Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Nothing to write: a signal that we did not set stands already. Tell [`Record::done`].
    Adopt,
    /// Nothing to write for now: a signal is due, and with it the manager would copy a source that cannot be used.
    Withhold,
    /// Set the keys that are missing, then tell [`Record::done`].
    Set,
    /// Remove the keys that are there, then tell [`Record::done`].
    RemoveLeftover,
    /// Nothing to write; tell [`Record::done`].
    Forget,
}

/// What was signalled last, and where signals are due or stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    known: Option<SourceHistory>,
    runtimes: BTreeMap<String, State>,
    epoch: Epoch,
    /// Whether a source cannot be used or is missing. It lives with the process and is not stored: the sources themselves say it.
    withheld: bool,
}

/// Which change a decision knew of. It lives with the process and is not stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u64);

/// A runtime that is not in the record needs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A change happened, and no signal was set since.
    Due,
    /// A signal was set after the last change.
    Stands,
    /// A signal was set before the last change, or the manager may take it while a source cannot be used.
    StandsOutdated,
}

/// How many runtimes are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// A signal has to be set.
    pub due: usize,
    /// The manager has not taken the signal yet.
    pub standing: usize,
    /// The same, and another signal has to follow.
    pub outdated: usize,
}

impl Record {
    /// Takes note of the sources. If their content changed, every affected runtime becomes due.
    ///
    /// Unless it gives [`Advance::Unchanged`], the record has to be stored before anything is set. The first call ever signals nobody: what today's manager rolled out before is no change.
    ///
    /// While a source cannot be used, or is missing and not deleted yet, what becomes due is withheld: the manager would
    /// copy it, or do without it. The same sources without it release that, though nothing changed: every pending runtime
    /// needs a look after each call.
    pub fn advance<'a>(
        &mut self,
        sources: &Sources,
        grace: Grace,
        affected: impl IntoIterator<Item = &'a str>,
    ) -> Advance {
        let is_first = self.known.is_none();
        let mut known = self.known.take().unwrap_or_default();
        let before = known.clone();
        let changed = known.advance(sources, grace);
        let missing = known.next_deletion().is_some();
        let withheld_before = self.withheld;
        self.withheld = missing || sources.unusable().next().is_some();
        let is_same = known == before;
        self.known = Some(known);
        if is_first {
            return Advance::First;
        }
        if changed.is_empty() {
            let outdated = self.withheld && !withheld_before && self.outdate();
            return if outdated || !is_same {
                Advance::Noted
            } else {
                Advance::Unchanged
            };
        }
        self.outdate();
        for name in affected {
            self.runtimes.entry(name.to_owned()).or_insert(State::Due);
        }
        Advance::Changed(changed)
    }

    /// Whatever was set or is being set may bring what is not wanted any more. Says whether that concerns a runtime.
    fn outdate(&mut self) -> bool {
        self.epoch.0 += 1;
        let mut any = false;
        for state in self.runtimes.values_mut() {
            if *state == State::Stands {
                *state = State::StandsOutdated;
                any = true;
            }
        }
        any
    }

    /// What was ever rolled out; nothing before the first [`Record::advance`].
    #[must_use]
    pub fn known(&self) -> SourceHistory {
        self.known.clone().unwrap_or_default()
    }

    /// When [`Record::advance`] has to be called again although no source changed: a grace period ends.
    #[must_use]
    pub fn next_deletion(&self) -> Option<Timestamp> {
        self.known.as_ref().and_then(SourceHistory::next_deletion)
    }

    /// What to do about a Runtime.
    ///
    /// `seen` must be at least as new as our own last write to this Runtime (the answer of the patch counts as seen): an
    /// older view would look as if the manager had taken the signal.
    #[must_use]
    pub fn decide(&self, name: &str, standing: Eligibility, keys: Keys, seen: Seen) -> Step {
        let Some(state) = self.runtimes.get(name) else {
            return Step::Nothing;
        };
        let seen = seen.of(keys);
        let all = seen.all(keys);
        match (standing, state) {
            (Eligibility::NotSelected, _) | (Eligibility::Direct, State::Due) => Step::Forget,
            (Eligibility::Selected, State::Due) if all => Step::Adopt,
            // Not taken yet. Setting it again would change nothing.
            (Eligibility::Selected, _) if all => Step::Nothing,
            (Eligibility::Selected, State::Due | State::StandsOutdated) if self.withheld => {
                Step::Withhold
            }
            // Due, or taken; setting the key that is missing is a change for the manager that took it.
            (Eligibility::Selected, State::Due | State::StandsOutdated) => Step::Set,
            (Eligibility::Selected | Eligibility::Direct, _) if seen.none() => Step::Forget,
            (Eligibility::Selected | Eligibility::Direct, _) => Step::RemoveLeftover,
        }
    }

    /// The change that decisions made now know of.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The same record, in which every decision is a later one than those of that epoch: for a record that is read anew
    /// while writes are under way.
    #[must_use]
    pub fn following(mut self, epoch: Epoch) -> Self {
        self.epoch = Epoch(epoch.0 + 1);
        self
    }

    /// Takes note that a step was carried out, which had been decided upon at `since`.
    ///
    /// If a change came in between, the manager may have been told before it: the runtime is signalled again.
    pub fn done(&mut self, name: &str, step: Step, since: Epoch) {
        let Some(state) = self.runtimes.get_mut(name) else {
            return;
        };
        let current = since == self.epoch;
        match step {
            Step::Nothing | Step::Withhold => {}
            Step::Set if current => *state = State::Stands,
            Step::Set | Step::Adopt => *state = State::StandsOutdated,
            Step::RemoveLeftover | Step::Forget if current => {
                self.runtimes.remove(name);
            }
            Step::RemoveLeftover | Step::Forget => *state = State::Due,
        }
    }

    /// Takes note of a signal that direct mode set on a runtime that it handed back: it is as one of ours from then on.
    ///
    /// Direct mode does not wait for a source that cannot be used, so the manager is told again once it can.
    pub fn adopt(&mut self, name: &str) {
        if self.known.is_some() {
            let state = if self.withheld {
                State::StandsOutdated
            } else {
                State::Stands
            };
            self.runtimes.entry(name.to_owned()).or_insert(state);
        }
    }

    /// Runtimes that need a look: those with a signal that is due or stands.
    pub fn pending(&self) -> impl Iterator<Item = &str> {
        self.runtimes.keys().map(String::as_str)
    }

    /// How many runtimes are where.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for state in self.runtimes.values() {
            *match state {
                State::Due => &mut tally.due,
                State::Stands => &mut tally.standing,
                State::StandsOutdated => &mut tally.outdated,
            } += 1;
        }
        tally
    }
}

/// Whether the manager has to be told of a runtime when its `RuntimeBootstrapper` goes.
///
/// What changed while the runtime was in `direct` the manager never heard of, and whether all of it arrived is not known
/// for certain: the runtime may have been paused, behind in a wave, or out of reach.
#[must_use]
pub fn is_told_of(purpose: Goal, standing: Eligibility) -> bool {
    purpose == Goal::Orphan && standing == Eligibility::Selected
}

/// What [`Record::advance`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance {
    /// There was no record: now there is one, to be stored. Nobody is signalled.
    First,
    /// Nothing new.
    Unchanged,
    /// No content changed, but the record did: store it. A source has another name, is missing or is there again; or one
    /// cannot be used and signals stand with which the manager may copy it, which are followed by others once it can.
    Noted,
    /// These sources changed: store the record, then signal.
    Changed(Vec<SourceKind>),
}

/// A record that cannot be read. To begin anew would lose changes, so an operator has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// What is known about a source.
    #[error("the record's sources cannot be read")]
    SourceHistory(#[source] KnownError),
}

/// The merge patch that carries out a step, `None` if the step writes nothing.
///
/// It holds our key alone and no resource version: a concurrent change of anything else is neither lost nor in the way.
#[must_use]
pub fn patch(step: Step, keys: Keys, seen: Seen) -> Option<Value> {
    let (label, annotation, value) = match step {
        Step::Nothing | Step::Adopt | Step::Withhold | Step::Forget => return None,
        Step::Set => (
            keys != Keys::Annotation && !seen.label,
            keys != Keys::Label && !seen.annotation,
            json!("true"),
        ),
        Step::RemoveLeftover => (
            keys != Keys::Annotation && seen.label,
            keys != Keys::Label && seen.annotation,
            Value::Null,
        ),
    };
    let mut metadata = Map::new();
    for (name, _) in [("labels", label), ("annotations", annotation)]
        .into_iter()
        .filter(|(_, touched)| *touched)
    {
        metadata.insert(name.to_owned(), json!({ FORCE_RECONCILE_KEY: value }));
    }
    Some(json!({ "metadata": metadata }))
}

impl Seen {
    /// Reads the values that a Runtime's label and annotation have: only `"true"` is a signal.
    #[must_use]
    pub fn read(label: Option<&str>, annotation: Option<&str>) -> Self {
        Self {
            label: label == Some("true"),
            annotation: annotation == Some("true"),
        }
    }

    /// Only the keys that a signal consists of.
    fn of(self, keys: Keys) -> Self {
        Self {
            label: self.label && keys != Keys::Annotation,
            annotation: self.annotation && keys != Keys::Label,
        }
    }

    fn all(self, keys: Keys) -> bool {
        (self.label || keys == Keys::Annotation) && (self.annotation || keys == Keys::Label)
    }

    fn none(self) -> bool {
        !self.label && !self.annotation
    }
}
