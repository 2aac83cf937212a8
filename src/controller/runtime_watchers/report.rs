//! The result of a reconcile: state, counts, log lines, and Events of the Kyma.

use std::time::Duration;

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::SKR_DOMAIN;
use component_base::telemetry::error_chain;
use futures::FutureExt as _;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType};
use policy::sync::plan::Blocked;
use policy::sync::plan::watcher::WatcherState;
use policy::sync::status::{ConnectionError, Reason};
use policy::watchers::RuntimeCounts;
use tokio::time::Instant;

use super::{BACKOFF, Context, GoalRevision, PROGRESS_BACKOFF, RuntimeState};
use crate::clients::RuntimeId;
use crate::kube_events::publish_event;
use crate::kyma::KymaView;
use crate::runtime_objects::WriteFailure;

/// Reason: the watcher is installed, and no object differs.
pub(super) const INSTALLED: &str = "Installed";

/// Reason: the watcher sends no heartbeats.
pub(super) const HEARTBEAT_MISSING: &str = "HeartbeatMissing";

/// Reason: the watcher reports that TLS handshakes fail.
pub(super) const HANDSHAKE_FAILED: &str = "HandshakeFailed";

/// Reason: the watcher reports no AdmissionReview although one was expected.
pub(super) const REVIEW_MISSING: &str = "ReviewMissing";

const UNRESPONSIVE: [&str; 3] = [HEARTBEAT_MISSING, HANDSHAKE_FAILED, REVIEW_MISSING];

/// Reason: no object of the watcher is left on the runtime.
const REMOVED: &str = "Removed";

/// Reason: no object of the watcher is left on the runtime, because the RuntimeBootstrapper lacks the domain of a certificate.
const SKR_DOMAIN_MISSING: &str = "SKRDomainMissing";

/// The reasons of runtimes without a watcher, from which no heartbeats are expected.
pub(super) const NOTHING_LEFT: [&str; 2] = [REMOVED, SKR_DOMAIN_MISSING];

/// Minimum interval between two Events of a Kyma about failures, or about successes.
const EVENT_INTERVAL: Duration = Duration::from_mins(1);

/// The result of a reconcile.
pub(super) struct Outcome {
    /// Reason from a closed list, because it is a label of a metric.
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) retry: Retry,
    /// The `RuntimeBootstrapper` of the runtime, for its condition.
    pub(super) resource: Option<Box<RuntimeBootstrapper>>,
}

/// Time of the next reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// After a change on KCP.
    AtChange,
    /// After a change on KCP, or at the resync.
    AtResync,
    /// After a short backoff: a Deployment is progressing, or objects are being deleted.
    Progressing,
    /// After a backoff, but not before the delay that the API server requires.
    Failed(Option<Duration>),
}

impl Retry {
    /// Returns the delay of the next attempt after a number of attempts.
    pub(super) fn delay(self, attempts: u32) -> Option<Duration> {
        let random = fastrand::u64(..);
        Some(match self {
            Self::AtChange | Self::AtResync => return None,
            Self::Progressing => PROGRESS_BACKOFF.delay(attempts, random),
            Self::Failed(asked) => BACKOFF
                .delay(attempts, random)
                .max(asked.unwrap_or_default()),
        })
    }
}

impl Outcome {
    pub(super) fn new(reason: &'static str, message: String, retry: Retry) -> Self {
        Self {
            reason,
            message,
            retry,
            resource: None,
        }
    }

    pub(super) fn with_resource(self, resource: Option<Box<RuntimeBootstrapper>>) -> Self {
        Self { resource, ..self }
    }

    /// Returns the outcome for a runtime without a kubeconfig. The kubeconfig of a Kyma that is not deleted may be
    /// created again.
    pub(super) fn removed(is_deleted: bool) -> Self {
        let retry = if is_deleted {
            Retry::AtChange
        } else {
            Retry::AtResync
        };
        Self::new(REMOVED, String::new(), retry)
    }

    /// Returns the outcome if no object is left on the runtime of a RuntimeBootstrapper that lacks the domain of the
    /// certificate.
    pub(super) fn without_domain(self) -> Self {
        Self {
            reason: SKR_DOMAIN_MISSING,
            message: format!("annotation {SKR_DOMAIN} missing"),
            ..self
        }
    }

    /// Returns the outcome if another client had deleted or changed the webhook configuration, which was written again. The next
    /// reconcile follows after a backoff, which bounds the writes against a client that changes it again each time.
    pub(super) fn restored() -> Self {
        let message = "another client deleted or changed the webhook configuration of the watcher; it was written again";
        Self::new(REVIEW_MISSING, message.to_owned(), Retry::Failed(None))
    }

    pub(super) fn is_installed(&self) -> bool {
        self.reason == INSTALLED
    }

    pub(super) fn is_removed(&self) -> bool {
        self.reason == REMOVED
    }

