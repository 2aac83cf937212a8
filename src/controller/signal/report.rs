//! What an operator is told: a line in the log, a condition, a gauge and an Event for each thing that happens to all.
//!
//! Invariant: what stays the same is said once. Runtimes have no Events: thousands of them would say the same.

use component_base::readiness::{Condition, Readiness};
use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use policy::sync::SourceKind;
use policy::sync::sources::{SourceError, Sources};

use super::SignalMetrics;
use super::ledger::Refusal;

/// Why an Event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    StateInitialized,
    SourcesChanged,
    SignalsSuspended,
    InvalidState,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::StateInitialized => "StateInitialized",
            Self::SourcesChanged => "SourcesChanged",
            Self::SignalsSuspended => "SignalsSuspended",
            Self::InvalidState => "InvalidState",
        }
    }

    fn r#type(self) -> EventType {
        match self {
            Self::StateInitialized | Self::SourcesChanged => EventType::Normal,
            Self::SignalsSuspended | Self::InvalidState => EventType::Warning,
        }
    }
}

/// An Event on its way.
pub(super) type Report = BoxFuture<'static, ()>;

/// See the module.
pub(super) struct Reports {
    client: Client,
    reporter: Reporter,
    condition: Condition,
    metrics: SignalMetrics,
    /// What was refused last.
    refused: Option<String>,
    /// Which sources cannot be used, so that no signal is given.
    withheld: Option<String>,
}

impl Reports {
    pub(super) fn new(
        client: Client,
        reporter: Reporter,
        readiness: &Readiness,
        metrics: SignalMetrics,
    ) -> Self {
        let condition = readiness.condition("signal");
        condition.not_ready("state not loaded yet");
        Self {
            client,
            reporter,
            condition,
            metrics,
            refused: None,
            withheld: None,
        }
    }

    /// There was no record: from now on there is.
    pub(super) fn begun(&self, record: ObjectReference) -> Report {
        let text = "state initialized with the current sources, no Runtime is signaled";
        tracing::info!("{text}");
        self.event(Reason::StateInitialized, text, record)
    }

    /// Some sources changed.
    pub(super) fn changed(
        &self,
        kinds: &[SourceKind],
        due: usize,
        record: ObjectReference,
    ) -> Report {
        let sources: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let sources = sources.join(", ");
        tracing::info!(sources, due, "sources changed, signaling runtimes");
        let text = format!("{sources} changed: {due} Runtimes are to be signaled");
        self.event(Reason::SourcesChanged, &text, record)
    }

    /// Whether signals wait for sources that cannot be used, and for which.
    pub(super) fn withheld(
        &mut self,
        sources: &Sources,
        record: ObjectReference,
    ) -> Option<Report> {
        let complaint = |(kind, error): (SourceKind, &SourceError)| {
            format!("{}: {}", kind.name(), error_chain(error))
        };
        let complaints: Vec<String> = sources.unusable().map(complaint).collect();
        let now = (!complaints.is_empty()).then(|| complaints.join("; "));
        if self.withheld == now {
            return None;
        }
        self.withheld = now;
        if self.refused.is_none() {
            self.show();
        }
        let Some(error) = &self.withheld else {
            tracing::info!("all sources valid, signals resumed");
            return None;
        };
        tracing::warn!(error, "{WITHHELD}");
        let text = format!("{WITHHELD}: {error}");
        Some(self.event(Reason::SignalsSuspended, &text, record))
    }

    /// Nobody is signalled.
    pub(super) fn refused(&mut self, refusal: &Refusal, record: ObjectReference) -> Option<Report> {
        let text = error_chain(refusal);
        self.metrics.refused(Some(refusal.name()));
        self.condition
            .not_ready(format!("signals suspended: {text}"));
        if self.refused.as_ref() == Some(&text) {
            return None;
        }
        let report = if refusal.needs_somebody() {
            tracing::error!(error = text, "signals suspended");
            Some(self.event(Reason::InvalidState, &text, record))
        } else {
            tracing::warn!(error = text, "signals suspended temporarily");
            None
        };
        self.refused = Some(text);
        report
    }

    /// The record is in order.
    pub(super) fn in_order(&mut self) {
        if self.refused.take().is_some() {
            tracing::info!("state valid again");
        }
        self.metrics.refused(None);
        self.show();
    }

    /// What the condition says while the record is in order.
    fn show(&self) {
        match &self.withheld {
            None => self.condition.ready(),
            Some(error) => self.condition.detail(format!("{WITHHELD}: {error}")),
        }
    }

    fn event(&self, reason: Reason, text: &str, record: ObjectReference) -> Report {
        let event = Event {
            type_: reason.r#type(),
            reason: reason.name().to_owned(),
            note: Some(text.chars().take(LONGEST_NOTE).collect()),
            action: "SignalRuntimes".to_owned(),
            secondary: None,
        };
        // A Recorder takes Events for the same that differ in their note only, so each has one of its own.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        Box::pin(async move {
            if let Err(error) = recorder.publish(&event, &record).await {
                tracing::warn!(error = error_chain(&error), "failed to write Event");
            }
        })
    }
}

impl Drop for Reports {
    /// Whoever leads next refuses or not; here nothing is wrong any more.
    fn drop(&mut self) {
        self.metrics.refused(None);
        self.condition.ready();
    }
}

/// Said in the log, in the condition and in an Event.
const WITHHELD: &str =
    "no Runtime is signaled while a source is invalid, because KIM would copy it";

/// The API takes 1 kB.
const LONGEST_NOTE: usize = 900;
