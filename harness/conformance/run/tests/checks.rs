//! Results of the checks of one runtime.

use api::kcp::WEBHOOK_DEPLOYMENT;
use api::names::{CONFIG_MAP, SKR_NAMESPACE, WEBHOOK_CONFIGURATION};
use rstest::rstest;
use serde_json::{Value, json};

use crate::fixture::{
    DOCKER_CONFIG, DOCUMENT, SCENARIO, cluster, ended, endpoint, failure, failure_of, options,
    outcome, own_places, reason_of, run, scenario, with_metrics, with_warning,
};
use crate::{Endpoint, Options, Outcome, Report, Run, Scenario, Verdict};

#[tokio::test(start_paused = true)]
async fn cluster_that_is_as_the_scenario_says_conforms_and_keeps_nothing() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let report = run(&scenario, &[&server]).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Conforms, "{:?}", report.checks);
    assert_eq!(report.pods.len(), 1);
    assert_eq!(server.requests_of("create namespaces *").len(), 1);
    let writes = server.writes();
    let mut writes = writes.iter();
    assert!(writes.any(|it| it.starts_with("create pods conformance-")));
    assert_eq!(own_places(&server), [""; 0]);
}

#[rstest]
#[case::the_same(Some(json!({"app.kubernetes.io/version": env!("CARGO_PKG_VERSION")})), None)]
#[case::another(Some(json!({"app.kubernetes.io/version": "0.0.9"})), Some("has version 0.0.9;"))]
#[case::unknown(Some(json!({})), Some("has no label app.kubernetes.io/version;"))]
#[case::not_installed(None, Some("does not exist;"))]
#[tokio::test(start_paused = true)]
async fn webhook_of_another_version_is_not_run_and_both_versions_are_named(
    #[case] labels: Option<Value>,
    #[case] said: Option<&str>,
) {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    if let Some(labels) = &labels {
        server.put(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": WEBHOOK_DEPLOYMENT, "namespace": SKR_NAMESPACE, "labels": labels},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "r.test/webhook:7"}]}}},
        }));
    }
    let title = "The webhook has the version of this program";
    let all = report_of_all(&scenario, endpoint("skr", &server)).await;
    let outcome = outcome(&all, title);
    match said {
        None => assert_eq!(*outcome, Outcome::Passed),
        Some(said) => {
            let place = "Deployment kyma-system/rt-bootstrapper-controller-manager";
            let own = concat!(
                "the checks are those of version ",
                env!("CARGO_PKG_VERSION")
            );
            assert_eq!(reason_of(outcome), format!("{place} {said} {own}"));
        }
    }
    let webhook = all.clusters[0].webhook.as_ref();
    assert_eq!(webhook.is_some(), labels.is_some());
    let contract = run(&scenario, &[&server]).await.unwrap();
    assert!(contract.checks.iter().all(|it| it.title != title));
    assert_eq!(
        contract.verdict(),
        Verdict::Conforms,
        "{:?}",
        contract.checks
    );
}

/// Returns the report of all checks of a runtime.
async fn report_of_all(scenario: &Scenario, endpoint: Endpoint) -> Report {
    let options = Options {
        only_contract: false,
        ..options()
    };
    let run = Run::new(scenario, None, vec![endpoint], options).unwrap();
    ended(run).await.unwrap()
}

/// A landscape may set the label itself.
#[rstest]
#[case::the_same(env!("CARGO_PKG_VERSION"), None)]
#[case::another("0.0.8", Some("has Pods of versions {\"0.0.8\"};"))]
#[tokio::test(start_paused = true)]
async fn version_of_the_webhook_is_that_of_its_metrics(
    #[case] version: &'static str,
    #[case] said: Option<&str>,
) {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    server.put(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "w", "namespace": SKR_NAMESPACE, "labels": {"app.kubernetes.io/name": "rt-bootstrapper"}},
    }));
    let page = move || {
        Some(format!(
            "rt_bootstrapper_build_info{{version={version:?},revision=\"a\"}} 1\n"
        ))
    };
    let report = report_of_all(&scenario, with_metrics(endpoint("skr", &server), page)).await;
    let outcome = outcome(&report, "The webhook has the version of this program");
    match said {
        None => assert_eq!(*outcome, Outcome::Passed),
        Some(said) => assert!(reason_of(outcome).contains(said), "{outcome:?}"),
    }
}

