//! Kubernetes Events.

use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// Maximum number of characters of the note of an Event; the API allows 1 kB.
const MAX_NOTE: usize = 900;

/// Writer of the Events about one action of a controller. Clones share the client.
#[derive(Clone)]
pub(crate) struct EventWriter {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    /// The action in all Events.
    pub(crate) action: &'static str,
}

impl EventWriter {
    /// Returns the future that writes an Event about an object; see [`publish_event`].
    pub(crate) fn write(
        &self,
        (type_, reason): (EventType, &str),
        note: String,
        object: ObjectReference,
    ) -> BoxFuture<'static, ()> {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: self.action.to_owned(),
            secondary: None,
        };
        let (client, reporter) = (self.client.clone(), self.reporter.clone());
        Box::pin(publish_event(client, reporter, event, object))
    }
}

/// Writes an Event about an object. A failure is logged and not retried, because a status or the log contains the
/// same information.
///
/// A Recorder aggregates Events that differ in their note only, so each Event has its own Recorder.
pub(crate) async fn publish_event(
    client: Client,
    reporter: Reporter,
    mut event: Event,
    object: ObjectReference,
) {
    event.note = event.note.map(|it| it.chars().take(MAX_NOTE).collect());
    let recorder = Recorder::new(client, reporter);
    if let Err(error) = recorder.publish(&event, &object).await {
        let error = error_chain(&error);
        tracing::warn!(name = object.name, error, "failed to write Event");
    }
}
