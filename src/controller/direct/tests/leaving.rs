//! Tests of resources that a label creates and deletes, and of the objects on their runtimes afterwards.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use api::kcp::SIGNALED_REVISION_ANNOTATION;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::FaultHandle;

use super::env::*;
use crate::runtime_cluster::{BARE, RuntimeCluster};

const MODE: (&str, &str) = ("rt-bootstrapper.kyma-project.io/mode", "direct");

const SIGNAL: &str = "operator.kyma-project.io/force-patch-reconciliation";

/// Returns whether KIM was signaled by label, and by annotation.
fn told(env: &Env, name: &str) -> (bool, bool) {
    let metadata = env.kcp.object("runtimes", name).unwrap()["metadata"].clone();
    let stands = |map: &str| metadata[map][SIGNAL] == "true";
    (stands("labels"), stands("annotations"))
}

/// Returns a Runtime without the fields that a signal changes.
fn unsignalled(env: &Env, name: &str) -> Value {
    let mut runtime = env.kcp.object("runtimes", name).unwrap();
    runtime["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove(SIGNAL);
    for key in ["annotations", "managedFields", "resourceVersion"] {
        runtime["metadata"].as_object_mut().unwrap().remove(key);
    }
    runtime
}

async fn until_gone(env: &Env, name: &str) {
    let gone = |it: &Env| it.kcp.object("runtimebootstrappers", name).is_none();
    env.until("the resource is gone", gone).await;
}

#[tokio::test]
async fn a_deleted_resource_uninstalls_the_webhook_configuration_first() {
    let (env, clusters) = Env::converged(&["a", "b"]).await;
    env.kcp.delete("runtimebootstrappers", "a");
    until_gone(&env, "a").await;
    let writes = clusters[0].take();
    assert_eq!(
        writes[0],
        "delete mutatingwebhookconfigurations rt-bootstrapper"
    );
    assert_eq!(
        writes[1],
        "delete deployments kyma-system/rt-bootstrapper-controller-manager"
    );
    assert_eq!(
        writes.last().unwrap(),
        "delete configmaps kyma-system/rt-bootstrapper-owner"
    );
    assert_eq!(writes.len(), 7, "{writes:?}");
    assert_eq!(clusters[0].inventory(), BARE);
    env.settle().await;
    assert_eq!(clusters[1].take(), [""; 0]);
}

#[tokio::test]
async fn a_resource_that_is_made_again_installs_again() {
    let (env, clusters) = Env::converged(&["a"]).await;
    env.kcp.delete("runtimebootstrappers", "a");
    until_gone(&env, "a").await;
    env.kcp.put(bootstrapper("a", &json!({})));
    env.until_ready("a").await;
    assert!(clusters[0].find(WEBHOOK).is_some());
}

#[tokio::test]
async fn hand_back_leaves_everything_but_what_makes_it_ours() {
    let (env, clusters) = Env::converged(&["a"]).await;
    let policy = json!({"spec": {"deletionPolicy": "Orphan"}});
    env.kcp.merge("runtimebootstrappers", "a", &policy);
    env.settle().await;
    env.kcp.delete("runtimebootstrappers", "a");
    until_gone(&env, "a").await;
    let writes = clusters[0].take();
    assert_eq!(
        writes[0],
        "patch configmaps kyma-system/rt-bootstrapper-config"
    );
    assert_eq!(
        writes.last().unwrap(),
        "delete configmaps kyma-system/rt-bootstrapper-owner"
    );
    let transfers = writes.iter().filter(|it| it.starts_with("patch ")).count();
    assert_eq!((transfers, writes.len()), (6, 7), "{writes:?}");
    for path in [DEPLOYMENT, WEBHOOK, BUNDLE] {
        let metadata = clusters[0].find(path).unwrap()["metadata"].clone();
        assert_eq!(metadata["annotations"], Value::Null, "{path}");
        let owners = metadata["managedFields"].as_array().unwrap();
        assert!(
            owners.iter().all(|it| it["manager"] == "kim-bootstrapper"
                || path == WEBHOOK && it["manager"] == "rt-bootstrapper-webhook"),
            "{owners:?}"
        );
    }
}

#[rstest]
#[case::in_time(3600, false)]
#[case::overdue(0, true)]
#[tokio::test]
async fn an_unreachable_runtime_is_waited_for_until_the_deadline(
    #[case] seconds: u32,
    #[case] goes: bool,
) {
    let (env, clusters) = Env::converged(&["a"]).await;
    let outage = clusters[0].outage(503);
    let deadline = json!({
        "metadata": {"annotations": {"touched": "now"}},
        "spec": {"deletionTimeoutSeconds": seconds},
    });
    env.kcp.merge("runtimebootstrappers", "a", &deadline);
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    env.kcp.delete("runtimebootstrappers", "a");
    if goes {
        until_gone(&env, "a").await;
        env.until("counted", |it| it.metric("deletion_timeouts_total", 1))
            .await;
    } else {
        let tries = outage.hits();
        env.until("tried", |_| outage.hits() > tries + 30).await;
        assert!(env.kcp.object("runtimebootstrappers", "a").is_some());
        // The runtime is reachable again, and its objects are deleted.
        outage.stop();
        until_gone(&env, "a").await;
        assert!(clusters[0].find(WEBHOOK).is_none());
    }
    assert_eq!(clusters[0].find(WEBHOOK).is_some(), goes);
}

/// The timeout passes while no controller runs, and the runtime is not reachable when the next leader starts.
#[tokio::test]
async fn a_leader_tries_for_a_while_before_a_deletion_times_out() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    env.settings.min_deletion_time = Duration::from_secs(3);
    let spec = json!({"spec": {"deletionTimeoutSeconds": 60}});
    env.kcp.merge("runtimebootstrappers", "a", &spec);
    env.settle().await;
    env.stop().await;
    clusters[0].outage(503);
    env.kcp.delete("runtimebootstrappers", "a");
    let earlier = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    env.kcp.merge("runtimebootstrappers", "a", &earlier);
    let began = Instant::now();
    env.start();
    until_gone(&env, "a").await;
    assert!(began.elapsed() >= env.settings.min_deletion_time);
}

