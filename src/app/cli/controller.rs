//! Flags of the component `controller`.
//!
//! Invariant: the name of a source is a valid object name. With an invalid name the source would be absent, an absent
//! source counts as deleted, and its copies would be deleted on all runtimes.

mod parts;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use api::bootstrapper::{ResourceAmounts, RestartCause};
use api::kcp::KCP_NAMESPACE;
use api::names;
use clap::{Args, ValueEnum};
use kube::core::Selector;
use policy::certificates::KeyAlgorithm;
use policy::sync::rollout::{MaxFailures, Step};
use watcher::delivery::KcpAddress;

pub(crate) use self::parts::{Part, Parts};
use super::process::ProcessArgs;
use super::selector::selector;
use super::values::{
    bind_address, bundle_or_none, duration, landscape, log_filter, namespace, object_name,
    object_name_or_none, period, pinned_image, restart_cause, switch,
};
use crate::amounts::amounts;

/// Runs the controller: keeps the configuration and the webhook synchronized on every runtime.
#[derive(Args, Clone, Debug)]
pub(crate) struct ControllerArgs {
    /// Controllers to run, as in kube-controller-manager: names, `*` for all, `-NAME` for all but one
    #[arg(long, default_value = "signal", allow_hyphen_values = true)]
    pub(crate) controllers: Parts,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    /// Namespace of the sources, Runtimes and kubeconfigs on KCP
    #[arg(long, env = "POD_NAMESPACE", default_value = KCP_NAMESPACE, value_parser = namespace)]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    #[command(flatten)]
    pub(crate) signal: SignalArgs,
    #[command(flatten)]
    pub(crate) direct: DirectArgs,
    #[command(flatten)]
    pub(crate) watchers: WatcherArgs,
    /// Path of a kubeconfig of KCP, or of several as in KUBECONFIG of kubectl. If unset, the service account of the Pod is used
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Names of the three sources on KCP and of their copies on runtimes.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// Name of the ConfigMap with the configuration document on KCP
    #[arg(long, default_value = names::CONFIG_MAP, value_parser = object_name)]
    pub(crate) kcp_config_name: String,
    /// Name of the pull Secret on KCP. If empty, none is synchronized
    #[arg(long, default_value = names::PULL_SECRET, value_parser = object_name_or_none)]
    pub(crate) kcp_pull_secret_name: String,
    /// Name of the ClusterTrustBundle on KCP. If empty, none is synchronized
    #[arg(long, default_value = "", value_parser = bundle_or_none)]
    pub(crate) kcp_cluster_trust_bundle: String,
    /// Time between the deletion of a source on KCP and the deletion of its copies, as in `10m` or `30s`; `0s` means immediately
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub(crate) deletion_grace_period: Duration,
    /// Namespace of the copies and of the webhook on runtimes
    #[arg(long, default_value = names::SKR_NAMESPACE, value_parser = namespace)]
    pub(crate) skr_namespace: String,
    /// Name of the ConfigMap on runtimes
    #[arg(long, default_value = names::CONFIG_MAP, value_parser = object_name)]
    pub(crate) skr_config_name: String,
    /// Name of the pull Secret on runtimes
    #[arg(long, default_value = names::PULL_SECRET, value_parser = object_name)]
    pub(crate) skr_pull_secret_name: String,
    /// Name of the ClusterTrustBundle on runtimes. If empty, the name on KCP
    #[arg(long, default_value = "", value_parser = bundle_or_none)]
    pub(crate) skr_cluster_trust_bundle: String,
}

/// Flags of the controller `signal`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SignalArgs {
    /// Label selector of the Runtimes that are signaled, as in `plan in (aws,gcp),!trial`. If empty, all
    #[arg(long = "signal-selector", default_value = "", value_parser = selector)]
    pub(crate) selector: Selector,
    /// Key by which a Runtime is signaled
    #[arg(long = "signal-keys", value_enum, default_value = "both")]
    pub(crate) keys: SignalKeysArg,
    /// Key that KIM removes as acknowledgement. If unset, the key that is removed first
    #[arg(long = "signal-ack-key", value_enum)]
    pub(crate) ack_key: Option<AckKey>,
    /// Maximum number of signals per second
    #[arg(long = "signal-qps", default_value = "10")]
    pub(crate) qps: NonZeroU32,
}

/// Keys by which a Runtime is signaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignalKeysArg {
    /// The label
    Label,
    /// The annotation, as in the public KIM
    Annotation,
    /// Label and annotation
    Both,
}

