//! What a runtime's own rules put in the way: it is said by name, and what is missing follows when it is gone.

use serde_json::json;

use super::world::*;

const KYMA: &str = "/api/v1/namespaces/kyma-system";

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_not_written_into() {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    skrs[0].edit(KYMA, |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    world.content.registry("two.example");
    world.publish();
    for kind in ["Installed", "ConfigurationSynchronized"] {
        world
            .until_condition("a", kind, "False NamespaceTerminating")
            .await;
    }
    world
        .until("the other one is written", |_| !skrs[1].take().is_empty())
        .await;
    world.settle().await;
    assert_eq!(skrs[0].take(), [""; 0]);
    skrs[0].edit(KYMA, |it| {
        let metadata = it["metadata"].as_object_mut().unwrap();
        metadata.remove("deletionTimestamp");
    });
    world.until_ready("a").await;
    assert_eq!(skrs[0].take(), [INSTALL[4]]);
}

#[tokio::test]
async fn a_quota_that_leaves_no_room_is_named_and_nothing_requires_what_is_not_there() {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    let refusals = std::iter::repeat_n((INSTALL[2], 403), 100);
    skrs[0].lock().refusals.extend(refusals);
    world.content.password = Some("two");
    world.publish();
    world
        .until_condition("a", "ConfigurationSynchronized", "False WriteFailed")
        .await;
    let conditions = world.status("a")["conditions"].to_string();
    assert!(conditions.contains("a quota is exceeded"), "{conditions}");
    world
        .until("the other one is written", |_| {
            skrs[1].lock().writes == [INSTALL[2], INSTALL[4]]
        })
        .await;
    assert!(skrs[0].take().iter().all(|it| it == INSTALL[2]));
    skrs[0].lock().refusals.clear();
    world.until_ready("a").await;
    let writes = skrs[0].take();
    assert_eq!(writes[writes.len() - 2..], [INSTALL[2], INSTALL[4]]);
}
