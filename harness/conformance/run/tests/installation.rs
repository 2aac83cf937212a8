//! Tests of the installation of the webhook for the duration of a run, and of its removal.

use api::kcp::WEBHOOK_DEPLOYMENT;
use api::names::{PULL_SECRET_COPY_LABEL, SKR_NAMESPACE, WEBHOOK_CERTIFICATE};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;

use crate::fixture::{SCENARIO, ended, endpoint, on_one, options, scenario};
use crate::objects::objects;
use crate::{Installation, Options, Run};

/// Returns the error of a run that installs the configuration of the scenario and the objects of `more`.
async fn error_of_run(server: &ApiServer, more: Option<Value>) -> String {
    let (scenario, config) = (scenario(SCENARIO), r#"{"auths": {"b.test": {}}}"#);
    let mut objects = objects(&scenario.landscape, SKR_NAMESPACE, config, "").unwrap();
    objects.extend(more);
    let run = on_one(&scenario, server).with_installation(Installation::new(objects));
    let run = run.unwrap();
    format!("{:#}", ended(run).await.unwrap_err())
}

#[rstest]
#[case::control_plane(
    "controlPlane: {mode: direct}",
    "controlPlane: expected a scenario without it"
)]
#[case::events(
    "events: [{name: e, manifest: kyma.yaml, change: {patch: {a: b}}, reported: true}]",
    "events: expected a scenario without it"
)]
#[tokio::test(start_paused = true)]
async fn installation_for_a_scenario_that_needs_more_is_refused(
    #[case] more: &str,
    #[case] said: &str,
) {
    let scenario = scenario(&format!("{SCENARIO}{more}\n"));
    let options = Options {
        only_contract: false,
        ..options()
    };
    let runtimes = vec![endpoint("skr", &ApiServer::new())];
    let run = Run::new(&scenario, None, runtimes, options).unwrap();
    let run = run.with_installation(Installation::new(Vec::new()));
    let error = run.err().unwrap().to_string();
    assert!(error.contains(said), "{error}");
}

fn secret(name: &str, namespace: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
    })
}

#[rstest]
#[case::configuration(
    "v1 ConfigMap",
    "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config"
)]
#[case::copy("v1 Secret", "/api/v1/namespaces/shop/secrets/registry-credentials")]
#[case::watcher(
    "apps/v1 Deployment",
    "/apis/apps/v1/namespaces/kyma-system/deployments/skr-webhook"
)]
#[case::webhooks_of_watcher(
    "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/skr-webhook"
)]
#[tokio::test(start_paused = true)]
async fn installation_is_refused_where_an_object_of_the_product_exists(
    #[case] kind: &str,
    #[case] path: &str,
) {
    let (api_version, kind) = kind.split_once(' ').unwrap();
    let parts: Vec<&str> = path.split('/').collect();
    let namespace = parts.iter().position(|it| *it == "namespaces");
    let metadata = json!({
        "name": parts.last(), "namespace": namespace.map(|at| parts[at + 1]),
        "labels": {(PULL_SECRET_COPY_LABEL): "true"},
    });
    let server = ApiServer::new();
    server.put(&json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}));
    let error = error_of_run(&server, None).await;
    let said = format!("nothing was changed:\n  {path}");
    assert!(error.ends_with(&said), "{error}");
    let writes = server.writes();
    let mut writes = writes.iter().filter(|it| !it.contains("selfsubject"));
    assert_eq!(writes.next(), None);
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": WEBHOOK_DEPLOYMENT, "namespace": SKR_NAMESPACE},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    })
}

/// Returns the objects on the server, apart from Namespaces.
fn left(server: &ApiServer) -> Vec<String> {
    let left = server.store().places().into_iter();
    let kinds = ["secrets", "deployments", "configmaps"];
    let left = left.filter(|it| kinds.contains(&it.resource.as_str()));
    let left = left.map(|it| format!("{} {}/{}", it.resource, it.namespace, it.name));
    left.collect()
}

