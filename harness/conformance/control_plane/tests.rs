use api::names::{CONFIG_MAP, SKR_NAMESPACE};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;

use super::*;
use crate::fixture::{
    DOCKER_CONFIG, DOCUMENT, SCENARIO, cluster, failure_of, kcp, outcome, outcome_on, reason_of,
    run, run_with, scenario,
};
use crate::{KCP, Report, Verdict};

/// Base64 of a docker configuration for b.test with the password `letmein`.
const OTHER_CONFIG: &str = "eyJhdXRocyI6eyJiLnRlc3QiOnsicGFzc3dvcmQiOiJsZXRtZWluIn19fQ==";

/// KCP and two runtimes, which the controller has synchronized.
struct Landscape {
    kcp: ApiServer,
    first: ApiServer,
    second: ApiServer,
}

impl Landscape {
    fn new() -> Self {
        let kcp = kcp(DOCUMENT);
        let runtime = |name: &str| {
            let server = cluster(DOCUMENT);
            server.behave(|it| it.identity = Some(format!("uid-{name}")));
            let ready = condition("Ready", "True", "2026-01-02T03:04:07Z");
            kcp.put(&bootstrapper(name, &json!([ready])));
            server
        };
        let (first, second) = (runtime("first"), runtime("second"));
        Self { kcp, first, second }
    }

    fn remove_bootstrapper(&self, runtime: &str) {
        let name = format!("of-{runtime}");
        self.kcp
            .remove("runtimebootstrappers", KCP_NAMESPACE, &name);
    }

    async fn run(&self, mode: &str) -> Report {
        self.run_with_watchers(mode, "").await
    }

    async fn run_with_watchers(&self, mode: &str, watchers: &str) -> Report {
        let kcp = format!("controlPlane: {{mode: {mode}}}\n{watchers}");
        let text = format!("{SCENARIO}{kcp}runtimes: [{{name: first}}, {{name: second}}]\n");
        let (scenario, runtimes) = (scenario(&text), [&self.first, &self.second]);
        let ended = run_with(&scenario, Some(&self.kcp), &runtimes);
        ended.await.unwrap()
    }
}

fn bootstrapper(runtime: &str, conditions: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
        "metadata": {"name": format!("of-{runtime}"), "namespace": KCP_NAMESPACE},
        "status": {"clusterUID": format!("uid-{runtime}"), "conditions": conditions},
    })
}

