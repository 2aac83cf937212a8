//! Objects of the public manifests that the manifests of this project do not contain.

use rstest::rstest;
use serde_json::{Value, json};

use super::{inventory, wanted};
use crate::sync::observed::WebhookObjects;
use crate::sync::plan::plan_deletion;
use crate::sync::tests::api_server::Runtime;
use crate::sync::tests::samples::manifests;

/// Returns a runtime with the public webhook, created by KIM, and one of its other objects.
fn public(leftover: &Value) -> Runtime {
    let mut runtime = Runtime::new();
    for manifest in manifests("1.7.0").iter().chain([leftover]) {
        runtime.someone_creates(manifest, "manager");
    }
    runtime.roll_out();
    runtime
}

fn role(labels: &Value) -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {
        "name": "rt-bootstrapper-leader-election-role", "namespace": "kyma-system", "labels": labels } })
}

fn binding(accounts: &[&str]) -> Value {
    let subject =
        |name: &&str| json!({ "kind": "ServiceAccount", "name": name, "namespace": "kyma-system" });
    let subjects: Vec<Value> = accounts.iter().map(subject).collect();
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "rt-bootstrapper-metrics-auth-rolebinding" }, "subjects": subjects })
}

fn labelled() -> Value {
    role(&json!({ "app.kubernetes.io/name": "rt-bootstrapper" }))
}

#[rstest]
#[case::labelled(labelled(), true)]
#[case::labelled_as_another_product(role(&json!({ "app.kubernetes.io/name": "other" })), false)]
#[case::not_labelled(role(&json!({})), false)]
#[case::bound_to_the_account(binding(&["rt-bootstrapper-controller-manager"]), true)]
#[case::bound_to_another_account_too(binding(&["rt-bootstrapper-controller-manager", "other"]), false)]
#[case::bound_to_nothing(binding(&[]), false)]
fn adoption_deletes_leftovers_that_are_certainly_of_the_public_webhook(
    #[case] leftover: Value,
    #[case] goes: bool,
) {
    let mut runtime = public(&leftover);
    let is_deletion = |it: &&String| it.starts_with("delete");
    runtime.carry_out(&runtime.plan(&wanted()));
    assert_eq!(runtime.log.iter().find(is_deletion), None, "its Pods serve");
    runtime.converge(&wanted());
    let (kind, name) = (&leftover["kind"], &leftover["metadata"]["name"]);
    let deletion = format!("delete {kind}/{name}").replace('"', "");
    let deletions: Vec<&String> = runtime.log.iter().filter(is_deletion).collect();
    assert_eq!(
        deletions,
        goes.then_some(&deletion).into_iter().collect::<Vec<_>>()
    );
    assert_eq!(inventory(&runtime).len(), 8);
}

/// The adoption has only written the inventory: the public webhook and its objects are kept.
#[test]
fn uninstallation_leaves_the_objects_of_a_public_webhook_that_was_not_adopted() {
    let mut runtime = public(&labelled());
    runtime.observed.webhook_objects = Some(WebhookObjects::default());
    assert!(plan_deletion(runtime.context(), &runtime.observed).is_removed());
    let plan = runtime.plan(&wanted());
    runtime.apply_action(plan.steps().flatten().next().unwrap());
    assert_eq!(inventory(&runtime).len(), 9);
    runtime.log.clear();
    runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
    assert_eq!(runtime.log, ["delete ConfigMap/rt-bootstrapper-owner"]);
}
