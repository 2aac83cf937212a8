//! Reports to operators in addition to the status: Events on the state ConfigMap, the readiness check `signal`, and the log.
//!
//! Invariant: an unchanged state is reported once. Runtimes have no Events, because thousands of them would be equal.

use std::time::Duration;

use component_base::readiness::{Readiness, ReadinessCheck};
use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use policy::sync::SourceKind;
use policy::sync::signal::{Counts, StopReason};

use super::SignalMetrics;
use super::persisted_state::SaveError;
use super::status::Stop;
use crate::kube_events::EventWriter;

/// Future that writes an Event.
pub(super) type Report = BoxFuture<'static, ()>;

/// The reporter; see the module.
pub(super) struct EventReporter {
    events: EventWriter,
    readiness: ReadinessCheck,
    metrics: SignalMetrics,
    /// Reason why the state cannot be used.
    invalid: Option<String>,
    stop: Option<Stop>,
}

impl EventReporter {
    pub(super) fn new(events: EventWriter, readiness: &Readiness, metrics: SignalMetrics) -> Self {
        let readiness = readiness.check("signal");
        readiness.not_ready("state not loaded yet");
        Self {
            events,
            readiness,
            metrics,
            invalid: None,
            stop: None,
        }
    }

    /// Reports the first start.
    pub(super) fn initialized(&self, state: ObjectReference) -> Report {
        let text = "state initialized with the current sources, no Runtime is signaled";
        tracing::info!("{text}");
        self.event((EventType::Normal, "StateInitialized"), text, state)
    }

    /// Reports that sources changed.
    pub(super) fn changed(&self, kinds: &[SourceKind], state: ObjectReference) -> Report {
        let sources: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let sources = sources.join(", ");
        tracing::info!(sources, "sources changed, signaling runtimes");
        let text = format!("{sources} changed, Runtimes are signaled");
        self.event((EventType::Normal, "SourcesChanged"), &text, state)
    }

    /// Reports whether signals are stopped, and the reason. A pending deletion has its own Event.
    pub(super) fn stopped(&mut self, stop: Option<Stop>, state: ObjectReference) -> Option<Report> {
        // The message of a limit contains counts.
        let is_same = match (&self.stop, &stop) {
            (Some((StopReason::InvalidSource, before)), Some((StopReason::InvalidSource, now))) => {
                before == now
            }
            (before, now) => before.as_ref().map(|it| it.0) == now.as_ref().map(|it| it.0),
        };
        let before = std::mem::replace(&mut self.stop, stop);
        self.update_readiness();
        if is_same {
            return None;
        }
        let (reason, event, text) = if let Some((reason, message)) = &self.stop {
            tracing::warn!(reason = reason.name(), message, "signals suspended");
            let text = format!("{}: {message}", reason.name());
            (*reason, (EventType::Warning, "SignalsSuspended"), text)
        } else {
            let (reason, _) = before?;
            tracing::info!(reason = reason.name(), "signals resumed");
            let text = format!("{} no longer holds", reason.name());
            (reason, (EventType::Normal, "SignalsResumed"), text)
        };
        let has_event = reason != StopReason::DeletionPending;
        has_event.then(|| self.event(event, &text, state))
    }

    /// Reports that the state cannot be used.
    pub(super) fn invalid(&mut self, error: &SaveError, state: ObjectReference) -> Option<Report> {
        let text = error_chain(error);
        self.metrics.state_invalid(Some(error.name()));
        self.readiness
            .not_ready(format!("signals suspended: {text}"));
        if self.invalid.as_ref() == Some(&text) {
            return None;
        }
        let report = error.is_permanent().then(|| {
            tracing::error!(error = text, "signals suspended");
            self.event((EventType::Warning, "InvalidState"), &text, state)
        });
        if report.is_none() {
            tracing::warn!(error = text, "signals suspended temporarily");
        }
        self.invalid = Some(text);
        report
    }

    /// Reports that the state can be used.
    pub(super) fn valid(&mut self) {
        if self.invalid.take().is_some() {
            tracing::info!("state valid again");
        }
        self.metrics.state_invalid(None);
        self.update_readiness();
    }

    /// Sets the metrics of Runtimes.
    pub(super) fn show(&self, counts: &Counts, oldest: Duration) {
        self.metrics.show(counts, oldest);
    }

    fn update_readiness(&self) {
        match (&self.invalid, &self.stop) {
            (Some(_), _) => {}
            (None, None) => self.readiness.ready(),
            (None, Some((reason, message))) => {
                let reason = reason.name();
                self.readiness
                    .detail(format!("no Runtime is signaled: {reason}: {message}"));
            }
        }
    }

    fn event(&self, event: (EventType, &str), text: &str, state: ObjectReference) -> Report {
        self.events.write(event, text.to_owned(), state)
    }
}

impl Drop for EventReporter {
    /// Resets metrics and readiness: a replica that is not the leader reports no state.
    fn drop(&mut self) {
        self.metrics.state_invalid(None);
        self.metrics.show(&Counts::default(), Duration::ZERO);
        self.readiness.ready();
    }
}
