use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::{Value, json};

use super::super::secret::{SecretState, SecretView};
use super::super::state::{CopyName, State, opts_in};
use super::*;
use crate::snapshot::{ObservedObject, Requirements, SnapshotStore};
use crate::stored::StoredMetadata;

fn view(secret: Value) -> SecretView {
    serde_json::from_value(secret).unwrap()
}

fn list_secrets(state: &mut State, secrets: Vec<Value>) -> Vec<String> {
    state.observe_secret(Event::Init);
    for secret in secrets {
        let changed = state.observe_secret(Event::InitApply(view(secret)));
        assert!(changed.is_empty());
    }
    state.observe_secret(Event::InitDone)
}

fn annotated(name: &str, annotations: &Value) -> StoredMetadata<Pod> {
    let metadata = json!({"name": name, "namespace": "a", "annotations": annotations});
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
        .unwrap()
}

fn pod(name: &str, opts_in: bool) -> StoredMetadata<Pod> {
    annotated(name, &json!({FEATURE: opts_in.to_string()}))
}

fn list_pods(state: &mut State, pods: Vec<StoredMetadata<Pod>>) -> Vec<String> {
    state.observe_pod(Event::Init);
    for pod in pods {
        assert!(state.observe_pod(Event::InitApply(pod)).is_empty());
    }
    state.observe_pod(Event::InitDone)
}

fn snapshots(namespace: KnownNamespace) -> SnapshotStore {
    let snapshots = SnapshotStore::default();
    snapshots.set_configuration(with_feature());
    snapshots.set_pull_secret(source(ONE));
    snapshots.set_namespace("a", Some(namespace));
    snapshots
}

/// Returns the state after these snapshots.
fn state_of(snapshots: &SnapshotStore) -> State {
    let mut state = State::new("kyma-system".to_owned(), CopyName::Configured);
    state.refresh(snapshots);
    state
}

/// Returns the name of the task in namespace `a`.
fn task(state: &State) -> &'static str {
    let task = state.task_for("a");
    task.map_or("none", |task| task.action.name())
}

#[rstest]
#[case::needed(true, Some(false), vec![], "apply")]
#[case::there(true, Some(false), vec![copy("a", ONE)], "none")]
#[case::edited(true, Some(false), vec![copy("a", TWO)], "apply")]
#[case::another_type(true, Some(false), vec![with(copy("a", ONE), "/type", json!("Opaque"))], "recreate")]
#[case::foreign(true, Some(false), vec![foreign("a")], "report")]
#[case::by_a_pod(false, Some(true), vec![], "apply")]
#[case::not_wanted(false, Some(false), vec![], "none")]
#[case::no_longer_needed(false, Some(false), vec![copy("a", ONE)], "remove")]
#[case::that_of_another_client_is_not_removed(false, Some(false), vec![foreign("a")], "none")]
#[case::pods_not_known_nothing_removed(false, None, vec![copy("a", ONE)], "none")]
#[case::pods_not_known_nothing_added(false, None, vec![], "none")]
#[case::pods_not_known_and_not_asked(true, None, vec![], "apply")]
fn decides(
    #[case] namespace_asks: bool,
    #[case] pod_asks: Option<bool>,
    #[case] secrets: Vec<Value>,
    #[case] expected: &str,
) {
    let mut state = state_of(&snapshots(namespace(namespace_asks)));
    assert_eq!(task(&state), "none", "nothing is known of the copies");
    list_secrets(&mut state, secrets);
    if let Some(opts_in) = pod_asks {
        list_pods(&mut state, vec![pod("p", opts_in)]);
    }
    assert_eq!(task(&state), expected);
}

#[rstest]
#[case::of_the_product("a", false, copy("a", TWO))]
#[case::terminating("kyma-system", true, copy("a", TWO))]
#[case::copy_held_by_a_finalizer("kyma-system", false, {
    let mut secret = copy("a", TWO);
    secret["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    secret
})]
fn leaves_a_namespace_alone(
    #[case] product: &str,
    #[case] terminating: bool,
    #[case] secret: Value,
) {
    let mut known = namespace(true);
    known.terminating = terminating;
    let mut state = State::new(product.to_owned(), CopyName::Configured);
    state.refresh(&snapshots(known));
    list_secrets(&mut state, vec![secret]);
    assert_eq!(task(&state), "none");
}

#[test]
fn a_copy_is_removed_when_the_feature_is_withdrawn() {
    let snapshots = snapshots(namespace(true));
    snapshots.set_configuration(configuration("", ""));
    let mut state = state_of(&snapshots);
    list_secrets(&mut state, vec![copy("a", ONE)]);
    assert_eq!(task(&state), "remove");
}

#[test]
fn a_namespace_that_the_snapshot_lacks_is_not_touched() {
    let mut state = State::new("kyma-system".to_owned(), CopyName::Configured);
    let snapshots = snapshots(namespace(true));
    snapshots.set_namespace("a", None);
    state.refresh(&snapshots);
    list_secrets(&mut state, vec![copy("a", TWO)]);
    assert_eq!(task(&state), "none");
}

