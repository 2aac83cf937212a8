use api::watcher::{Watcher, WatcherState};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn watcher() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {
            "name": "klm-watcher", "namespace": "kcp-system", "uid": "u-1", "generation": 3,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"operator.kyma-project.io/managed-by": "lifecycle-manager"},
        },
        "spec": {
            "labelsToWatch": {"operator.kyma-project.io/watched-by": "kyma"},
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "field": "spec",
            "serviceInfo": {"name": "klm-events", "port": 8082, "namespace": "kcp-system"},
            "gateway": {"selector": {"matchLabels": {"operator.kyma-project.io/watcher-gateway": "default"}}},
        },
    })
}

fn parsed(object: Value) -> Watcher {
    serde_json::from_value(object).unwrap()
}

fn changed(pointer: &str, value: Value) -> Watcher {
    let mut object = watcher();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    parsed(object)
}

fn gateway(hosts: &[&str]) -> Gateway {
    Gateway::of(&json!({
        "metadata": {"namespace": "kcp-system", "name": "klm-watcher"},
        "spec": {"servers": [{"hosts": hosts, "port": {"number": 443}}]},
    }))
}

fn desired() -> Value {
    virtual_service(&parsed(watcher()), &[gateway(&["kcp.example"])]).unwrap()
}

/// The object that the public lifecycle-manager creates for its own Watcher.
#[test]
fn the_virtual_service_is_the_public_one() {
    let expected = json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {
            "name": "klm-watcher", "namespace": "kcp-system",
            "ownerReferences": [{
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
                "name": "klm-watcher", "uid": "u-1",
            }],
        },
        "spec": {
            "gateways": ["kcp-system/klm-watcher"],
            "hosts": ["kcp.example"],
            "http": [{
                "name": "kcp-system/klm-watcher",
                "match": [{"uri": {"prefix": "/v2/lifecycle-manager/event"}}],
                "route": [{"destination": {
                    "host": "klm-events.kcp-system.svc.cluster.local", "port": {"number": 8082},
                }}],
            }],
        },
    });
    assert_eq!(desired(), expected);
}

#[rstest]
#[case::spec_before_label(changed("/spec/manager", json!("mine")), "/v2/mine/event")]
#[case::empty_spec(changed("/spec/manager", json!("")), "/v2/lifecycle-manager/event")]
fn the_manager_is_that_of_the_spec_or_the_label(#[case] watcher: Watcher, #[case] prefix: &str) {
    let object = virtual_service(&watcher, &[gateway(&["kcp.example"])]).unwrap();
    assert_eq!(
        object["spec"]["http"][0]["match"][0]["uri"]["prefix"],
        prefix
    );
}

#[test]
fn hosts_are_those_of_all_gateways_once_and_without_a_namespace() {
    let object = json!({
        "metadata": {"namespace": "kcp-system", "name": "second"},
        "spec": {"servers": [
            {"hosts": ["./two.example", "kcp.example"]}, {"hosts": ["*/three.example"]}, {},
        ]},
    });
    let gateways = [gateway(&["kcp.example"]), Gateway::of(&object)];
    let object = virtual_service(&parsed(watcher()), &gateways).unwrap();
    assert_eq!(
        object["spec"]["hosts"],
        json!(["kcp.example", "two.example", "three.example"])
    );
    assert_eq!(
        object["spec"]["gateways"],
        json!(["kcp-system/klm-watcher", "kcp-system/second"])
    );
}

#[rstest]
#[case::manager(changed("/metadata/labels", json!({})), &["a"], "InvalidManager")]
#[case::manager_with_a_slash(changed("/spec/manager", json!("a/../b")), &["a"], "InvalidManager")]
#[case::manager_of_dots(changed("/spec/manager", json!("..")), &["a"], "InvalidManager")]
#[case::port_zero(changed("/spec/serviceInfo/port", json!(0)), &["a"], "InvalidServiceInfo")]
#[case::port_too_large(changed("/spec/serviceInfo/port", json!(65536)), &["a"], "InvalidServiceInfo")]
#[case::port_negative(changed("/spec/serviceInfo/port", json!(-1)), &["a"], "InvalidServiceInfo")]
#[case::service(changed("/spec/serviceInfo/name", json!("")), &["a"], "InvalidServiceInfo")]
#[case::hosts(parsed(watcher()), &[], "GatewayHostsNotFound")]
#[case::empty_host(parsed(watcher()), &[""], "GatewayHostsNotFound")]
fn what_cannot_be_a_route_is_an_error(
    #[case] watcher: Watcher,
    #[case] hosts: &[&str],
    #[case] reason: &str,
) {
    let error = virtual_service(&watcher, &[gateway(hosts)]).unwrap_err();
    assert_eq!(error.reason(), reason);
}