/// Another client creates an object of the installation after the run has checked that it does not exist.
#[rstest]
#[case::configuration("create configmaps", json!({
    "apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": "rt-bootstrapper-config", "namespace": SKR_NAMESPACE},
}), &["configmaps kyma-system/rt-bootstrapper-config"])]
#[case::replaced_before_it_is_deleted("delete configmaps *", json!({
    "apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": "rt-bootstrapper-config", "namespace": SKR_NAMESPACE},
}), &["configmaps kyma-system/rt-bootstrapper-config"])]
#[case::webhook("create deployments", deployment(), &[
    "deployments kyma-system/rt-bootstrapper-controller-manager",
    "secrets kyma-system/rt-bootstrapper-webhook-cert",
    "secrets shop/copy",
])]
#[tokio::test(start_paused = true)]
async fn object_that_another_client_created_meanwhile_stays(
    #[case] before: &'static str,
    #[case] object: Value,
    #[case] stays: &[&str],
) {
    let server = ApiServer::new();
    server.fault(before).before(move |server| {
        let resource = before.split(' ').nth(1).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        server.remove(resource, SKR_NAMESPACE, name);
        server.put(&object);
        if object["kind"] == "Deployment" {
            server.put(&secret(WEBHOOK_CERTIFICATE, SKR_NAMESPACE, &json!({})));
            let labels = json!({(PULL_SECRET_COPY_LABEL): "true"});
            server.put(&secret("copy", "shop", &labels));
        }
    });
    error_of_run(&server, Some(deployment())).await;
    assert_eq!(left(&server), stays);
}

#[tokio::test(start_paused = true)]
async fn object_whose_creation_was_not_answered_is_removed() {
    let server = ApiServer::new();
    let lost = server.fault("create configmaps").lose_answers();
    let error = error_of_run(&server, None).await;
    assert!(error.contains("no answer within"), "{error}");
    assert_eq!((lost.hits(), left(&server)), (1, Vec::new()));
}

/// The list of all Secrets succeeds before the installation, and fails at the end of the run.
#[tokio::test(start_paused = true)]
async fn copies_that_cannot_be_listed_are_named_by_their_label() {
    let server = ApiServer::new();
    server.fault("create configmaps").before(|server| {
        server.put(&secret(WEBHOOK_CERTIFICATE, SKR_NAMESPACE, &json!({})));
        server.fault("list secrets").status(403);
    });
    let error = error_of_run(&server, Some(deployment())).await;
    let command = "kubectl --kubeconfig skr delete secrets --all-namespaces -l rt-bootstrapper.kyma-project.io/pull-secret-copy=true";
    assert!(error.contains(command), "{error}");
    let deleted = format!("delete secrets kyma-system/{WEBHOOK_CERTIFICATE}");
    assert!(server.writes().contains(&deleted), "{:?}", server.writes());
}

#[tokio::test(start_paused = true)]
async fn installation_is_removed_at_the_end_with_what_the_webhook_made() {
    let server = ApiServer::new();
    server.fault("delete configmaps *").status(403);
    server.fault("get serviceaccounts *").before(move |server| {
        server.put(&secret(WEBHOOK_CERTIFICATE, SKR_NAMESPACE, &json!({})));
        let labels = json!({(PULL_SECRET_COPY_LABEL): "true"});
        server.put(&secret("copy", "shop", &labels));
        server.put(&secret("other", "shop", &json!({})));
    });
    // The ServiceAccount of the run's namespace is never created, so the run ends with an error. It still removes all objects,
    // except those that it may not delete.
    let error = error_of_run(&server, Some(deployment())).await;
    let command = "kubectl --kubeconfig skr delete --raw /api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config";
    assert!(error.contains(command), "{error}");
    let writes = server.writes();
    let is_created = writes.iter().any(|it| it.starts_with("create deployments"));
    assert!(is_created, "{writes:?}");
    assert_eq!(left(&server), ["secrets shop/other"]);
}