/// The controller `signal` has limits, can be paused, and does not let KIM copy an invalid source.
#[tokio::test]
async fn beside_the_controller_signal_an_orphaned_runtime_is_only_marked() {
    let mut env = Env::new();
    env.settings.has_signal = true;
    let _clusters = env.converge(&["a"]).await;
    let policy = json!({"spec": {"deletionPolicy": "Orphan"}});
    env.kcp.merge("runtimebootstrappers", "a", &policy);
    env.settle().await;
    env.kcp.delete("runtimebootstrappers", "a");
    until_gone(&env, "a").await;
    let runtime = env.kcp.object("runtimes", "a").unwrap();
    let annotations = &runtime["metadata"]["annotations"];
    assert_eq!(annotations[SIGNALED_REVISION_ANNOTATION], "stale");
    assert!(!told(&env, "a").0);
}

/// At one signal a second, all reconciles would wait for the rate limit: the other runtime would be ready when all
/// but two are signaled, 24 seconds later.
#[tokio::test]
async fn many_runtimes_that_are_handed_back_do_not_delay_others() {
    let mut env = Env::new();
    // The last signal is sent after 26 seconds.
    env.patience = Duration::from_mins(2);
    env.settings.max_concurrent_reconciles = 2;
    env.settings.signals_per_second = NonZeroU32::MIN;
    let names: Vec<String> = ('a'..='z').map(String::from).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let clusters = env.converge(&names).await;
    for name in &names {
        let policy = json!({"spec": {"deletionPolicy": "Orphan"}});
        env.kcp.merge("runtimebootstrappers", name, &policy);
    }
    env.settle().await;
    for name in &names {
        env.kcp.delete("runtimebootstrappers", name);
    }
    let signaled = |env: &Env| names.iter().filter(|it| told(env, it).0).count();
    env.until("the first is signaled", |env| signaled(env) > 0)
        .await;
    let _cluster = env.add("other").await;
    env.until_ready("other").await;
    assert!(signaled(&env) < names.len() - 2, "{}", signaled(&env));
    for name in &names {
        until_gone(&env, name).await;
        assert!(told(&env, name).0, "{name}");
    }
    drop(clusters);
}

#[tokio::test]
async fn a_deletion_seen_too_late_is_carried_out_all_the_same() {
    let (mut env, clusters) = Env::converged(&["a"]).await;
    let deadline = json!({"spec": {"deletionTimeoutSeconds": 0}});
    env.kcp.merge("runtimebootstrappers", "a", &deadline);
    env.settle().await;
    env.stop().await;
    env.kcp.delete("runtimebootstrappers", "a");
    env.start();
    until_gone(&env, "a").await;
    assert_eq!(clusters[0].inventory(), BARE);
    assert!(env.metric("deletion_timeouts_total", 0));
}

#[tokio::test]
async fn a_resource_whose_runtime_is_gone_is_let_go_at_once() {
    let (env, clusters) = Env::converged(&["a"]).await;
    env.kcp.delete("runtimes", "a");
    env.until_condition("a", "Reachable", "False RuntimeNotFound")
        .await;
    env.kcp.delete("runtimebootstrappers", "a");
    until_gone(&env, "a").await;
    assert_eq!(clusters[0].take(), [""; 0]);
}

