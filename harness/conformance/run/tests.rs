use std::path::Path;

use api::names::{CONFIG_KEY, CONFIG_MAP, SKR_NAMESPACE, WEBHOOK_CONFIGURATION};
use rstest::rstest;
use serde_json::Value;
use testkit::apiserver::ApiServer;

use super::*;
use crate::Verdict;

const SCENARIO: &str = "
name: x
description: y
config: {overrides: {a.test: b.test}}
pullSecret: {name: registry-credentials, registries: [b.test]}
workloads:
- {manifest: pod.yaml, expect: {unchanged: true, runs: false}}
";
const DOCUMENT: &str = r#"{"overrides": {"a.test": "b.test"}}"#;
const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: a.test/x}]}\n";
/// Base64 of a docker configuration for b.test with the password `hunter2`.
const DOCKER_CONFIG: &str = "eyJhdXRocyI6eyJiLnRlc3QiOnsicGFzc3dvcmQiOiJodW50ZXIyIn19fQ==";

fn scenario(text: &str) -> Scenario {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("pod.yaml"), POD).unwrap();
    Scenario::load(&file).unwrap()
}

/// A cluster with the webhook registered, a configuration document and a pull Secret.
fn cluster(document: &str) -> ApiServer {
    let server = ApiServer::new();
    server.put(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": SKR_NAMESPACE}, "data": {(CONFIG_KEY): document},
    }));
    server.put(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "registry-credentials", "namespace": SKR_NAMESPACE},
        "data": {".dockerconfigjson": DOCKER_CONFIG},
    }));
    register(&server, WEBHOOK_CONFIGURATION);
    // What the controllers of a cluster do.
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

fn register(server: &ApiServer, name: &str) {
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    server.put(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [{"name": "a.b.c", "rules": [rule]}],
    }));
}

fn endpoint(name: &str, server: &ApiServer) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        kubectl: format!("kubectl --kubeconfig {name}"),
        client: server.client(),
    }
}

fn options() -> Options {
    Options {
        only_contract: true,
        patience: Duration::from_secs(5),
    }
}

async fn run(scenario: &Scenario, servers: &[&ApiServer]) -> Result<Report> {
    let names = scenario.runtimes().zip(servers);
    let endpoints = names.map(|(name, server)| endpoint(name, server)).collect();
    let run = Run::new(scenario, None, endpoints, options())?;
    run.run(std::future::pending(), &|_| ()).await
}

fn outcome<'a>(report: &'a Report, title: &str) -> &'a Outcome {
    let found = report.checks.iter().find(|it| it.title.contains(title));
    &found
        .unwrap_or_else(|| panic!("{title}: {:?}", report.checks))
        .outcome
}

fn failure<'a>(report: &'a Report, title: &str) -> &'a crate::Failure {
    match outcome(report, title) {
        Outcome::Failed(failure) => failure,
        other => panic!("{title}: {other:?}"),
    }
}

fn own_namespaces(server: &ApiServer) -> usize {
    let places = server.store().places();
    places
        .iter()
        .filter(|it| {
            it.name.starts_with("conformance-") || it.namespace.starts_with("conformance-")
        })
        .count()
}

#[tokio::test(start_paused = true)]
async fn cluster_that_is_as_the_scenario_says_conforms_and_keeps_nothing() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let report = run(&scenario, &[&server]).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Conforms, "{:?}", report.checks);
    assert_eq!(report.pods.len(), 1);
    let namespaces = server.requests_of("create namespaces *");
    assert_eq!(namespaces.len(), 1);
    assert!(
        server
            .writes()
            .iter()
            .any(|it| it.starts_with("create pods conformance-")),
        "{:?}",
        server.writes()
    );
    let left = server
        .store()
        .places()
        .into_iter()
        .filter(|it| it.resource == "namespaces");
    assert!(
        !left.clone().any(|it| it.name.starts_with("conformance-")),
        "{:?}",
        left.collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn every_write_of_a_run_is_in_the_list_of_a_dry_run_and_in_namespaces_of_its_own() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let listed = Run::new(&scenario, None, vec![endpoint("skr", &server)], options())
        .unwrap()
        .requests();
    let lines: Vec<String> = listed[0].1.iter().map(ToString::to_string).collect();
    assert!(server.requests().is_empty(), "a list sends nothing");
    let writes = lines
        .iter()
        .filter(|it| !it.starts_with("GET") && !it.contains("selfsubjectaccessreviews"));
    let foreign: Vec<&String> = writes
        .filter(|it| !it.contains("/namespaces/conformance-"))
        .collect();
    assert_eq!(
        foreign,
        ["POST   /api/v1/namespaces  # a namespace of this run"]
    );
}

