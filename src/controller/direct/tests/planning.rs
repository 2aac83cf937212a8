//! Tests that compare the plan of one runtime with the writes of the controller. A plan does not write.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prometheus_client::registry::Registry;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Recorded};

use super::super::*;
use super::env::*;
use super::gates::{CONFIGURATION_LANE, WEBHOOK_LANE, is_completed};
use crate::clients::{ClientMetrics, ClientOptions};
use crate::runtime_cluster::RuntimeCluster;

/// Creates the sources of the test on KCP, and sets the identity of KCP, which salts their hashes.
fn put_sources(env: &Env) {
    env.kcp.edit("namespaces", ("", "kube-system"), |it| {
        it["metadata"]["uid"] = json!("kcp-uid");
    });
    let auth = STANDARD.encode(format!("user:{}", env.content.password.unwrap()));
    let docker = json!({"auths": {"registry.example": {"auth": auth}}}).to_string();
    env.kcp.put(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": STANDARD.encode(docker)},
    }));
    env.kcp.put(json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "roots"}, "spec": {"trustBundle": env.content.roots},
    }));
    env.kcp.put(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config"},
        "data": {"rt-bootstrapper-config.json": env.content.document},
    }));
}

async fn planned(env: &Env, name: &str) -> Result<RuntimePlan, PlanError> {
    let metrics = ClientMetrics::register(&mut Registry::default());
    let fleet = ClientOptions {
        allow_loopback: true,
        connect_timeout: env.connect_timeout,
        ..ClientOptions::default()
    };
    let options = PlanOptions {
        client: env.kcp.client(),
        settings: env.settings.clone(),
        sources: env.content.names.clone(),
        fleet: RuntimeClients::new(fleet, metrics),
        installations: env.installations(),
    };
    plan_runtime(options, name).await
}

/// Returns the plan. Checks that every request was a read or a review of the controller's permissions. No controller
/// runs meanwhile, because its writes would count as writes of the plan.
async fn plan(env: &Env, cluster: &RuntimeCluster, name: &str) -> RuntimePlan {
    env.kcp.take_requests();
    cluster.take_requests();
    let plan = planned(env, name).await.unwrap();
    let reads_only = |server: &ApiServer| {
        for Recorded { asked, .. } in server.requests() {
            let is_review = asked.verb == "create" && asked.resource.starts_with("selfsubject");
            // Discovery has no verb.
            let is_read = matches!(asked.verb, "" | "get" | "list");
            assert!(is_read || is_review, "{asked}");
        }
    };
    reads_only(&env.kcp);
    reads_only(cluster);
    assert!(env.kcp.requests().len() >= 2);
    plan
}

/// Returns the writes of a plan in the format of [`Recorded`].
fn writes(plan: &RuntimePlan) -> Vec<String> {
    let lanes = plan.lanes.iter().flat_map(|it| &it.steps);
    let steps = plan.common.iter().chain(lanes);
    let text = steps.flatten().map(|it| {
        let verb = match it.action {
            // Only the marker must not exist before. All other new objects are created by an apply.
            "create" if it.name == "rt-bootstrapper-owner" => "create",
            "create" | "apply" => "apply",
            "transfer" | "remove-fields" => "patch",
            verb => verb,
        };
        let namespace = it.namespace.as_deref();
        let namespace = namespace.map_or_else(String::new, |it| format!("{it}/"));
        format!("{verb} {}s {namespace}{}", it.kind.to_lowercase(), it.name)
    });
    let mut all: Vec<String> = text.collect();
    all.sort_unstable();
    all
}

/// Waits until the controller has written the planned objects. Checks that it writes no other object.
async fn until_written(env: &Env, cluster: &RuntimeCluster, plan: &RuntimePlan) {
    let written = || {
        let requests = cluster.requests().into_iter();
        let writes = requests.filter(Recorded::is_write);
        let mut all: Vec<String> = writes.map(|it| it.asked.to_string()).collect();
        all.sort_unstable();
        all
    };
    let planned = writes(plan);
    env.until("the writes", |_| written().len() >= planned.len())
        .await;
    // The first one may have started before the last write.
    for _ in 0..2 {
        env.touch("a");
        env.more_passes(1).await;
    }
    assert_eq!(written(), planned, "{}", env.status("a"));
}

fn condition(plan: &RuntimePlan, kind: &str) -> String {
    let found = plan.conditions.iter().find(|it| it.kind == kind).unwrap();
    format!("{:?} {}", found.status, found.reason)
}

fn fields<'p>(plan: &'p RuntimePlan, kind: &str) -> &'p [String] {
    let steps = plan.lanes.iter().flat_map(|it| &it.steps);
    let found = steps.flatten().find(|it| it.kind == kind);
    &found
        .unwrap_or_else(|| panic!("no {kind} in {plan:#?}"))
        .fields
}

