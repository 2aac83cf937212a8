//! What a runtime's own rules put in the way: it is said by name, and what is missing follows when it is gone.

use std::time::Duration;

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
        .until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
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

const CONTENT_HASH: &str = "rt-bootstrapper.kyma-project.io/content-hash";

/// Everything is refused that begins so, as often as it is tried.
fn refuse(skr: &super::skr::Skr, write: &'static str) {
    let refusals = std::iter::repeat_n((write, 422), 10_000);
    skr.lock().refusals.extend(refusals);
}

/// The configuration is complete, and the webhook configuration, which comes after it, cannot be written.
#[tokio::test]
async fn the_configuration_that_arrived_is_said_although_a_later_write_is_refused() {
    let mut world = World::new();
    world.settings.resync = Duration::from_millis(400);
    let skrs = world.converge(&["a"]).await;
    let skr = &skrs[0];
    let before = world.status("a")["configuration"].clone();
    refuse(skr, INSTALL[6]);
    skr.lock().objects.remove(WEBHOOK);
    world
        .until_condition("a", "Installed", "False ApplyFailed")
        .await;
    skr.take();
    world.content.password = Some("two");
    world.publish();
    world
        .until("tried again with the new document", |_| {
            let writes = &skr.lock().writes;
            let document = writes.iter().position(|it| it == INSTALL[4]);
            document
                .is_some_and(|at| writes[at..].iter().filter(|it| *it == INSTALL[6]).count() >= 3)
        })
        .await;
    assert_eq!(world.condition("a", "Installed"), "False ApplyFailed");
    let said = world.condition("a", "ConfigurationSynchronized");
    assert_eq!(said, "True Synchronized");
    let secret = skr.kyma("secrets/registry-credentials").unwrap();
    let hash = &secret["metadata"]["annotations"][CONTENT_HASH];
    let content = world.status("a")["configuration"].clone();
    assert_eq!(content["pullSecretHash"], *hash);
    assert_ne!(content["pullSecretHash"], before["pullSecretHash"]);
    assert_eq!(content["configMapHash"], before["configMapHash"]);
    assert!(content["revision"].is_string(), "{content}");
    assert_ne!(content["revision"], before["revision"]);
}

/// The pull Secret is new, and the document, which comes after it, cannot be written.
#[tokio::test]
async fn a_configuration_that_arrived_in_part_is_said_as_it_is() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    let skr = &skrs[0];
    let before = world.status("a")["configuration"].clone();
    refuse(skr, INSTALL[4]);
    world.content.password = Some("two");
    world.content.registry("two.example");
    world.publish();
    world
        .until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
    let secret = skr.kyma("secrets/registry-credentials").unwrap();
    let hash = &secret["metadata"]["annotations"][CONTENT_HASH];
    let content = world.status("a")["configuration"].clone();
    assert_eq!(content["pullSecretHash"], *hash);
    assert_eq!(content["configMapHash"], before["configMapHash"]);
    assert!(content["revision"].is_null(), "{content}");
}
