//! Flags of the role `controller`.
//!
//! Invariant: a source is looked for by a name that an object can have. By any other it would be absent, and what is absent
//! was deleted: it would go from every runtime.

mod parts;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use api::bootstrapper::ResourceAmounts;
use api::names;
use api::runtimes::KCP_NAMESPACE;
use chassis::lease::Identity;
use chassis::telemetry::{Filter, Format};
use clap::{Args, ValueEnum};
use kube::core::Selector;

pub(crate) use self::parts::{Part, Parts};
use super::selector::selector;
use super::values::{
    bind_address, bundle_or_none, duration, landscape, log_filter, namespace, object_name,
    object_name_or_none, period, pinned_image,
};
use crate::amounts::amounts;

/// Keeps the webhook and its configuration in step on every runtime, on KCP.
#[derive(Args, Clone, Debug)]
pub(crate) struct ControllerArgs {
    /// Parts to run, as kube-controller-manager has it: names, `*` for all, `-NAME` for all but one
    #[arg(long, default_value = "signal", allow_hyphen_values = true)]
    pub(crate) controllers: Parts,
    /// Address of /healthz and /readyz; `:PORT` is all addresses
    #[arg(long, default_value = ":8081", value_parser = bind_address)]
    pub(crate) health_probe_bind_address: SocketAddr,
    /// Address of /metrics; `:PORT` is all addresses
    #[arg(long, default_value = ":8080", value_parser = bind_address)]
    pub(crate) metrics_bind_address: SocketAddr,
    /// Namespace of sources, Runtimes and kubeconfigs
    #[arg(long, env = "POD_NAMESPACE", default_value = KCP_NAMESPACE, value_parser = namespace)]
    pub(crate) namespace: String,
    /// Name of this replica, unique among all that run at the same time; without it, the host's name and a random suffix
    #[arg(long, env = "POD_NAME")]
    pub(crate) identity: Option<Identity>,
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    #[command(flatten)]
    pub(crate) signal: SignalArgs,
    #[command(flatten)]
    pub(crate) direct: DirectArgs,
    /// Kubeconfig of KCP; without it the Pod's service account is used
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Log format: json or text
    #[arg(long, default_value = "json")]
    pub(crate) log_format: Format,
    /// Log filter, as in `info,kube=warn`
    #[arg(
        long,
        env = "LOG_FILTER",
        default_value = "info,kube_runtime=error,kube_client=error"
    )]
    pub(crate) log_filter: Filter,
}

/// The three sources on KCP and what they are called on runtimes.
#[derive(Args, Clone, Debug)]
pub(crate) struct SourceArgs {
    /// ConfigMap with the webhook's document, on KCP
    #[arg(long, default_value = names::CONFIG_MAP, value_parser = object_name)]
    pub(crate) kcp_config_name: String,
    /// Pull Secret on KCP; empty: there is none to watch
    #[arg(long, default_value = names::PULL_SECRET, value_parser = object_name_or_none)]
    pub(crate) kcp_pull_secret_name: String,
    /// ClusterTrustBundle on KCP; empty: there is none to watch
    #[arg(long, default_value = "", value_parser = bundle_or_none)]
    pub(crate) kcp_cluster_trust_bundle: String,
    /// Time that a source may be missing on KCP before its deletion is carried out, as in `10m` or `30s`; `0s`: at once
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub(crate) deletion_grace_period: Duration,
    /// Namespace of the product on runtimes
    #[arg(long, default_value = names::SKR_NAMESPACE, value_parser = namespace)]
    pub(crate) skr_namespace: String,
    /// ConfigMap on runtimes
    #[arg(long, default_value = names::CONFIG_MAP, value_parser = object_name)]
    pub(crate) skr_config_name: String,
    /// Pull Secret on runtimes
    #[arg(long, default_value = names::PULL_SECRET, value_parser = object_name)]
    pub(crate) skr_pull_secret_name: String,
    /// ClusterTrustBundle on runtimes; empty: the name on KCP
    #[arg(long, default_value = "", value_parser = bundle_or_none)]
    pub(crate) skr_cluster_trust_bundle: String,
}

/// Part `signal`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SignalArgs {
    /// Label selector of Runtimes that are signalled, as in `plan in (aws,gcp),!trial`; empty: all
    #[arg(long, default_value = "", value_parser = selector)]
    pub(crate) signal_selector: Selector,
    /// Where the signal is set
    #[arg(long, value_enum, default_value = "both")]
    pub(crate) signal_keys: SignalPlace,
    /// Which of two keys the manager takes away; without it, whichever goes first
    #[arg(long, value_enum)]
    pub(crate) signal_obeyed: Option<ObeyedPlace>,
    /// Signals in a second
    #[arg(long, default_value = "10")]
    pub(crate) signals_per_second: NonZeroU32,
}

/// Where the signal is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignalPlace {
    /// The required one.
    Label,
    /// The public manager's.
    Annotation,
    /// Both.
    Both,
}