#[tokio::test]
async fn finalizer_of_another_client_stays_and_the_runtime_is_not_reconciled_again() {
    let (env, clusters) = Env::converged(&["a"]).await;
    let ours = "rt-bootstrapper.kyma-project.io/finalizer";
    let both = json!({"metadata": {"finalizers": [ours, "example.com/another"]}});
    env.kcp.merge("runtimebootstrappers", "a", &both);
    env.kcp.delete("runtimebootstrappers", "a");
    let left = |it: &Env| {
        let resource = it.kcp.object("runtimebootstrappers", "a").unwrap();
        resource["metadata"]["finalizers"] == json!(["example.com/another"])
    };
    env.until("let go", left).await;
    env.settle().await;
    // A change of the runtime and of its kubeconfig before the resource is deleted does not start a reconcile.
    clusters[0].take();
    env.touch("a");
    env.connect("a", &clusters[0], "first");
    env.settle().await;
    assert_eq!(clusters[0].tokens(), [""; 0]);
}

#[tokio::test]
async fn a_labelled_runtime_is_adopted_and_dismissed_without_its_label() {
    let mut env = Env::new();
    let cluster = RuntimeCluster::new("cluster-a").await;
    let shoot = ("kyma-project.io/shoot-name", "c-1234567");
    env.kcp.put(runtime("a", "id-a", &[MODE, shoot]));
    env.kcp.put(runtime("b", "id-b", &[]));
    env.connect("a", &cluster, "first");
    env.start();
    env.until_ready("a").await;
    let resource = env.kcp.object("runtimebootstrappers", "a").unwrap();
    assert_eq!(resource["spec"]["deletionPolicy"], "Orphan");
    assert_eq!(resource["metadata"]["labels"][shoot.0], shoot.1);
    assert!(env.kcp.object("runtimebootstrappers", "b").is_none());
    cluster.take();
    let label = json!({"metadata": {"labels": {MODE.0: null}}});
    env.kcp.merge("runtimes", "a", &label);
    until_gone(&env, "a").await;
    assert!(cluster.find(WEBHOOK).is_some());
    let marker = cluster.kyma("configmaps/rt-bootstrapper-owner");
    assert!(marker.is_none());
    env.settle().await;
    assert_eq!(env.kcp.count("create runtimebootstrappers"), 1);
}

#[tokio::test]
async fn a_resource_that_a_user_made_is_never_dismissed() {
    let (env, _clusters) = Env::converged(&["a"]).await;
    let label = |value| json!({"metadata": {"labels": {MODE.0: value}}});
    env.kcp.merge("runtimes", "a", &label(json!("direct")));
    env.settle().await;
    env.kcp.merge("runtimes", "a", &label(json!(null)));
    env.settle().await;
    assert_eq!(env.kcp.count("delete"), 0);
    assert_eq!(env.condition("a", "Ready"), "True Ready");
}

/// The sources change while the runtime must not or cannot be written to. Afterwards KIM installs the webhook again.
#[rstest]
#[case::paused(None, "ConfigurationSynchronized", "False Paused")]
#[case::given_up(Some(503), "Reachable", "False APIServerError")]
#[tokio::test]
async fn a_runtime_that_is_handed_back_is_signaled_to_kim(
    #[case] fault: Option<u16>,
    #[case] condition: &str,
    #[case] wanted: &str,
) {
    let (mut env, clusters) = Env::converged(&["a", "b"]).await;
    let before = unsignalled(&env, "a");
    if let Some(status) = fault {
        clusters[0].outage(status);
    }
    let spec = json!({"paused": true, "deletionPolicy": "Orphan", "deletionTimeoutSeconds": 0});
    env.kcp
        .merge("runtimebootstrappers", "a", &json!({"spec": spec}));
    env.until("the spec is observed", |it| {
        it.status("a")["observedGeneration"] == 2
    })
    .await;
    env.content.password = Some("two");
    env.publish();
    env.until("the other one is written", |_| {
        clusters[1].answered(INSTALL[4])
    })
    .await;
    env.until_condition("a", condition, wanted).await;
    env.kcp.delete("runtimebootstrappers", "a");
    until_gone(&env, "a").await;
    assert_eq!(told(&env, "a"), (true, true));
    assert_eq!(unsignalled(&env, "a"), before, "nothing but the signal");
    assert_eq!(told(&env, "b"), (false, false));
}