#[tokio::test]
async fn plan_of_a_new_runtime_is_what_the_controller_then_writes() {
    let mut env = Env::new();
    let cluster = env.add("a").await;
    put_sources(&env);
    cluster.stop_rollouts();
    let plan = plan(&env, &cluster, "a").await;
    assert!(plan.writes() && !plan.is_blocked(), "{plan:#?}");
    assert_eq!((plan.goal, plan.unmanaged), (Some("Sync"), None));
    assert_eq!(plan.runtime_id.as_deref(), Some("id-a"));
    assert_eq!(plan.cluster_uid.as_deref(), Some("cluster-a"));
    assert_eq!(plan.kcp, ["add the finalizer to RuntimeBootstrapper a"]);
    assert_eq!(condition(&plan, "Installed"), "False Installing");
    assert_eq!(
        condition(&plan, "ConfigurationSynchronized"),
        "True Synchronized"
    );
    let text = serde_json::to_string(&plan).unwrap();
    let user = STANDARD.encode("user:");
    for secret in ["dXNlcjpvbm", user.as_str(), "BEGIN", "one.example", "first"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }

    env.start();
    until_written(&env, &cluster, &plan).await;
}

#[tokio::test]
async fn plan_of_a_synchronized_runtime_is_empty_and_that_of_a_changed_one_names_fields() {
    let mut env = Env::new();
    put_sources(&env);
    let clusters = env.converge(&["a"]).await;
    let cluster = &clusters[0];
    for lane in [CONFIGURATION_LANE, WEBHOOK_LANE] {
        env.until("the rollout is completed", |it| is_completed(it, lane))
            .await;
    }
    env.stop().await;
    let before = plan(&env, cluster, "a").await;
    assert!(!before.writes() && !before.is_blocked(), "{before:#?}");
    assert_eq!(condition(&before, "Ready"), "True Ready");
    assert!(before.held.is_empty() && before.rollouts.is_empty());

    env.content.password = Some("two");
    put_sources(&env);
    cluster.change(DEPLOYMENT, |it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other:1");
    });
    cluster.drop_object("serviceaccounts kyma-system/rt-bootstrapper");
    let after = plan(&env, cluster, "a").await;
    assert!(after.writes());
    let secret = fields(&after, "Secret");
    let expected = [
        "data[\".dockerconfigjson\"]",
        "metadata.annotations[\"rt-bootstrapper.kyma-project.io/content-hash\"]",
    ];
    assert_eq!(secret, expected);
    let image = ["spec.template.spec.containers[manager].image"];
    assert_eq!(fields(&after, "Deployment"), image);
    let all = after.lanes.iter().flat_map(|it| &it.steps).flatten();
    let created: Vec<&str> = all
        .clone()
        .filter(|it| it.action == "create")
        .map(|it| it.kind)
        .collect();
    assert_eq!(created, ["ServiceAccount"]);
    let secret = all.clone().find(|it| it.kind == "Secret").unwrap();
    assert!(secret.current_hash.is_some() && secret.desired_hash.is_some());
    assert_ne!(secret.current_hash, secret.desired_hash);

    env.publish();
    env.start();
    until_written(&env, cluster, &after).await;
}

/// The webhook keeps the right to the pull Secret of the previous document.
#[tokio::test]
async fn plan_for_an_invalid_document_takes_no_permission_away() {
    let mut env = Env::new();
    let document = json!({"overrides": {}, "imagePullSecret": {"name": "theirs"}});
    env.content.document = Some(document.to_string());
    env.publish();
    put_sources(&env);
    let clusters = env.converge(&["a"]).await;
    for lane in [CONFIGURATION_LANE, WEBHOOK_LANE] {
        env.until("the rollout is completed", |it| is_completed(it, lane))
            .await;
    }
    env.stop().await;
    env.content.document = Some("{".to_owned());
    put_sources(&env);
    let plan = plan(&env, &clusters[0], "a").await;
    let configuration = condition(&plan, "ConfigurationSynchronized");
    assert_eq!(configuration, "False InvalidSource");
    assert_eq!(writes(&plan), [""; 0]);
}

#[tokio::test]
async fn paused_runtime_has_a_plan_whose_writes_wait() {
    let env = Env::new();
    let cluster = env.add("a").await;
    put_sources(&env);
    env.kcp.put(bootstrapper("a", &json!({"paused": true})));
    let plan = plan(&env, &cluster, "a").await;
    assert_eq!(plan.withheld, Some("spec.paused is true"));
    assert!(plan.writes());
    assert_eq!(
        condition(&plan, "ConfigurationSynchronized"),
        "False Paused"
    );
}