#[test]
fn an_object_as_desired_is_kept() {
    let mut live = desired();
    live["metadata"]["labels"] = json!({"team": "a"});
    live["metadata"]["resourceVersion"] = json!("7");
    assert_eq!(action(desired(), Some(live)), Ok(RouteAction::Keep));
    assert_eq!(action(desired(), None), Ok(RouteAction::Create(desired())));
}

/// Fields that another client added are removed, too: another route would redirect events of the component.
#[rstest]
#[case::host("/spec/hosts", json!(["other.example"]))]
#[case::port("/spec/http/0/route/0/destination/port/number", json!(1))]
#[case::added_route("/spec/tcp", json!([{"route": []}]))]
#[case::added_timeout("/spec/http/0/timeout", json!("1s"))]
#[case::owner_of_a_restored_backup("/metadata/ownerReferences/0/uid", json!("u-0"))]
fn an_object_that_differs_is_replaced(#[case] pointer: &str, #[case] value: Value) {
    let mut live = desired();
    live["metadata"]["resourceVersion"] = json!("7");
    live["metadata"]["labels"] = json!({"team": "a"});
    let mut expected = live.clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match key.parse::<usize>() {
        Ok(index) => live.pointer_mut(parent).unwrap()[index] = value,
        Err(_) => live.pointer_mut(parent).unwrap()[key] = value,
    }
    live["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    assert_eq!(
        action(desired(), Some(live.clone())),
        Ok(RouteAction::Replace(expected.take()))
    );
    // The result is as desired.
    let Ok(RouteAction::Replace(replaced)) = action(desired(), Some(live)) else {
        panic!()
    };
    assert_eq!(action(desired(), Some(replaced)), Ok(RouteAction::Keep));
}

#[rstest]
#[case::no_owner(json!([]))]
#[case::absent(Value::Null)]
#[case::another_watcher(json!([{
    "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher", "name": "other", "uid": "u-1",
}]))]
#[case::another_kind(json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "klm-watcher", "uid": "u-1"}]))]
#[case::another_group(json!([{"apiVersion": "x.y/v1", "kind": "Watcher", "name": "klm-watcher", "uid": "u-1"}]))]
#[case::malformed(json!(["Watcher"]))]
fn an_object_of_another_owner_is_refused(#[case] owners: Value) {
    let mut live = desired();
    live["metadata"]["ownerReferences"] = owners;
    assert!(!is_owned_by(&parsed(watcher()), &live));
    let error = action(desired(), Some(live)).unwrap_err();
    assert_eq!(
        error,
        RouteError::NotOwned("kcp-system/klm-watcher".to_owned())
    );
}

#[test]
fn the_object_of_an_earlier_api_version_is_owned() {
    let mut live = desired();
    live["metadata"]["ownerReferences"][0]["apiVersion"] =
        json!("operator.kyma-project.io/v1beta1");
    assert!(is_owned_by(&parsed(watcher()), &live));
}

#[rstest]
#[case::older("a", "2026-01-01T00:00:00Z", json!("other"), true)]
#[case::younger("a", "2026-02-01T00:00:00Z", json!("other"), false)]
#[case::same_age_earlier_name("a", "2026-01-02T03:04:05Z", json!("other"), true)]
#[case::same_age_later_name("z", "2026-01-02T03:04:05Z", json!("other"), false)]
#[case::same_service("a", "2026-01-01T00:00:00Z", json!("klm-events"), false)]
fn the_older_of_two_watchers_with_one_manager_gets_the_events(
    #[case] name: &str,
    #[case] created: &str,
    #[case] service: Value,
    #[case] expected: bool,
) {
    let mut other = watcher();
    other["metadata"]["name"] = json!(name);
    other["metadata"]["creationTimestamp"] = json!(created);
    other["spec"]["serviceInfo"]["name"] = service;
    let all = [parsed(watcher()), parsed(other.clone())];
    assert_eq!(conflict(&all[0], &all).is_some(), expected);
    other["spec"]["manager"] = json!("another");
    let all = [parsed(watcher()), parsed(other)];
    assert_eq!(conflict(&all[0], &all), None);
}

