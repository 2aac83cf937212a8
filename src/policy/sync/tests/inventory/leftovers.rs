//! Objects of the public manifests that ours do not have.

use rstest::rstest;
use serde_json::{Value, json};

use super::{inventory, wanted};
use crate::sync::observed::Made;
use crate::sync::plan::uninstall;
use crate::sync::tests::api_server::Runtime;
use crate::sync::tests::samples::manifests;

const METRICS: &str = "rt-bootstrapper-controller-manager-metrics-service";

/// The public webhook, and of its other objects the Service for metrics and a Role without a label.
fn public(labels: &Value) -> Runtime {
    let mut runtime = Runtime::new();
    for manifest in manifests("1.7.0") {
        runtime.someone_creates(&manifest, "manager");
    }
    let service = json!({ "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": METRICS, "namespace": "kyma-system", "labels": labels } });
    runtime.someone_creates(&service, "manager");
    let account = json!({ "kind": "ServiceAccount", "name": "rt-bootstrapper-controller-manager", "namespace": "kyma-system" });
    runtime.someone_creates(&binding(std::slice::from_ref(&account)), "manager");
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "rt-bootstrapper-leader-election-role", "namespace": "kyma-system" } });
    runtime.someone_creates(&role, "manager");
    runtime.roll_out();
    runtime
}

fn binding(subjects: &[Value]) -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "rt-bootstrapper-metrics-auth-rolebinding" }, "subjects": subjects })
}

#[rstest]
#[case::labelled(json!({ "app.kubernetes.io/name": "rt-bootstrapper" }), true)]
#[case::of_another_product(json!({ "app.kubernetes.io/name": "other" }), false)]
#[case::without_a_label(json!({}), false)]
fn adoption_deletes_leftovers_that_are_certainly_of_the_public_webhook(
    #[case] labels: Value,
    #[case] goes: bool,
) {
    let mut runtime = public(&labels);
    runtime.carry_out(&runtime.plan(&wanted()));
    assert!(
        !runtime.log.iter().any(|it| it.starts_with("delete")),
        "its Pods serve"
    );
    runtime.converge(&wanted());
    let deletions: Vec<&str> = runtime
        .log
        .iter()
        .filter_map(|it| it.strip_prefix("delete "))
        .collect();
    let service = format!("Service/{METRICS}");
    let mut expected = vec!["ClusterRoleBinding/rt-bootstrapper-metrics-auth-rolebinding"];
    expected.extend(goes.then_some(&*service));
    for it in &deletions {
        assert!(expected.contains(it), "{deletions:?}");
    }
    assert_eq!(deletions.len(), expected.len());
    assert_eq!(inventory(&runtime).len(), 8);
}

/// Without the marker of ownership nothing was adopted, and while the public webhook stands its objects do.
#[test]
fn uninstallation_leaves_the_objects_of_a_public_webhook_that_was_not_adopted() {
    let mut runtime = public(&json!({ "app.kubernetes.io/name": "rt-bootstrapper" }));
    runtime.observed.made = Some(Made::default());
    let plan = uninstall(runtime.context(), &runtime.observed);
    assert!(plan.has_left(), "{plan:?}");
}
