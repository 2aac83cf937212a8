//! Objects that are deleted with a Watcher or with the last Watcher, and objects of other owners, which are kept.

use api::kcp::OWNER_INVENTORY;

use super::*;

#[test]
fn the_entry_of_a_deleted_watcher_goes_and_that_of_an_unreadable_one_stays() {
    let both = desired(vec![entry("one", "ca"), entry("two", "ca")]);
    let names = |runtime: &Runtime| -> Vec<Value> {
        let entries = runtime.observed.live[&target(WEBHOOKS)]["webhooks"].as_array();
        entries
            .unwrap()
            .iter()
            .map(|it| it["name"].clone())
            .collect()
    };
    let mut runtime = Runtime::installed(&both);
    runtime.converge(&desired_of(
        manifests("0.1.0"),
        Some(vec![entry("one", "ca")]),
        &["two"],
    ));
    assert_eq!(
        names(&runtime),
        ["one", "two"].map(|it| entry(it, "")["name"].clone())
    );
    runtime.converge(&one());
    assert_eq!(names(&runtime), [entry("one", "")["name"].clone()]);
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_unstable();
    lines
}

/// The Pods deliver their events before the Secret and the NetworkPolicies that they need are deleted.
#[test]
fn removal_begins_with_the_webhook_configuration_and_waits_for_the_pods() {
    let mut runtime = Runtime::installed(&one());
    let (written, state) = runtime.reconcile(&removed());
    assert_eq!(state, WatcherState::Progressing);
    assert_eq!(
        written,
        [format!("delete {WEBHOOKS}"), format!("delete {DEPLOYMENT}")]
    );
    assert_eq!(
        runtime.reconcile(&removed()),
        (vec![], WatcherState::Progressing)
    );
    runtime.end_pods();
    // Another client may keep an object with a finalizer.
    let secret = runtime.live(&target(SECRET)).cloned();
    let (written, _) = runtime.reconcile(&removed());
    let rest = ["ServiceAccount/skr-webhook", SERVICE, SECRET].map(|it| format!("delete {it}"));
    assert_eq!(sorted(written), sorted(rest.to_vec()));
    runtime.put(target(SECRET), secret);
    let (written, _) = runtime.reconcile(&removed());
    assert_eq!(written, [format!("delete {SECRET}")]);
    let (written, state) = runtime.reconcile(&removed());
    assert_eq!(written, [format!("delete {MARKER}")]);
    assert_eq!(state, WatcherState::Progressing);
    assert!(runtime.observed.live.is_empty() && runtime.observed.marker.is_none());
    assert_eq!(
        runtime.reconcile(&removed()),
        (vec![], WatcherState::Removed)
    );
}

/// Otherwise the API server would send changes to Pods that end.
#[test]
fn a_watcher_that_is_wanted_again_during_its_removal_waits_for_the_end_of_the_pods() {
    let mut runtime = Runtime::installed(&one());
    runtime.reconcile(&removed());
    assert_eq!(
        runtime.reconcile(&one()),
        (vec![], WatcherState::Progressing)
    );
    runtime.end_pods();
    let (written, _) = runtime.reconcile(&one());
    assert_eq!(written, [format!("apply {DEPLOYMENT}")]);
    runtime.roll_out();
    runtime.converge(&one());
    assert!(runtime.live(&target(WEBHOOKS)).is_some());
}

#[test]
fn removal_keeps_what_belongs_to_others() {
    let mut runtime = Runtime::installed(&one());
    let foreign = json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "skr-webhook", "namespace": NAMESPACE } });
    let service = target("Service/skr-webhook");
    runtime.put(
        service.clone(),
        Some(stored(apply(json!({}), &foreign, "helm"))),
    );
    let marker = runtime.observed.marker.take().unwrap();
    let webhook = json!({ "data": { OWNER_INVENTORY: "", "runtimeID": "runtime-1",
        "controlPlaneID": runtime.owner.control_plane } });
    runtime.observed.marker = Some(apply(marker, &webhook, api::kcp::CONTROLLER_FIELD_MANAGER));
    runtime.converge(&removed());
    assert_eq!(runtime.observed.live.keys().collect::<Vec<_>>(), [&service]);
    assert_eq!(runtime.inventory(), None);
    let marker = runtime.observed.marker.as_ref().unwrap();
    assert_eq!(marker["data"]["runtimeID"], "runtime-1");
}

/// An object of another owner that would have to be recreated.
#[test]
fn an_object_of_another_owner_is_not_replaced() {
    let class = json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": { "name": "class" }, "value": 1 });
    let mut all = manifests("0.1.0");
    all.push(class.clone());
    let desired = desired_of(all, Some(vec![entry("one", "ca")]), &[]);
    let mut runtime = Runtime::installed(&desired);
    let target = Target::of(&class).unwrap();
    let mut foreign = class.clone();
    foreign["value"] = json!(2);
    runtime.put(target.clone(), Some(apply(json!({}), &foreign, "helm")));
    let (written, state) = runtime.reconcile(&desired);
    assert_eq!(
        (written, state),
        (vec![], WatcherState::ImmutableField(target.clone()))
    );
    foreign["metadata"]["annotations"] = json!({ (api::kcp::MANIFEST_HASH): "earlier" });
    runtime.put(
        target,
        Some(apply(json!({}), &foreign, WATCHER_FIELD_MANAGER)),
    );
    let (written, _) = runtime.reconcile(&desired);
    assert_eq!(
        written,
        ["delete PriorityClass/class", "apply PriorityClass/class"]
    );
}
