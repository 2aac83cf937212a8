//! Tests of the revision of the webhook on runtimes whose step has not started, and of rollbacks.

use std::sync::{Arc, Weak};

use api::bootstrapper::WebhookSettings;
use policy::sync::manifests::Installation;
use policy::sync::rollout::{MaxFailures, Step};
use rstest::rstest;
use serde_json::json;

use super::super::Installations;
use super::env::*;
use super::gates::{NEXT_IMAGE, WEBHOOK_LANE, is_completed, progress, stopped};
use super::manifests::manifests;
use crate::runtime_cluster::RuntimeCluster;

/// Returns the image of the Deployment on a runtime.
fn image(cluster: &RuntimeCluster) -> String {
    let deployment = cluster.find(DEPLOYMENT).unwrap_or_default();
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

async fn until_completed(env: &Env, version: &str) {
    env.until("completed", |it| {
        is_completed(it, WEBHOOK_LANE) && progress(it, WEBHOOK_LANE)["version"] == version
    })
    .await;
}

/// Restarts the controller with the next image.
async fn upgrade(env: &mut Env) {
    until_completed(env, "0.1.0").await;
    env.stop().await;
    env.image = NEXT_IMAGE.to_owned();
    env.start();
}

fn rollback_to(env: &Env, revision: Option<&str>) {
    let key = "rt-bootstrapper.kyma-project.io/rollback";
    let patch = json!({"metadata": {"annotations": {key: revision}}});
    env.kcp
        .merge("runtimebootstrapperrollouts", WEBHOOK_LANE, &patch);
}

#[tokio::test]
async fn a_runtime_that_joins_while_the_rollout_is_stopped_has_the_completed_revision() {
    let mut env = Env::new();
    env.settings.rollouts.webhook.steps = vec![Step::Count(1)];
    env.settings.rollouts.webhook.max_failures = Some(MaxFailures::Count(0));
    let clusters = env.converge(&["a", "b"]).await;
    for cluster in &clusters {
        cluster.refuse(INSTALL[5], 422);
    }
    upgrade(&mut env).await;
    env.until("stopped", |it| {
        stopped(it, WEBHOOK_LANE) == "FailureLimitExceeded"
    })
    .await;
    let joined = env.add("c").await;
    env.until_ready("c").await;
    assert_eq!(image(&joined), "registry.example/webhook:0.1.0");
    // The step of the runtime has not started, so drift is repaired with the previous revision.
    joined.drop_object(WEBHOOK);
    env.touch("c");
    env.until("repaired", |_| joined.find(WEBHOOK).is_some())
        .await;
    assert_eq!(image(&joined), "registry.example/webhook:0.1.0");
}

#[tokio::test]
async fn a_rollback_restores_the_previous_revision_until_the_annotation_is_removed() {
    let mut env = Env::new();
    env.settings.rollouts.webhook.steps = vec![Step::Count(1)];
    let clusters = env.converge(&["a", "b"]).await;
    upgrade(&mut env).await;
    until_completed(&env, "0.2.0").await;
    rollback_to(&env, Some("previous"));
    until_completed(&env, "0.1.0").await;
    for cluster in &clusters {
        assert_eq!(image(cluster), "registry.example/webhook:0.1.0");
    }
    rollback_to(&env, None);
    until_completed(&env, "0.2.0").await;
    for cluster in &clusters {
        assert_eq!(image(cluster), NEXT_IMAGE);
    }
}

/// The next leader has another revision in its flags, and the annotation may be mistyped.
#[rstest]
#[case::previous("previous")]
#[case::unknown("0123")]
#[tokio::test]
async fn a_rollback_keeps_its_revision_until_it_is_complete(#[case] annotation: &str) {
    let mut env = Env::new();
    let clusters = env.converge(&["a"]).await;
    upgrade(&mut env).await;
    until_completed(&env, "0.2.0").await;
    let refused = clusters[0].refuse(INSTALL[5], 422);
    rollback_to(&env, Some("previous"));
    env.until("rolled back", |it| {
        progress(it, WEBHOOK_LANE)["version"] == "0.1.0"
    })
    .await;
    env.stop().await;
    rollback_to(&env, Some(annotation));
    env.image = "registry.example/webhook:0.3.0".to_owned();
    env.start();
    refused.stop();
    until_completed(&env, "0.1.0").await;
    assert_eq!(image(&clusters[0]), "registry.example/webhook:0.1.0");
}

#[tokio::test]
async fn a_rollback_to_an_unknown_revision_changes_nothing() {
    let (env, clusters) = Env::converged(&["a"]).await;
    until_completed(&env, "0.1.0").await;
    rollback_to(&env, Some("0123"));
    env.pass("a").await;
    env.settle().await;
    assert_eq!(clusters[0].take(), [""; 0]);
    assert!(is_completed(&env, WEBHOOK_LANE));
}

/// Each runtime may have settings of its own, and they may change at any time.
#[test]
fn manifests_for_settings_of_single_runtimes_are_kept_within_a_limit() {
    const MAX: usize = 64;
    let defaults = WebhookSettings {
        image: Some("registry.example/webhook:0.1.0".to_owned()),
        ..WebhookSettings::default()
    };
    let mut installations = Installations::new(Arc::new(manifests), defaults).unwrap();
    let current = installations.current();
    let mut made: Vec<Weak<Installation>> = Vec::new();
    for number in 0..5 * MAX {
        let own = WebhookSettings {
            landscape: Some(format!("l{number}")),
            ..WebhookSettings::default()
        };
        let first = installations.of(current, Some(&own)).unwrap();
        let again = installations.of(current, Some(&own)).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "rendered once");
        made.push(Arc::downgrade(&first));
        drop((first, again));
        let kept = made.iter().filter(|it| it.strong_count() > 0).count();
        assert!(kept <= MAX, "{kept} after {number}");
        assert!(kept > 0);
    }
}
