//! What is said about a source that is absent: an Event and a line in the log for each change, and a gauge.
//!
//! Invariants: what stays the same is said once in a term of office; a replica that does not lead shows nothing.
//! Deliberately absent: what an absence means (`policy::sync::known`), and conditions of runtimes.

use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use policy::sync::SourceKind;
use policy::sync::known::{Absence, SourceHistory};
use policy::sync::sources::{Sources, Summary};

use super::sources::SourceMetrics;

/// An Event on its way.
pub(super) type Report = BoxFuture<'static, ()>;

/// What there is to say about a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    /// Nothing: it is there, not looked for, or deleted.
    #[default]
    Usual,
    /// It is missing, and taken for deleted then.
    DeletionPending(Timestamp),
    /// It is named, and never was there.
    NotFound,
}

impl Presence {
    fn of(kind: SourceKind, sources: &Sources, known: &SourceHistory) -> Self {
        if sources.summary(kind) != Summary::Absent {
            return Self::Usual;
        }
        match known.absence(kind, sources.names.get(kind)) {
            Absence::Pending { at, .. } => Self::DeletionPending(at),
            Absence::NeverRolledOut => Self::NotFound,
            Absence::Deleted => Self::Usual,
        }
    }
}

/// Who says it.
#[derive(Clone)]
pub(super) struct Voice {
    pub(super) client: Client,
    pub(super) reporter: Reporter,
    pub(super) metrics: SourceMetrics,
    /// `signal` or `direct`.
    pub(super) controller: &'static str,
    /// What a deletion comes to, for Events.
    pub(super) outcome: &'static str,
}

/// See the module.
pub(super) struct AbsentSources {
    voice: Voice,
    said: [Presence; 3],
}

impl AbsentSources {
    pub(super) fn new(voice: Voice) -> Self {
        Self {
            voice,
            said: [Presence::default(); 3],
        }
    }

    /// Says what changed; gives the Events, which regard that object.
    pub(super) fn show(
        &mut self,
        sources: &Sources,
        known: &SourceHistory,
        regarding: &ObjectReference,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        for kind in SourceKind::ALL {
            let now = Presence::of(kind, sources, known);
            let before = std::mem::replace(&mut self.said[kind as usize], now);
            if now != before {
                self.gauge(kind, now);
                let text = self.log(kind, sources, (before, now));
                let report = text.map(|(reason, text)| self.event(reason, text, regarding.clone()));
                reports.extend(report);
            }
        }
        reports
    }

    fn gauge(&self, kind: SourceKind, presence: Presence) {
        let Voice {
            metrics,
            controller,
            ..
        } = &self.voice;
        let pending = matches!(presence, Presence::DeletionPending(_));
        metrics.deletion_pending(kind, controller, pending);
        metrics.not_found(kind, controller, presence == Presence::NotFound);
    }

    /// Gives the Event's reason and text, if there is one.
    fn log(
        &self,
        kind: SourceKind,
        sources: &Sources,
        (before, now): (Presence, Presence),
    ) -> Option<(&'static str, String)> {
        let (source, controller) = (kind.name(), self.voice.controller);
        let object = sources.names.reference(kind);
        match (before, now) {
            (_, Presence::DeletionPending(at)) => {
                let at = at.strftime("%FT%TZ");
                tracing::warn!(source, controller, object, %at, "deletion of source pending");
                let outcome = self.voice.outcome;
                let text = format!(
                    "{object} was deleted: {outcome} at {at}, unless it is created again before"
                );
                Some(("DeletionPending", text))
            }
            (_, Presence::NotFound) => {
                tracing::warn!(source, controller, object, "source not found");
                let text = format!("{object} not found: only the other sources are synchronized");
                Some(("SourceNotFound", text))
            }
            (Presence::DeletionPending(_), _) if sources.summary(kind) == Summary::Absent => {
                tracing::warn!(source, controller, object, "deletion of source carried out");
                None
            }
            (Presence::DeletionPending(_), _) => {
                tracing::info!(source, controller, object, "deletion of source withdrawn");
                None
            }
            (Presence::NotFound, _) => {
                tracing::info!(source, controller, object, "source found");
                None
            }
            (Presence::Usual, Presence::Usual) => None,
        }
    }

    fn event(&self, reason: &str, note: String, regarding: ObjectReference) -> Report {
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: "SynchronizeSource".to_owned(),
            secondary: None,
        };
        // A Recorder takes Events for the same that differ in their note only, so each has one of its own.
        let recorder = Recorder::new(self.voice.client.clone(), self.voice.reporter.clone());
        Box::pin(async move {
            if let Err(error) = recorder.publish(&event, &regarding).await {
                let error = error_chain(&error);
                tracing::warn!(error, "failed to write Event");
            }
        })
    }
}

impl Drop for AbsentSources {
    /// Whoever leads next says it.
    fn drop(&mut self) {
        for kind in SourceKind::ALL {
            self.gauge(kind, Presence::Usual);
        }
    }
}