    pub(super) fn unreachable(error: &ConnectionError, retry_after: Option<Duration>) -> Self {
        let reason = Reason::from(error).name();
        Self::new(reason, error_chain(error), Retry::Failed(retry_after))
    }

    pub(super) fn blocked(blocked: &Blocked) -> Self {
        let reason = Reason::from(blocked).name();
        Self::new(reason, error_chain(blocked), Retry::Failed(None))
    }

    pub(super) fn failed(failure: &WriteFailure) -> Self {
        let (target, cause) = (&failure.failure.target, &failure.failure.message);
        let message = format!("{} {}: {cause}", target.kind(), target.name());
        let retry = Retry::Failed(failure.retry_after);
        Self::new(Reason::ApplyFailed.name(), message, retry)
    }

    pub(super) fn of_state(state: &WatcherState, is_removal: bool) -> Self {
        let (reason, message, retry) = match state {
            WatcherState::Progressing if is_removal => {
                ("Removing", String::new(), Retry::Progressing)
            }
            WatcherState::Progressing => {
                let reason = Reason::Installing.name();
                (reason, String::new(), Retry::Progressing)
            }
            WatcherState::Installed => (INSTALLED, String::new(), Retry::AtResync),
            WatcherState::Removed => (REMOVED, String::new(), Retry::AtChange),
            WatcherState::ProgressDeadlineExceeded => {
                let message = "progress deadline of Deployment skr-webhook exceeded".to_owned();
                let reason = Reason::ProgressDeadlineExceeded.name();
                (reason, message, Retry::Failed(None))
            }
            WatcherState::ImmutableField(target) => {
                let message = format!("immutable field of {} differs", target.path());
                (Reason::ImmutableField.name(), message, Retry::Failed(None))
            }
        };
        Self::new(reason, message, retry)
    }

    /// Returns whether the reason remains without a change.
    fn is_settled(&self) -> bool {
        self.is_failure() || [INSTALLED, REMOVED].contains(&self.reason)
    }

    fn is_failure(&self) -> bool {
        matches!(self.retry, Retry::Failed(_))
            || self.reason == "RuntimeIDMissing"
            || UNRESPONSIVE.contains(&self.reason)
    }
}

impl RuntimeState {
    fn is_installed(&self) -> bool {
        self.reason == INSTALLED || UNRESPONSIVE.contains(&self.reason)
    }

    /// Returns whether a watcher presumably runs on the runtime.
    pub(super) fn has_watcher(&self) -> bool {
        let reasons = [
            Reason::Installing.name(),
            Reason::ProgressDeadlineExceeded.name(),
            Reason::ApplyFailed.name(),
        ];
        reasons.contains(&self.reason) || self.is_installed()
    }
}

impl Context {
    /// Returns whether the last reconcile of a Kyma has found the watcher on this runtime installed for the goal with this number.
    pub(super) fn was_installed(&self, kyma: &str, id: &RuntimeId, revision: u64) -> bool {
        let runtimes = self.runtimes();
        let state = runtimes.states.get(kyma);
        state.is_some_and(|it| {
            it.is_installed() && it.revision == revision && it.id.as_ref() == Some(id)
        })
    }

    /// Returns whether the last reconcile of a Kyma has found the watcher on this runtime installed for this goal, or for an earlier
    /// one with the same manifests.
    pub(super) fn has_manifests(&self, kyma: &str, id: &RuntimeId, revision: GoalRevision) -> bool {
        let runtimes = self.runtimes();
        let state = runtimes.states.get(kyma);
        state.is_some_and(|it| {
            let is_same = it.id.as_ref() == Some(id);
            is_same && it.reason == INSTALLED && it.revision >= revision.manifests
        })
    }

