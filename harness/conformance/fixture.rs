//! Fixtures of the tests of runs: scenarios, clusters in memory, and accessors for reports.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::kcp::KCP_NAMESPACE;
use api::names::{CONFIG_KEY, CONFIG_MAP, SKR_NAMESPACE, WEBHOOK_CONFIGURATION};
use http::header::WARNING;
use http::{HeaderValue, Request, Response};
use kube::client::Body;
use serde_json::json;
use testkit::apiserver::ApiServer;
use testkit::apiserver::kinds::{BOOTSTRAPPERS, KYMAS, RUNTIMES, WATCHERS};
use testkit::json::config_map;

use crate::{Endpoint, Failure, KCP, Options, Outcome, Report, Run, Scenario};

pub(crate) const SCENARIO: &str = "
name: x
description: y
config: {overrides: {a.test: b.test}}
pullSecret: {name: registry-credentials, registries: [b.test]}
workloads:
- {manifest: pod.yaml, expect: {unchanged: true, runs: false}}
";
pub(crate) const DOCUMENT: &str = r#"{"overrides": {"a.test": "b.test"}}"#;
const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: a.test/x}]}\n";
const KYMA: &str = "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {name: k}\nspec: {channel: regular}\n";
/// Base64 of a docker configuration for b.test with the password `hunter2`.
pub(crate) const DOCKER_CONFIG: &str =
    "eyJhdXRocyI6eyJiLnRlc3QiOnsicGFzc3dvcmQiOiJodW50ZXIyIn19fQ==";

/// Loads a scenario file next to the manifests `pod.yaml` and `kyma.yaml`.
pub(crate) fn scenario(text: &str) -> Scenario {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("pod.yaml"), POD).unwrap();
    std::fs::write(folder.path().join("kyma.yaml"), KYMA).unwrap();
    Scenario::load(&file).unwrap()
}

/// Returns a runtime with a registered webhook, a configuration document and a pull Secret.
pub(crate) fn cluster(document: &str) -> ApiServer {
    let server = ApiServer::with_kinds([&KYMAS]);
    put_sources(&server, SKR_NAMESPACE, document);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    server.put(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK_CONFIGURATION}, "webhooks": [{"name": "a.b.c", "rules": [rule]}],
    }));
    // The fault creates the ServiceAccounts that controllers of a cluster create.
    server.fault("get serviceaccounts *").before(|server| {
        for place in server.store().places() {
            if place.resource == "namespaces" {
                server.put(&json!({
                    "apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": {"name": "default", "namespace": place.name},
                }));
            }
        }
    });
    server
}

/// Returns a control plane with the same document and pull Secret as sources.
pub(crate) fn kcp(document: &str) -> ApiServer {
    let server = ApiServer::with_kinds([&BOOTSTRAPPERS, &KYMAS, &RUNTIMES, &WATCHERS]);
    put_sources(&server, KCP_NAMESPACE, document);
    server.behave(|it| it.identity = Some("uid-kcp".to_owned()));
    server
}

fn put_sources(server: &ApiServer, namespace: &str, document: &str) {
    let data = json!({(CONFIG_KEY): document});
    server.put(&config_map(namespace, CONFIG_MAP, &data));
    server.put(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "registry-credentials", "namespace": namespace},
        "data": {".dockerconfigjson": DOCKER_CONFIG},
    }));
}

pub(crate) fn endpoint(name: &str, server: &ApiServer) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        kubectl: format!("kubectl --kubeconfig {name}"),
        client: server.client(),
    }
}

/// Returns the endpoint with this metrics page for every Pod. Without a page the API server responds with 404.
pub(crate) fn with_metrics(
    endpoint: Endpoint,
    page: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> Endpoint {
    with_service(endpoint, move |request, response| {
        let is_page = request.ends_with("/proxy/metrics");
        if is_page && let Some(page) = page() {
            *response = Response::new(Body::from(page.into_bytes()));
        }
    })
}

/// Returns the endpoint with this warning for every dry run.
pub(crate) fn with_warning(endpoint: Endpoint, warning: &'static str) -> Endpoint {
    with_service(endpoint, move |request, response| {
        if request.ends_with("?dryRun=All") {
            let warning = HeaderValue::from_static(warning);
            response.headers_mut().append(WARNING, warning);
        }
    })
}

/// Returns the endpoint with responses that a function changes, which receives the path and query of the request.
fn with_service(
    endpoint: Endpoint,
    change: impl Fn(&str, &mut Response<Body>) + Send + Sync + 'static,
) -> Endpoint {
    let (client, change) = (endpoint.client.clone(), Arc::new(change));
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().to_string();
        let (client, change) = (client.clone(), Arc::clone(&change));
        async move {
            let mut response = client.send(request).await?;
            change(&path, &mut response);
            Ok::<_, kube::Error>(response)
        }
    });
    let client = kube::Client::new(service, "default");
    Endpoint { client, ..endpoint }
}

pub(crate) fn options() -> Options {
    Options {
        only_contract: true,
        patience: Duration::from_secs(5),
    }
}

pub(crate) async fn run(scenario: &Scenario, servers: &[&ApiServer]) -> Result<Report> {
    run_with(scenario, None, servers).await
}

/// Checks runtimes, and KCP if there is one.
pub(crate) async fn run_with(
    scenario: &Scenario,
    kcp: Option<&ApiServer>,
    servers: &[&ApiServer],
) -> Result<Report> {
    let kcp = kcp.map(|it| endpoint(KCP, it));
    let names = scenario.runtimes().zip(servers);
    let endpoints = names.map(|(name, server)| endpoint(name, server)).collect();
    ended(Run::new(scenario, kcp, endpoints, options())?).await
}

/// Returns a run for one runtime.
pub(crate) fn on_one<'a>(scenario: &'a Scenario, server: &ApiServer) -> Run<'a> {
    Run::new(scenario, None, vec![endpoint("skr", server)], options()).unwrap()
}

/// Executes a run without interrupting it, and returns the result.
pub(crate) async fn ended(run: Run<'_>) -> Result<Report> {
    run.run(std::future::pending(), &|_| ()).await
}

/// Returns the existing namespaces of runs and their objects.
pub(crate) fn own_places(server: &ApiServer) -> Vec<String> {
    let places = server.store().places().into_iter();
    let shown = places.map(|it| format!("{} {}/{}", it.resource, it.namespace, it.name));
    shown.filter(|it| it.contains("conformance-")).collect()
}

/// Returns the outcome of the first check with this text in its title, on any cluster.
pub(crate) fn outcome<'a>(report: &'a Report, title: &str) -> &'a Outcome {
    outcome_on(report, "", title)
}

/// Returns the outcome of the first check with this text in its title, on this cluster.
pub(crate) fn outcome_on<'a>(report: &'a Report, cluster: &str, title: &str) -> &'a Outcome {
    let own = report.checks.iter();
    let own = own.filter(|it| cluster.is_empty() || it.cluster == cluster);
    let mut found = own.filter(|it| it.title.contains(title));
    let found = found.next().map(|it| &it.outcome);
    found.unwrap_or_else(|| panic!("{cluster} {title}: {:?}", report.checks))
}

pub(crate) fn failure<'a>(report: &'a Report, title: &str) -> &'a Failure {
    failure_of(outcome(report, title))
}

pub(crate) fn failure_of(outcome: &Outcome) -> &Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn reason_of(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::NotRun { reason } => reason,
        other => panic!("{other:?}"),
    }
}
