//! The `RuntimeBootstrapperRollout` objects of both lanes: the settings of operators, and the reported progress.
//!
//! Invariant: the status contains the state that the next leader needs to continue: revision, step, completed revisions and
//! failed runtimes. The statuses of runtimes show which runtimes have started.

use std::collections::{BTreeMap, BTreeSet};

use api::bootstrapper::{Condition, GROUP, VERSION};
use api::rollout::{
    COMPLETED, CompletedRevision, KIND, MAX_FAILED_RUNTIMES, ROLLBACK_PREVIOUS, RolloutCounts,
    RolloutStatus,
};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use policy::sync::rollout::{Counts, Progress, Resumed, Rollout, Stopped};
use policy::sync::{Hash, Lane, Lanes};
use tokio::sync::{mpsc, watch};

use super::revisions::Installations;
use crate::absent::PendingEvent;
use crate::kube_events::EventWriter;
use crate::rollouts::{Stored, conditions, is_completed, publish};

/// Maximum number of completed revisions in the status.
const HISTORY: usize = 10;

/// Reason of the condition while all sources but an invalid one are rolled out.
const INVALID_SOURCE: &str = "InvalidSource";

/// Returns whether a condition shows that all sources but an invalid one are rolled out.
fn is_complete(condition: &Condition) -> bool {
    let but_invalid = condition.kind == COMPLETED && condition.reason == INVALID_SOURCE;
    but_invalid || is_completed(condition)
}

/// The stored objects, and the channels of the tasks that write statuses and Events.
pub(super) struct RolloutReporter {
    stored: Option<BTreeMap<String, Stored>>,
    reported: Lanes<RolloutStatus>,
    senders: Lanes<watch::Sender<Option<RolloutStatus>>>,
    progress: Lanes<Option<Progress>>,
    namespace: String,
    event_writer: EventWriter,
    events: mpsc::UnboundedSender<PendingEvent>,
    /// The last rollback annotation that selects no known revision, so that it is logged once.
    unknown_rollback: Option<String>,
}

/// Returns the reporter, and the future that writes statuses and Events until the reporter is dropped.
pub(super) fn reporter(
    event_writer: EventWriter,
    namespace: &str,
) -> (RolloutReporter, BoxFuture<'static, ()>) {
    let senders = Lanes::from_fn(|_| watch::Sender::new(None));
    let writers = senders.as_ref().map(watch::Sender::subscribe);
    let client = event_writer.client.clone();
    let write =
        |lane: Lane, receiver| publish(client.clone(), namespace.to_owned(), lane.name(), receiver);
    let configuration = write(Lane::Configuration, writers.configuration);
    let webhook = write(Lane::Webhook, writers.webhook);
    let (events, mut received) = mpsc::unbounded_channel::<PendingEvent>();
    let write_events = async move {
        while let Some(event) = received.recv().await {
            event.await;
        }
    };
    let writing = async move {
        tokio::join!(configuration, webhook, write_events);
    };
    let reporter = RolloutReporter {
        stored: None,
        reported: Lanes::default(),
        senders,
        progress: Lanes::default(),
        namespace: namespace.to_owned(),
        event_writer,
        events,
        unknown_rollback: None,
    };
    (reporter, Box::pin(writing))
}

impl RolloutReporter {
    /// Sets the objects that are stored on KCP. If another client deleted an object or wrote its status, the last reported status
    /// is written again.
    pub(super) fn set(&mut self, stored: BTreeMap<String, Stored>) {
        for lane in Lane::ALL {
            let of = |it: &BTreeMap<String, Stored>| it.get(lane.name()).cloned();
            let now = of(&stored).unwrap_or_default();
            let before = self.stored.as_ref().map(|it| of(it).unwrap_or_default());
            let reported = self.reported.get_mut(lane);
            match before {
                None => *reported = now.status,
                Some(before) if now.is_overwritten(&before, reported) => {
                    self.senders.get(lane).send_replace(Some(reported.clone()));
                }
                Some(_) => {}
            }
        }
        self.stored = Some(stored);
    }

    /// Returns whether the objects were listed.
    pub(super) fn is_known(&self) -> bool {
        self.stored.is_some()
    }

