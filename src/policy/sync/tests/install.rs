use rstest::rstest;
use serde_json::{Value, json};

use super::api_server::Runtime;
use super::samples::{desired, installation, manifests, sources};
use crate::sync::manifests::{Installation, InstallationError, Phase};
use crate::sync::observed::DeploymentStatus;
use crate::sync::target::Target;

/// The order is: the ownership ConfigMap, the configuration, the prerequisites of Pods in the order of the manifests,
/// the Deployment, and the webhook configuration when every Pod is available.
#[test]
fn a_first_installation() {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    let plan = runtime.plan(&desired);
    assert!(plan.is_deployment_pending());
    runtime.carry_out(&plan);
    assert_eq!(
        runtime.log,
        [
            "create ConfigMap/rt-bootstrapper-owner",
            "apply Secret/registry-credentials",
            "apply ClusterTrustBundle/landscape",
            "apply ConfigMap/rt-bootstrapper-config",
            "apply ServiceAccount/manager",
            "apply ClusterRole/manager-role",
            "apply Service/webhook-service",
            "apply Deployment/rt-bootstrapper-controller-manager",
        ]
    );
    runtime.log.clear();
    let plan = runtime.plan(&desired);
    assert!(
        plan.is_empty() && plan.is_deployment_pending(),
        "its Pods are not there yet"
    );
    assert_eq!(plan.installation.deployment, DeploymentStatus::Progressing);
    assert_eq!(plan.installation.complete, Some(false));
    runtime.roll_out();
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(
        runtime.log,
        ["apply MutatingWebhookConfiguration/webhook-configuration"]
    );
    let plan = runtime.plan(&desired);
    assert!(plan.is_empty() && !plan.is_deployment_pending());
    assert_eq!(plan.installation.complete, Some(false), "no caBundle yet");
    runtime.roll_out();
    let plan = runtime.plan(&desired);
    assert_eq!(plan.installation.complete, Some(true));
    assert_eq!(plan.installation.version.as_deref(), Some("0.1.0"));
    assert_eq!(
        (plan.installation.ready_replicas, plan.installation.replicas),
        (2, 2)
    );
}

/// Returns a runtime on which KIM has installed another version, which serves until the new version is available.
fn taken_over() -> Runtime {
    let mut runtime = Runtime::new();
    for manifest in manifests("1.7.0") {
        runtime.installer_applies(&manifest);
    }
    let mut role = manifests("1.7.0").remove(1);
    role["rules"] = json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["*"] }]);
    runtime.installer_applies(&role);
    let mut service = manifests("1.7.0").remove(2);
    service["spec"]["ports"][0]["targetPort"] = json!(9443);
    runtime.installer_applies(&service);
    runtime.roll_out();
    runtime
}

/// A client that creates its objects with a POST owns their fields under another name than with an apply.
#[test]
fn what_another_manager_created_is_overwritten_where_the_manifests_name_the_field() {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    let own_pods = json!({ "key": "app.kubernetes.io/name", "operator": "NotIn", "values": ["rt-bootstrapper"] });
    for mut manifest in manifests("1.7.0") {
        match manifest["kind"].as_str().unwrap() {
            "Deployment" => {
                manifest["spec"]["paused"] = json!(true);
                manifest["spec"]["template"]["spec"]["containers"][0]["command"] =
                    json!(["/manager"]);
            }
            "MutatingWebhookConfiguration" => {
                let entry = &mut manifest["webhooks"][0];
                entry["objectSelector"] = json!({ "matchExpressions": [own_pods] });
                entry["namespaceSelector"]["matchLabels"] = json!({ "foreign": "label" });
            }
            _ => {}
        }
        runtime.someone_creates(&manifest, "manager");
    }
    runtime.roll_out();
    runtime.converge(&desired);
    let live = |place: usize| runtime.get(&Target::of(&manifests("0.1.0")[place]).unwrap());
    let deployment = live(3).unwrap();
    assert_eq!(
        deployment.pointer("/spec/template/spec/containers/0/command"),
        Some(&json!(["/runtime-bootstrapper", "webhook"]))
    );
    assert_eq!(deployment.pointer("/spec/paused"), None);
    let entry = &live(4).unwrap()["webhooks"][0];
    assert_eq!(entry["objectSelector"], json!({}));
    assert_eq!(entry["namespaceSelector"].get("matchLabels"), None);
    assert!(runtime.plan(&desired).is_empty());
}