/// Key that KIM removes as acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AckKey {
    /// The label
    Label,
    /// The annotation
    Annotation,
}

/// Flags of the controller `direct`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DirectArgs {
    /// Label selector of the Runtimes for which a RuntimeBootstrapper is created. If empty, all
    #[arg(
        long,
        default_value = "rt-bootstrapper.kyma-project.io/mode=direct",
        value_parser = selector
    )]
    pub(crate) direct_selector: Selector,
    #[command(flatten)]
    pub(crate) webhook: WebhookDefaults,
    /// Interval in which every runtime is reconciled completely, as in `10m` or `90s`
    #[arg(long, default_value = "10m", value_parser = period)]
    pub(crate) sync_period: Duration,
    /// Maximum number of concurrent reconciles; it doubles while some are slow
    #[arg(long, default_value = "208")]
    pub(crate) max_concurrent_reconciles: NonZeroUsize,
    /// Steps of a rollout of the webhook: numbers or percentages of runtimes, the last one `100%`
    #[arg(long, default_value = "1,1%,10%,100%", value_delimiter = ',', value_parser = step)]
    pub(crate) rollout_steps: Vec<Step>,
    /// Steps of a rollout of the configuration, as in --rollout-steps
    #[arg(long, default_value = "100%", value_delimiter = ',', value_parser = step)]
    pub(crate) configuration_rollout_steps: Vec<Step>,
    /// Time for which a runtime is observed after it has a new webhook, before the next step, as in `2m`; `0s` means not at all
    #[arg(long, default_value = "2m", value_parser = duration)]
    pub(crate) rollout_soak_duration: Duration,
    /// Maximum number of failed runtimes before a rollout stops, or a percentage of the runtimes of its step (5, 10%); it applies
    /// to the configuration only if `--configuration-rollout-steps` has several steps. In mode
    /// `signal`, of signaled Runtimes that are not Ready, or a percentage of the selected Runtimes
    #[arg(long, default_value = "2%", value_parser = max_failures)]
    pub(crate) max_failures: MaxFailures,
    /// Accept loopback addresses and the API server of KCP in kubeconfigs; for tests and local clusters only
    #[arg(long)]
    pub(crate) allow_loopback_runtimes: bool,
}

/// Flags of the controller `watchers`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatcherArgs {
    /// Namespace of the Istio Gateways that Watchers select
    #[arg(long, default_value = KCP_NAMESPACE, value_parser = namespace)]
    pub(crate) istio_gateway_namespace: String,
    /// Namespace of the Secret of the gateway and of all Certificates
    #[arg(long, default_value = "istio-system", value_parser = namespace)]
    pub(crate) istio_namespace: String,
    /// Algorithm of the private keys of Certificates, also of the CA in the printed manifests
    #[arg(long, value_enum, default_value = "ecdsa-p256")]
    pub(crate) certificate_key_algorithm: CertificateKey,
    /// Validity of Certificates, as in `1440h`
    #[arg(long = "self-signed-cert-duration", default_value = "1440h", value_parser = period)]
    pub(crate) certificate_duration: Duration,
    /// Time before the end of the validity at which Certificates are renewed, as in `720h`
    #[arg(long = "self-signed-cert-renew-before", default_value = "720h", value_parser = period)]
    pub(crate) certificate_renew_before: Duration,
    /// Time after which all runtimes count as trusting a new CA, so that the gateway uses it, as in `96h`
    #[arg(long = "istio-gateway-server-cert-switch-grace-period", default_value = "96h", value_parser = duration)]
    pub(crate) gateway_certificate_grace_period: Duration,
    /// Image of the watcher on runtimes. Must have a tag or digest
    #[arg(long, default_value = crate::manifests::WATCHER_IMAGE, value_parser = pinned_image)]
    pub(crate) watcher_image: String,
    /// Name of the Secret on runtimes with which the image of the watcher is pulled
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) watcher_image_pull_secret: Option<String>,
    /// Address at which watchers reach the gateway of KCP. If unset, the first host of an Istio Gateway that uses the Secret of the gateway
    #[arg(long, value_name = "HOST[:PORT]", value_parser = KcpAddress::parse)]
    pub(crate) watcher_kcp_addr: Option<KcpAddress>,
    /// Interval of the heartbeats of the watcher on runtimes, as in `1m`. After three without any, a runtime is unresponsive
    #[arg(long, default_value = "1m", value_parser = period)]
    pub(crate) watcher_heartbeat_interval: Duration,
    /// Address of the listener for heartbeats, which runs on the leader; `:PORT` binds all addresses
    #[arg(long, default_value = ":8082", value_parser = bind_address)]
    pub(crate) heartbeat_bind_address: SocketAddr,
}