#[test]
fn refreshing_names_what_changed() {
    let snapshots = snapshots(namespace(true));
    let mut state = State::new("kyma-system".to_owned(), CopyName::Configured);
    let mut refreshed = || {
        let mut names = state.refresh(&snapshots);
        names.sort();
        names
    };
    assert_eq!(refreshed(), ["a"]);
    assert!(refreshed().is_empty());
    snapshots.set_namespace("b", Some(namespace(false)));
    assert_eq!(refreshed(), ["b"]);
    snapshots.set_namespace("b", Some(namespace(true)));
    assert_eq!(refreshed(), ["b"]);
    snapshots.set_pull_secret(source(TWO));
    assert_eq!(refreshed(), ["a", "b"]);
    snapshots.set_configuration(configuration("", ""));
    assert_eq!(refreshed(), ["a", "b"]);
    snapshots.set_namespace("a", None);
    assert_eq!(refreshed(), ["a"]);
}

#[test]
fn a_list_replaces_everything_when_it_is_complete_and_not_before() {
    let mut state = state_of(&snapshots(namespace(true)));
    let changed = list_secrets(&mut state, vec![copy("a", ONE), copy("b", ONE)]);
    assert_eq!(changed, ["a"], "every known namespace");
    assert_eq!((task(&state), state.copy_count()), ("none", 2));
    state.observe_secret(Event::Init);
    state.observe_secret(Event::InitApply(view(copy("c", ONE))));
    assert_eq!((task(&state), state.copy_count()), ("none", 2));
    // A list that fails is restarted.
    list_secrets(&mut state, vec![copy("b", ONE)]);
    assert_eq!((task(&state), state.copy_count()), ("apply", 1));
}

#[test]
fn a_state_that_is_older_than_our_own_write_changes_nothing() {
    let version = "/metadata/resourceVersion";
    let at = |encoded: &str, it: &str| view(with(copy("a", encoded), version, json!(it)));
    let mut state = state_of(&snapshots(namespace(true)));
    list_secrets(&mut state, vec![]);
    let (_, written) = SecretState::read(at(ONE, "12"));
    state.copies.written("a", Some(written));
    for event in [
        Event::Apply(at(TWO, "9")),
        Event::Delete(at(TWO, "10")),
        Event::Apply(at(ONE, "12")),
    ] {
        assert!(state.observe_secret(event).is_empty());
    }
    list_secrets(&mut state, vec![with(copy("a", TWO), version, json!("11"))]);
    assert_eq!(task(&state), "none");
    assert_eq!(state.observe_secret(Event::Delete(at(ONE, "13"))), ["a"]);
    assert_eq!(task(&state), "apply");
}

#[rstest]
#[case::by_the_feature(json!({FEATURE: "true"}), true)]
#[case::by_the_alias(json!({"rt-cfg.kyma-project.io/all": "true"}), true)]
#[case::carved_out(json!({"rt-cfg.kyma-project.io/all": "true", FEATURE: "false"}), false)]
#[case::another_feature(json!({"rt-cfg.kyma-project.io/set-fips-mode": "true"}), false)]
#[case::a_mirror_pod_is_never_changed(json!({FEATURE: "true", "kubernetes.io/config.mirror": "x"}), false)]
#[case::nothing(json!(null), false)]
fn a_pod_opts_in(#[case] annotations: Value, #[case] expected: bool) {
    assert_eq!(opts_in(&annotated("p", &annotations)), expected);
}

#[test]
fn only_the_first_and_the_last_pod_of_a_namespace_are_a_change() {
    let mut state = state_of(&snapshots(namespace(false)));
    list_secrets(&mut state, vec![]);
    assert_eq!(list_pods(&mut state, vec![]), ["a"]);
    assert_eq!(task(&state), "none");
    assert!(
        state
            .observe_pod(Event::Apply(pod("silent", false)))
            .is_empty()
    );
    assert_eq!(state.observe_pod(Event::Apply(pod("one", true))), ["a"]);
    assert!(state.observe_pod(Event::Apply(pod("two", true))).is_empty());
    assert!(
        state
            .observe_pod(Event::Delete(pod("one", true)))
            .is_empty()
    );
    assert_eq!(task(&state), "apply");
    // The annotation was removed.
    assert_eq!(state.observe_pod(Event::Apply(pod("two", false))), ["a"]);
    assert_eq!(task(&state), "none");
}

#[test]
fn the_same_configuration_object_is_no_news() {
    let snapshots = SnapshotStore::default();
    let configuration = with_feature();
    snapshots.set_configuration(Arc::clone(&configuration));
    snapshots.set_namespace("a", Some(namespace(true)));
    let mut state = State::default();
    state.refresh(&snapshots);
    snapshots.set_configuration(configuration);
    assert!(state.refresh(&snapshots).is_empty());
}

#[test]
fn a_secret_of_a_version_that_is_not_in_force_is_not_copied() {
    let metadata = |key: &str, value: &str| {
        serde_json::from_value(json!({"annotations": {key: value}})).unwrap()
    };
    let of = |encoded, version| PullSecretSource {
        object: ObservedObject::of(&metadata(api::kcp::CONTENT_HASH, version)),
        ..source(encoded)
    };
    let requires = |version| Requirements::read(&metadata(api::kcp::REQUIRES_PULL_SECRET, version));
    let snapshots = snapshots(namespace(true));
    snapshots.set_pull_secret(of(ONE, "1"));
    snapshots.set_revision(with_feature(), requires("1"), None);
    let mut state = state_of(&snapshots);
    list_secrets(&mut state, vec![copy("a", ONE)]);
    assert_eq!(task(&state), "none");

    snapshots.set_pull_secret(of(TWO, "2"));
    assert!(state.refresh(&snapshots).is_empty());
    assert_eq!(task(&state), "none");
    snapshots.set_revision(with_feature(), requires("2"), None);
    assert_eq!(state.refresh(&snapshots), ["a"]);
    assert_eq!(task(&state), "apply");
}
