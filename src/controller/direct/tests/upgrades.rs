//! Tests of upgrades of the webhook in steps: the order of runtimes, lost permissions, and the revisions that are kept.

use api::kcp::WAVE_LABEL;
use policy::sync::rollout::Step;
use rstest::rstest;
use serde_json::json;
use testkit::apiserver::Rights;

use super::env::*;
use super::gates::{
    NEXT_IMAGE, WEBHOOK_LANE, count, is_completed, one_by_one, pause, progress, set_paused, stopped,
};
use crate::runtime_cluster::RuntimeCluster;

/// Waits until the first rollout of the webhook is completed.
async fn until_completed(env: &Env) {
    env.until("the first rollout is completed", |it| {
        is_completed(it, WEBHOOK_LANE)
    })
    .await;
}

/// Restarts the controller with the next image when the rollout of the first image is completed.
async fn upgrade(env: &mut Env) {
    until_completed(env).await;
    env.stop().await;
    NEXT_IMAGE.clone_into(&mut env.image);
    env.start();
}

/// Returns the names of the ControllerRevisions in the completed requests with this verb.
fn revisions(env: &Env, verb: &str) -> Vec<String> {
    let mut requests = env.kcp.requests_of(&format!("{verb} controllerrevisions"));
    requests.retain(|it| it.end.is_some());
    requests.into_iter().map(|it| it.asked.name).collect()
}

#[tokio::test]
async fn old_revisions_that_no_rollout_needs_are_deleted() {
    // With the first revision, there are two more revisions than the ten newest ones, which are always kept.
    const CHANGES: usize = 11;
    let (mut env, _clusters) = Env::converged(&["a"]).await;
    // The API server returns a list without a limit in one page.
    env.kcp.behave(|it| it.page = usize::MAX);
    until_completed(&env).await;
    // The first revision remains the completed revision.
    pause(&env, WEBHOOK_LANE).await;
    for number in 1..=CHANGES {
        env.stop().await;
        env.image = format!("registry.example/webhook:0.2.{number}");
        env.start();
        env.until("the revision is stored", |it| {
            revisions(it, "create").len() == number + 1
        })
        .await;
    }
    env.until("a deletion", |it| !revisions(it, "delete").is_empty())
        .await;
    env.settle().await;
    let created = revisions(&env, "create");
    assert_eq!(revisions(&env, "delete"), [created[1].as_str()]);
    let exists = |name: &&String| env.kcp.object("controllerrevisions", name).is_some();
    let kept = created.iter().filter(exists).count();
    assert_eq!(kept, CHANGES, "the completed one and all newer ones");
}

