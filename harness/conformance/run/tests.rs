use std::path::Path;
use std::sync::Arc;

use api::kcp::WEBHOOK_DEPLOYMENT;
use api::names::{self, CONFIG_MAP, SKR_NAMESPACE, WEBHOOK_CONFIGURATION};
use http::{Method, Request};
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;
use testkit::locked;
use testkit::until::until;

use super::*;
use crate::Verdict;
use crate::fixture::{
    DOCKER_CONFIG, DOCUMENT, SCENARIO, cluster, endpoint, failure, kcp, options, outcome, run,
    scenario, with_metrics,
};

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

type Sent = Arc<Mutex<Vec<(Method, String)>>>;

/// The same endpoint, and the requests that are sent to it.
fn recorded(endpoint: Endpoint) -> (Endpoint, Sent) {
    let sent = Sent::default();
    let (client, seen) = (endpoint.client.clone(), Arc::clone(&sent));
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        locked(&seen).push((request.method().clone(), path));
        let client = client.clone();
        async move { client.send(request).await }
    });
    let client = kube::Client::new(service, "default");
    (Endpoint { client, ..endpoint }, sent)
}

#[tokio::test(start_paused = true)]
async fn every_request_of_a_run_is_in_the_list_of_a_dry_run() {
    let event =
        "{name: e, manifest: kyma.yaml, change: {patch: {spec: {channel: fast}}}, reported: false}";
    let text = format!("{SCENARIO}controlPlane: {{mode: direct}}\nevents: [{event}]\n");
    let (scenario, server) = (scenario(&text), cluster(DOCUMENT));
    server.put(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "w", "namespace": SKR_NAMESPACE, "labels": {"app": "skr-webhook"}},
    }));
    let page = || Some("watcher_outbox_events 0\n".to_owned());
    let (plane, of_plane) = recorded(endpoint(KCP, &kcp(DOCUMENT)));
    let (skr, of_skr) = recorded(with_metrics(endpoint("skr", &server), page));
    let options = Options {
        only_contract: false,
        ..options()
    };
    let run = Run::new(&scenario, Some(plane), vec![skr], options).unwrap();
    let listed = run.requests();
    run.run(std::future::pending(), &|_| ()).await.unwrap();
    for ((cluster, allowed), sent) in listed.iter().zip([of_plane, of_skr]) {
        let sent = std::mem::take(&mut *locked(&sent));
        for (method, path) in &sent {
            let is_listed = allowed.iter().any(|it| it.allows(method, path));
            assert!(is_listed, "{cluster}: {method} {path}");
        }
        let version = (Method::GET, "/version".to_owned());
        assert!(sent.contains(&version), "{cluster}: {sent:?}");
        let lines: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let line = "GET    /version  # version of the API server";
        assert!(lines.iter().any(|it| it == line), "{cluster}: {lines:?}");
    }
    assert_eq!(server.count("patch kymas"), 1, "the event was checked");
}

