//! From flags to what the parts are told.

use std::sync::Arc;

use api::bootstrapper::{WebhookResources, WebhookSettings};
use controller::certificates;
use controller::clients::ClientOptions;
use controller::direct::{DirectSettings, Installations, ManifestsError, Render};
use controller::runtime_watchers::{HeartbeatSettings, RuntimeWatcherSettings};
use controller::signal::{Limits, Place, SignalKeys, SignalSettings};
use controller::watchers::WatcherSettings;
use policy::certificates::{CertificateSettings, KeyAlgorithm};
use policy::sync::ObjectNames;
use policy::sync::{Lanes, rollout};
use policy::watchers::HEARTBEAT_MANAGER;

use crate::cli::controller::{
    AckKey, CertificateKey, ControllerArgs, DirectArgs, SignalArgs, SignalKeysArg, SourceArgs,
    WebhookDefaults,
};
use crate::manifests;

fn named(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

pub(crate) fn sources(namespace: &str, arguments: &SourceArgs) -> ObjectNames {
    ObjectNames {
        namespace: namespace.to_owned(),
        configuration: arguments.kcp_config_name.clone(),
        pull_secret: named(&arguments.kcp_pull_secret_name),
        trust_bundle: named(&arguments.kcp_cluster_trust_bundle),
    }
}

pub(crate) fn names(arguments: &SourceArgs) -> ObjectNames {
    let source = named(&arguments.kcp_cluster_trust_bundle);
    ObjectNames {
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
            max_failures: arguments.direct.max_failures,
            ..Limits::default()
        },
        ..SignalSettings::default()
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
    let defaults = DirectSettings::default();
    // One step gates nothing, so failures of a few runtimes do not keep credentials from the others.
    let has_steps = given.configuration_rollout_steps.len() > 1;
    DirectSettings {
        namespace: arguments.namespace.clone(),
        names: names(&arguments.sources),
        adopt: given.direct_selector.clone(),
        signal_keys: keys(&arguments.signal),
        signal_selector: arguments.signal.selector.clone(),
        signals_per_second: arguments.signal.qps,
        resync: given.sync_period,
        deletion_grace: arguments.sources.deletion_grace_period,
        max_concurrent_reconciles: given.max_concurrent_reconciles.get(),
        rollouts: Lanes {
            configuration: rollout::Settings {
                steps: given.configuration_rollout_steps.clone(),
                max_failures: has_steps.then_some(given.max_failures),
                ..defaults.rollouts.configuration
            },
            webhook: rollout::Settings {
                steps: given.rollout_steps.clone(),
                soak: given.rollout_soak_duration,
                max_failures: Some(given.max_failures),
                ..defaults.rollouts.webhook
            },
        },
        ..DirectSettings::default()
    }
}

pub(super) fn watchers(arguments: &ControllerArgs) -> WatcherSettings {
    WatcherSettings {
        namespace: arguments.namespace.clone(),
        gateway_namespace: arguments.watchers.istio_gateway_namespace.clone(),
    }
}

pub(super) fn certificates(arguments: &ControllerArgs) -> certificates::Settings {
    let given = &arguments.watchers;
    certificates::Settings {
        kyma_namespace: arguments.namespace.clone(),
        gateway_namespace: given.istio_gateway_namespace.clone(),
        ca_secret: "klm-watcher".to_owned(),
        gateway_secret: "klm-istio-gateway".to_owned(),
        gateway_certificate: "klm-watcher-gateway".to_owned(),
        grace_period: given.gateway_certificate_grace_period,
        certificates: CertificateSettings {
            namespace: given.istio_namespace.clone(),
            issuer: "klm-watcher-selfsigned".to_owned(),
            algorithm: match given.certificate_key_algorithm {
                CertificateKey::EcdsaP256 => KeyAlgorithm::EcdsaP256,
                CertificateKey::Rsa4096 => KeyAlgorithm::Rsa4096,
            },
            duration: given.certificate_duration.as_secs(),
            renew_before: given.certificate_renew_before.as_secs(),
            skr_namespace: arguments.sources.skr_namespace.clone(),
        },
    }
}

/// The watcher that is installed on runtimes.
///
/// # Errors
/// It cannot be installed on any.
pub(super) fn runtime_watchers(
    arguments: &ControllerArgs,
) -> anyhow::Result<RuntimeWatcherSettings> {
    let given = &arguments.watchers;
    let namespace = arguments.sources.skr_namespace.clone();
    let (image, pull_secret) = (
        given.watcher_image.clone(),
        given.watcher_image_pull_secret.clone(),
    );
    let skr_namespace = namespace.clone();
    let heartbeats = HeartbeatSettings {
        address: given.heartbeat_bind_address,
        interval: given.watcher_heartbeat_interval,
    };
    let interval = heartbeats.interval;
    let render = move |address: &str| {
        let image = (image.as_str(), pull_secret.as_deref());
        let heartbeats = (HEARTBEAT_MANAGER, interval);
        manifests::watcher_objects(address, image, &namespace, heartbeats)
            .map_err(|error| format!("{error:#}"))
    };
    let address = given.watcher_kcp_addr.clone();
    let example = address.as_deref().unwrap_or("kcp.invalid");
    render(example).map_err(anyhow::Error::msg)?;
    Ok(RuntimeWatcherSettings {
        namespace: arguments.namespace.clone(),
        certificate_namespace: given.istio_namespace.clone(),
        skr_namespace,
        address,
        render: Arc::new(render),
        review_timeout_seconds: manifests::REVIEW_TIMEOUT,
        resync: arguments.direct.sync_period,
        heartbeats,
    })
}

/// The host of the API server that Kubernetes tells every Pod.
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";

/// Options of the clients of runtimes. None of them may be the control plane.
pub(super) fn clients(arguments: &DirectArgs) -> ClientOptions {
    let control_plane = std::env::var(SERVICE_HOST).ok();
    ClientOptions {
        allow_loopback: arguments.allow_loopback_runtimes,
        control_plane: control_plane.filter(|_| !arguments.allow_loopback_runtimes),
        ..ClientOptions::default()
    }
}

/// What is installed on runtimes.
///
/// # Errors
/// It cannot be installed on any.
pub(crate) fn installations(
    sources: &SourceArgs,
    defaults: &WebhookDefaults,
) -> Result<Installations, ManifestsError> {
    Installations::new(render(sources), webhook(sources, defaults))
}

/// The webhook reads the objects by the names under which they are written.
fn webhook(sources: &SourceArgs, defaults: &WebhookDefaults) -> WebhookSettings {
    let WebhookDefaults {
        image,
        image_pull_secret,
        landscape,
        replicas,
        requests,
        limits,
        log_filter,
        evict_missed_pods,
        restart_pods_on_change,
        pod_restart_namespaces,
        mutating_admission_policy,
    } = defaults.clone();
    WebhookSettings {
        image: Some(image),
        image_pull_secret,
        landscape,
        config_map_name: Some(sources.skr_config_name.clone()),
        pull_secret_name: Some(sources.skr_pull_secret_name.clone()),
        replicas,
        resources: Some(WebhookResources {
            requests: requests.unwrap_or_default(),
            limits: limits.unwrap_or_default(),
        }),
        log_filter,
        evict_missed_pods: Some(evict_missed_pods),
        restart_pods_on_change,
        pod_restart_namespaces,
        mutating_admission_policy,
    }
}

/// The manifests that `manifests webhook` prints.
fn render(sources: &SourceArgs) -> Render {
    let namespace = sources.skr_namespace.clone();
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
            sources(&arguments.namespace, &arguments.sources).namespace,
            signal(&arguments).namespace,
            direct(&arguments).namespace,
            watchers(&arguments).namespace,
        ];
        assert_eq!(namespaces, ["elsewhere"; 4]);
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

    /// A runtime that is handed back is signaled as all others are, and no other one is.
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

    fn rendered(arguments: &ControllerArgs) -> Vec<Value> {
        let settings = webhook(&arguments.sources, &arguments.direct.webhook);
        render(&arguments.sources)(&settings, None).unwrap()
    }

    /// The container's arguments as the webhook will read them, and the names in its Roles.
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
}
