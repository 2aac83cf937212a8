//! The rollout of one target version over all runtimes: who may begin, and how far it is.
//!
//! Invariants: a new target begins a new rollout, in which whoever holds it already is done; what is published is enough
//! for the next leader to go on with the same one: who failed, and who was written to and has not arrived. Deliberately absent: the rules of waves
//! (`policy::sync::waves`).

use std::time::Duration;

use policy::sync::Hash;
use policy::sync::waves::{Progress, ReconcileResult, Rollout, Settings, State};
use serde::{Deserialize, Serialize};

/// What every runtime is to hold: configuration and webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    /// The configuration's version, if it is complete.
    pub(super) content: Option<Hash>,
    /// [`policy::sync::desired::Desired::revision`].
    pub(super) revision: Hash,
    pub(super) webhook: Hash,
}

/// One rollout after the other.
pub(super) struct Rollouts {
    settings: Settings,
    aim: Aim,
    current: Rollout,
}

/// The progress in words that anyone can read.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Published<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_version: Option<String>,
    configuration_revision: String,
    webhook_version: &'a str,
    webhook_manifests: String,
    #[serde(flatten)]
    progress: Progress,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_runtimes: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    started_runtimes: Vec<&'a str>,
}

/// What of it an earlier leader leaves to the next one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Earlier {
    configuration_revision: String,
    webhook_manifests: String,
    #[serde(default)]
    failed_runtimes: Vec<String>,
    /// Those that were written to, and have neither arrived nor failed.
    #[serde(default)]
    started_runtimes: Vec<String>,
}

impl Earlier {
    /// `None` for what is not ours, or says nothing that a next leader needs.
    pub(super) fn read(text: &str) -> Option<Self> {
        let earlier: Self = serde_json::from_str(text).ok()?;
        let says_nothing =
            earlier.failed_runtimes.is_empty() && earlier.started_runtimes.is_empty();
        (!says_nothing).then_some(earlier)
    }

    fn is_about(&self, aim: Aim) -> bool {
        self.configuration_revision == aim.revision.to_string()
            && self.webhook_manifests == aim.webhook.to_string()
    }
}

/// A runtime as a rollout sees it.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) order: u32,
    pub(super) state: State,
}

impl Rollouts {
    /// Begins with the runtimes as their statuses say.
    pub(super) fn begin(settings: Settings, aim: Aim, members: &[Member]) -> Self {
        let order = members.iter().map(|it| (it.name.clone(), it.order));
        let mut current = Rollout::begin(settings, order);
        for member in members {
            current.set(&member.name, member.state);
        }
        Self {
            settings,
            aim,
            current,
        }
    }

    /// Goes on with what an earlier leader knew, if that was about the same.
    pub(super) fn recall(&mut self, earlier: &Earlier) {
        if earlier.is_about(self.aim) {
            let failed = earlier.failed_runtimes.iter().map(String::as_str);
            self.current.recall(failed);
            let started = earlier.started_runtimes.iter().map(String::as_str);
            self.current.recall_written(started);
        }
    }

    /// Goes on with what the rollout before knew: whoever failed there, or was written to there, and cannot be reached any
    /// more may have been lost to what was written, so it is not passed over as one that was never reached.
    pub(super) fn follow(&mut self, before: &Self) {
        let lost = before.current.failed();
        let lost = lost.filter(|it| self.state(it) == Some(State::Unreachable));
        let lost: Vec<&str> = lost.collect();
        self.current.recall(lost);
        self.current.recall_written(before.current.written());
    }

    /// What it is about.
    pub(super) fn aim(&self) -> Aim {
        self.aim
    }

    /// Stops or goes on.
    pub(super) fn pause(&mut self, paused: bool) {
        self.settings.paused = paused;
        self.current.configure(self.settings);
    }

    /// How it works from here on.
    pub(super) fn settings(&self) -> Settings {
        self.settings
    }

    /// A runtime that came later.
    pub(super) fn join(&mut self, name: &str, order: u32) {
        self.current.join(name, order);
    }

    /// A runtime that left; says whether others may go on because of it.
    pub(super) fn leave(&mut self, name: &str) -> bool {
        let before = self.gate();
        self.current.leave(name);
        before != self.gate()
    }

    /// Notes what a reconcile says; says whether others may go on or not because of it.
    pub(super) fn note(
        &mut self,
        name: &str,
        result: ReconcileResult,
        wrote: bool,
        now: Duration,
    ) -> bool {
        let before = self.gate();
        self.current.note(name, result, wrote, now);
        before != self.gate()
    }

    /// Whether a runtime may be written to; if it waited, it has begun now.
    pub(super) fn start(&mut self, name: &str, now: Duration) -> bool {
        self.current.start(name, now)
    }

    /// Whether a runtime may be written to.
    pub(super) fn may_start(&self, name: &str) -> bool {
        self.current.may_start(name)
    }

    /// Where a runtime is.
    pub(super) fn state(&self, name: &str) -> Option<State> {
        self.current.state(name)
    }

    /// The progress, as JSON.
    pub(super) fn published(&self, webhook_version: &str) -> String {
        let published = Published {
            content_version: self.aim.content.map(|it| it.to_string()),
            configuration_revision: self.aim.revision.to_string(),
            webhook_version,
            webhook_manifests: self.aim.webhook.to_string(),
            progress: self.current.progress(),
            failed_runtimes: self.current.failed().collect(),
            started_runtimes: self.current.written().collect(),
        };
        serde_json::to_string(&published).unwrap_or_default()
    }

    fn gate(&self) -> (u32, bool) {
        let progress = self.current.progress();
        (progress.wave, progress.stopped.is_some())
    }
}
