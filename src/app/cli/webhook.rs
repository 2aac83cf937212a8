//! Flags of the role `webhook`. Where the public manager has a flag, ours has its name.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use api::names;
use chassis::lease::Identity;
use chassis::telemetry::{Filter, Format};
use clap::Args;

use super::values::{bind_address, duration, namespace, object_name};

/// Changes Pods at admission, on an SKR.
#[derive(Args, Clone, Debug)]
pub(crate) struct WebhookArgs {
    /// Address of the admission endpoint (TLS); `:PORT` is all addresses
    #[arg(long, default_value = ":9443", value_parser = bind_address)]
    pub(crate) listen: SocketAddr,
    /// Address of /healthz and /readyz; `:PORT` is all addresses
    #[arg(long, default_value = ":8081", value_parser = bind_address)]
    pub(crate) health_probe_bind_address: SocketAddr,
    /// Address of /metrics; `:PORT` is all addresses
    #[arg(long, default_value = ":8080", value_parser = bind_address)]
    pub(crate) metrics_bind_address: SocketAddr,
    /// Product namespace: configuration, pull Secret, certificate and lease are there
    #[arg(long, env = "POD_NAMESPACE", default_value = names::SKR_NAMESPACE, value_parser = namespace)]
    pub(crate) namespace: String,
    /// Name of this replica, unique among all that run at the same time; without it, the host's name and a random suffix
    #[arg(long, env = "POD_NAME")]
    pub(crate) identity: Option<Identity>,
    /// ConfigMap of the configuration document
    #[arg(long, default_value = names::CONFIG_MAP, value_parser = object_name)]
    pub(crate) config_map_name: String,
    /// Pull Secret, where the document names no other
    #[arg(long, default_value = names::PULL_SECRET, value_parser = object_name)]
    pub(crate) image_pull_secret_name: String,
    /// Webhook configuration whose caBundle is kept
    #[arg(long, default_value = names::WEBHOOK_CONFIGURATION, value_parser = object_name)]
    pub(crate) webhook_name: String,
    /// Name of the landscape for set-landscape; without it the feature is skipped
    #[arg(long, env = "LANDSCAPE", default_value = "")]
    pub(crate) landscape: String,
    /// Folder with tls.crt, tls.key and ca.crt, in place of a self-issued certificate
    #[arg(long)]
    pub(crate) webhook_cert_path: Option<PathBuf>,
    /// Kubeconfig; without it the Pod's service account is used
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Time of serving after SIGTERM, until every API server has seen that the endpoint is gone, as in `10s`
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) linger: Duration,
    /// Log format: json or text
    #[arg(long, default_value = "json")]
    pub(crate) log_format: Format,
    /// Log filter, as in `info,kube=warn`
    // kube itself warns at every refused request; ours carry the same fact with its context.
    #[arg(
        long,
        env = "LOG_FILTER",
        default_value = "info,kube_runtime=error,kube_client=error"
    )]
    pub(crate) log_filter: Filter,
}
