//! What a runtime's own rules put in the way: it is said by name, and what is missing follows when it is gone.

use std::time::Duration;

use serde_json::json;

use super::env::*;

const KYMA: &str = "namespaces kyma-system";

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_not_written_into() {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    clusters[0].change(KYMA, |it| {
        it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    env.content.registry("two.example");
    env.publish();
    for kind in ["Installed", "ConfigurationSynchronized"] {
        env.until_condition("a", kind, "False NamespaceTerminating")
            .await;
    }
    env.until("the other one is written", |_| {
        !clusters[1].take().is_empty()
    })
    .await;
    env.settle().await;
    assert_eq!(clusters[0].take(), [""; 0]);
    clusters[0].change(KYMA, |it| {
        let metadata = it["metadata"].as_object_mut().unwrap();
        metadata.remove("deletionTimestamp");
    });
    env.until_ready("a").await;
    assert_eq!(clusters[0].take(), [INSTALL[4]]);
}

#[tokio::test]
async fn a_quota_that_leaves_no_room_is_named_and_nothing_requires_what_is_not_there() {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    clusters[0].drop_object("secrets kyma-system/registry-credentials");
    clusters[0].behave(|it| it.quota_exceeded = true);
    env.content.password = Some("two");
    env.publish();
    env.until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
    let conditions = env.status("a")["conditions"].to_string();
    assert!(conditions.contains("a quota is exceeded"), "{conditions}");
    env.until("the other one is written", |_| {
        clusters[1].writes() == [INSTALL[2], INSTALL[4]]
    })
    .await;
    assert!(clusters[0].writes().iter().all(|it| it == INSTALL[2]));
    clusters[0].behave(|it| it.quota_exceeded = false);
    env.until_ready("a").await;
    // The write that succeeds can be one that was already sent when the quota was lifted.
    let mut writes = clusters[0].take();
    assert_eq!(writes.pop().as_deref(), Some(INSTALL[4]));
    assert!(!writes.is_empty() && writes.iter().all(|it| it == INSTALL[2]));
}

const CONTENT_HASH: &str = "rt-bootstrapper.kyma-project.io/content-hash";

/// The configuration is complete, and the webhook configuration, which comes after it, cannot be written.
#[tokio::test]
async fn the_configuration_that_arrived_is_said_although_a_later_write_is_refused() {
    let mut env = Env::new();
    env.settings.resync = Duration::from_millis(400);
    let clusters = env.converge(&["a"]).await;
    let cluster = &clusters[0];
    let before = env.status("a")["configuration"].clone();
    cluster.refuse(INSTALL[6], 422);
    cluster.drop_object(WEBHOOK);
    env.until_condition("a", "Installed", "False ApplyFailed")
        .await;
    cluster.take();
    env.content.password = Some("two");
    env.publish();
    env.until("tried again with the new document", |_| {
        let writes = cluster.writes();
        let document = writes.iter().position(|it| it == INSTALL[4]);
        document.is_some_and(|at| writes[at..].iter().filter(|it| *it == INSTALL[6]).count() >= 3)
    })
    .await;
    assert_eq!(env.condition("a", "Installed"), "False ApplyFailed");
    let said = env.condition("a", "ConfigurationSynchronized");
    assert_eq!(said, "True Synchronized");
    let secret = cluster.kyma("secrets/registry-credentials").unwrap();
    let hash = &secret["metadata"]["annotations"][CONTENT_HASH];
    let content = env.status("a")["configuration"].clone();
    assert_eq!(content["pullSecretHash"], *hash);
    assert_ne!(content["pullSecretHash"], before["pullSecretHash"]);
    assert_eq!(content["configMapHash"], before["configMapHash"]);
    assert!(content["revision"].is_string(), "{content}");
    assert_ne!(content["revision"], before["revision"]);
}

/// The pull Secret is new, and the document, which comes after it, cannot be written.
#[tokio::test]
async fn a_configuration_that_arrived_in_part_is_said_as_it_is() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let cluster = &clusters[0];
    let before = env.status("a")["configuration"].clone();
    cluster.refuse(INSTALL[4], 422);
    env.content.password = Some("two");
    env.content.registry("two.example");
    env.publish();
    env.until_condition("a", "ConfigurationSynchronized", "False ApplyFailed")
        .await;
    let secret = cluster.kyma("secrets/registry-credentials").unwrap();
    let hash = &secret["metadata"]["annotations"][CONTENT_HASH];
    let content = env.status("a")["configuration"].clone();
    assert_eq!(content["pullSecretHash"], *hash);
    assert_eq!(content["configMapHash"], before["configMapHash"]);
    assert!(content["revision"].is_null(), "{content}");
}