/// Returns permissions for all objects of the configuration, and for some objects of the webhook.
fn without_service_accounts() -> Rights {
    let role = json!({"kind": "ClusterRole", "rules": [
        {"apiGroups": [""], "resources": ["namespaces", "secrets", "configmaps"], "verbs": ["*"]},
        {"apiGroups": ["apps", "admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    ]});
    Rights::of_roles([&role])
}

/// Returns two runtimes with the webhook. An upgrade is rolled out to one runtime after the other, and no failure is allowed.
async fn with_webhook_steps() -> (Env, Vec<RuntimeCluster>) {
    let mut env = Env::new();
    env.settings.rollouts.webhook = one_by_one(&env.settings.rollouts.webhook, 0);
    let clusters = env.converge(&["a", "b"]).await;
    (env, clusters)
}

#[rstest]
#[case::of_the_webhook(without_service_accounts())]
#[case::all(Rights::with_verbs(&[]))]
#[tokio::test]
async fn permissions_that_are_lost_after_a_write_are_a_failure(#[case] left: Rights) {
    let (mut env, clusters) = with_webhook_steps().await;
    clusters[0].stop_rollouts();
    upgrade(&mut env).await;
    env.until("written", |_| clusters[0].answered(INSTALL[5]))
        .await;
    clusters[0].behave(|it| it.rights = left);
    env.until("stopped", |it| {
        stopped(it, WEBHOOK_LANE) == "FailureLimitExceeded"
    })
    .await;
    let failed = progress(&env, WEBHOOK_LANE)["failedRuntimes"].clone();
    assert_eq!(failed, json!(["a"]));
    assert_eq!(clusters[1].take(), [""; 0]);
    clusters[0].behave(|it| it.rights = Rights::default());
    clusters[0].roll_out();
    env.until("the second step", |_| clusters[1].answered(INSTALL[5]))
        .await;
}

#[tokio::test]
async fn permissions_that_are_lost_before_a_write_stop_no_rollout() {
    let (mut env, clusters) = with_webhook_steps().await;
    clusters[0].behave(|it| it.rights = without_service_accounts());
    upgrade(&mut env).await;
    env.until("the second step", |_| clusters[1].answered(INSTALL[5]))
        .await;
    env.until("the first one is skipped", |it| {
        count(it, WEBHOOK_LANE, "unreachable") == 1 && count(it, WEBHOOK_LANE, "done") == 1
    })
    .await;
    assert_eq!(stopped(&env, WEBHOOK_LANE), "");
    assert_eq!(clusters[0].take(), [""; 0]);
}

/// The earlier version serves until the rollout ends. The managed fields are only read if another client owns some.
#[rstest]
#[tokio::test]
async fn a_match_condition_of_the_earlier_version_stays_until_the_next_one_is_rolled_out(
    #[values(false, true)] has_other_manager: bool,
) {
    let mut env = Env::new();
    env.image = format!("registry.example/webhook:{VERSION_WITH_CONDITION}");
    let clusters = env.converge(&["a"]).await;
    let conditions = || {
        let webhook = clusters[0].find(WEBHOOK).unwrap_or_default();
        webhook["webhooks"][0]["matchConditions"].clone()
    };
    let earlier = conditions();
    assert_eq!(earlier[0]["name"], "earlier");
    if has_other_manager {
        clusters[0].change(WEBHOOK, |it| {
            it["metadata"]["labels"] = json!({"team": "a"});
            let managers = it["metadata"]["managedFields"].as_array_mut();
            managers.unwrap().push(json!({
                "manager": "kubectl", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}},
            }));
        });
    }
    clusters[0].stop_rollouts();
    upgrade(&mut env).await;
    env.until("the Deployment is written", |_| {
        clusters[0].answered(INSTALL[5])
    })
    .await;
    // The controller repeatedly observes the Deployment.
    env.more_passes(10).await;
    assert_eq!(conditions(), earlier);
    clusters[0].roll_out();
    env.until("it is removed", |_| conditions() != earlier)
        .await;
}

/// Nothing of the upgrade was written there.
#[tokio::test]
async fn runtime_that_is_lost_while_its_credentials_are_written_stops_no_rollout() {
    let (mut env, clusters) = with_webhook_steps().await;
    until_completed(&env).await;
    env.stop().await;
    NEXT_IMAGE.clone_into(&mut env.image);
    env.content.password = Some("two");
    env.publish();
    // No other request is sent then, for a second.
    let secret = clusters[0].fault(INSTALL[2]).status_after(429, 1);
    env.start();
    env.until("the Secret is written", |_| secret.hits() > 0)
        .await;
    let _outage = clusters[0].outage(503);
    env.until("the second step", |_| clusters[1].answered(INSTALL[5]))
        .await;
    env.until("the first one is skipped", |it| {
        count(it, WEBHOOK_LANE, "unreachable") == 1
    })
    .await;
    assert_eq!(stopped(&env, WEBHOOK_LANE), "");
}

/// Until then the webhook reads the ConfigMap by its earlier name.
#[tokio::test]
async fn names_that_change_with_a_flag_reach_a_runtime_together_with_its_webhook() {
    const EARLIER: &str = "configmaps/rt-bootstrapper-config";
    const LATER: &str = "configmaps/our-config";
    let mut env = Env::new();
    env.webhook.config_map_name = Some("rt-bootstrapper-config".to_owned());
    env.settings.rollouts.webhook = one_by_one(&env.settings.rollouts.webhook, 0);
    let clusters = env.converge(&["a", "b"]).await;
    until_completed(&env).await;
    env.stop().await;
    NEXT_IMAGE.clone_into(&mut env.image);
    env.webhook.config_map_name = Some("our-config".to_owned());
    "our-config".clone_into(&mut env.settings.names.configuration);
    clusters[0].stop_rollouts();
    env.start();
    env.until("the first step", |_| clusters[0].answered(INSTALL[5]))
        .await;
    env.content.registry("two.example");
    env.publish();
    let names_it = |cluster: &RuntimeCluster, name| {
        let document = cluster.kyma(name).unwrap_or_default();
        document.to_string().contains("two.example")
    };
    env.until("both webhooks can read the change", |_| {
        names_it(&clusters[0], LATER) && names_it(&clusters[1], EARLIER)
    })
    .await;
    assert_eq!(clusters[1].kyma(LATER), None);
    clusters[0].roll_out();
    env.until("the second step", |_| clusters[1].answered(INSTALL[5]))
        .await;
    assert!(names_it(&clusters[1], LATER));
}

/// Sets the wave of a Runtime, and waits until the controller has the new order.
async fn set_wave(env: &Env, name: &str, wave: &str) {
    env.settle().await;
    let passes = env.passes();
    let patch = json!({"metadata": {"labels": {WAVE_LABEL: wave}}});
    env.kcp.merge("runtimes", name, &patch);
    env.until("a reconcile", |it| it.passes() > passes).await;
}

/// By name, runtime `a` would start first.
#[rstest]
#[case::lower_wave(["2", "1"], None)]
#[case::relabelled_before_its_start(["1", "2"], Some("3"))]
#[tokio::test]
async fn the_runtime_with_the_lower_wave_starts_first(
    #[case] waves: [&str; 2],
    #[case] relabelled: Option<&str>,
) {
    let mut env = Env::new();
    env.settings.rollouts.webhook.steps = vec![Step::Count(1), Step::Percent(100)];
    let clusters = env.converge(&["a", "b"]).await;
    for (name, wave) in ["a", "b"].iter().zip(waves) {
        set_wave(&env, name, wave).await;
    }
    until_completed(&env).await;
    pause(&env, WEBHOOK_LANE).await;
    upgrade(&mut env).await;
    env.until("the rollout is known", |it| {
        progress(it, WEBHOOK_LANE)["version"] == "0.2.0"
    })
    .await;
    if let Some(wave) = relabelled {
        set_wave(&env, "a", wave).await;
    }
    clusters[1].stop_rollouts();
    set_paused(&env, WEBHOOK_LANE, false);
    env.until("the second runtime", |_| clusters[1].answered(INSTALL[5]))
        .await;
    // The controller repeatedly observes the Deployment.
    env.more_passes(10).await;
    assert!(!clusters[0].answered(INSTALL[5]));
    clusters[1].roll_out();
    env.until("the first runtime", |_| clusters[0].answered(INSTALL[5]))
        .await;
}
