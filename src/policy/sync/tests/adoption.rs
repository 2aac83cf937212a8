//! Adoption of the objects of KIM and of the public webhook, and orphaning.

use api::kcp::MANIFEST_HASH;
use rstest::rstest;
use serde_json::{Value, json};

use super::api_server::Runtime;
use super::samples::{desired, manifests, sources};
use crate::sync::inventory::candidates;
use crate::sync::plan::plan_orphan;
use crate::sync::target::Target;

const WEBHOOK_MANAGER: &str = "rt-bootstrapper-webhook";

/// Returns manifests in the shape of the public manifests: each has fields that the manifests of this project do not contain.
fn public() -> Vec<Value> {
    let own_pods = json!({ "key": "app.kubernetes.io/name", "operator": "NotIn", "values": ["rt-bootstrapper"] });
    let mut all = manifests("1.7.0");
    all[2]["spec"]["ports"][0]["nodePort"] = json!(30443);
    let template = &mut all[3]["spec"]["template"];
    template["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/default-container": "manager" });
    template["spec"]["volumes"] =
        json!([{ "name": "rt-bootstrapper-config", "configMap": { "name": "x" } }]);
    let container = &mut template["spec"]["containers"][0];
    container["command"] = json!(["/manager"]);
    container["readinessProbe"] = json!({ "initialDelaySeconds": 5 });
    container["env"] = json!([{ "name": "OLD", "value": "1" }]);
    let entry = &mut all[4]["webhooks"][0];
    entry["objectSelector"] = json!({ "matchExpressions": [own_pods] });
    entry["timeoutSeconds"] = json!(10);
    all
}

/// A function that writes a manifest to a runtime.
type Write = fn(&mut Runtime, &Value);

fn created(runtime: &mut Runtime, manifest: &Value) {
    runtime.someone_creates(manifest, "manager");
}

fn created_and_applied(runtime: &mut Runtime, manifest: &Value) {
    runtime.someone_creates(manifest, "manager");
    runtime.installer_applies(manifest);
}

fn applied(runtime: &mut Runtime, manifest: &Value) {
    runtime.installer_applies(manifest);
}

fn place(index: usize) -> Target {
    Target::of(&manifests("0.1.0")[index]).unwrap()
}

fn live(runtime: &Runtime, index: usize) -> &Value {
    runtime.get(&place(index)).unwrap()
}

/// Returns the managers of an object with their operations.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let text = |it: &Value| format!("{} {}", it["manager"], it["operation"]).replace('"', "");
    let mut all: Vec<String> = entries.iter().map(text).collect();
    all.sort_unstable();
    all
}

fn installed_by_kim(write: Write) -> Runtime {
    let mut runtime = Runtime::new();
    for manifest in public() {
        write(&mut runtime, &manifest);
    }
    runtime.roll_out();
    runtime
}

#[rstest]
#[case::created(created)]
#[case::created_and_applied(created_and_applied)]
#[case::applied(applied)]
fn adoption_removes_fields_that_the_manifests_do_not_name(#[case] write: Write) {
    let desired = desired(&sources());
    let mut runtime = installed_by_kim(write);
    runtime.converge(&desired);
    let deployment = live(&runtime, 3);
    let template = &deployment["spec"]["template"];
    for (pointer, expected) in [
        (
            "/metadata/annotations/kubectl.kubernetes.io~1default-container",
            None,
        ),
        ("/spec/volumes/0", None),
        ("/spec/containers/0/env/0", None),
        (
            "/spec/containers/0/readinessProbe/initialDelaySeconds",
            None,
        ),
        (
            "/spec/containers/0/command/0",
            Some(&json!("/runtime-bootstrapper")),
        ),
    ] {
        assert_eq!(template.pointer(pointer), expected, "{pointer}: {template}");
    }
    let entry = &live(&runtime, 4)["webhooks"][0];
    assert_eq!(entry["objectSelector"], json!({}));
    assert_eq!(entry["timeoutSeconds"], Value::Null);
    assert_eq!(
        live(&runtime, 2)["spec"]["ports"][0]["nodePort"],
        Value::Null
    );
    for index in 0..5 {
        let owners = managers(live(&runtime, index));
        assert_eq!(owners, ["rt-bootstrapper-controller Apply"], "{index}");
    }
    assert!(runtime.plan(&desired).is_empty());
}

/// The public webhook applies the whole configuration with its `caBundle`. The webhook of this project patches only
/// the `caBundle`.
#[rstest]
#[case::public_webhook("Apply", true)]
#[case::our_webhook("Update", false)]
fn adoption_leaves_the_ca_bundle_to_the_webhook(#[case] operation: &str, #[case] whole: bool) {
    let desired = desired(&sources());
    let mut runtime = installed_by_kim(created);
    bundle(&mut runtime, operation, whole);
    runtime.converge(&desired);
    let configuration = live(&runtime, 4);
    let entry = &configuration["webhooks"][0];
    assert_eq!(entry["clientConfig"]["caBundle"], "Q0E=");
    assert_eq!(entry["objectSelector"], json!({}));
    assert_eq!(entry["timeoutSeconds"], Value::Null);
    assert_eq!(
        managers(configuration),
        [
            "rt-bootstrapper-controller Apply",
            "rt-bootstrapper-webhook Update"
        ]
    );
    runtime.carry_out(&plan_orphan(runtime.context(), &runtime.observed));
    let configuration = live(&runtime, 4);
    assert_eq!(
        configuration["webhooks"][0]["clientConfig"]["caBundle"],
        "Q0E="
    );
    assert_eq!(
        managers(configuration),
        ["kim-bootstrapper Apply", "rt-bootstrapper-webhook Update"]
    );
}

