//! The controller adopts the objects that the lifecycle-manager has installed.

use api::kcp::LIFECYCLE_MANAGER_FIELD_MANAGER;

use super::*;

/// Applies an object as the lifecycle-manager.
fn applied_by_lifecycle_manager(runtime: &mut Runtime, object: &Value) {
    let target = Target::of(object).unwrap();
    let live = runtime.live(&target).cloned().unwrap_or_else(|| json!({}));
    let live = apply(live, object, LIFECYCLE_MANAGER_FIELD_MANAGER);
    runtime.put(target, Some(live));
}

fn watcher_of_lifecycle_manager() -> [Value; 3] {
    let [_, _, mut deployment] = <[Value; 3]>::try_from(manifests("1.0.0")).unwrap();
    let template = &mut deployment["spec"]["template"];
    template["metadata"]["labels"]["operator.kyma-project.io/pod-restart-trigger"] = json!("1");
    template["spec"]["containers"][0]["env"] = json!([{ "name": "TLS_CALLBACK", "value": "true" }]);
    let webhooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "skr-webhook" },
        "webhooks": [entry("one", "ca"), entry("gone", "ca")],
    });
    let mut secret = Value::clone(&certificate_secret(NAMESPACE, ["ca", "leaf", "key"], ""));
    secret["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    [deployment, webhooks, secret]
}

/// Asserts that no field of the lifecycle-manager remains, and that the controller owns all fields.
fn assert_taken_over(runtime: &Runtime) {
    for live in runtime.observed.live.values() {
        let managers = live["metadata"]["managedFields"].as_array().unwrap().iter();
        let managers: Vec<&Value> = managers.map(|it| &it["manager"]).collect();
        assert_eq!(managers, [WATCHER_FIELD_MANAGER]);
    }
    let template = &runtime.observed.live[&target(DEPLOYMENT)]["spec"]["template"];
    assert_eq!(
        template["metadata"]["labels"],
        json!({ "app": "skr-webhook" })
    );
    let container = &template["spec"]["containers"][0];
    assert_eq!(
        container["env"].as_array().map_or(0, Vec::len),
        0,
        "{container}"
    );
    let webhooks = &runtime.observed.live[&target(WEBHOOKS)]["webhooks"];
    assert_eq!(*webhooks, json!([entry("one", "ca")]));
}

#[test]
fn the_watcher_of_the_lifecycle_manager_is_taken_over_while_its_webhooks_stay() {
    let mut runtime = Runtime::new();
    for object in watcher_of_lifecycle_manager() {
        applied_by_lifecycle_manager(&mut runtime, &object);
    }
    let (written, _) = runtime.reconcile(&one());
    assert_eq!(
        written,
        [
            &format!("create {MARKER}"),
            &format!("transfer {WEBHOOKS}"),
            &format!("transfer {SECRET}"),
            &format!("transfer {DEPLOYMENT}"),
            &format!("apply {WEBHOOKS}"),
            "apply ServiceAccount/skr-webhook",
            "apply Service/skr-webhook",
            &format!("apply {SECRET}"),
            &format!("apply {DEPLOYMENT}"),
        ]
    );
    runtime.converge(&one());
    assert_taken_over(&runtime);
}

/// The API server would remove all managers.
#[test]
fn managers_whose_fields_were_not_read_are_not_written() {
    let mut runtime = Runtime::installed(&one());
    let [deployment, ..] = watcher_of_lifecycle_manager();
    applied_by_lifecycle_manager(&mut runtime, &deployment);
    runtime.edit(DEPLOYMENT, |it| {
        for entry in it["metadata"]["managedFields"].as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove("fieldsV1");
        }
    });
    let (written, _) = runtime.reconcile(&one());
    assert_eq!(written, [format!("apply {DEPLOYMENT}")]);
}

/// The lifecycle-manager still runs, or the reconcile ended between the migration and the apply.
#[rstest]
#[case::all(true)]
#[case::migration_only(false)]
fn what_the_lifecycle_manager_applies_later_is_taken_over(#[case] is_applied: bool) {
    let mut runtime = Runtime::installed(&one());
    for object in watcher_of_lifecycle_manager() {
        applied_by_lifecycle_manager(&mut runtime, &object);
    }
    for action in runtime.plan(&one()).steps.iter().flatten() {
        if is_applied || action.verb() == "transfer" {
            runtime.carry_out(action);
        }
    }
    runtime.log.clear();
    runtime.converge(&one());
    assert_taken_over(&runtime);
}