#[rstest]
#[case::the_same(Some(json!({"app.kubernetes.io/version": env!("CARGO_PKG_VERSION")})), None)]
#[case::another(
    Some(json!({"app.kubernetes.io/version": "0.0.9"})),
    Some("has version 0.0.9; the checks are those of version ")
)]
#[case::unknown(Some(json!({})), Some("has no label app.kubernetes.io/version; the checks are"))]
#[case::not_installed(None, Some("does not exist; the checks are those of version "))]
#[tokio::test(start_paused = true)]
async fn webhook_of_another_version_is_not_run_and_both_versions_are_named(
    #[case] labels: Option<Value>,
    #[case] said: Option<&str>,
) {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let is_installed = labels.is_some();
    if let Some(labels) = labels {
        server.put(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": WEBHOOK_DEPLOYMENT, "namespace": SKR_NAMESPACE, "labels": labels},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "r.test/webhook:7"}]}}},
        }));
    }
    let with_all = Options {
        only_contract: false,
        ..options()
    };
    let title = "The webhook has the version of this program";
    let endpoints = || vec![endpoint("skr", &server)];
    let all = Run::new(&scenario, None, endpoints(), with_all).unwrap();
    let report = all.run(std::future::pending(), &|_| ()).await.unwrap();
    match (outcome(&report, title), said) {
        (Outcome::Passed, None) => {}
        (Outcome::NotRun { reason }, Some(said)) => {
            let place = "Deployment kyma-system/rt-bootstrapper-controller-manager ";
            let own = env!("CARGO_PKG_VERSION");
            assert!(reason.starts_with(place), "{reason}");
            assert!(reason.contains(said) && reason.ends_with(own), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let webhook = report.clusters[0].webhook.as_ref();
    assert_eq!(webhook.is_some(), is_installed);
    let contract = Run::new(&scenario, None, endpoints(), options()).unwrap();
    let report = contract.run(std::future::pending(), &|_| ()).await.unwrap();
    assert!(report.checks.iter().all(|it| it.title != title));
    assert_eq!(report.verdict(), Verdict::Conforms, "{:?}", report.checks);
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
async fn workload_that_does_not_run_is_made_again_by_the_next_command() {
    let of_workload = "expect: {unchanged: true}, namespace: {labels: {a: b}, annotations: {c: d}}";
    let text = SCENARIO.replace("expect: {unchanged: true, runs: false}", of_workload);
    let text = format!("{text}registries: {{r: {{host: a.test}}}}\n");
    let (scenario, server) = (scenario(&text), cluster(DOCUMENT));
    let report = run(&scenario, &[&server]).await.unwrap();
    let next = &failure(&report, "Pods of pod run").next;
    for part in [
        "kubectl --kubeconfig skr label namespace conformance-again 'a=b' ",
        "kubectl --kubeconfig skr annotate namespace conformance-again 'c=d' ",
        "kubectl --kubeconfig skr -n conformance-again apply -f <(sed -e 's#${r}#a.test#g' /",
    ] {
        assert!(next.contains(part), "{next}");
    }
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

#[rstest]
#[case::configuration(
    "v1",
    "ConfigMap",
    "kyma-system",
    names::CONFIG_MAP,
    "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config"
)]
#[case::copy(
    "v1",
    "Secret",
    "shop",
    "registry-credentials",
    "/api/v1/namespaces/shop/secrets/registry-credentials"
)]
#[case::watcher(
    "apps/v1",
    "Deployment",
    "kyma-system",
    "skr-webhook",
    "/apis/apps/v1/namespaces/kyma-system/deployments/skr-webhook"
)]
#[case::webhooks_of_watcher(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "",
    "skr-webhook",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/skr-webhook"
)]
#[tokio::test(start_paused = true)]
async fn installation_is_refused_where_an_object_of_the_product_exists(
    #[case] api_version: &str,
    #[case] kind: &str,
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] path: &str,
) {
    let (scenario, server) = (scenario(SCENARIO), ApiServer::new());
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {
        "name": name, "labels": {(names::PULL_SECRET_COPY_LABEL): "true"},
    }});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    server.put(&object);
    let objects = crate::objects::objects(&scenario.landscape, SKR_NAMESPACE, "{}", "").unwrap();
    let run = Run::new(&scenario, None, vec![endpoint("skr", &server)], options()).unwrap();
    let run = run.with_installation(Installation::new(objects));
    let ended = run.run(std::future::pending(), &|_| ()).await;
    let error = ended.unwrap_err().to_string();
    assert!(
        error.ends_with(&format!("nothing was changed:\n  {path}")),
        "{error}"
    );
    let writes = server.writes();
    let mut writes = writes.iter().filter(|it| !it.contains("selfsubject"));
    assert_eq!(writes.next(), None);
}

/// The list of all Secrets answers before the installation, and not at its end.
#[tokio::test(start_paused = true)]
async fn copies_that_cannot_be_listed_are_named_by_their_label() {
    let (scenario, server) = (scenario(SCENARIO), ApiServer::new());
    let config = r#"{"auths": {"b.test": {}}}"#;
    let objects = crate::objects::objects(&scenario.landscape, SKR_NAMESPACE, config, "").unwrap();
    server.fault("create configmaps").before(|server| {
        server.put(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": names::WEBHOOK_CERTIFICATE, "namespace": SKR_NAMESPACE},
        }));
        server.fault("list secrets").status(403);
    });
    let run = Run::new(&scenario, None, vec![endpoint("skr", &server)], options()).unwrap();
    let run = run.with_installation(Installation::new(objects));
    let ended = run.run(std::future::pending(), &|_| ()).await;
    let error = format!("{:#}", ended.unwrap_err());
    let command = "kubectl --kubeconfig skr delete secrets --all-namespaces -l rt-bootstrapper.kyma-project.io/pull-secret-copy=true";
    assert!(error.contains(command), "{error}");
    let deleted = format!("delete secrets kyma-system/{}", names::WEBHOOK_CERTIFICATE);
    assert!(server.writes().contains(&deleted), "{:?}", server.writes());
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
    server.fault("delete configmaps *").status(403);
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
    // The ServiceAccount of its namespace does not come: the run ends with an error, and removes everything all the same but what
    // it may not delete.
    let ended = run.run(std::future::pending(), &|_| ()).await;
    let error = format!("{:#}", ended.unwrap_err());
    let command = "kubectl --kubeconfig skr delete --raw /api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-config";
    assert!(error.contains(command), "{error}");
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
