//! Mode `signal`: the Runtimes that KIM is requested to reconcile, so that KIM copies the sources.
//!
//! The state is on the Runtime. One merge patch sets the force-reconcile key and, in [`SIGNALED_REVISION_ANNOTATION`], the
//! revision of the sources. KIM acknowledges by removing the key that it reads; what remains of the signal is removed, so that
//! the next signal is a change again. A Runtime without the annotation has the baseline of [`PersistedState`]: KIM provisions a
//! new Runtime with the current sources. One that is older than the current revision was not selected at the change, and is signaled
//! when it is. A change during an unacknowledged signal is signaled after the acknowledgement.
//!
//! KIM copies all three sources without validation. Therefore no Runtime is signaled while a source is invalid, or
//! missing before the end of its grace period. KIM may acknowledge an earlier signal during this time: such a signal
//! is marked as stale and followed by another signal.
//!
//! Invariants: no signal without a change, except for an orphaned runtime ([`needs_kim_signal`]); after a change every
//! selected Runtime is signaled with the revision once, also if another process becomes the leader. Not in here:
//! pacing, and the writes.

use api::kcp::{FORCE_RECONCILE_KEY, SIGNALED_REVISION_ANNOTATION};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::content::Hash;
use super::status::Goal;

mod keys;
mod limits;
mod state;

pub use keys::{KeyState, ObservedKeys, Place, SignalKeys};
pub use limits::{Counts, Gates, Limits, StopReason};
pub use state::{Advance, InvalidState, PersistedState};

/// Value of the annotation when the signaled revision is not valid any more.
const STALE: &str = "stale";

/// Whether a Runtime may be signaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// The selector matches the Runtime, which is not being deleted and not in mode `direct`.
    Selected,
    /// The Runtime is in mode `direct`: an unacknowledged signal is withdrawn.
    Direct,
    /// The selector does not match the Runtime, or the Runtime is being deleted or does not exist.
    NotSelected,
}

/// Content of [`SIGNALED_REVISION_ANNOTATION`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signaled {
    /// The annotation does not exist.
    #[default]
    Never,
    /// The Runtime was signaled with this revision.
    Revision(Hash),
    /// Another value: the Runtime must be signaled.
    Stale,
}

impl From<Option<&str>> for Signaled {
    fn from(annotation: Option<&str>) -> Self {
        annotation.map_or(Self::Never, |it| {
            it.parse().map_or(Self::Stale, Self::Revision)
        })
    }
}

/// State of a Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeState {
    /// KIM has reconciled the Runtime, or the Runtime has no state yet.
    Ready,
    /// The Runtime has another state.
    NotReady,
    /// An operator suspended the reconciliation of the Runtime by KIM.
    Suspended,
}

/// What KIM has done recently with a Runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KimActivity {
    /// Nothing.
    #[default]
    None,
    /// KIM acknowledged a signal so recently that it may not have copied the sources yet.
    Copying,
    /// KIM has ended a reconcile since the previous evaluation.
    Reconciled,
}

/// The observed state of a Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedRuntime {
    /// Whether the Runtime may be signaled.
    pub eligibility: Eligibility,
    /// The revision of the last signal.
    pub signaled: Signaled,
    /// The keys of the Runtime.
    pub keys: ObservedKeys,
    /// Whether another client set the keys; see [`ObservedRuntime::follow`].
    pub foreign: bool,
    /// Whether the stored revision must be marked as stale: KIM may have copied, or may copy, a source that cannot be
    /// used (see [`Target::spoils`]), or an admission plugin removed the keys of the signal.
    pub spoiled: bool,
    /// What KIM has done recently.
    pub activity: KimActivity,
    /// The state of the Runtime.
    pub state: RuntimeState,
    /// When it was created, in whole seconds.
    pub created: Option<Timestamp>,
}

/// Revisions of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revisions {
    /// The revision with which all Runtimes must be signaled.
    pub current: Hash,
    /// The revision of Runtimes that were never signaled.
    pub baseline: Hash,
    /// When the current revision replaced another one, in whole seconds. A Runtime that is older and was never signaled may have
    /// been outside of the selector then.
    pub since: Option<Timestamp>,
}

/// The target with which Runtimes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Revisions of the sources.
    pub revisions: Revisions,
    /// The keys of a signal.
    pub keys: SignalKeys,
    /// Whether KIM can copy the sources: none is invalid, and none is missing before the end of its grace period.
    pub usable: bool,
}

/// The step for one Runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No action.
    Nothing,
    /// No action until KIM acknowledges the signal.
    Wait,
    /// Set the keys and the revision, unless a gate or limit prevents the signal.
    Signal,
    /// Remove the key that KIM did not remove.
    RemoveLeftover,
    /// Mark the unacknowledged signal as stale, so that another signal follows.
    MarkStale,
    /// Withdraw the unacknowledged signal.
    Withdraw,
}

impl ObservedRuntime {
    /// Determines whether another client set the keys, from the previous observation of the same Runtime: the keys
    /// appeared without a new revision. At the first observation, a Runtime that was never signaled has no keys of
    /// the controller, and a single key may be a request of another client if KIM may obey it. If KIM acknowledged a
    /// complete signal of any client, the remaining key counts as a key of the controller.
    pub fn follow(&mut self, before: Option<&Self>, keys: SignalKeys) {
        self.spoiled = before.is_some_and(|it| it.spoiled && it.signaled == self.signaled);
        self.foreign = match before {
            None => {
                let is_request = || keys.state(self.keys) == KeyState::Partial;
                self.signaled == Signaled::Never || keys.obeyed_key_is_unknown() && is_request()
            }
            Some(before) if before.signaled != self.signaled => false,
            Some(before) => match (keys.state(before.keys), keys.state(self.keys)) {
                (KeyState::Absent, _) => true,
                (KeyState::Complete, KeyState::Partial) => false,
                _ => before.foreign,
            },
        };
    }
}

