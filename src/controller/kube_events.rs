//! Kubernetes Events.

use component_base::telemetry::error_chain;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// Maximum number of characters of the note of an Event; the API allows 1 kB.
const MAX_NOTE: usize = 900;

/// Writes the Events about one action of a controller. Clones share the client.
#[derive(Clone)]
pub(crate) struct EventWriter {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    /// The action in all Events.
    pub(crate) action: &'static str,
}

impl EventWriter {
    /// The write of an Event about an object, as of [`publish_event`].
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

/// Writes an Event about an object. A failure is logged, not retried: what an Event reports is in a status or in the log too.
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
