//! Tests of the fields that are read from a Runtime.

use kube::core::Expression;
use rstest::rstest;
use serde_json::{Value, json};

use kube::core::Selector;
use policy::sync::signal::{Eligibility, RuntimeState, SignalKeys};

use super::super::runtime::CachedRuntime;
use crate::inventory::RuntimeView;

fn view(metadata: &Value, state: &str) -> RuntimeView {
    let runtime = json!({"metadata": metadata, "status": {"state": state}});
    serde_json::from_value(runtime).unwrap()
}

fn read(metadata: &Value, state: &str) -> CachedRuntime {
    CachedRuntime::read(&view(metadata, state), &Selector::default())
}

#[rstest]
#[case::plain(json!({}), "Ready", Eligibility::Selected)]
#[case::no_state_yet(json!({}), "", Eligibility::Selected)]
#[case::pending(json!({}), "Pending", Eligibility::Selected)]
#[case::failed(json!({}), "Failed", Eligibility::Selected)]
#[case::terminating(json!({}), "Terminating", Eligibility::NotSelected)]
#[case::being_deleted(json!({"deletionTimestamp": "2026-11-21T00:00:00Z"}), "Ready", Eligibility::NotSelected)]
#[case::direct(json!({"labels": {"rt-bootstrapper.kyma-project.io/mode": "direct", "plan": "aws"}}), "Ready", Eligibility::Direct)]
#[case::signal(json!({"labels": {"rt-bootstrapper.kyma-project.io/mode": "signal", "plan": "aws"}}), "Ready", Eligibility::Selected)]
#[case::not_selected(json!({"labels": {"plan": "trial"}}), "Ready", Eligibility::NotSelected)]
fn standing_follows_from_labels_and_state(
    #[case] mut metadata: Value,
    #[case] state: &str,
    #[case] standing: Eligibility,
) {
    if metadata["labels"].is_null() {
        metadata["labels"] = json!({"plan": "aws"});
    }
    metadata["name"] = json!("a");
    let selector = Selector::from_iter([("plan", "aws")]);
    let cached = CachedRuntime::read(&view(&metadata, state), &selector);
    assert_eq!(cached.runtime.eligibility, standing);
}

#[test]
fn an_empty_selector_selects_every_runtime() {
    let cached = read(&json!({}), "Ready");
    assert_eq!(cached.runtime.eligibility, Eligibility::Selected);
    let absent = Selector::from(Expression::DoesNotExist("plan".to_owned()));
    let cached = CachedRuntime::read(&view(&json!({}), "Ready"), &absent);
    assert_eq!(cached.runtime.eligibility, Eligibility::Selected);
}

#[rstest]
#[case::as_it_should_be("true", true)]
#[case::capital("True", false)]
#[case::number("1", false)]
#[case::empty("", false)]
fn value_that_is_not_exactly_true_is_no_signal(#[case] value: &str, #[case] stands: bool) {
    let key = "operator.kyma-project.io/force-patch-reconciliation";
    let keys = |metadata: &Value| read(metadata, "Ready").runtime.keys;
    let label = keys(&json!({"labels": {key: value}}));
    assert_eq!((label.label, label.annotation), (stands, false));
    let annotation = keys(&json!({"annotations": {key: value, "b": "c"}}));
    assert_eq!((annotation.label, annotation.annotation), (false, stands));
}

#[rstest]
#[case::ready("Ready", false)]
#[case::no_state_yet("", false)]
#[case::pending("Pending", true)]
#[case::failed("Failed", true)]
fn state_other_than_ready_is_not_ready(#[case] state: &str, #[case] not_ready: bool) {
    let found = read(&json!({}), state).runtime.state;
    assert_eq!(found == RuntimeState::NotReady, not_ready);
}

#[test]
fn what_is_not_needed_is_not_kept() {
    let metadata = json!({
        "name": "a", "uid": "u", "finalizers": ["f"], "managedFields": [{"manager": "m"}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "everything"},
    });
    let text = format!("{:?}", view(&metadata, "Ready"));
    for absent in ["everything", "manager: Some", "finalizers: Some"] {
        assert!(!text.contains(absent), "{text}");
    }
}

#[rstest]
#[case::newer("9", "10", true)]
#[case::same("10", "10", true)]
#[case::older("10", "9", false)]
#[case::no_number("10", "x", true)]
fn state_that_is_older_than_the_known_one_is_ignored(
    #[case] known: &str,
    #[case] observed: &str,
    #[case] is_used: bool,
) {
    let keys = SignalKeys::default();
    let known = read(&json!({"resourceVersion": known}), "Ready");
    let suspended = json!({"operator.kyma-project.io/suspend-patch-reconciliation": "true"});
    let metadata = json!({"resourceVersion": observed, "annotations": suspended});
    let after = read(&metadata, "Ready").after(Some(&known), keys);
    assert_eq!(after.runtime.state == RuntimeState::Suspended, is_used);
}