async fn handing_back(code: u16, seconds: u32) -> (Env, Vec<RuntimeCluster>, FaultHandle) {
    let (env, clusters) = Env::converged(&["a"]).await;
    let spec = json!({"deletionPolicy": "Orphan", "deletionTimeoutSeconds": seconds});
    env.kcp
        .merge("runtimebootstrappers", "a", &json!({"spec": spec}));
    env.settle().await;
    let refusal = env.kcp.fault("patch runtimes").status(code);
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("refused", |_| refusal.hits() > 0).await;
    (env, clusters, refusal)
}

/// If a leader crashes before it signaled KIM, the finalizer remains, and the next leader signals KIM.
#[rstest]
#[case::server_error(500, 0)]
#[case::forbidden(403, 3600)]
#[tokio::test]
async fn the_finalizer_stays_until_kim_is_signaled(#[case] code: u16, #[case] seconds: u32) {
    let (mut env, _clusters, refusal) = handing_back(code, seconds).await;
    env.until("refused again and again", |_| refusal.hits() >= 3)
        .await;
    env.stop().await;
    assert!(env.kcp.object("runtimebootstrappers", "a").is_some());
    refusal.stop();
    env.start();
    until_gone(&env, "a").await;
    assert_eq!(told(&env, "a"), (true, true));
}

#[rstest]
#[case::no_right(403)]
#[case::a_policy_on_runtimes(422)]
#[tokio::test]
async fn a_control_plane_that_rejects_the_signal_does_not_keep_the_resource(#[case] code: u16) {
    let (env, _clusters, _) = handing_back(code, 0).await;
    until_gone(&env, "a").await;
    assert_eq!(told(&env, "a"), (false, false));
}

#[rstest]
#[case::uninstalled("Delete", json!({}))]
#[case::gone_over_again("Orphan", json!({"labels": {MODE.0: MODE.1}}))]
#[case::not_selected("Orphan", json!({"labels": {"plan": "trial"}}))]
#[tokio::test]
async fn a_runtime_outside_signal_mode_is_not_signaled(
    #[case] policy: &str,
    #[case] metadata: Value,
) {
    let mut env = Env::new();
    let trial = kube::core::Expression::NotIn("plan".to_owned(), ["trial".to_owned()].into());
    env.settings.signal_selector = trial.into();
    let clusters = env.converge(&["a"]).await;
    let policy = json!({"spec": {"deletionPolicy": policy}});
    env.kcp.merge("runtimebootstrappers", "a", &policy);
    let metadata = json!({"metadata": metadata});
    env.kcp.merge("runtimes", "a", &metadata);
    env.settle().await;
    let uid = |it: &Env| {
        let resource = it.kcp.object("runtimebootstrappers", "a");
        resource.map(|it| it["metadata"]["uid"].clone())
    };
    let before = uid(&env);
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("let go", |it| uid(it) != before).await;
    env.settle().await;
    assert_eq!(told(&env, "a"), (false, false));
    drop(clusters);
}

/// A forbidden read does not mean that the object is deleted.
#[rstest]
#[case::uninstall("Delete", false)]
#[case::hand_back("Orphan", false)]
#[case::until_the_deadline("Delete", true)]
#[tokio::test]
async fn what_may_not_be_read_is_not_taken_for_gone(#[case] policy: &str, #[case] gives_up: bool) {
    let (env, clusters) = Env::converged(&["a"]).await;
    let spec = json!({"spec": {"deletionPolicy": policy}});
    env.kcp.merge("runtimebootstrappers", "a", &spec);
    env.settle().await;
    let forbidden = clusters[0]
        .fault("get mutatingwebhookconfigurations")
        .status(403);
    env.kcp.delete("runtimebootstrappers", "a");
    env.until_condition("a", "Installed", "False InsufficientPermissions")
        .await;
    let said = env.status("a")["conditions"].to_string();
    let right = "get mutatingwebhookconfigurations.admissionregistration.k8s.io";
    assert!(said.contains(right), "{said}");
    env.more_passes(3).await;
    assert_eq!(clusters[0].take(), [""; 0]);
    assert!(env.kcp.object("runtimebootstrappers", "a").is_some());
    if gives_up {
        let deadline = json!({"spec": {"deletionTimeoutSeconds": 0}});
        env.kcp.merge("runtimebootstrappers", "a", &deadline);
    } else {
        forbidden.stop();
    }
    until_gone(&env, "a").await;
    let marker = clusters[0].kyma("configmaps/rt-bootstrapper-owner");
    assert_eq!(marker.is_some(), gives_up);
    let timeouts = u32::from(gives_up);
    env.until("counted", |it| {
        it.metric("deletion_timeouts_total", timeouts)
    })
    .await;
}