#[test]
fn a_status_that_says_the_same_is_not_written() {
    let mut subject = parsed(watcher());
    let first = status(&subject, &Outcome::Configured, "2026-01-01T00:00:00Z").unwrap();
    assert_eq!(first.state, WatcherState::Ready);
    assert_eq!(first.observed_generation, Some(3));
    subject.status = Some(first.clone());
    assert_eq!(
        status(&subject, &Outcome::Configured, "2027-01-01T00:00:00Z"),
        None
    );
    let failed = Outcome::Failed(RouteError::GatewayNotFound("kcp-system".to_owned()));
    let second = status(&subject, &failed, "2027-01-01T00:00:00Z").unwrap();
    assert_eq!(second.state, WatcherState::Error);
    assert_eq!(
        second.conditions[0].last_transition_time,
        "2027-01-01T00:00:00Z"
    );
    // The condition is False before and after, so that its time does not change.
    subject.status = Some(second);
    let third = status(&subject, &Outcome::Deleting, "2028-01-01T00:00:00Z").unwrap();
    assert_eq!(
        third.conditions[0].last_transition_time,
        "2027-01-01T00:00:00Z"
    );
}

#[test]
fn conditions_of_others_are_kept() {
    let mut other = watcher();
    other["status"] = json!({"state": "", "conditions": [{
        "type": "Other", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "R", "message": "",
    }]});
    let after = status(
        &parsed(other),
        &Outcome::Conflict("a/b".to_owned()),
        "2026-01-01T00:00:00Z",
    )
    .unwrap();
    let types: Vec<&str> = after.conditions.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(types, ["Other", "VirtualService"]);
    assert_eq!(after.state, WatcherState::Warning);
}

/// A Watcher that an API server would reject does not prevent the entries of other Watchers.
#[test]
fn invalid_and_deleted_watchers_have_no_entry() {
    let mut deleted = watcher();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:06Z");
    let mut invalid = changed("/spec/resourceToWatch/resource", json!(""));
    invalid.metadata.name = Some("invalid".to_owned());
    let mut unnamed = changed("/metadata/labels", json!({}));
    unnamed.metadata.name = Some("unnamed".to_owned());
    let all = [parsed(deleted), invalid, parsed(watcher()), unnamed];
    let entries = webhook_entries(&all);
    let [only] = &entries.registrations[..] else {
        panic!("{entries:?}")
    };
    assert_eq!(only.name, "klm-watcher");
    assert_eq!(only.watcher.manager.as_str(), "lifecycle-manager");
    assert_eq!(only.labels["operator.kyma-project.io/watched-by"], "kyma");
    let rejected: Vec<&str> = entries
        .rejected
        .iter()
        .map(|((_, name), _)| &**name)
        .collect();
    assert_eq!(rejected, ["invalid", "unnamed"]);
}

#[test]
fn the_status_counts_runtimes_by_reason() {
    let mut all = parsed(watcher());
    let counts = RuntimeCounts {
        configured: 7,
        others: [("Timeout", 2), ("Installing", 1)].into(),
    };
    let now = "2026-01-02T03:04:06Z";
    let condition = |watcher: &Watcher, rejected, counts: &RuntimeCounts| {
        let status = runtimes_status(watcher, rejected, counts, now)?;
        let condition = status.conditions.last()?.clone();
        Some((status, condition))
    };
    // The route is reported first.
    assert_eq!(condition(&all, None, &counts), None);
    all.status = status(&all, &Outcome::Configured, now);
    let (status, shown) = condition(&all, None, &counts).unwrap();
    assert_eq!(shown.reason, "RuntimesNotConfigured");
    assert_eq!(shown.message, "7 of 10 runtimes; 1 Installing, 2 Timeout");
    assert_eq!(status.state, WatcherState::Ready);
    all.status = Some(status);
    assert_eq!(condition(&all, None, &counts), None);
    let rejected = RejectedWatcher::Manager(RouteError::ManagerMissing);
    let (_, shown) = condition(&all, Some(&rejected), &counts).unwrap();
    assert_eq!(shown.reason, "InvalidWatcher");
    let (_, shown) = condition(&all, None, &RuntimeCounts::default()).unwrap();
    assert_eq!(
        (shown.reason, shown.message),
        ("Configured".to_owned(), "0 of 0 runtimes".to_owned())
    );
}