/// Algorithm of private keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CertificateKey {
    /// ECDSA over P-256
    EcdsaP256,
    /// RSA with 4096 bits, as in lifecycle-manager
    Rsa4096,
}

impl CertificateKey {
    /// Returns the algorithm.
    pub(crate) fn algorithm(self) -> KeyAlgorithm {
        match self {
            Self::EcdsaP256 => KeyAlgorithm::EcdsaP256,
            Self::Rsa4096 => KeyAlgorithm::Rsa4096,
        }
    }
}

/// Settings of the webhook on runtimes; `spec.webhook` of a RuntimeBootstrapper overrides them.
#[derive(Args, Clone, Debug)]
pub(crate) struct WebhookDefaults {
    /// Image of the webhook on runtimes. Must have a tag or digest
    #[arg(long = "webhook-image", default_value = crate::manifests::WEBHOOK_IMAGE, value_parser = pinned_image)]
    pub(crate) image: String,
    /// Name of the Secret on runtimes with which the image of the webhook is pulled
    #[arg(long = "webhook-image-pull-secret", value_name = "NAME", value_parser = object_name)]
    pub(crate) image_pull_secret: Option<String>,
    /// Name of the landscape for set-landscape. If unset, the feature is skipped
    #[arg(long = "webhook-landscape", value_name = "NAME", value_parser = landscape)]
    pub(crate) landscape: Option<String>,
    /// Number of replicas of the webhook, 2 to 10
    #[arg(long = "webhook-replicas", value_parser = clap::value_parser!(i32).range(2..=10))]
    pub(crate) replicas: Option<i32>,
    /// Resource requests of the webhook, as in `cpu=10m,memory=32Mi`
    #[arg(long = "webhook-requests", value_name = "AMOUNTS", value_parser = amounts)]
    pub(crate) requests: Option<ResourceAmounts>,
    /// Resource limits of the webhook, as in `memory=128Mi`
    #[arg(long = "webhook-limits", value_name = "AMOUNTS", value_parser = amounts)]
    pub(crate) limits: Option<ResourceAmounts>,
    /// Filter of the log of the webhook, as in `info,kube=warn`
    #[arg(id = "webhook_log_filter", long = "webhook-log-filter", value_name = "FILTER", value_parser = log_filter)]
    pub(crate) log_filter: Option<String>,
    /// Evict Pods on runtimes that were created after the configuration that covers them and lack its changes
    #[arg(long = "webhook-evict-missed-pods")]
    pub(crate) evict_missed_pods: bool,
    /// Evict Pods on runtimes that were created before a change of: trust-bundle, pull-secret, configuration
    #[arg(long = "webhook-restart-pods-on-change", value_name = "CHANGES", value_delimiter = ',', value_parser = restart_cause)]
    pub(crate) restart_pods_on_change: Option<Vec<RestartCause>>,
    /// Keep a MutatingAdmissionPolicy on runtimes that adapts Pods while no replica of the webhook answers: on or off
    #[arg(long = "webhook-mutating-admission-policy", value_name = "SWITCH", value_parser = switch)]
    pub(crate) mutating_admission_policy: Option<bool>,
    /// Additional Namespaces on runtimes in which the webhook may evict Pods, where they exist
    #[arg(long = "webhook-pod-restart-namespaces", value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    pub(crate) pod_restart_namespaces: Option<Vec<String>>,
}

fn max_failures(text: &str) -> Result<MaxFailures, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percentage(percent).map(MaxFailures::Percent),
        None => text.parse().ok().map(MaxFailures::Count),
    };
    parsed.ok_or_else(|| "expected an integer or a percentage (5, 10%)".to_owned())
}

/// Parses a step of a rollout. A step without runtimes is invalid.
fn step(text: &str) -> Result<Step, String> {
    let text = text.trim();
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percentage(percent).filter(|it| *it > 0).map(Step::Percent),
        None => text.parse().ok().filter(|it| *it > 0).map(Step::Count),
    };
    parsed.ok_or_else(|| "expected a number or a percentage above 0 (1, 10%)".to_owned())
}