fn condition(kind: &str, status: &str, time: &str) -> Value {
    json!({
        "type": kind, "status": status, "lastTransitionTime": time, "reason": "Timeout", "message": "no answer",
    })
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_with_the_copies_of_kcp_conform_and_kcp_is_not_written_to() {
    let landscape = Landscape::new();
    let report = landscape.run("direct").await;
    assert_eq!(report.verdict(), Verdict::Conforms, "{:?}", report.checks);
    let clusters: Vec<&str> = report.clusters.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(clusters, [KCP, "first", "second"]);
    for runtime in ["first", "second"] {
        for title in [
            "The configuration document on the runtime",
            "The pull Secret on the runtime",
            "The RuntimeBootstrapper is Ready",
            "Pods of pod come out",
        ] {
            assert_eq!(*outcome_on(&report, runtime, title), Outcome::Passed);
        }
    }
    assert_eq!(landscape.kcp.writes(), [""; 0]);
}

#[rstest]
#[case::differs(
    Some(OTHER_CONFIG),
    Some(DOCKER_CONFIG),
    "the content",
    "other content"
)]
#[case::absent_on_the_runtime(None, Some(DOCKER_CONFIG), "the content", "absent")]
#[case::absent_on_kcp(Some(DOCKER_CONFIG), None, "a source", "a copy without a source")]
#[case::absent_on_both(None, None, "a source", "neither source nor copy")]
#[tokio::test(start_paused = true)]
async fn copy_that_is_not_that_of_kcp_is_reported_for_its_runtime_without_its_content(
    #[case] on_runtime: Option<&str>,
    #[case] on_kcp: Option<&str>,
    #[case] expected: &str,
    #[case] found: &str,
) {
    let landscape = Landscape::new();
    let put = |server: &ApiServer, namespace: &str, config: Option<&str>| match config {
        None => server.remove("secrets", namespace, "registry-credentials"),
        Some(config) => server.edit("secrets", (namespace, "registry-credentials"), |it| {
            it["data"][".dockerconfigjson"] = json!(config);
        }),
    };
    put(&landscape.second, SKR_NAMESPACE, on_runtime);
    put(&landscape.kcp, KCP_NAMESPACE, on_kcp);
    let report = landscape.run("direct").await;
    let title = "The pull Secret on the runtime is that of KCP";
    let failure = failure_of(outcome_on(&report, "second", title));
    let source = "/api/v1/namespaces/kcp-system/secrets/registry-credentials";
    let expected = format!("{expected} on KCP at {source}");
    assert_eq!((&failure.expected, &*failure.found), (&expected, found));
    let location = "second: /api/v1/namespaces/kyma-system/secrets/registry-credentials";
    assert_eq!(failure.location, location);
    let next = "kubectl --kubeconfig kcp -n kcp-system get runtimebootstrappers,events";
    assert_eq!(failure.next, next);
    let first_passed = *outcome_on(&report, "first", title) == Outcome::Passed;
    assert_eq!(first_passed, on_kcp.is_some());
    let text = serde_json::to_string(&report).unwrap();
    for content in ["hunter2", "letmein", DOCKER_CONFIG, OTHER_CONFIG] {
        assert!(!text.contains(content), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn source_on_kcp_that_is_not_that_of_the_scenario_is_named_and_workloads_are_judged() {
    let landscape = Landscape::new();
    let document = (KCP_NAMESPACE, CONFIG_MAP);
    landscape.kcp.edit("configmaps", document, |it| {
        it["data"][names::CONFIG_KEY] = json!(r#"{"overrides": {"a.test": "c.test"}}"#);
    });
    let report = landscape.run("direct").await;
    let reason = reason_of(outcome_on(&report, KCP, "The configuration document is"));
    let said = "ConfigMap kcp-system/rt-bootstrapper-config";
    assert!(reason.starts_with(said), "{reason}");
    let copy = "The configuration document on";
    failure_of(outcome_on(&report, "first", copy));
    let pods = outcome_on(&report, "first", "Pods of pod come out");
    assert_eq!(*pods, Outcome::Passed);
}

#[rstest]
#[case::not_ready(
    Some(("Ready", "False")),
    "Ready is False, reason Timeout: no answer",
    "of-second"
)]
#[case::another(
    Some(("Other", "True")),
    "Ready is unknown, reason unknown: unknown",
    "of-second"
)]
#[case::missing(
    None,
    "no RuntimeBootstrapper has the cluster UID uid-second",
    "(none)"
)]
#[tokio::test(start_paused = true)]
async fn runtime_bootstrapper_that_is_not_ready_is_reported_for_its_runtime(
    #[case] of_second: Option<(&str, &str)>,
    #[case] found: &str,
    #[case] name: &str,
) {
    let landscape = Landscape::new();
    match of_second {
        Some((kind, status)) => {
            let condition = condition(kind, status, "2026-01-02T03:04:07Z");
            let second = bootstrapper("second", &json!([condition]));
            landscape.kcp.put(&second);
        }
        None => landscape.remove_bootstrapper("second"),
    }
    let report = landscape.run("direct").await;
    let title = "The RuntimeBootstrapper is Ready";
    let failure = failure_of(outcome_on(&report, "second", title));
    assert_eq!(failure.found, found);
    let location = format!("RuntimeBootstrapper kcp-system/{name}");
    assert_eq!(failure.location, location);
    assert!(!failure.cause.is_empty(), "{failure:?}");
    let kubectl = "kubectl --kubeconfig kcp ";
    assert!(failure.next.starts_with(kubectl), "{failure:?}");
    assert_eq!(*outcome_on(&report, "first", title), Outcome::Passed);
}

#[tokio::test(start_paused = true)]
async fn runtime_bootstrapper_is_expected_in_mode_direct_only() {
    let landscape = Landscape::new();
    landscape.remove_bootstrapper("first");
    landscape.remove_bootstrapper("second");
    let report = landscape.run("signal").await;
    assert_eq!(report.verdict(), Verdict::Conforms, "{:?}", report.checks);
    let second = &landscape.second;
    second.remove("configmaps", SKR_NAMESPACE, CONFIG_MAP);
    let report = landscape.run("signal").await;
    let title = "The configuration document on";
    let failure = failure_of(outcome_on(&report, "second", title));
    let next = "kubectl --kubeconfig kcp -n kcp-system get runtimes,events";
    assert_eq!(failure.next, next);
}

