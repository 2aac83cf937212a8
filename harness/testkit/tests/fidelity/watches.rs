//! What a watch with a selector is told.

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{
    Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::{Value, json};

/// The events of one object that is created, selected, changed, no longer selected, and deleted.
pub(super) async fn events(client: Client) -> Vec<(&'static str, Value)> {
    let api: Api<ConfigMap> = Api::namespaced(client, "kyma-system");
    let seen = api.list(&ListParams::default()).await.unwrap();
    let version = seen.metadata.resource_version.unwrap();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched"}});
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let changes = [
        json!({"metadata": {"labels": {"chosen": "yes"}}}),
        json!({"data": {"a": "1"}}),
        json!({"data": {"a": "1"}}),
        json!({"metadata": {"labels": {"chosen": null}}}),
        json!({"data": {"a": "2"}}),
        json!({"metadata": {"labels": {"chosen": "yes"}}}),
    ];
    let merge = PatchParams::default();
    for change in changes.map(Patch::Merge) {
        api.patch("watched", &merge, &change).await.unwrap();
    }
    let options = DeleteParams::default();
    api.delete("watched", &options).await.unwrap();
    let params = WatchParams::default().labels("chosen").timeout(3);
    let stream = api.watch(&params, &version).await.unwrap();
    let events: Vec<WatchEvent<ConfigMap>> = stream.try_collect().await.unwrap();
    let shown = |name: &'static str, object: ConfigMap| {
        (name, json!([object.data, object.metadata.labels]))
    };
    let events = events.into_iter().filter_map(|event| match event {
        WatchEvent::Added(object) => Some(shown("added", object)),
        WatchEvent::Modified(object) => Some(shown("modified", object)),
        WatchEvent::Deleted(object) => Some(shown("deleted", object)),
        WatchEvent::Error(status) => Some(("error", json!(status.code))),
        WatchEvent::Bookmark(_) => None,
    });
    events.collect()
}