#[tokio::test]
async fn paused_rollout_is_named() {
    let env = Env::new();
    let cluster = env.add("a").await;
    put_sources(&env);
    env.kcp.put(json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapperRollout",
        "metadata": {"name": "webhook"}, "spec": {"paused": true},
    }));
    let plan = plan(&env, &cluster, "a").await;
    assert_eq!(plan.rollouts, ["webhook: spec.paused is true"]);
}

#[tokio::test]
async fn deleted_source_is_held_until_its_grace_period_ends_and_the_state_is_not_written() {
    let mut env = Env::new();
    put_sources(&env);
    let clusters = env.converge(&["a"]).await;
    env.stop().await;
    env.settings.deletion_grace = Duration::from_hours(1);
    env.kcp.delete("secrets", "pull");
    let state = env.kcp.object("configmaps", DIRECT_STATE);
    let plan = plan(&env, &clusters[0], "a").await;
    assert!(!plan.writes(), "{plan:#?}");
    assert!(
        plan.held[0].contains("was deleted on KCP"),
        "{:?}",
        plan.held
    );
    assert_eq!(state, env.kcp.object("configmaps", DIRECT_STATE));

    env.settings.deletion_grace = Duration::ZERO;
    let plan = self::plan(&env, &clusters[0], "a").await;
    let removal = "delete secrets kyma-system/registry-credentials".to_owned();
    assert!(writes(&plan).contains(&removal), "{plan:#?}");
}

/// The cluster belongs to another runtime, or the credentials are rejected: no object is written.
#[rstest]
#[case::identity("id-b", "first", "OwnershipConflict")]
#[case::credentials("id-a", "other", "Unauthorized")]
#[tokio::test]
async fn runtime_that_must_not_be_written_to_is_blocked(
    #[case] owner: &str,
    #[case] token: &str,
    #[case] reason: &str,
) {
    let env = Env::new();
    let cluster = env.add("a").await;
    put_sources(&env);
    cluster.put(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rt-bootstrapper-owner", "namespace": "kyma-system"},
        "data": {"runtimeID": owner, "controlPlaneID": salt().control_plane()},
    }));
    env.connect("a", &cluster, token);
    let plan = plan(&env, &cluster, "a").await;
    assert!(plan.is_blocked() && plan.blocked.is_some(), "{plan:#?}");
    assert!(writes(&plan).is_empty());
    let ready = condition(&plan, "Ready");
    assert!(ready.ends_with(reason), "{ready}");
}

#[tokio::test]
async fn cluster_of_another_runtime_is_recognized_by_the_status_of_that_one() {
    let mut env = Env::new();
    put_sources(&env);
    let clusters = env.converge(&["a"]).await;
    env.stop().await;
    env.kcp.put(runtime("b", "id-b", &[]));
    env.kcp.put(bootstrapper("b", &json!({})));
    env.connect("b", &clusters[0], "first");
    clusters[0].drop_object("configmaps kyma-system/rt-bootstrapper-owner");
    let plan = plan(&env, &clusters[0], "b").await;
    assert!(condition(&plan, "IdentityVerified").ends_with("ClusterAlreadyManaged"));
}

#[tokio::test]
async fn runtime_without_a_resource_is_planned_only_if_the_controller_creates_one() {
    let env = Env::new();
    let cluster = RuntimeCluster::new("cluster-a").await;
    put_sources(&env);
    env.connect("a", &cluster, "first");
    env.kcp.put(runtime("a", "id-a", &[]));
    let other = plan(&env, &cluster, "a").await;
    assert!(other.unmanaged.is_some() && !other.writes(), "{other:#?}");

    let mode = ("rt-bootstrapper.kyma-project.io/mode", "direct");
    env.kcp.put(runtime("a", "id-a", &[mode]));
    let adopted = plan(&env, &cluster, "a").await;
    assert_eq!(adopted.kcp, ["create RuntimeBootstrapper a"]);
    assert!(writes(&adopted).len() > 4, "{adopted:#?}");
    assert!(env.kcp.object("runtimebootstrappers", "a").is_none());

    let error = planned(&env, "c").await.unwrap_err().to_string();
    assert!(error.contains("kcp-system/c not found"), "{error}");
}

#[tokio::test]
async fn deleted_resource_is_planned_with_its_deletion_policy() {
    let mut env = Env::new();
    put_sources(&env);
    let clusters = env.converge(&["a"]).await;
    env.stop().await;
    env.kcp.delete("runtimebootstrappers", "a");
    let plan = plan(&env, &clusters[0], "a").await;
    assert_eq!(plan.goal, Some("Delete"));
    let deletion = "delete mutatingwebhookconfigurations rt-bootstrapper".to_owned();
    assert!(writes(&plan).contains(&deletion), "{plan:#?}");
    let _: Value = serde_json::to_value(&plan).unwrap();
}
