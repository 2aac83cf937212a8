//! Tests of the conversion of flags to settings, and of the manifests that the controller installs.

use std::time::Duration;

use clap::Parser;
use kube::core::Selector;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: ControllerArgs,
}

fn parsed(flags: &[&str]) -> ControllerArgs {
    let line = [&["controller"], flags].concat();
    Line::try_parse_from(line).unwrap().arguments
}

#[test]
fn every_part_works_in_the_namespace_of_the_flag() {
    let arguments = parsed(&["--namespace=elsewhere"]);
    let namespaces = [
        sources(&arguments.namespace, &arguments.sources).namespace,
        signal(&arguments).namespace,
        direct(&arguments).namespace,
        watchers(&arguments).namespace,
    ];
    assert_eq!(namespaces, ["elsewhere"; 4]);
}

#[rstest]
#[case::with_a_port("--watcher-kcp-addr=kcp.test:8443", Some("kcp.test"))]
#[case::without_a_port("--watcher-kcp-addr=kcp.test", Some("kcp.test"))]
#[case::ipv6("--watcher-kcp-addr=[2001:db8::1]", Some("[2001:db8::1]"))]
#[case::not_given("--namespace=kcp-system", None)]
fn the_certificate_of_the_gateway_has_the_host_of_the_address(
    #[case] flag: &str,
    #[case] expected: Option<&str>,
) {
    let settings = certificates(&parsed(&[flag]));
    assert_eq!(settings.gateway_host.as_deref(), expected);
}

#[test]
fn drift_is_repaired_within_ten_minutes_by_default() {
    assert!(direct(&parsed(&[])).resync <= Duration::from_mins(10));
}

#[test]
fn a_bad_webhook_reaches_one_runtime_first_and_credentials_wait_for_none() {
    let lanes = direct(&parsed(&[])).rollouts;
    assert_eq!(lanes, DirectSettings::default().rollouts);
    assert_eq!(lanes.webhook.steps[0], rollout::Step::Count(1));
    assert!(lanes.webhook.soak >= Duration::from_mins(2));
    assert_eq!(lanes.configuration.steps, [rollout::Step::Percent(100)]);
    assert_eq!(lanes.configuration.max_failures, None);
}

#[rstest]
#[case::by_default(&[], 300)]
#[case::minutes(&["--deletion-grace-period=10m"], 600)]
#[case::seconds(&["--deletion-grace-period=30s"], 30)]
#[case::none(&["--deletion-grace-period=0s"], 0)]
fn both_modes_wait_with_a_deletion_as_long_as_the_flag_says(
    #[case] flags: &[&str],
    #[case] seconds: u64,
) {
    let arguments = parsed(flags);
    let periods = [
        signal(&arguments).deletion_grace,
        direct(&arguments).deletion_grace,
    ];
    assert_eq!(periods, [Duration::from_secs(seconds); 2]);
}

#[rstest]
fn duration_without_unit_or_below_zero_is_rejected(
    #[values("", "5", "-5m", "5 parsecs")] period: &str,
) {
    let flag = format!("--deletion-grace-period={period}");
    let error = Line::try_parse_from(["controller", &flag]).err().unwrap();
    assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation);
}

#[rstest]
#[case("--max-failures=3", rollout::MaxFailures::Count(3))]
#[case("--max-failures=20%", rollout::MaxFailures::Percent(20))]
#[case("--signal-qps=1", Limits::default().max_failures)]
fn limit_of_failures_is_one_for_both_modes(
    #[case] flag: &str,
    #[case] limit: rollout::MaxFailures,
) {
    let arguments = parsed(&[flag]);
    let limits = signal(&arguments).limits;
    assert_eq!(
        (limits.max_failures, limits.max_unacknowledged),
        (limit, 50)
    );
    assert_eq!(
        direct(&arguments).rollouts.webhook.max_failures,
        Some(limit)
    );
}

/// A runtime that is handed back is signaled by the same rules as other runtimes.
#[test]
fn direct_mode_signals_as_the_signal_does() {
    let arguments = parsed(&[
        "--signal-keys=annotation",
        "--signal-selector=plan=aws",
        "--signal-qps=3",
    ]);
    let direct = direct(&arguments);
    assert!(direct.has_signal, "by default");
    assert_eq!(direct.signal_keys, SignalKeys::Only(Place::Annotation));
    let selector = Selector::from_iter([("plan", "aws")]);
    assert_eq!(direct.signal_selector, selector);
    assert_eq!(direct.signals_per_second.get(), 3);
}