/// An apply keeps the condition, because of which the API server sends fewer Pods.
#[test]
fn a_match_condition_of_another_client_is_removed() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let target = Target::of(&manifests("0.1.0")[4]).unwrap();
    let installed = runtime.observed.installed.as_mut().unwrap();
    let entry = &mut installed.get_mut(&target).unwrap()["webhooks"][0];
    let own = entry["matchConditions"].take();
    let own = own.as_array().cloned().unwrap_or_default();
    let foreign = json!({ "name": "foreign", "expression": "false" });
    entry["matchConditions"] = json!([&[foreign], &own[..]].concat());
    runtime.converge(&desired);
    let name = "MutatingWebhookConfiguration/webhook-configuration";
    assert_eq!(
        runtime.log,
        [format!("remove-fields {name}"), format!("apply {name}")]
    );
    let entry = &runtime.get(&target).unwrap()["webhooks"][0];
    assert_eq!(entry["matchConditions"], json!(own));
    assert!(runtime.plan(&desired).is_empty());
}

/// The rollout may never end, and until then the API server would send fewer Pods.
#[rstest]
#[case::another_client("kubectl", false)]
#[case::kim(api::kcp::KIM_FIELD_MANAGER, true)]
fn a_match_condition_is_removed_while_the_rollout_is_stuck(
    #[case] manager: &str,
    #[case] is_kept: bool,
) {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    let earlier = json!({ "name": "earlier", "expression": "true" });
    let mut documents = manifests("0.1.0");
    documents[4]["webhooks"][0]["matchConditions"] = json!([earlier]);
    runtime.installation = Installation::new(documents).unwrap();
    runtime.converge(&desired);
    runtime.installation = installation("0.2.0");
    runtime.carry_out(&runtime.plan(&desired));
    runtime.hang();
    let added = json!({ "name": "added", "expression": "false" });
    let mut edited = manifests("0.1.0").remove(4);
    edited["webhooks"] = json!([{ "name": "mpod-v1.kb.io", "matchConditions": [added] }]);
    runtime.someone_applies(&edited, manager);
    for _ in 0..2 {
        runtime.carry_out(&runtime.plan(&desired));
    }
    let live = runtime.get(&Target::of(&edited).unwrap()).unwrap();
    let conditions = &live["webhooks"][0]["matchConditions"];
    let expected = if is_kept {
        json!([earlier, added])
    } else {
        json!([earlier])
    };
    assert_eq!(*conditions, expected);
    assert!(runtime.plan(&desired).is_empty());
}

/// A paused Deployment has no progress deadline, so that nothing else would end the wait for it.
#[test]
fn a_paused_deployment_goes_on() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    assert!(runtime.plan(&desired).is_empty());
    runtime.observed.deployment.as_mut().unwrap()["spec"]["paused"] = json!(true);
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(
        runtime.log,
        ["apply Deployment/rt-bootstrapper-controller-manager"]
    );
    runtime.roll_out();
    assert!(runtime.plan(&desired).is_empty());
}

