//! Resources that come and go by label, and what becomes of their runtimes.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::*;

const MODE: (&str, &str) = ("rt-bootstrapper.kyma-project.io/mode", "direct");

const SIGNAL: &str = "operator.kyma-project.io/force-patch-reconciliation";

/// Whether today's manager was told: by label, by annotation.
fn told(world: &World, name: &str) -> (bool, bool) {
    let metadata = world.kcp.get("runtimes", name).unwrap()["metadata"].clone();
    let stands = |map: &str| metadata[map][SIGNAL] == "true";
    (stands("labels"), stands("annotations"))
}

/// A Runtime without what may be signalled on it.
fn unsignalled(world: &World, name: &str) -> Value {
    let mut runtime = world.kcp.get("runtimes", name).unwrap();
    runtime["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove(SIGNAL);
    for key in ["annotations", "resourceVersion"] {
        runtime["metadata"].as_object_mut().unwrap().remove(key);
    }
    runtime
}

async fn until_gone(world: &World, name: &str) {
    let gone = |it: &World| it.kcp.get("runtimebootstrappers", name).is_none();
    world.until("the resource is gone", gone).await;
}

#[tokio::test]
async fn a_deleted_resource_uninstalls_the_webhook_configuration_first() {
    let (world, skrs) = World::converged(&["a", "b"]).await;
    world.kcp.delete("runtimebootstrappers", "a");
    until_gone(&world, "a").await;
    let writes = skrs[0].take();
    assert_eq!(
        writes[0],
        "delete MutatingWebhookConfiguration/rt-bootstrapper"
    );
    assert_eq!(
        writes[1],
        "delete Deployment/rt-bootstrapper-controller-manager"
    );
    assert_eq!(writes[2], "delete ServiceAccount/rt-bootstrapper");
    assert_eq!(
        writes.last().unwrap(),
        "delete ConfigMap/rt-bootstrapper-owner"
    );
    assert_eq!(writes.len(), 7, "{writes:?}");
    // The two namespaces are all that is left.
    assert_eq!(skrs[0].lock().objects.len(), 2);
    world.settle().await;
    assert_eq!(skrs[1].take(), [""; 0]);
}

#[tokio::test]
async fn a_resource_that_is_made_again_installs_again() {
    let (world, skrs) = World::converged(&["a"]).await;
    world.kcp.delete("runtimebootstrappers", "a");
    until_gone(&world, "a").await;
    world
        .kcp
        .put("runtimebootstrappers", bootstrapper("a", &json!({})));
    world.until_ready("a").await;
    assert!(skrs[0].get(WEBHOOK).is_some());
}

#[tokio::test]
async fn hand_back_leaves_everything_but_what_makes_it_ours() {
    let (world, skrs) = World::converged(&["a"]).await;
    let policy = json!({"spec": {"deletionPolicy": "Orphan"}});
    world.kcp.merge("runtimebootstrappers", "a", &policy);
    world.settle().await;
    world.kcp.delete("runtimebootstrappers", "a");
    until_gone(&world, "a").await;
    let writes = skrs[0].take();
    assert_eq!(writes[0], "transfer ConfigMap/rt-bootstrapper-config");
    assert_eq!(
        writes.last().unwrap(),
        "delete ConfigMap/rt-bootstrapper-owner"
    );
    let transfers = writes
        .iter()
        .filter(|it| it.starts_with("transfer "))
        .count();
    assert_eq!((transfers, writes.len()), (6, 7), "{writes:?}");
    for path in [DEPLOYMENT, WEBHOOK, BUNDLE] {
        let metadata = skrs[0].get(path).unwrap()["metadata"].clone();
        assert_eq!(metadata["annotations"], json!({}), "{path}");
        assert_eq!(metadata["managedFields"][0]["manager"], "kim-bootstrapper");
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
    let (world, skrs) = World::converged(&["a"]).await;
    skrs[0].lock().fault = Some((503, 0));
    let deadline = json!({
        "metadata": {"annotations": {"touched": "now"}},
        "spec": {"deletionTimeoutSeconds": seconds},
    });
    world.kcp.merge("runtimebootstrappers", "a", &deadline);
    world
        .until_condition("a", "Reachable", "False APIServerError")
        .await;
    world.kcp.delete("runtimebootstrappers", "a");
    if goes {
        until_gone(&world, "a").await;
        assert!(world.metrics().contains("deletion_timeouts_total 1"));
    } else {
        let tries = skrs[0].lock().faults.len();
        world
            .until("tried", |_| skrs[0].lock().faults.len() > tries + 30)
            .await;
        assert!(world.kcp.get("runtimebootstrappers", "a").is_some());
        // It comes back, and is cleaned up.
        skrs[0].lock().fault = None;
        until_gone(&world, "a").await;
        assert!(skrs[0].get(WEBHOOK).is_none());
    }
    assert_eq!(skrs[0].get(WEBHOOK).is_some(), goes);
}

#[tokio::test]
async fn a_deletion_seen_too_late_is_carried_out_all_the_same() {
    let (mut world, skrs) = World::converged(&["a"]).await;
    let deadline = json!({"spec": {"deletionTimeoutSeconds": 0}});
    world.kcp.merge("runtimebootstrappers", "a", &deadline);
    world.settle().await;
    world.stop().await;
    world.kcp.delete("runtimebootstrappers", "a");
    world.start();
    until_gone(&world, "a").await;
    assert_eq!(skrs[0].lock().objects.len(), 2);
    assert!(world.metrics().contains("deletion_timeouts_total 0"));
}

#[tokio::test]
async fn a_resource_whose_runtime_is_gone_is_let_go_at_once() {
    let (world, skrs) = World::converged(&["a"]).await;
    world.kcp.delete("runtimes", "a");
    world
        .until_condition("a", "Reachable", "False RuntimeNotFound")
        .await;
    world.kcp.delete("runtimebootstrappers", "a");
    until_gone(&world, "a").await;
    assert_eq!(skrs[0].take(), [""; 0]);
}

#[tokio::test]
async fn somebody_elses_finalizer_stays_and_we_are_done_once() {
    let (world, skrs) = World::converged(&["a"]).await;
    let ours = "rt-bootstrapper.kyma-project.io/finalizer";
    let both = json!({"metadata": {"finalizers": [ours, "example.com/another"]}});
    world.kcp.merge("runtimebootstrappers", "a", &both);
    world.kcp.delete("runtimebootstrappers", "a");
    let left = |it: &World| {
        let resource = it.kcp.get("runtimebootstrappers", "a").unwrap();
        resource["metadata"]["finalizers"] == json!(["example.com/another"])
    };
    world.until("let go", left).await;
    world.settle().await;
    // Today's installer comes back before the resource has gone.
    skrs[0].lock().tokens.clear();
    let touch = json!({"metadata": {"annotations": {"touched": "now"}}});
    world.kcp.merge("runtimebootstrappers", "a", &touch);
    world.connect("a", &skrs[0], "first");
    world.settle().await;
    assert_eq!(skrs[0].lock().tokens, [""; 0]);
}

#[tokio::test]
async fn a_labelled_runtime_is_adopted_and_dismissed_without_its_label() {
    let mut world = World::new();
    let skr = super::skr::Skr::new("cluster-a").await;
    world.kcp.put("runtimes", runtime("a", "id-a", &[MODE]));
    world.kcp.put("runtimes", runtime("b", "id-b", &[]));
    world.connect("a", &skr, "first");
    world.start();
    world.until_ready("a").await;
    let resource = world.kcp.get("runtimebootstrappers", "a").unwrap();
    assert_eq!(resource["spec"]["deletionPolicy"], "Orphan");
    assert!(world.kcp.get("runtimebootstrappers", "b").is_none());
    skr.take();
    let label = json!({"metadata": {"labels": {MODE.0: null}}});
    world.kcp.merge("runtimes", "a", &label);
    until_gone(&world, "a").await;
    assert!(skr.get(WEBHOOK).is_some());
    let marker = skr.kyma("configmaps/rt-bootstrapper-owner");
    assert!(marker.is_none());
    world.settle().await;
    assert_eq!(world.written("create runtimebootstrappers"), 1);
}

#[tokio::test]
async fn a_resource_that_a_user_made_is_never_dismissed() {
    let (world, _skrs) = World::converged(&["a"]).await;
    let label = |value| json!({"metadata": {"labels": {MODE.0: value}}});
    world.kcp.merge("runtimes", "a", &label(json!("direct")));
    world.settle().await;
    world.kcp.merge("runtimes", "a", &label(json!(null)));
    world.settle().await;
    assert_eq!(world.written("delete "), 0);
    assert_eq!(world.condition("a", "Ready"), "True Ready");
}

/// The sources change while the runtime may not or cannot be written, and then it is the manager's again.
#[rstest]
#[case::paused(None, "ConfigurationSynchronized", "False Paused")]
#[case::given_up(Some((503, 0)), "Reachable", "False APIServerError")]
#[tokio::test]
async fn a_runtime_that_is_handed_back_is_told_to_the_manager(
    #[case] fault: Option<(u16, u32)>,
    #[case] condition: &str,
    #[case] wanted: &str,
) {
    let (mut world, skrs) = World::converged(&["a", "b"]).await;
    let before = unsignalled(&world, "a");
    skrs[0].lock().fault = fault;
    let spec = json!({"paused": true, "deletionPolicy": "Orphan", "deletionTimeoutSeconds": 0});
    world
        .kcp
        .merge("runtimebootstrappers", "a", &json!({"spec": spec}));
    world.settle().await;
    world.content.password = Some("two");
    world.publish();
    world.until_condition("a", condition, wanted).await;
    world.kcp.delete("runtimebootstrappers", "a");
    until_gone(&world, "a").await;
    assert_eq!(told(&world, "a"), (true, true));
    assert_eq!(unsignalled(&world, "a"), before, "nothing but the signal");
    assert_eq!(told(&world, "b"), (false, false));
}

async fn handing_back(code: u16, seconds: u32) -> (World, Vec<super::skr::Skr>) {
    let (world, skrs) = World::converged(&["a"]).await;
    let spec = json!({"deletionPolicy": "Orphan", "deletionTimeoutSeconds": seconds});
    world
        .kcp
        .merge("runtimebootstrappers", "a", &json!({"spec": spec}));
    world.settle().await;
    let refusal = (code, usize::MAX);
    world.kcp.lock().refusals.insert("patch runtimes", refusal);
    world.kcp.delete("runtimebootstrappers", "a");
    world
        .until("refused", |it| it.written("refused patch runtimes/a") > 0)
        .await;
    (world, skrs)
}

/// Whoever crashes before the manager was told leaves the finalizer there, and whoever comes next tells it.
#[rstest]
#[case::in_trouble(500, 0)]
#[case::forbidden(403, 3600)]
#[tokio::test]
async fn the_finalizer_holds_until_the_manager_was_told(#[case] code: u16, #[case] seconds: u32) {
    let (mut world, _skrs) = handing_back(code, seconds).await;
    world.settle().await;
    world.stop().await;
    assert!(world.kcp.get("runtimebootstrappers", "a").is_some());
    world.kcp.lock().refusals.clear();
    world.start();
    until_gone(&world, "a").await;
    assert_eq!(told(&world, "a"), (true, true));
}

#[rstest]
#[case::no_right(403)]
#[case::a_policy_on_runtimes(422)]
#[tokio::test]
async fn a_control_plane_that_refuses_the_signal_holds_nobody_for_ever(#[case] code: u16) {
    let (world, _skrs) = handing_back(code, 0).await;
    until_gone(&world, "a").await;
    assert_eq!(told(&world, "a"), (false, false));
}

#[rstest]
#[case::uninstalled("Delete", json!({}))]
#[case::gone_over_again("Orphan", json!({"labels": {MODE.0: MODE.1}}))]
#[case::not_selected("Orphan", json!({"labels": {"plan": "trial"}}))]
#[tokio::test]
async fn whoever_is_not_the_managers_is_not_told(#[case] policy: &str, #[case] metadata: Value) {
    let mut world = World::new();
    let trial = kube::core::Expression::NotIn("plan".to_owned(), ["trial".to_owned()].into());
    world.settings.signal_selector = trial.into();
    let skrs = world.converge(&["a"]).await;
    let policy = json!({"spec": {"deletionPolicy": policy}});
    world.kcp.merge("runtimebootstrappers", "a", &policy);
    let metadata = json!({"metadata": metadata});
    world.kcp.merge("runtimes", "a", &metadata);
    world.settle().await;
    let uid = |it: &World| {
        let resource = it.kcp.get("runtimebootstrappers", "a");
        resource.map(|it| it["metadata"]["uid"].clone())
    };
    let before = uid(&world);
    world.kcp.delete("runtimebootstrappers", "a");
    world.until("let go", |it| uid(it) != before).await;
    world.settle().await;
    assert_eq!(told(&world, "a"), (false, false));
    drop(skrs);
}

/// A forbidden read is no sign that something is gone.
#[rstest]
#[case::uninstall("Delete", false)]
#[case::hand_back("Orphan", false)]
#[case::until_the_deadline("Delete", true)]
#[tokio::test]
async fn what_may_not_be_read_is_not_taken_for_gone(#[case] policy: &str, #[case] gives_up: bool) {
    let (world, skrs) = World::converged(&["a"]).await;
    let spec = json!({"spec": {"deletionPolicy": policy}});
    world.kcp.merge("runtimebootstrappers", "a", &spec);
    world.settle().await;
    skrs[0].lock().unreadable = Some(WEBHOOK);
    world.kcp.delete("runtimebootstrappers", "a");
    world
        .until_condition("a", "Installed", "False InsufficientPermissions")
        .await;
    let said = world.status("a")["conditions"].to_string();
    let right = "get mutatingwebhookconfigurations.admissionregistration.k8s.io";
    assert!(said.contains(right), "{said}");
    world.settle().await;
    assert_eq!(skrs[0].take(), [""; 0]);
    assert!(world.kcp.get("runtimebootstrappers", "a").is_some());
    if gives_up {
        let deadline = json!({"spec": {"deletionTimeoutSeconds": 0}});
        world.kcp.merge("runtimebootstrappers", "a", &deadline);
    } else {
        skrs[0].lock().unreadable = None;
    }
    until_gone(&world, "a").await;
    let marker = skrs[0].kyma("configmaps/rt-bootstrapper-owner");
    assert_eq!(marker.is_some(), gives_up);
    let abandoned = u8::from(gives_up);
    let abandoned = format!("deletion_timeouts_total {abandoned}");
    assert!(world.metrics().contains(&abandoned));
}