/// Calls for other Pods do not count: there are always some on the cluster of a landscape.
#[rstest]
#[case::not_available(
    "299 - \"alter-img-registry: requested, but not in availableFeatures\"",
    true
)]
#[case::of_another_webhook("299 - \"other: no\"", false)]
#[tokio::test(start_paused = true)]
async fn webhook_is_asked_for_pods_of_a_workload_if_it_warns_about_one(
    #[case] warning: &'static str,
    #[case] is_asked: bool,
) {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let endpoint = with_warning(endpoint("skr", &server), warning);
    let report = report_of_all(&scenario, endpoint).await;
    let outcome = outcome(&report, "The webhook is asked for Pods of pod");
    if is_asked {
        assert_eq!(*outcome, Outcome::Passed);
    } else {
        let found = &failure_of(outcome).found;
        assert_eq!(found, "no such warning");
    }
}

#[rstest]
#[case::rejected("create pods", "skr: POST /api/v1/namespaces/conformance-")]
#[case::of_another_implementation(
    "",
    "MutatingWebhookConfiguration rt-bootstrapper-mutating-webhook-configuration does not select Pods"
)]
#[tokio::test(start_paused = true)]
async fn webhook_that_cannot_be_probed_is_not_run(#[case] rejected: &str, #[case] said: &str) {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    if rejected.is_empty() {
        server.remove("mutatingwebhookconfigurations", "", WEBHOOK_CONFIGURATION);
    } else {
        server.fault(rejected).times(1).status(403);
    }
    let report = report_of_all(&scenario, endpoint("skr", &server)).await;
    let reason = reason_of(outcome(&report, "The webhook is asked"));
    assert!(reason.starts_with(said), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn missing_webhook_is_reported_with_the_command_that_installs_it() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    server.remove("mutatingwebhookconfigurations", "", WEBHOOK_CONFIGURATION);
    let report = run(&scenario, &[&server]).await.unwrap();
    let failure = failure(&report, "registered");
    let cause = "the webhook is not installed on this cluster";
    assert_eq!(failure.cause, cause);
    let next = "runtime-bootstrapper manifests webhook";
    assert!(failure.next.starts_with(next), "{}", failure.next);
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
    let found = &failure(&report, "document").found;
    assert!(found.starts_with(said), "{found}");
    let of_pods = outcome(&report, "Pods of pod");
    assert!(matches!(of_pods, Outcome::NotRun { .. }), "{of_pods:?}");
    assert_eq!(server.requests_of("create namespaces *").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn configuration_of_another_landscape_is_not_run_and_its_differences_are_named() {
    let other = r#"{"overrides": {"a.test": "c.test"}, "optOut": []}"#;
    let (scenario, server) = (scenario(SCENARIO), cluster(other));
    let report = run(&scenario, &[&server]).await.unwrap();
    let reason = reason_of(outcome(&report, "document"));
    for said in [
        "overrides.a.test: is \"c.test\", expected \"b.test\"",
        "optOut: is [], expected no such field",
    ] {
        assert!(reason.contains(said), "{reason}");
    }
    let shown = "what was not run has shown nothing";
    assert_eq!(report.verdict(), Verdict::Differs, "{shown}");
}

#[tokio::test(start_paused = true)]
async fn configuration_with_one_more_item_of_a_list_is_not_that_of_the_scenario() {
    let key = "rt-cfg.kyma-project.io/set-";
    let features = format!("{{availableFeatures: [{key}fips-mode], overrides:");
    let text = SCENARIO.replace("{overrides:", &features);
    let found = format!(r#"["{key}fips-mode","{key}landscape"]"#);
    let document = format!(r#"{{"availableFeatures": {found}, {}"#, &DOCUMENT[1..]);
    let report = run(&scenario(&text), &[&cluster(&document)]).await.unwrap();
    let reason = reason_of(outcome(&report, "document"));
    let said = format!("availableFeatures: is {found}, expected");
    assert!(reason.contains(&said), "{reason}");
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
    let found = &failure(&report, "pull Secret").found;
    assert_eq!(found, "credentials for [\"b.test\"]");
    let folder = tempfile::tempdir().unwrap();
    report.write(folder.path()).unwrap();
    for file in ["report.json", "junit.xml", "report.html"] {
        let text = std::fs::read_to_string(folder.path().join(file)).unwrap() + &report.summary();
        assert!(text.contains("b.test"), "{file} was not written");
        for content in ["hunter2", &DOCKER_CONFIG[..20]] {
            assert!(!text.contains(content), "{file}: {text}");
        }
    }
}
