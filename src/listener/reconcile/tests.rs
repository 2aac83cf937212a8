//! Events as requests for a controller.

use api::event::{Gvk, NamespacedName};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;

use super::*;
use crate::certificate::RuntimeId;
use crate::queue::queue;

#[tokio::test]
async fn each_event_asks_for_the_object_that_the_operator_names() {
    let (sender, events) = queue(2);
    for runtime_id in [None, RuntimeId::parse("r")] {
        sender.offer(Event {
            runtime_id,
            watched: NamespacedName::default(),
            watched_gvk: Gvk::default(),
        });
    }
    drop(sender);
    let requests = events.object_refs::<ConfigMap, _>(|event| {
        Some(ObjectRef::new(event.runtime_id?.as_str()).within("kcp-system"))
    });
    let requests: Vec<_> = requests.collect().await;
    assert_eq!(requests, [ObjectRef::new("r").within("kcp-system")]);
}