fn rendered(arguments: &ControllerArgs) -> Vec<Value> {
    let settings = webhook(&arguments.sources, &arguments.direct.webhook);
    render(&arguments.sources)(&settings, None).unwrap()
}

/// Returns the arguments of the container as the webhook parses them, and the names in its Roles.
fn installed(flags: &[&str]) -> (crate::cli::webhook::WebhookArgs, Vec<Value>) {
    let arguments = parsed(flags);
    let objects = rendered(&arguments);
    let of_kind = |kind: &str| objects.iter().find(|it| it["kind"] == kind).unwrap();
    let place = "/spec/template/spec/containers/0/args";
    let given = of_kind("Deployment").pointer(place).unwrap();
    let given: Vec<String> = serde_json::from_value(given.clone()).unwrap();
    let names = ["Role", "ClusterRole"].map(|kind| {
        let rules = of_kind(kind)["rules"].as_array().unwrap();
        let names = rules.iter().map(|it| it["resourceNames"].clone());
        names.collect::<Value>()
    });
    let line = [vec!["webhook".to_owned()], given].concat();
    let read = WebhookLine::try_parse_from(line).unwrap();
    (read.arguments, names.into())
}

#[derive(Parser)]
struct WebhookLine {
    #[command(flatten)]
    arguments: crate::cli::webhook::WebhookArgs,
}

#[test]
fn webhook_reads_what_the_controller_writes_and_has_the_rights_for_it() {
    let (read, names) = installed(&[
        "--skr-config-name=our-config",
        "--skr-pull-secret-name=our-pulls",
        "--webhook-landscape=eu-1",
    ]);
    assert_eq!(read.config_map_name, "our-config");
    assert_eq!(read.image_pull_secret_name, "our-pulls");
    assert_eq!(read.landscape, "eu-1");
    let names = Value::from(names).to_string();
    for name in ["our-config", "our-pulls"] {
        assert!(names.contains(&format!("\"{name}\"")), "{names}");
    }
    assert!(!names.contains("rt-bootstrapper-config"), "{names}");
}

#[test]
fn every_flag_about_the_webhook_reaches_its_deployment() {
    let arguments = parsed(&[
        "--webhook-image=registry.test/webhook:2",
        "--webhook-image-pull-secret=own",
        "--webhook-replicas=4",
        "--webhook-requests=cpu=20m",
        "--webhook-limits=memory=256Mi",
        "--webhook-log-filter=debug",
        "--webhook-evict-missed-pods",
        "--webhook-restart-pods-on-change=trust-bundle,configuration",
        "--webhook-pod-restart-namespaces=shop",
        "--webhook-mutating-admission-policy=on",
        "--skr-namespace=elsewhere",
    ]);
    let objects = rendered(&arguments);
    let deployment = objects
        .iter()
        .find(|it| it["kind"] == "Deployment")
        .unwrap();
    assert_eq!(deployment["metadata"]["namespace"], "elsewhere");
    assert_eq!(deployment["spec"]["replicas"], 4);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "own"}]));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.test/webhook:2");
    let resources = json!({
        "requests": {"cpu": "20m", "memory": "32Mi"},
        "limits": {"memory": "256Mi"},
    });
    assert_eq!(container["resources"], resources);
    let flags = container["args"].as_array().unwrap();
    for flag in [
        "--log-filter=debug",
        "--evict-missed-pods",
        "--restart-pods-on-change=trust-bundle,configuration",
        "--mutating-admission-policy=on",
    ] {
        assert!(flags.contains(&json!(flag)), "{flag}: {flags:?}");
    }
    let binding = objects.last().unwrap();
    assert_eq!(binding["kind"], "RoleBinding");
    assert_eq!(binding["metadata"]["namespace"], "shop");
    assert_eq!(binding["subjects"][0]["namespace"], "elsewhere");
}

#[test]
fn installation_is_made_before_anything_else() {
    let installed = |flags: &[&str]| {
        let arguments = parsed(flags);
        installations(&arguments.sources, &arguments.direct.webhook)
    };
    assert!(installed(&[]).is_ok());
    let refused = installed(&["--webhook-requests=memory=1Gi"]);
    let error = refused.err().map(|it| it.to_string());
    assert!(error.is_some_and(|it| it.contains("memory")));
}