/// Objects of other runtimes have the names of customers, and there may be thousands of them.
#[rstest]
#[case::by_their_runtime_bootstrappers("direct", &["of-first", "of-second", "of-another"], &["of-first", "of-second"])]
#[case::all_where_there_are_no_others("signal", &["x", "y"], &["x", "y"])]
#[case::none_where_there_are_others("signal", &["x", "y", "z"], &[])]
#[tokio::test(start_paused = true)]
async fn timeline_has_the_met_conditions_of_the_runtimes_of_the_run_in_the_order_of_their_times(
    #[case] mode: &str,
    #[case] on_kcp: &[&str],
    #[case] of_run: &[&str],
) {
    let landscape = Landscape::new();
    let put = |api_version: &str, kind: &str, name: &str, conditions: Value| {
        landscape.kcp.put(&json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": KCP_NAMESPACE},
            "status": {"conditions": conditions},
        }));
    };
    for name in on_kcp {
        let provisioned = condition("Provisioned", "True", "2026-01-02T03:04:05Z");
        let unmet = condition("Configured", "False", "2026-01-02T03:04:06Z");
        let runtimes = "infrastructuremanager.kyma-project.io/v1";
        put(runtimes, "Runtime", name, json!([provisioned, unmet]));
        let modules = condition("Modules", "True", "2026-01-02T03:04:08Z");
        let kymas = "operator.kyma-project.io/v1beta2";
        put(kymas, "Kyma", name, json!([modules]));
    }
    landscape.kcp.put(&bootstrapper("another", &json!([])));
    let report = landscape.run(mode).await;
    assert!(report.timeline.iter().all(|it| it.cluster == KCP));
    let shown = report
        .timeline
        .iter()
        .map(|it| format!("{} {}", it.time, it.what));
    let (created, met): (Vec<_>, Vec<_>) = shown.partition(|it| it.ends_with(": created"));
    let mut expected = Vec::new();
    for (time, what) in [
        ("05", "Runtime NAME: Provisioned"),
        ("07", "RuntimeBootstrapper NAME: Ready"),
        ("08", "Kyma NAME: Modules"),
    ] {
        let names = of_run.iter().filter(|_| mode == "direct" || time != "07");
        let lines = names.map(|name| what.replace("NAME", name));
        expected.extend(lines.map(|line| format!("2026-01-02T03:04:{time}Z {line}")));
    }
    assert_eq!(met, expected);
    let kinds = if mode == "direct" { 3 } else { 2 };
    assert_eq!(created.len(), kinds * of_run.len(), "{created:?}");
}

const WATCHERS: &str = "watchers: [{namespace: kcp-system, name: a, manager: klm, field: status, resource: {group: g, version: '*', resource: r}}]\n";

#[rstest]
#[case::manager_in_the_specification(json!({"manager": "klm", "field": "status"}), None)]
#[case::manager_in_the_label(json!({"field": "status", "labelsToWatch": {}}), None)]
#[case::another_manager(json!({"manager": "other", "field": "status"}), Some("\"manager\":\"other\""))]
#[case::another_field(json!({"field": "spec"}), Some("\"field\":\"spec\""))]
#[case::other_labels(json!({"field": "status", "labelsToWatch": {"a": "b"}}), Some("\"labels\":{\"a\":\"b\"}"))]
#[tokio::test(start_paused = true)]
async fn watcher_of_kcp_is_compared_with_that_of_the_scenario(
    #[case] mut spec: Value,
    #[case] difference: Option<&str>,
) {
    let landscape = Landscape::new();
    spec["resourceToWatch"] = json!({"group": "g", "version": "*", "resource": "r"});
    landscape.kcp.put(&json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher", "spec": spec,
        "metadata": {"name": "a", "namespace": KCP_NAMESPACE, "labels": {(MANAGED_BY): "klm"}},
    }));
    let report = landscape.run_with_watchers("direct", WATCHERS).await;
    let outcome = outcome_on(&report, KCP, "Watcher a is that of the scenario");
    match difference {
        None => assert_eq!(*outcome, Outcome::Passed),
        Some(text) => assert!(reason_of(outcome).contains(text), "{outcome:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn watcher_that_kcp_lacks_is_a_failure() {
    let landscape = Landscape::new();
    let report = landscape.run_with_watchers("direct", WATCHERS).await;
    let outcome = outcome_on(&report, KCP, "Watcher a is that of the scenario");
    let failure = failure_of(outcome);
    assert_eq!(failure.found, "no such Watcher");
    assert_eq!(failure.location, "Watcher kcp-system/a");
}

#[tokio::test(start_paused = true)]
async fn scenario_with_a_control_plane_is_not_shown_to_conform_without_kcp() {
    let text = format!("{SCENARIO}controlPlane: {{mode: direct}}\n");
    let report = run(&scenario(&text), &[&cluster(DOCUMENT)]).await.unwrap();
    let outcome = outcome(&report, "The runtimes are as KCP has them");
    assert_eq!(reason_of(outcome), "the option --kcp is missing");
    assert_eq!(report.counts()[1..], [0, 1]);
    assert_eq!(report.verdict(), Verdict::Differs);
}

#[tokio::test(start_paused = true)]
async fn kcp_that_is_a_runtime_is_an_error_and_nothing_is_made() {
    let (scenario, server) = (scenario(SCENARIO), cluster(DOCUMENT));
    let run = run_with(&scenario, Some(&server), &[&server]).await;
    let error = run.unwrap_err().to_string();
    let said = "kcp and skr are the same cluster";
    assert!(error.starts_with(said), "{error}");
    assert_eq!(server.writes(), [""; 0]);
}