    /// Stores and reports the result. Returns the time of the next reconcile.
    ///
    /// `revision` is the number of the goal.
    pub(super) async fn finish(&self, kyma: &KymaView, outcome: Outcome, revision: u64) -> Action {
        self.options.metrics.reconciled(!outcome.is_failure());
        let name = kyma.name_any();
        let before = self.runtimes().states.get(name.as_str()).cloned();
        let reason = before.as_ref().map(|it| it.reason);
        let attempts = match outcome.retry {
            Retry::Failed(_) | Retry::Progressing => {
                before.as_ref().map_or(0, |it| it.attempts + 1)
            }
            Retry::AtChange | Retry::AtResync => 0,
        };
        let (mut settled, mut reported) = before
            .map(|it| (it.settled, it.reported))
            .unwrap_or_default();
        if reason != Some(outcome.reason) {
            log(&name, &outcome);
        }
        if outcome.is_settled() && settled != Some(outcome.reason) {
            settled = Some(outcome.reason);
            let last = &mut reported[usize::from(outcome.is_failure())];
            let is_due = last.is_none_or(|at| at.elapsed() >= EVENT_INTERVAL);
            // After a start of the controller, an existing installation is not reported.
            if is_due && (outcome.is_failure() || reason.is_some()) {
                *last = Some(Instant::now());
                Box::pin(self.publish(kyma, &outcome)).await;
            }
        }
        if NOTHING_LEFT.contains(&outcome.reason)
            && let Some(id) = kyma.runtime_id()
        {
            self.heartbeats.forget(id.as_str());
        }
        let state = RuntimeState {
            id: kyma.runtime_id().cloned(),
            reason: outcome.reason,
            revision,
            settled,
            attempts,
            is_resynced: outcome.retry == Retry::AtResync,
            reported,
        };
        *self.runtimes().state(&name, kyma.runtime_id()) = state;
        self.changed.send_replace(());
        match kyma.runtime_id().filter(|_| outcome.is_installed()) {
            // The RuntimeBootstrapper may have been created after the start of the reconcile. From here on
            // `write_conditions` writes the condition.
            Some(id) if outcome.resource.is_none() => {
                Box::pin(self.write_condition_of(&name, id)).await;
            }
            _ => Box::pin(self.write_condition(&outcome)).await,
        }
        let delay = outcome.retry.delay(attempts.saturating_sub(1));
        delay.map_or_else(Action::await_change, Action::requeue)
    }

    /// Returns the backoff of a reconcile that failed because of KCP.
    pub(super) fn failed_on_kcp(&self, view: &KymaView, error: &kube::Error) -> Action {
        self.options.metrics.reconciled(false);
        let kyma = &view.name_any();
        let mut runtimes = self.runtimes();
        let state = runtimes.state(kyma, view.runtime_id());
        // A removal needs it, even if no reconcile succeeds before.
        if state.id.is_none() {
            state.id = view.runtime_id().cloned();
        }
        state.reason = "RequestFailed";
        state.is_resynced = false;
        state.attempts += 1;
        let attempts = state.attempts - 1;
        drop(runtimes);
        self.changed.send_replace(());
        if let Some(suppressed) = self.kcp_failures.permit() {
            let error = error_chain(error);
            tracing::warn!(kyma, error, suppressed, "KCP API request failed");
        }
        Action::requeue(BACKOFF.delay(attempts, fastrand::u64(..)))
    }

    /// Returns the number of runtimes by state, without runtimes from which the watcher was removed. `None` until
    /// every runtime was reconciled once.
    pub(super) fn counts(&self) -> Option<RuntimeCounts> {
        if !self.is_first_pass_complete() {
            return None;
        }
        let mut counts = self.all_counts();
        counts.others.remove(REMOVED);
        Some(counts)
    }

    fn all_counts(&self) -> RuntimeCounts {
        let mut counts = RuntimeCounts::default();
        let revision = self.goal.borrow().0.number;
        for state in self.runtimes().states.values() {
            match state.reason {
                INSTALLED if state.revision == revision => counts.configured += 1,
                // The watcher was installed for an earlier goal.
                INSTALLED => *counts.others.entry(Reason::Installing.name()).or_default() += 1,
                reason => *counts.others.entry(reason).or_default() += 1,
            }
        }
        counts
    }

    fn is_first_pass_complete(&self) -> bool {
        let is_listed = self.kymas.store.wait_until_ready().now_or_never().is_some();
        let mut runtimes = self.runtimes();
        if is_listed && !runtimes.is_first_pass_complete {
            let all = self.kymas.store.state();
            let mut names = all.iter().map(|it| it.name_any());
            runtimes.is_first_pass_complete =
                names.all(|it| runtimes.states.contains_key(it.as_str()));
        }
        runtimes.is_first_pass_complete
    }

    /// Updates the metric.
    pub(super) fn show(&self) {
        self.options.metrics.show(&self.all_counts());
    }

    async fn publish(&self, kyma: &KymaView, outcome: &Outcome) {
        let event = Event {
            type_: if outcome.is_failure() {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: match outcome.reason {
                INSTALLED => "WatcherInstalled".to_owned(),
                REMOVED => "WatcherRemoved".to_owned(),
                reason => reason.to_owned(),
            },
            note: Some(if outcome.message.is_empty() {
                let id = kyma.runtime_id();
                format!("runtime {}", id.map_or("", RuntimeId::as_str))
            } else {
                outcome.message.clone()
            }),
            action: "InstallWatcher".to_owned(),
            secondary: None,
        };
        let (client, reporter) = (self.options.client.clone(), self.options.reporter.clone());
        publish_event(client, reporter, event, kyma.reference()).await;
    }
}

fn log(kyma: &str, outcome: &Outcome) {
    let (reason, message) = (outcome.reason, outcome.message.as_str());
    if outcome.is_failure() {
        tracing::warn!(kyma, reason, message, "state of watcher on runtime changed");
    } else {
        tracing::info!(kyma, reason, message, "state of watcher on runtime changed");
    }
}
