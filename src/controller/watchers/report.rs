//! Events and log lines about Watchers: one for each change of the reason of the condition `VirtualService`.

use api::bootstrapper::{Condition, ConditionStatus, GROUP};
use api::watcher::{KIND, VERSION, VIRTUAL_SERVICE, Watcher, WatcherStatus};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::events::EventType;
use kube::{Resource as _, ResourceExt as _};

use super::Context;
use crate::kube_events::EventWriter;

impl Context {
    /// Reports a written status, if its reason differs from the previous reason.
    pub(super) async fn report(&self, watcher: &Watcher, after: &WatcherStatus) {
        let condition = |status: &WatcherStatus| {
            let mut conditions = status.conditions.iter();
            conditions.find(|it| it.kind == VIRTUAL_SERVICE).cloned()
        };
        let before = watcher.status.as_ref().and_then(condition);
        let Some(now) = condition(after) else { return };
        if before.is_some_and(|it| it.reason == now.reason && it.status == now.status) {
            return;
        }
        let Condition {
            reason, message, ..
        } = now;
        let is_good = now.status == ConditionStatus::True && reason == "Ready";
        let name = watcher.name_any();
        if is_good || reason == "Deleting" {
            tracing::info!(name, reason, message, "state of Watcher changed");
        } else {
            tracing::warn!(name, reason, message, "state of Watcher changed");
        }
        let event_type = if is_good || reason == "Deleting" {
            EventType::Normal
        } else {
            EventType::Warning
        };
        let mut object = watcher.object_ref(&());
        object.api_version = Some(format!("{GROUP}/{VERSION}"));
        object.kind = Some(KIND.to_owned());
        let reason = if is_good {
            "VirtualServiceConfigured".to_owned()
        } else {
            reason
        };
        self.event((event_type, &reason), message, object).await;
    }

    /// Reports a Watcher that cannot be deserialized. Its VirtualService remains unchanged.
    pub(super) async fn report_unreadable(&self, invalid: &InvalidObject) {
        let name = invalid.metadata.name.clone().unwrap_or_default();
        let error = invalid.error.as_str();
        tracing::error!(
            name,
            error,
            "Watcher cannot be read, its VirtualService is not changed"
        );
        let object = ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(KIND.to_owned()),
            name: Some(name),
            namespace: invalid.metadata.namespace.clone(),
            uid: invalid.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let note = format!("Watcher cannot be read, its VirtualService is not changed: {error}");
        self.event((EventType::Warning, "InvalidWatcher"), note, object)
            .await;
    }

    async fn event(&self, event: (EventType, &str), note: String, object: ObjectReference) {
        let events = EventWriter {
            client: self.options.client.clone(),
            reporter: self.options.reporter.clone(),
            action: "ConfigureVirtualService",
        };
        events.write(event, note, object).await;
    }
}