    /// Returns the stored object of a lane.
    pub(super) fn stored(&self, lane: Lane) -> Stored {
        let stored = self.stored.as_ref();
        stored
            .and_then(|it| it.get(lane.name()))
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the last completed revision, and the progress of an earlier leader if that leader rolled out the same target.
    pub(super) fn resume(&self, lane: Lane, target: Hash) -> (Option<Hash>, Option<Resumed>) {
        let status = self.reported.get(lane);
        let completed = status.completed_revision.as_deref();
        let is_same = status.revision.as_deref() == Some(&*target.to_string());
        let step = status.step.as_deref().and_then(|it| it.split_once('/'));
        let step = step.and_then(|(step, _)| step.parse::<usize>().ok());
        (
            completed.and_then(|it| it.parse().ok()),
            is_same.then(|| Resumed {
                step: step.unwrap_or(1).saturating_sub(1),
                is_complete: status.conditions.iter().any(is_complete),
            }),
        )
    }

    /// Returns the failed runtimes that were reported last, at most [`MAX_FAILED_RUNTIMES`]: those that were deleted since, also if
    /// they were created again and have not started, and the others. The status of a runtime may not show its failure: it was lost,
    /// or its Pods were, after it was complete.
    pub(super) fn failed(&self, lane: Lane) -> (Vec<String>, BTreeSet<String>) {
        let status = self.reported.get(lane);
        let mut deleted = status.failed_runtimes.clone();
        let others = usize::try_from(status.runtimes.failed).unwrap_or(usize::MAX);
        // Those that were deleted come first.
        let others = deleted.split_off(deleted.len().saturating_sub(others));
        (deleted, others.into_iter().collect())
    }

    /// Returns the revision that an earlier leader rolled out in a lane.
    pub(super) fn reported_revision(&self, lane: Lane) -> Option<Hash> {
        let status = self.reported.get(lane);
        status.revision.as_ref().and_then(|it| it.parse().ok())
    }

    /// Returns the earlier revision that the rollback annotation selects, if its manifests are known. A rollback that has
    /// begun keeps its revision while the revision of the flags changes, and while the annotation selects no known revision.
    pub(super) fn rollback(&mut self, installations: &Installations) -> Option<Hash> {
        let wanted = self.stored(Lane::Webhook).rollback?;
        let history = &self.reported.webhook.history;
        let revisions = history.iter().filter_map(|it| it.revision.parse().ok());
        let known: Vec<Hash> = revisions.filter(|it| installations.has(*it)).collect();
        let earlier = |it: &Hash| *it != installations.current();
        let begun = self.reported_revision(Lane::Webhook);
        let begun = begun.filter(|it| earlier(it) && known.contains(it));
        let found = if wanted == ROLLBACK_PREVIOUS {
            begun.or_else(|| known.iter().copied().find(earlier))
        } else {
            known.iter().copied().find(|it| it.to_string() == wanted)
        };
        let unknown = found.is_none().then_some(wanted);
        if let Some(wanted) = unknown
            .as_ref()
            .filter(|_| self.unknown_rollback != unknown)
        {
            tracing::warn!(wanted, "revision of the rollback annotation not found");
        }
        self.unknown_rollback = unknown;
        found.or(begun)
    }

    /// Returns the revisions that may be needed again.
    pub(super) fn kept(&self) -> Vec<Hash> {
        let status = &self.reported.webhook;
        let history = status.history.iter().map(|it| &it.revision);
        let others = status.completed_revision.iter().chain(&status.revision);
        history
            .chain(others)
            .filter_map(|it| it.parse().ok())
            .collect()
    }

    /// Reports the progress of a rollout if it changed. `version` is that of the webhook in the revision, and `invalid` the
    /// sources whose copies stay as they are, whatever the revision.
    pub(super) fn report(
        &mut self,
        lane: Lane,
        rollout: &Rollout,
        (version, invalid): (Option<String>, Option<String>),
    ) {
        let Some(target) = rollout.target() else {
            return;
        };
        let progress = rollout.progress();
        let failed = rollout.failed().take(MAX_FAILED_RUNTIMES);
        let failed: Vec<String> = failed.map(ToString::to_string).collect();
        let stored = self.stored(lane);
        let before = self.reported.get(lane).clone();
        let now = || jiff::Timestamp::now().strftime("%FT%TZ").to_string();
        let mut history = before.history.clone();
        let is_new = |it: &String| history.first().is_none_or(|last| last.revision != *it);
        let completed = rollout.completed().map(|it| it.to_string());
        if let Some(revision) = completed.clone().filter(is_new) {
            history.retain(|it| it.revision != revision);
            let entry = CompletedRevision {
                version: version.clone().filter(|_| revision == target.to_string()),
                revision,
                completion_time: now(),
            };
            history.insert(0, entry);
            history.truncate(HISTORY);
        }
        let status = RolloutStatus {
            observed_generation: stored.generation,
            conditions: conditions(
                &before.conditions,
                completed_condition(progress, invalid),
                stopped_condition(progress),
                stored.generation,
                &now(),
            ),
            revision: Some(target.to_string()),
            version,
            completed_revision: completed,
            step: Some(format!("{}/{}", progress.step, progress.steps)),
            runtimes: counts(progress.counts),
            failed_runtimes: failed,
            history,
        };
        self.announce(lane, progress, &status);
        let is_stored = status == stored.status;
        if status != before || (!is_stored && self.senders.get(lane).borrow().is_none()) {
            *self.reported.get_mut(lane) = status.clone();
            self.senders.get(lane).send_replace(Some(status));
        }
    }

    /// Writes a log line and an Event for each change of revision, step or stop.
    fn announce(&mut self, lane: Lane, progress: Progress, status: &RolloutStatus) {
        let gate = |it: &Progress| (it.step, it.stopped, it.is_complete);
        let before = self.progress.get_mut(lane).replace(progress);
        let is_same = self.reported.get(lane).revision == status.revision;
        if is_same && before.as_ref().is_none_or(|it| gate(it) == gate(&progress)) {
            return;
        }
        let event = match progress.stopped {
            _ if progress.is_complete => (EventType::Normal, "RolloutCompleted"),
            Some(_) => (EventType::Warning, "RolloutStopped"),
            None => (EventType::Normal, "RolloutProgressing"),
        };
        let (rollout, counts) = (lane.name(), progress.counts);
        let failed = counts.failed + progress.deleted;
        let (step, version) = (status.step.as_deref(), status.version.as_deref());
        let revision = status.revision.as_deref();
        tracing::info!(
            rollout,
            revision,
            version,
            step,
            stopped = ?progress.stopped,
            done = counts.done,
            failed,
            waiting = counts.waiting,
            "rollout changed"
        );
        let note = format!(
            "step {}, revision {}: {} of {} runtimes are done, {failed} failed{}",
            step.unwrap_or_default(),
            revision.unwrap_or_default(),
            counts.done,
            counts.total(),
            progress
                .stopped
                .map_or_else(String::new, |it| format!(" ({})", it.name())),
        );
        let object = ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(KIND.to_owned()),
            name: Some(rollout.to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        };
        // The receiver ends together with this task, so an error of the send is ignored.
        drop(
            self.events
                .send(self.event_writer.write(event, note, object)),
        );
    }
}

fn completed_condition(
    progress: Progress,
    invalid: Option<String>,
) -> (bool, &'static str, String) {
    let counts = progress.counts;
    if progress.is_complete {
        return match invalid {
            Some(invalid) => (false, INVALID_SOURCE, invalid),
            None => (true, "RolloutCompleted", String::new()),
        };
    }
    let text = format!("{} of {} runtimes are done", counts.done, counts.total());
    (false, "RolloutProgressing", text)
}

fn stopped_condition(progress: Progress) -> (bool, &'static str, String) {
    let Some(stopped) = progress.stopped else {
        return (false, "NotStopped", "runtimes may start".to_owned());
    };
    let message = match stopped {
        Stopped::Paused => "spec.paused is true".to_owned(),
        Stopped::FailureLimitExceeded => {
            let failed = progress.counts.failed + progress.deleted;
            let deleted = match progress.deleted {
                0 => String::new(),
                deleted => format!(
                    " ({deleted} of them were deleted since; pause and resume the rollout to ignore \
                     these)"
                ),
            };
            format!("{failed} runtimes failed{deleted}, more than --max-failures allows")
        }
    };
    (true, stopped.name(), message)
}

fn counts(counts: Counts) -> RolloutCounts {
    RolloutCounts {
        total: counts.total(),
        waiting: counts.waiting,
        progressing: counts.progressing,
        soaking: counts.soaking,
        done: counts.done,
        failed: counts.failed,
        unreachable: counts.unreachable,
    }
}
