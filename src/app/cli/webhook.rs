//! Flags of the component `webhook`. Flags of the public webhook have the same names here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::bootstrapper::RestartCause;
use api::names;
use clap::{ArgAction, Args};
use policy::repairs::EvictionSettings;

use super::process::ProcessArgs;
use super::values::{bind_address, duration, namespace, object_name, restart_cause, switch};

/// Runs the mutating webhook.
#[derive(Args, Clone, Debug)]
pub(crate) struct WebhookArgs {
    /// Address of the admission endpoint (TLS); `:PORT` binds all addresses
    #[arg(long, default_value = ":9443", value_parser = bind_address)]
    pub(crate) webhook_bind_address: SocketAddr,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
    /// Namespace of the configuration, the pull Secret, the certificate and the Lease
    #[arg(long, env = "POD_NAMESPACE", default_value = names::SKR_NAMESPACE, value_parser = namespace)]
    pub(crate) namespace: String,
    /// Name of the ConfigMap with the configuration document
    #[arg(long, default_value = names::CONFIG_MAP, value_parser = object_name)]
    pub(crate) config_map_name: String,
    /// Name of the pull Secret; `imagePullSecret.name` of the configuration document overrides it
    #[arg(long, default_value = names::PULL_SECRET, value_parser = object_name)]
    pub(crate) image_pull_secret_name: String,
    /// Name of the MutatingWebhookConfiguration whose caBundle is kept up to date
    #[arg(long, default_value = names::WEBHOOK_CONFIGURATION, value_parser = object_name)]
    pub(crate) webhook_name: String,
    /// Name of the landscape for set-landscape. If empty, the feature is skipped
    #[arg(long, env = "LANDSCAPE", default_value = "")]
    pub(crate) landscape: String,
    /// Evict Pods that were created after the configuration that covers them and lack its changes
    #[arg(long)]
    pub(crate) evict_missed_pods: bool,
    /// Evict Pods that were created before a change of: trust-bundle, pull-secret, configuration
    #[arg(long, value_name = "CHANGES", value_delimiter = ',', value_parser = restart_cause)]
    pub(crate) restart_pods_on_change: Vec<RestartCause>,
    /// Keep a MutatingAdmissionPolicy that adapts Pods while no replica answers: on or off
    #[arg(long, value_name = "SWITCH", default_value = "off", action = ArgAction::Set, value_parser = switch)]
    pub(crate) mutating_admission_policy: bool,
    /// Directory with tls.crt, tls.key and ca.crt. If unset, the webhook issues its certificate
    #[arg(long)]
    pub(crate) webhook_cert_path: Option<PathBuf>,
    /// Path of a kubeconfig, or of several as in KUBECONFIG of kubectl. If unset, the service account of the Pod is used
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Time between SIGTERM and the end of serving, as in `12s`, in which API servers remove the endpoint
    #[arg(long, default_value = "12s", value_parser = duration)]
    pub(crate) shutdown_delay_duration: Duration,
}

impl WebhookArgs {
    /// Returns which Pods are evicted.
    pub(crate) fn evictions(&self) -> EvictionSettings {
        EvictionSettings {
            missed: self.evict_missed_pods,
            outdated: self.restart_pods_on_change.clone(),
        }
    }
}