/// Exactly one webhook is active at any time.
#[test]
fn a_take_over_leaves_the_old_webhook_in_force_until_the_new_one_serves() {
    let desired = desired(&sources());
    let mut runtime = taken_over();
    runtime.carry_out(&runtime.plan(&desired));
    assert!(
        !runtime.log.iter().any(|it| it.starts_with("delete")),
        "{:?}",
        runtime.log
    );
    assert!(
        !runtime
            .log
            .iter()
            .any(|it| it.starts_with("apply MutatingWebhook") || it.starts_with("apply Service/"))
    );
    let role = |runtime: &Runtime| {
        let target = Target::of(&manifests("0.1.0")[1]).unwrap();
        runtime.get(&target).unwrap()["rules"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(
        role(&runtime),
        2,
        "old Pods keep their rights, new ones have theirs"
    );
    runtime.hang();
    runtime.log.clear();
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(
        runtime.log,
        Vec::<String>::new(),
        "while Pods of both versions serve"
    );
    runtime.converge(&desired);
    assert_eq!(role(&runtime), 1);
    let webhooks: Vec<_> = runtime
        .observed
        .installed
        .as_ref()
        .unwrap()
        .iter()
        .filter(|(it, _)| it.kind() == "MutatingWebhookConfiguration")
        .collect();
    assert_eq!(webhooks.len(), 1);
    assert_eq!(webhooks[0].1["webhooks"].as_array().unwrap().len(), 1);
    assert!(runtime.plan(&desired).is_empty());
}

/// A changed version is an upgrade. A changed manifest with the same version is also applied.
#[test]
fn upgrades() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    assert!(runtime.plan(&desired).is_empty());
    runtime.installation = installation("0.2.0");
    let plan = runtime.plan(&desired);
    assert_eq!(
        plan.installation.deployment,
        DeploymentStatus::Progressing,
        "what is available is not what is wanted"
    );
    runtime.carry_out(&plan);
    assert_eq!(
        runtime.log,
        ["apply Deployment/rt-bootstrapper-controller-manager"]
    );
    let mut documents = manifests("0.2.0");
    documents[3]["spec"]["replicas"] = json!(3);
    runtime.installation = Installation::new(documents).unwrap();
    assert_eq!(
        runtime.plan(&desired).steps().count(),
        1,
        "the label alone does not decide"
    );
}

/// A rollout that exceeds the progress deadline has failed, and a new version replaces it.
#[test]
fn a_failed_rollout_is_replaced_by_a_new_version() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    runtime.hang();
    let live = runtime.observed.deployment.as_mut().unwrap();
    live["status"]["conditions"] = json!([
        { "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" }
    ]);
    assert_eq!(
        runtime.plan(&desired).installation.deployment,
        DeploymentStatus::Failed
    );
    runtime.installation = installation("0.2.0");
    let plan = runtime.plan(&desired);
    assert_eq!(plan.installation.deployment, DeploymentStatus::Progressing);
    runtime.carry_out(&plan);
    runtime.converge(&desired);
}

/// The cases include status fields that KIM does not check.
#[rstest]
#[case::all_well(json!({}), DeploymentStatus::Available)]
#[case::not_seen_yet(json!({"observedGeneration": 1}), DeploymentStatus::Progressing)]
#[case::old_pod_left(json!({"replicas": 3}), DeploymentStatus::Progressing)]
#[case::half_updated(json!({"updatedReplicas": 1}), DeploymentStatus::Progressing)]
#[case::half_ready(json!({"readyReplicas": 1}), DeploymentStatus::Progressing)]
#[case::not_long_enough(json!({"availableReplicas": 1}), DeploymentStatus::Progressing)]
#[case::unavailable(json!({"conditions": [{"type": "Available", "status": "False"}]}), DeploymentStatus::Progressing)]
#[case::failed(json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}), DeploymentStatus::Failed)]
#[case::failed_before_the_new_spec(json!({"observedGeneration": 1, "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}), DeploymentStatus::Progressing)]
fn rollouts(#[case] changes: Value, #[case] expected: DeploymentStatus) {
    let mut live = json!({
        "metadata": { "generation": 2 }, "spec": { "replicas": 2 },
        "status": { "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 2, "conditions": [{ "type": "Available", "status": "True" }] },
    });
    for (key, value) in changes.as_object().unwrap() {
        live["status"][key] = value.clone();
    }
    assert_eq!(DeploymentStatus::of(Some(&live)), expected);
    assert_eq!(DeploymentStatus::of(None), DeploymentStatus::Missing);
}

/// A reconcile of only the configuration changes no manifests, because it did not read them.
#[test]
fn what_was_not_looked_at_is_left_alone() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    runtime.observed.installed = None;
    let plan = runtime.plan(&desired);
    assert!(plan.is_empty());
    assert_eq!(plan.installation.complete, None);
}