/// Which of two keys the manager takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObeyedPlace {
    /// The label.
    Label,
    /// The annotation.
    Annotation,
}

/// Part `direct`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DirectArgs {
    /// Label selector of Runtimes that get a RuntimeBootstrapper by themselves; empty: all
    #[arg(
        long,
        default_value = "rt-bootstrapper.kyma-project.io/mode=direct",
        value_parser = selector
    )]
    pub(crate) adopt_selector: Selector,
    #[command(flatten)]
    pub(crate) webhook: WebhookDefaults,
    /// Time within which everything on a runtime is looked at again, as in `10m` or `90s`
    #[arg(long, default_value = "10m", value_parser = period)]
    pub(crate) resync_period: Duration,
    /// Passes over runtimes at once
    #[arg(long, default_value = "512")]
    pub(crate) concurrent_runtimes: NonZeroUsize,
    /// Runtimes of a wave; 0: as many as have the same place in the order
    #[arg(long, default_value = "0")]
    pub(crate) wave_size: u32,
    /// Failures that a wave may have: a number, or a share of it such as `10%`
    #[arg(long, default_value = "10%", value_parser = budget)]
    pub(crate) failure_budget: Failures,
    /// Runtimes may be on this machine: for tests and local clusters alone
    #[arg(long)]
    pub(crate) allow_loopback_runtimes: bool,
}

/// Settings of the webhook on all runtimes whose `spec.webhook` has no others.
#[derive(Args, Clone, Debug)]
pub(crate) struct WebhookDefaults {
    /// Image of the webhook on runtimes, with tag or digest
    #[arg(long = "webhook-image", default_value = crate::manifests::WEBHOOK_IMAGE, value_parser = pinned_image)]
    pub(crate) image: String,
    /// Name of the Secret on runtimes that the webhook's image is pulled with
    #[arg(long = "webhook-image-pull-secret", value_name = "NAME", value_parser = object_name)]
    pub(crate) image_pull_secret: Option<String>,
    /// Landscape that the webhook writes to Pods (set-landscape); without it the feature is skipped
    #[arg(long = "webhook-landscape", value_name = "NAME", value_parser = landscape)]
    pub(crate) landscape: Option<String>,
    /// Number of the webhook's replicas, from 2 to 10
    #[arg(long = "webhook-replicas", value_parser = clap::value_parser!(i32).range(2..=10))]
    pub(crate) replicas: Option<i32>,
    /// Requests of the webhook's container, as in `cpu=10m,memory=32Mi`
    #[arg(long = "webhook-requests", value_name = "AMOUNTS", value_parser = amounts)]
    pub(crate) requests: Option<ResourceAmounts>,
    /// Limits of the webhook's container, as in `memory=128Mi`
    #[arg(long = "webhook-limits", value_name = "AMOUNTS", value_parser = amounts)]
    pub(crate) limits: Option<ResourceAmounts>,
    /// Log filter of the webhook, as in `info,kube=warn`
    #[arg(id = "webhook_log_filter", long = "webhook-log-filter", value_name = "FILTER", value_parser = log_filter)]
    pub(crate) log_filter: Option<String>,
}

/// Failures that a wave may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failures {
    /// So many.
    Count(u32),
    /// So many of a hundred.
    Percent(u8),
}

fn budget(text: &str) -> Result<Failures, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|percent| *percent <= 100)
            .map(Failures::Percent),
        None => text.parse().ok().map(Failures::Count),
    };
    parsed.ok_or_else(|| "neither a number nor a share such as 10%".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;
    use rstest::rstest;

    use super::{ControllerArgs, Failures, budget};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ControllerArgs,
    }

    fn parsed(flag: &str) -> Result<ControllerArgs, clap::Error> {
        Line::try_parse_from(["controller", flag]).map(|line| line.arguments)
    }

    /// An empty name would be no object, and so a document that was deleted.
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

    /// Empty means that there is none to watch; what cannot be a name does not.
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

    /// What would stop the controller later, or silently switch a part of it off, is refused before anything is done.
    #[rstest]
    fn settings_that_cannot_work_are_a_usage_error(
        #[values(
            "--webhook-image=",
            "--webhook-image=UPPER CASE:1",
            "--webhook-image=registry.test/webhook",
            "--resync-period=0",
            "--resync-period=0s",
            "--resync-period=600",
            "--identity=",
            "--identity= ",
            "--identity=two words",
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
        #[values("--signal-selector", "--adopt-selector")] flag: &str,
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
    #[case("0", Some(Failures::Count(0)))]
    #[case("12", Some(Failures::Count(12)))]
    #[case("100%", Some(Failures::Percent(100)))]
    #[case("101%", None)]
    #[case("-1", None)]
    #[case("%", None)]
    #[case("", None)]
    fn a_budget_is_a_number_or_a_share(#[case] text: &str, #[case] expected: Option<Failures>) {
        assert_eq!(budget(text).ok(), expected);
    }
}