fn percentage(text: &str) -> Option<u8> {
    text.parse().ok().filter(|percent| *percent <= 100)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;
    use rstest::rstest;

    use super::{ControllerArgs, MaxFailures, Step, max_failures, step};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ControllerArgs,
    }

    fn parsed(flag: &str) -> Result<ControllerArgs, clap::Error> {
        Line::try_parse_from(["controller", flag]).map(|line| line.arguments)
    }

    /// An empty name would refer to no object, which counts as a deleted source.
    #[rstest]
    fn mandatory_object_with_a_name_that_no_object_can_have_is_a_usage_error(
        #[values("--kcp-config-name", "--skr-config-name", "--skr-pull-secret-name")] flag: &str,
        #[values("", " ", "Config", "rt_config", "-config", "a..b", "a/b", "a:b")] name: &str,
    ) {
        let error = parsed(&format!("{flag}={name}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation);
        let other = parsed("--no-such-flag").unwrap_err();
        assert_eq!(error.exit_code(), other.exit_code());
        let text = error.to_string();
        let why = if name.is_empty() {
            "empty"
        } else {
            "lower-case letters"
        };
        assert!(text.contains(flag) && text.contains(why), "{text}");
    }

    /// An empty name means that no object is watched. An invalid name is an error.
    #[rstest]
    fn pull_secret_and_bundle_with_an_empty_name_are_left_out(
        #[values(
            "--kcp-pull-secret-name",
            "--kcp-cluster-trust-bundle",
            "--skr-cluster-trust-bundle"
        )]
        flag: &str,
    ) {
        assert!(parsed(&format!("{flag}=")).is_ok());
        let error = parsed(&format!("{flag}=Not_A_Name")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation);
    }

    #[rstest]
    #[case("--kcp-config-name=rt-bootstrapper-config.v2")]
    #[case("--kcp-pull-secret-name=registry-credentials")]
    #[case("--kcp-cluster-trust-bundle=roots")]
    #[case("--kcp-cluster-trust-bundle=landscape.test:bundle:1")]
    fn names_of_objects_are_taken(#[case] flag: &str) {
        assert!(parsed(flag).is_ok());
    }

    /// Flags that would stop the controller later, or disable a part of it silently, are rejected at the start.
    #[rstest]
    fn settings_that_cannot_work_are_a_usage_error(
        #[values(
            "--webhook-image=",
            "--webhook-image=UPPER CASE:1",
            "--webhook-image=registry.test/webhook",
            "--sync-period=0",
            "--sync-period=0s",
            "--sync-period=600",
            "--leader-elect-identity=",
            "--leader-elect-identity= ",
            "--leader-elect-identity=two words",
            "--namespace=",
            "--namespace=a.b",
            "--skr-namespace=",
            "--skr-namespace=Kyma",
            "--controllers=",
            "--controllers=signals",
            "--controllers=signal,-signal",
            "--log-filter=a=b=c"
        )]
        flag: &str,
    ) {
        let error = parsed(flag).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        let name = flag.split('=').next().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }

    #[rstest]
    fn selectors_that_are_not_understood_are_a_usage_error(
        #[values("--signal-selector", "--direct-selector")] flag: &str,
        #[values(
            "plan=a=b",
            "a b=c",
            "=c",
            "plan in (a)=x",
            "plan in ()",
            "plan>3",
            "plan,",
            "-a=b"
        )]
        selector: &str,
    ) {
        let error = parsed(&format!("{flag}={selector}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ValueValidation);
        assert!(error.to_string().contains(flag), "{error}");
    }

    #[rstest]
    #[case("0", Some(MaxFailures::Count(0)))]
    #[case("12", Some(MaxFailures::Count(12)))]
    #[case("100%", Some(MaxFailures::Percent(100)))]
    #[case("101%", None)]
    #[case("-1", None)]
    #[case("%", None)]
    #[case("", None)]
    fn a_failure_limit_is_a_number_or_a_percentage(
        #[case] text: &str,
        #[case] expected: Option<MaxFailures>,
    ) {
        assert_eq!(max_failures(text).ok(), expected);
    }

    #[rstest]
    #[case("1", Some(Step::Count(1)))]
    #[case(" 10%", Some(Step::Percent(10)))]
    #[case("100%", Some(Step::Percent(100)))]
    #[case("0", None)]
    #[case("0%", None)]
    #[case("101%", None)]
    #[case("-1", None)]
    #[case("", None)]
    fn a_step_is_a_number_or_a_percentage_of_runtimes(
        #[case] text: &str,
        #[case] expected: Option<Step>,
    ) {
        assert_eq!(step(text).ok(), expected);
    }
}