#[rstest]
#[case::rbac(1, "/rules/0/verbs", json!(["*"]), &["apply ClusterRole/manager-role"])]
#[case::service(2, "/spec/selector", json!({}), &["apply Service/webhook-service"])]
#[case::webhook(4, "/webhooks/0/failurePolicy", json!("Fail"), &["apply MutatingWebhookConfiguration/webhook-configuration"])]
#[case::webhook_gone(4, "", Value::Null, &["apply MutatingWebhookConfiguration/webhook-configuration"])]
fn drift(
    #[case] index: usize,
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] writes: &[&str],
) {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let target = Target::of(&manifests("0.1.0")[index]).unwrap();
    let installed = runtime.observed.installed.as_mut().unwrap();
    if pointer.is_empty() {
        installed.remove(&target);
    } else {
        *installed
            .get_mut(&target)
            .unwrap()
            .pointer_mut(pointer)
            .unwrap() = value;
    }
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(runtime.log, writes);
    assert!(runtime.plan(&desired).is_empty());
}

/// Recreating the Deployment would leave the runtime without a webhook, so that an operator must decide.
#[test]
fn another_selector_is_nothing_to_replace_by_itself() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    runtime.observed.deployment.as_mut().unwrap()["spec"]["selector"] =
        json!({ "matchLabels": { "a": "b" } });
    let plan = runtime.plan(&desired);
    assert!(plan.is_empty());
    assert_eq!(
        plan.installation.immutable_conflict.unwrap().kind(),
        "Deployment"
    );
}

#[rstest]
#[case(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}), "/api/v1/namespaces/default/serviceaccounts/a")]
#[case(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "b"}}), "/api/v1/namespaces/b/serviceaccounts/a")]
#[case(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "a", "namespace": "b"}}), "/apis/scheduling.k8s.io/v1/priorityclasses/a")]
#[case(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": ""}}), "/apis/apps/v1/namespaces/default/deployments/a")]
fn places(#[case] object: Value, #[case] path: &str) {
    let target = Target::of(&object).unwrap();
    assert_eq!(target.path(), path);
    assert_eq!(target.api_version(), object["apiVersion"]);
}

/// Manifests that cannot be installed are an error immediately, not an endless installation.
#[rstest]
#[case::empty(vec![], "there are no manifests")]
#[case::no_deployment(manifests("1")[..3].to_vec(), "the manifests contain 0 Deployments, expected one")]
#[case::no_version(vec![{ let mut it = manifests("1").remove(3); it["metadata"]["labels"] = json!({}); it }], "the Deployment has no label `app.kubernetes.io/version`")]
#[case::unknown_kind(vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})], "manifest 1 is invalid: kind `Pod` (v1) is not supported")]
#[case::no_name(vec![json!({"apiVersion": "v1", "kind": "Secret"})], "manifest 1 is invalid: Secret has no name")]
#[case::null(vec![Value::Null], "manifest 1 is invalid: kind `` () is not supported")]
#[case::the_document([manifests("1"), vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config", "namespace": "kyma-system"}})]].concat(), "the manifests contain the ConfigMap `rt-bootstrapper-config`, which is synchronized from KCP")]
fn unusable_manifests(#[case] documents: Vec<Value>, #[case] text: &str) {
    let error: InstallationError = Installation::new(documents).unwrap_err();
    assert_eq!(crate::sync::status::error_chain(&error), text);
}

/// A value may contain a YAML or PEM separator.
#[test]
fn a_value_may_look_like_a_separator() {
    let mut documents = manifests("0.1.0");
    let text = "a\n---\n-----BEGIN CERTIFICATE-----\n";
    documents.push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ca", "namespace": "kyma-system" }, "data": { "ca.crt": text } }));
    let installation = Installation::new(documents).unwrap();
    assert_eq!(installation.manifests().len(), 6);
    assert_eq!(installation.manifests()[5].object["data"]["ca.crt"], text);
}

#[test]
fn an_installation_is_known_by_its_hash() {
    assert_eq!(installation("0.1.0").hash(), installation("0.1.0").hash());
    assert_ne!(installation("0.1.0").hash(), installation("0.1.1").hash());
    assert_eq!(installation("0.1.0").version(), "0.1.0");
    assert_eq!(
        installation("0.1.0").deployment().unwrap().name(),
        "rt-bootstrapper-controller-manager"
    );
    let phases: Vec<Phase> = installation("0.1.0")
        .manifests()
        .iter()
        .map(|it| it.phase)
        .collect();
    assert_eq!(
        phases[2..],
        [Phase::Prerequisites, Phase::Deployment, Phase::Webhook]
    );
}
