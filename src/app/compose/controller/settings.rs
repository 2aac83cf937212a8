//! From flags to what the parts are told.

use std::num::NonZeroU32;
use std::sync::Arc;

use api::bootstrapper::{WebhookResources, WebhookSettings};
use controller::clients::FleetOptions;
use controller::direct::{DirectSettings, Installations, ManifestsError, Render};
use controller::signal::{Limits, Place, SignalKeys, SignalSettings};
use controller::sources::SourceNames;
use policy::sync::observed::Names;
use policy::sync::waves;

use crate::cli::controller::{
    AckKey, ControllerArgs, DirectArgs, MaxFailures, SignalArgs, SignalKeysArg, SourceArgs,
    WebhookDefaults,
};
use crate::manifests;

fn named(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

pub(super) fn sources(arguments: &ControllerArgs) -> SourceNames {
    SourceNames {
        namespace: arguments.namespace.clone(),
        config_map: arguments.sources.kcp_config_name.clone(),
        pull_secret: named(&arguments.sources.kcp_pull_secret_name),
        trust_bundle: named(&arguments.sources.kcp_cluster_trust_bundle),
    }
}

fn names(arguments: &SourceArgs) -> Names {
    let source = named(&arguments.kcp_cluster_trust_bundle);
    Names {
        namespace: arguments.skr_namespace.clone(),
        pull_secret: named(&arguments.kcp_pull_secret_name)
            .map(|_| arguments.skr_pull_secret_name.clone()),
        trust_bundle: source
            .map(|source| named(&arguments.skr_cluster_trust_bundle).unwrap_or(source)),
        configuration: arguments.skr_config_name.clone(),
    }
}

pub(super) fn signal(arguments: &ControllerArgs) -> SignalSettings {
    SignalSettings {
        keys: keys(&arguments.signal),
        selector: arguments.signal.selector.clone(),
        per_second: arguments.signal.qps,
        namespace: arguments.namespace.clone(),
        deletion_grace: arguments.sources.deletion_grace_period,
        limits: Limits {
            max_failures: max_failures(&arguments.direct),
            ..Limits::default()
        },
        ..SignalSettings::default()
    }
}

/// Both modes have the same limit.
fn max_failures(arguments: &DirectArgs) -> waves::Budget {
    match arguments.max_failures {
        MaxFailures::Count(count) => waves::Budget::Count(count),
        MaxFailures::Percent(percent) => waves::Budget::Percent(percent),
    }
}

fn keys(arguments: &SignalArgs) -> SignalKeys {
    match arguments.keys {
        SignalKeysArg::Label => SignalKeys::Only(Place::Label),
        SignalKeysArg::Annotation => SignalKeys::Only(Place::Annotation),
        SignalKeysArg::Both => SignalKeys::Both {
            obeyed: arguments.ack_key.map(|obeyed| match obeyed {
                AckKey::Label => Place::Label,
                AckKey::Annotation => Place::Annotation,
            }),
        },
    }
}

pub(super) fn direct(arguments: &ControllerArgs) -> DirectSettings {
    let given = &arguments.direct;
    DirectSettings {
        namespace: arguments.namespace.clone(),
        names: names(&arguments.sources),
        adopt: given.direct_selector.clone(),
        signal_keys: keys(&arguments.signal),
        signal_selector: arguments.signal.selector.clone(),
        signals_per_second: arguments.signal.qps,
        resync: given.sync_period,
        deletion_grace: arguments.sources.deletion_grace_period,
        passes: given.max_concurrent_reconciles.get(),
        waves: waves::Settings {
            size: NonZeroU32::new(given.wave_size),
            failure_budget: max_failures(given),
            paused: false,
            deadline: waves::RUNNING_DEADLINE,
        },
        ..DirectSettings::default()
    }
}

pub(super) fn fleet(arguments: &DirectArgs) -> FleetOptions {
    FleetOptions {
        allow_loopback: arguments.allow_loopback_runtimes,
        ..FleetOptions::default()
    }
}

/// What is installed on runtimes.
///
/// # Errors
/// It cannot be installed on any.
pub(super) fn installations(arguments: &ControllerArgs) -> Result<Installations, ManifestsError> {
    Installations::new(render(arguments), webhook(arguments))
}

/// The webhook reads the objects by the names under which they are written.
fn webhook(arguments: &ControllerArgs) -> WebhookSettings {
    let WebhookDefaults {
        image,
        image_pull_secret,
        landscape,
        replicas,
        requests,
        limits,
        log_filter,
    } = arguments.direct.webhook.clone();
    WebhookSettings {
        image: Some(image),
        image_pull_secret,
        landscape,
        config_map_name: Some(arguments.sources.skr_config_name.clone()),
        pull_secret_name: Some(arguments.sources.skr_pull_secret_name.clone()),
        replicas,
        resources: Some(WebhookResources {
            requests: requests.unwrap_or_default(),
            limits: limits.unwrap_or_default(),
        }),
        log_filter,
    }
}

/// The manifests that `manifests webhook` prints.
fn render(arguments: &ControllerArgs) -> Render {
    let namespace = arguments.sources.skr_namespace.clone();
    Arc::new(move |settings, named_secret| {
        manifests::webhook_objects(settings, named_secret, &namespace)
            .map_err(|error| format!("{error:#}"))
    })
}

#[cfg(test)]
mod tests {
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
            sources(&arguments).namespace,
            signal(&arguments).namespace,
            direct(&arguments).namespace,
        ];
        assert_eq!(namespaces, ["elsewhere"; 3]);
    }

    #[test]
    fn drift_is_repaired_within_ten_minutes_by_default() {
        assert!(direct(&parsed(&[])).resync <= Duration::from_mins(10));
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
    #[case("--max-failures=3", waves::Budget::Count(3))]
    #[case("--max-failures=20%", waves::Budget::Percent(20))]
    #[case("--signal-qps=1", Limits::default().max_failures)]
    fn limit_of_failures_is_one_for_both_modes(#[case] flag: &str, #[case] limit: waves::Budget) {
        let arguments = parsed(&[flag]);
        let limits = signal(&arguments).limits;
        assert_eq!(
            (limits.max_failures, limits.max_unacknowledged),
            (limit, 50)
        );
        assert_eq!(direct(&arguments).waves.failure_budget, limit);
    }

    /// Who is handed back is signalled as everybody else is, and nobody else is.
    #[test]
    fn direct_mode_signals_as_the_signal_does() {
        let arguments = parsed(&[
            "--signal-keys=annotation",
            "--signal-selector=plan=aws",
            "--signal-qps=3",
        ]);
        let direct = direct(&arguments);
        assert_eq!(direct.signal_keys, SignalKeys::Only(Place::Annotation));
        let selector = Selector::from_iter([("plan", "aws")]);
        assert_eq!(direct.signal_selector, selector);
        assert_eq!(direct.signals_per_second.get(), 3);
    }

    /// The container's arguments as the webhook will read them, and the names in its Roles.
    fn installed(flags: &[&str]) -> (crate::cli::webhook::WebhookArgs, Vec<Value>) {
        let arguments = parsed(flags);
        let objects = render(&arguments)(&webhook(&arguments), None).unwrap();
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
            "--skr-namespace=elsewhere",
        ]);
        let objects = render(&arguments)(&webhook(&arguments), None).unwrap();
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
        assert!(flags.contains(&json!("--log-filter=debug")), "{flags:?}");
    }

    #[test]
    fn installation_is_made_before_anything_else() {
        assert!(installations(&parsed(&[])).is_ok());
        let refused = installations(&parsed(&["--webhook-requests=memory=1Gi"]));
        let error = refused.err().map(|it| it.to_string());
        assert!(error.is_some_and(|it| it.contains("memory")));
    }
}