/// Sets a `caBundle` as the webhook, which owns only the `caBundle` or all fields of the configuration.
fn bundle(runtime: &mut Runtime, operation: &str, whole: bool) {
    let installed = runtime.observed.installed.as_mut().unwrap();
    let configuration = installed.get_mut(&place(4)).unwrap();
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!("Q0E=");
    let item = json!({ "f:clientConfig": { "f:caBundle": {} } });
    let mut fields = json!({ "f:webhooks": { r#"k:{"name":"mpod-v1.kb.io"}"#: item } });
    let entries = configuration["metadata"]["managedFields"]
        .as_array_mut()
        .unwrap();
    if whole {
        fields = entries[0]["fieldsV1"].clone();
        let items = fields["f:webhooks"].as_object_mut().unwrap();
        for item in items.values_mut() {
            item["f:clientConfig"]["f:caBundle"] = json!({});
        }
    }
    entries.push(json!({
        "manager": WEBHOOK_MANAGER, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields,
    }));
}

/// The controllers of Kubernetes write annotations and the status of a Deployment.
#[test]
fn adoption_leaves_fields_of_the_controllers_of_kubernetes() {
    let desired = desired(&sources());
    let mut runtime = installed_by_kim(created);
    let deployment = runtime.observed.deployment.as_mut().unwrap();
    deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("1");
    let revision =
        json!({ "f:metadata": { "f:annotations": { "f:deployment.kubernetes.io/revision": {} } } });
    let entries = deployment["metadata"]["managedFields"]
        .as_array_mut()
        .unwrap();
    for (manager, subresource) in [
        ("kube-controller-manager", Value::Null),
        ("any", json!("status")),
    ] {
        entries.push(json!({
            "manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": revision,
        }));
    }
    runtime.converge(&desired);
    let deployment = live(&runtime, 3);
    let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
    assert_eq!(revision, "1");
    assert_eq!(managers(deployment).len(), 3);
}

/// Fields that another client adds to an adopted object are kept, so that the controller does not overwrite them repeatedly.
#[test]
fn adopted_object_keeps_fields_that_another_client_adds() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let restart = json!({ "spec": { "template": { "metadata": { "annotations": { "restartedAt": "now" } } } } });
    let mut edited = manifests("0.1.0")[3].clone();
    edited["spec"] = restart["spec"].clone();
    edited["metadata"].as_object_mut().unwrap().remove("labels");
    runtime.someone_applies(&edited, "kubectl");
    runtime.roll_out();
    let plan = runtime.plan(&desired);
    assert!(plan.is_empty(), "{plan:?}");
}

/// KIM applies its manifests again to an adopted runtime: fields that KIM adds are removed, too.
#[test]
fn adopted_object_loses_fields_that_kim_adds() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let mut account = manifests("0.1.0")[0].clone();
    account["imagePullSecrets"] = json!([{ "name": "old" }]);
    runtime.installer_applies(&account);
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(
        runtime.log,
        [
            "transfer ServiceAccount/manager",
            "apply ServiceAccount/manager"
        ]
    );
    assert_eq!(live(&runtime, 0)["imagePullSecrets"], Value::Null);
    assert!(runtime.plan(&desired).is_empty());
}

/// The reconcile ends between the two writes.
#[test]
fn handover_without_its_apply_is_followed_by_the_apply() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let mut account = manifests("0.1.0")[0].clone();
    account["imagePullSecrets"] = json!([{ "name": "old" }]);
    runtime.installer_applies(&account);
    let plan = runtime.plan(&desired);
    let first = plan.steps().flatten().next().unwrap();
    runtime.apply_action(first);
    assert_eq!(
        live(&runtime, 0)["metadata"]["annotations"][MANIFEST_HASH],
        Value::Null
    );
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(live(&runtime, 0)["imagePullSecrets"], Value::Null);
    assert!(runtime.plan(&desired).is_empty());
}

/// The ownership ConfigMap also exists if the controller has installed the watcher.
#[rstest]
#[case::absent(None, true)]
#[case::of_the_watcher(Some(api::kcp::OWNER_WATCHER_INVENTORY), true)]
#[case::of_the_webhook(Some(api::kcp::OWNER_INVENTORY), false)]
fn what_the_public_manifests_alone_have_is_looked_for_once(
    #[case] key: Option<&str>,
    #[case] is_looked_for: bool,
) {
    let mut runtime = Runtime::new();
    for manifest in public() {
        created(&mut runtime, &manifest);
    }
    runtime.observed.marker = key.map(|key| json!({ "data": { key: "" } }));
    let found = candidates(&runtime.installation, &runtime.names, &runtime.observed);
    assert_eq!(!found.is_empty(), is_looked_for);
}
