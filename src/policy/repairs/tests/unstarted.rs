//! Tests of Pods that wait for their volumes, and of the start of the wait.

use std::collections::BTreeMap;
use std::time::Duration;

use api::config::Document;
use rstest::rstest;
use serde_json::{Value, json};

use crate::admission::review::{self, Subject};
use crate::admission::*;
use crate::repairs::*;

/// Returns a Pod whose volumes the kubelet cannot mount.
fn waiting() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "c", "image": "example.com/web:1"}],
            "volumes": [{"name": "rt-bundle", "projected": {"sources": [
                {"clusterTrustBundle": {"name": "roots", "path": "ca.crt"}},
            ]}}],
        },
        "status": {
            "phase": "Pending",
            "conditions": [
                {"type": "PodReadyToStartContainers", "status": "False"},
                {"type": "PodScheduled", "status": "True"},
            ],
            "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}],
            "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}],
        },
    })
}

fn unstarted(uid: &str, node: &str) -> UnstartedPod {
    UnstartedPod {
        uid: uid.into(),
        node: node.into(),
    }
}

fn key(name: &str) -> PodKey {
    PodKey {
        namespace: "shop".into(),
        name: name.into(),
    }
}

fn states(container: &Value) -> Value {
    json!({"status": {"containerStatuses": [{"name": "c", "state": container}]}})
}

fn conditions(scheduled: &str, sandbox: &str) -> Value {
    json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": scheduled},
        {"type": "PodReadyToStartContainers", "status": sandbox},
    ]}})
}

#[rstest]
#[case::as_a_kubelet_leaves_it(json!({}), true)]
#[case::without_statuses_of_containers(
    json!({"status": {"initContainerStatuses": null, "containerStatuses": null}}), true
)]
#[case::not_scheduled(conditions("False", "False"), false)]
#[case::sandbox_ready(conditions("True", "True"), false)]
#[case::sandbox_not_told(
    json!({"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}), true
)]
#[case::without_conditions(json!({"status": {"conditions": null}}), false)]
#[case::phase_running(json!({"status": {"phase": "Running"}}), false)]
#[case::container_running(states(&json!({"running": {}})), false)]
#[case::container_terminated(states(&json!({"terminated": {"exitCode": 0}})), false)]
#[case::image_not_pulled(states(&json!({"waiting": {"reason": "ErrImagePull"}})), false)]
#[case::image_pull_back_off(states(&json!({"waiting": {"reason": "ImagePullBackOff"}})), false)]
#[case::init_container_running(
    json!({"status": {"initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}}), false
)]
#[case::terminating(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false)]
#[case::without_status(json!({"status": null}), false)]
#[case::without_a_node(json!({"spec": {"nodeName": null}}), false)]
fn a_scheduled_pod_without_a_sandbox_has_not_started(
    #[case] change: Value,
    #[case] expected: bool,
) {
    let mut pod = waiting();
    json_patch::merge(&mut pod, &change);
    let expected = expected.then(|| unstarted("1", "node-1"));
    assert_eq!(UnstartedPod::of(&pod.to_string()), expected);
}

#[rstest]
#[case::ours(json!({}), true)]
#[case::without_volumes(json!({"spec": {"volumes": null}}), false)]
#[case::of_another_name(volume("own", "roots"), false)]
#[case::of_another_bundle(volume("rt-bundle", "other"), false)]
fn only_the_volume_of_the_configured_bundle_counts(#[case] change: Value, #[case] expected: bool) {
    let document = json!({
        "overrides": {},
        "clusterTrustBundle": {
            "name": "roots", "certWritePath": "ca.crt",
            "volumeName": "rt-bundle", "volumeMountPath": "/etc/ssl/certs",
        },
    });
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let configuration =
        Configuration::new(&Document::parse(&document.to_string()).unwrap(), &settings).unwrap();
    let mut pod = waiting();
    json_patch::merge(&mut pod, &change);
    let body = review::of_created_pod("shop", &pod.to_string());
    let Subject::Pod(request) = review::parse(body.as_bytes()).unwrap().subject else {
        panic!("not a Pod")
    };
    assert_eq!(has_trust_bundle(&configuration, &request.object), expected);
}

fn volume(name: &str, bundle: &str) -> Value {
    let source = json!({"clusterTrustBundle": {"name": bundle, "path": "ca.crt"}});
    json!({"spec": {"volumes": [{"name": name, "projected": {"sources": [source]}}]}})
}

/// Returns the keys of Pods that become late at this second.
fn late(pods: &mut UnstartedPods, second: u64) -> Vec<String> {
    let late = pods.newly_late(Duration::from_secs(second));
    late.map(|(key, _)| key.name.to_string()).collect()
}

#[rstest]
#[case::one_minute_ago(60, false)]
#[case::a_second_less_than_two_minutes_ago(119, false)]
#[case::two_minutes_ago(120, true)]
#[case::three_minutes_ago(180, true)]
fn a_pod_is_late_two_minutes_after_it_was_seen_scheduled(
    #[case] second: u64,
    #[case] expected: bool,
) {
    let mut pods = UnstartedPods::default();
    let pod = || Some(unstarted("1", "node-1"));
    pods.observe(&key("web"), pod(), Duration::ZERO);
    // Another list or an update of the status does not restart the wait.
    pods.observe(&key("web"), pod(), Duration::from_secs(50));
    assert_eq!(late(&mut pods, second).len(), usize::from(expected));
    assert_eq!(pods.counts().len(), usize::from(expected));
    assert_eq!(
        late(&mut pods, second + 600).len(),
        usize::from(!expected),
        "each Pod once"
    );
    assert_eq!(pods.counts(), BTreeMap::from([("node-1", 1)]));
}

#[test]
fn a_pod_that_started_is_gone_or_was_replaced_is_not_late() {
    let mut pods = UnstartedPods::default();
    for name in ["a", "b", "c", "d"] {
        pods.observe(&key(name), Some(unstarted(name, "node-1")), Duration::ZERO);
    }
    pods.observe(&key("a"), None, Duration::from_mins(1));
    pods.retain(|it| &*it.name != "b");
    let successor = Some(unstarted("c2", "node-2"));
    pods.observe(&key("c"), successor, Duration::from_mins(1));
    assert_eq!(late(&mut pods, 120), ["d"]);
    assert_eq!(late(&mut pods, 180), ["c"]);
    assert_eq!(
        pods.counts(),
        BTreeMap::from([("node-1", 1), ("node-2", 1)])
    );
    pods.observe(&key("d"), None, Duration::from_secs(181));
    assert_eq!(pods.counts(), BTreeMap::from([("node-2", 1)]));
}