impl Target {
    /// Returns the step for a Runtime.
    ///
    /// The observation must be at least as new as the last write of the controller to this Runtime. An older
    /// observation would look as if KIM had acknowledged the signal.
    #[must_use]
    pub fn step(&self, runtime: &ObservedRuntime) -> Step {
        let is_ours = runtime.signaled != Signaled::Never && !runtime.foreign;
        match (runtime.eligibility, self.keys.state(runtime.keys)) {
            (Eligibility::Direct, KeyState::Complete) if is_ours => Step::Withdraw,
            (Eligibility::Direct, KeyState::Partial) if is_ours => Step::RemoveLeftover,
            (Eligibility::Selected, _) if runtime.spoiled && self.has_revision(runtime) => {
                Step::MarkStale
            }
            (Eligibility::Selected, KeyState::Complete)
                if is_ours && self.is_abandoned(runtime) =>
            {
                Step::MarkStale
            }
            (Eligibility::Selected, KeyState::Complete) => Step::Wait,
            (Eligibility::Selected, _) if !self.has_revision(runtime) => Step::Signal,
            (Eligibility::Selected, KeyState::Partial) if !runtime.foreign => Step::RemoveLeftover,
            _ => Step::Nothing,
        }
    }

    /// Returns whether KIM may have copied, or may copy, a source that cannot be used: the Runtime has an
    /// unacknowledged signal of any client, or KIM has just acknowledged one, or ended a reconcile. A Runtime that is
    /// not Ready is reconciled until it is, and gets the sources then. The Runtime is spoiled until the signal is
    /// marked as stale.
    #[must_use]
    pub fn spoils(&self, runtime: &ObservedRuntime) -> bool {
        let is_reconciled = runtime.activity != KimActivity::None;
        let has_signal = self.keys.state(runtime.keys) == KeyState::Complete;
        !self.usable
            && runtime.eligibility == Eligibility::Selected
            && (has_signal || is_reconciled)
    }

    /// Returns whether a Runtime was signaled with the current revision, or needs no signal for it.
    #[must_use]
    pub fn has_revision(&self, runtime: &ObservedRuntime) -> bool {
        let Revisions {
            current,
            baseline,
            since,
        } = self.revisions;
        match runtime.signaled {
            Signaled::Never => {
                let times = runtime.created.zip(since);
                baseline == current && times.is_none_or(|(created, since)| created >= since)
            }
            Signaled::Revision(revision) => revision == current,
            Signaled::Stale => false,
        }
    }

    /// Returns whether KIM may have stopped its retries for a Runtime before it acknowledged a signal of an earlier
    /// revision. KIM tries again only after the next change of an annotation. Therefore the signal is marked as stale
    /// once.
    fn is_abandoned(&self, runtime: &ObservedRuntime) -> bool {
        let is_earlier =
            matches!(runtime.signaled, Signaled::Revision(it) if it != self.revisions.current);
        is_earlier && runtime.state == RuntimeState::NotReady
    }

    /// Returns whether KIM has not acknowledged a signal of the controller. A suspended Runtime does not count,
    /// because KIM skips it.
    #[must_use]
    pub fn is_unacknowledged(&self, runtime: &ObservedRuntime) -> bool {
        runtime.eligibility == Eligibility::Selected
            && runtime.signaled != Signaled::Never
            && !runtime.foreign
            && runtime.state != RuntimeState::Suspended
            && self.keys.state(runtime.keys) == KeyState::Complete
    }

    /// Returns the merge patch of a step; `None` if the step writes nothing.
    ///
    /// The patch contains only the keys and the annotation of the controller, and no resource version. It neither
    /// reverts concurrent changes of other fields nor conflicts with them.
    #[must_use]
    pub fn patch(&self, step: Step, runtime: &ObservedRuntime) -> Option<Value> {
        let revision = self.revisions.current.to_string();
        let patch = match step {
            Step::Nothing | Step::Wait => return None,
            Step::Signal => self.keys.signal(Some(&revision)),
            Step::RemoveLeftover => self.keys.remove(runtime.keys),
            Step::MarkStale => mark_stale(),
            Step::Withdraw => {
                let mut patch = self.keys.remove(runtime.keys);
                patch["metadata"]["annotations"][SIGNALED_REVISION_ANNOTATION] = json!(STALE);
                patch
            }
        };
        Some(patch)
    }
}

/// Returns the merge patch of [`Step::MarkStale`].
#[must_use]
pub fn mark_stale() -> Value {
    annotation(Some(STALE))
}

/// Returns a patch of only the annotation of the controller.
fn annotation(value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { SIGNALED_REVISION_ANNOTATION: value } } })
}

/// Returns whether KIM must be signaled when a `RuntimeBootstrapper` is deleted.
///
/// KIM was not signaled for changes while the runtime was in mode `direct`. Some of these changes may not have been
/// written, because the runtime was paused or unreachable.
#[must_use]
pub fn needs_kim_signal(goal: Goal, eligibility: Eligibility) -> bool {
    goal == Goal::Orphan && eligibility == Eligibility::Selected
}