#[tokio::test(start_paused = true)]
async fn missing_webhook_is_reported_with_the_command_that_installs_it() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    server.remove("mutatingwebhookconfigurations", "", WEBHOOK_CONFIGURATION);
    let report = run(&scenario, &[&server]).await.unwrap();
    let failure = failure(&report, "registered");
    assert_eq!(
        failure.cause,
        "the webhook is not installed on this cluster"
    );
    assert!(
        failure
            .next
            .starts_with("runtime-bootstrapper manifests webhook"),
        "{}",
        failure.next
    );
    assert_eq!(report.verdict(), Verdict::Differs);
}

#[rstest]
#[case::absent(None, "no such ConfigMap or key")]
#[case::invalid(Some("{\"overrides\": 7}"), "not valid: line 1, column 15: overrides")]
#[tokio::test(start_paused = true)]
async fn broken_configuration_is_a_failure_and_its_workloads_are_not_run(
    #[case] document: Option<&str>,
    #[case] said: &str,
) {
    let (scenario, server) = (scenario(SCENARIO), cluster(document.unwrap_or_default()));
    if document.is_none() {
        server.remove("configmaps", SKR_NAMESPACE, CONFIG_MAP);
    }
    let report = run(&scenario, &[&server]).await.unwrap();
    assert!(
        failure(&report, "document").found.starts_with(said),
        "{:?}",
        report.checks
    );
    assert!(matches!(
        outcome(&report, "Pods of pod"),
        Outcome::NotRun { .. }
    ));
    assert_eq!(server.requests_of("create namespaces *").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn configuration_of_another_landscape_is_not_run_and_its_differences_are_named() {
    let other = r#"{"overrides": {"a.test": "c.test"}, "optOut": []}"#;
    let (scenario, server) = (scenario(SCENARIO), cluster(other));
    let report = run(&scenario, &[&server]).await.unwrap();
    let Outcome::NotRun { reason } = outcome(&report, "document") else {
        panic!("{:?}", report.checks);
    };
    assert!(
        reason.contains("overrides.a.test: is \"c.test\", expected \"b.test\""),
        "{reason}"
    );
    assert!(
        reason.contains("optOut: is [], and the scenario has no such key"),
        "{reason}"
    );
    assert_eq!(
        report.verdict(),
        Verdict::Differs,
        "what was not run has shown nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn no_report_has_anything_of_a_secret() {
    let text = SCENARIO.replace("registries: [b.test]", "registries: [other.test]");
    let (scenario, server) = (scenario(&text), cluster(DOCUMENT));
    let report = run(&scenario, &[&server]).await.unwrap();
    assert_eq!(
        failure(&report, "pull Secret").found,
        "credentials for [\"b.test\"]"
    );
    let folder = tempfile::tempdir().unwrap();
    report.write(folder.path()).unwrap();
    for file in ["report.json", "junit.xml", "report.html"] {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap() + &report.summary();
        assert!(text.contains("b.test"), "{file} was not written");
        assert!(
            !text.contains("hunter2") && !text.contains(&DOCKER_CONFIG[..20]),
            "{file}: {text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn same_cluster_twice_is_an_error_and_nothing_is_made() {
    let text = format!("{SCENARIO}runtimes: [{{name: one}}, {{name: two}}]\n");
    let (scenario, server) = (scenario(&text), cluster(DOCUMENT));
    let error = run(&scenario, &[&server, &server])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("one and two are the same cluster"),
        "{error}"
    );
    assert_eq!(own_namespaces(&server), 0);
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_all_named_before_anything_is_made() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    server.behave(|it| it.rights = testkit::apiserver::Rights::with_verbs(&["get", "list"]));
    let error = run(&scenario, &[&server]).await.unwrap_err().to_string();
    for right in [
        "create namespaces cluster-wide",
        "create pods in the namespaces of a run",
        "delete pods in the namespaces of a run",
    ] {
        assert!(error.contains(right), "{right}: {error}");
    }
    assert!(!error.contains("get configmaps"), "{error}");
    assert_eq!(server.requests_of("create namespaces *").len(), 0);
}

#[tokio::test]
async fn kubeconfig_that_leads_nowhere_is_an_error_that_names_cluster_and_cause() {
    let scenario = scenario(SCENARIO);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
        clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: a, user: {}}]\n";
    std::fs::write(&file, text).unwrap();
    let endpoint = Endpoint::of_file("skr", &file).await.unwrap();
    let run = Run::new(&scenario, None, vec![endpoint], options()).unwrap();
    let error = run
        .run(std::future::pending(), &|_| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("skr: POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews: "),
        "{error}"
    );
    assert!(error.contains("refused"), "{error}");
    let missing = Endpoint::of_file("skr", Path::new("/none"))
        .await
        .err()
        .unwrap();
    assert!(
        format!("{missing:#}").starts_with("kubeconfig /none: "),
        "{missing:#}"
    );
}

#[tokio::test(start_paused = true)]
async fn another_number_of_kubeconfigs_is_an_error() {
    let scenario = scenario(SCENARIO);
    let error = Run::new(&scenario, None, Vec::new(), options())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.ends_with("0 kubeconfigs of runtimes, expected one for each of [\"skr\"]"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn interrupted_run_removes_what_it_made() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let hold = server.fault("create pods *").hold();
    let interrupt = async {
        let is_held = || async { hold.hits() > 0 };
        until("the Pod is being created", Duration::from_secs(5), is_held)
            .await
            .unwrap();
    };
    let run = Run::new(&scenario, None, vec![endpoint("skr", &server)], options()).unwrap();
    let error = run.run(interrupt, &|_| ()).await.unwrap_err().to_string();
    assert_eq!(error, "interrupted");
    let namespaces = server
        .store()
        .places()
        .into_iter()
        .filter(|it| it.resource == "namespaces");
    assert_eq!(server.requests_of("create namespaces *").len(), 1);
    assert!(
        !namespaces
            .clone()
            .any(|it| it.name.starts_with("conformance-"))
    );
}

#[tokio::test(start_paused = true)]
async fn run_ends_when_its_namespaces_are_gone_and_not_when_their_deletion_begins() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let own = |server: &ApiServer| {
        let places = server.store().places().into_iter();
        let mut own = places.filter(|it| it.name.starts_with("conformance-"));
        own.next().map(|it| it.name)
    };
    server.fault("delete namespaces *").before(move |server| {
        let name = own(server).unwrap();
        server.edit("namespaces", ("", &name), |it| {
            it["metadata"]["finalizers"] = json!(["a.test/slow"]);
        });
    });
    server.fault("get namespaces *").before(move |server| {
        let Some(name) = own(server) else { return };
        let gets = server.count(&format!("get namespaces {name}"));
        if gets == 5 {
            server.remove("namespaces", "", &name);
        }
    });
    let report = run(&scenario, &[&server]).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Conforms, "{:?}", report.checks);
    assert_eq!(own(&server), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_removed_is_an_error_with_the_command_that_removes_it() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    server.fault("delete namespaces *").status(403);
    let error = run(&scenario, &[&server]).await.unwrap_err().to_string();
    assert!(
        error.contains("kubectl --kubeconfig skr delete namespace conformance-"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn installation_is_refused_where_an_object_of_it_exists() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let objects = crate::objects::objects(&scenario.landscape, SKR_NAMESPACE, "{}", "").unwrap();
    let run = Run::new(&scenario, None, vec![endpoint("skr", &server)], options()).unwrap();
    let run = run.with_installation(Installation::new(objects));
    let error = run
        .run(std::future::pending(), &|_| ())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config"),
        "{error}"
    );
    let writes = server
        .writes()
        .into_iter()
        .filter(|it| !it.contains("selfsubject"));
    assert_eq!(
        writes.count(),
        0,
        "nothing was changed: {:?}",
        server.writes()
    );
}

#[tokio::test(start_paused = true)]
async fn installation_is_removed_at_the_end_with_what_the_webhook_made() {
    let (scenario, server) = (scenario(SCENARIO), ApiServer::new());
    let mut objects = crate::objects::objects(
        &scenario.landscape,
        SKR_NAMESPACE,
        r#"{"auths": {"b.test": {}}}"#,
        "",
    )
    .unwrap();
    objects.push(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": WEBHOOK_DEPLOYMENT, "namespace": SKR_NAMESPACE},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    }));
    let made = |name: &str, namespace: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace, "labels": labels},
        })
    };
    server.fault("get serviceaccounts *").before(move |server| {
        server.put(&made(
            names::WEBHOOK_CERTIFICATE,
            SKR_NAMESPACE,
            Value::Null,
        ));
        server.put(&made(
            "copy",
            "shop",
            json!({(names::PULL_SECRET_COPY_LABEL): "true"}),
        ));
        server.put(&made("other", "shop", Value::Null));
    });
    let run = Run::new(&scenario, None, vec![endpoint("skr", &server)], options()).unwrap();
    let run = run.with_installation(Installation::new(objects));
    // The ServiceAccount of its namespace does not come: the run ends with an error, and removes everything all the same.
    run.run(std::future::pending(), &|_| ()).await.unwrap_err();
    assert!(
        server
            .writes()
            .iter()
            .any(|it| it.starts_with("create deployments")),
        "{:?}",
        server.writes()
    );
    let left = server
        .store()
        .places()
        .into_iter()
        .filter(|it| ["secrets", "deployments", "configmaps"].contains(&it.resource.as_str()));
    let left: Vec<String> = left
        .map(|it| format!("{} {}/{}", it.resource, it.namespace, it.name))
        .collect();
    assert_eq!(left, ["secrets shop/other"]);
}
