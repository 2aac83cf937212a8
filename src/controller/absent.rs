//! Reports a source that is absent: an Event and a log line for each change, and a gauge.
//!
//! Invariants: an unchanged state is reported once per leadership term; the gauges of a replica that does not lead are 0. Not in
//! here: what the absence of a source means (`policy::sync::history`), and conditions of runtimes.

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use policy::sync::SourceKind;
use policy::sync::history::{Absence, SourceHistory};
use policy::sync::sources::{SourceState, Sources};

use super::sources::SourceMetrics;
use crate::kube_events::EventWriter;

/// Future that writes one Event.
pub(super) type PendingEvent = BoxFuture<'static, ()>;

/// Presence of a source, as it is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Presence {
    /// The source exists, is not configured, or was deleted. Nothing is reported.
    #[default]
    Normal,
    /// The source is missing, and counts as deleted at this time.
    DeletionPending(Timestamp),
    /// The source is configured, and has never existed.
    NotFound,
}

impl Presence {
    fn of(kind: SourceKind, sources: &Sources, known: &SourceHistory) -> Self {
        if sources.get(kind) != SourceState::Absent {
            return Self::Normal;
        }
        match known.absence(kind, sources.names.get(kind)) {
            Absence::Pending { at, .. } => Self::DeletionPending(at),
            Absence::NeverRolledOut => Self::NotFound,
            Absence::Deleted => Self::Normal,
        }
    }
}

/// Settings of the Events, logs and gauges of one controller.
#[derive(Clone)]
pub(super) struct EventSettings {
    pub(super) events: EventWriter,
    pub(super) metrics: SourceMetrics,
    /// Name of the controller: `signal` or `direct`.
    pub(super) controller: &'static str,
    /// Consequence of the deletion, for the note of the Event.
    pub(super) outcome: &'static str,
}

/// Reporter of absent sources. See the module.
pub(super) struct AbsentSources {
    settings: EventSettings,
    reported: [Presence; 3],
}

impl AbsentSources {
    pub(super) fn new(settings: EventSettings) -> Self {
        Self {
            settings,
            reported: [Presence::default(); 3],
        }
    }

    /// Reports changes since the last call. Returns the Events about the object `regarding`.
    pub(super) fn report(
        &mut self,
        sources: &Sources,
        known: &SourceHistory,
        regarding: &ObjectReference,
    ) -> Vec<PendingEvent> {
        let mut events = Vec::new();
        for kind in SourceKind::ALL {
            let now = Presence::of(kind, sources, known);
            let before = std::mem::replace(&mut self.reported[kind as usize], now);
            if now != before {
                self.gauge(kind, now);
                let text = self.log(kind, sources, (before, now));
                events.extend(text.map(|(reason, text)| {
                    let event = (EventType::Warning, reason);
                    self.settings.events.write(event, text, regarding.clone())
                }));
            }
        }
        events
    }

    fn gauge(&self, kind: SourceKind, presence: Presence) {
        let EventSettings {
            metrics,
            controller,
            ..
        } = &self.settings;
        let pending = matches!(presence, Presence::DeletionPending(_));
        metrics.deletion_pending(kind, controller, pending);
        metrics.not_found(kind, controller, presence == Presence::NotFound);
    }

    /// Logs a change. Returns the reason and the note of the Event, if there is one.
    fn log(
        &self,
        kind: SourceKind,
        sources: &Sources,
        (before, now): (Presence, Presence),
    ) -> Option<(&'static str, String)> {
        let (source, controller) = (kind.name(), self.settings.controller);
        let object = sources.names.reference(kind);
        match (before, now) {
            (_, Presence::DeletionPending(at)) => {
                let at = at.strftime("%FT%TZ");
                tracing::warn!(source, controller, object, %at, "deletion of source pending");
                let outcome = self.settings.outcome;
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
            (Presence::DeletionPending(_), _) if sources.get(kind) == SourceState::Absent => {
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
            (Presence::Normal, Presence::Normal) => None,
        }
    }
}

impl Drop for AbsentSources {
    /// Resets the gauges, because the next leader reports the sources again.
    fn drop(&mut self) {
        for kind in SourceKind::ALL {
            self.gauge(kind, Presence::Normal);
        }
    }
}
