//! Flags of the components `webhook` and `controller`, which both have a leader.

use std::net::SocketAddr;

use clap::Args;
use component_base::admin::AdminOptions;
use component_base::lease::Identity;
use component_base::telemetry::{Filter, Format};

use super::values::bind_address;

/// Flags of the process.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProcessArgs {
    /// Address of /healthz and /readyz; `:PORT` binds all addresses
    #[arg(long, default_value = ":8081", value_parser = bind_address)]
    health_probe_bind_address: SocketAddr,
    /// Address of /metrics; `:PORT` binds all addresses
    #[arg(long, default_value = ":8080", value_parser = bind_address)]
    metrics_bind_address: SocketAddr,
    /// Identity of this replica in the Lease, unique among all replicas. If unset, the host name and a random suffix
    #[arg(long, env = "POD_NAME")]
    leader_elect_identity: Option<Identity>,
    /// Format of the log: json or text
    #[arg(long, default_value = "json")]
    pub(crate) log_format: Format,
    /// Filter of the log, as in `info,kube=warn`
    // kube itself logs a warning for each rejected request. The messages of this project contain the same information with
    // its context.
    #[arg(
        long,
        env = "RUST_LOG",
        default_value = "info,kube_runtime=error,kube_client=error"
    )]
    pub(crate) log_filter: Filter,
}

impl ProcessArgs {
    /// Returns the addresses of the endpoints for health and metrics.
    pub(crate) fn admin(&self) -> AdminOptions {
        AdminOptions {
            health: self.health_probe_bind_address,
            metrics: self.metrics_bind_address,
        }
    }

    /// Returns the identity of this replica, which differs in each call if it is not set.
    pub(crate) fn identity(&self) -> Identity {
        let identity = self.leader_elect_identity.clone();
        identity.unwrap_or_else(Identity::random)
    }
}
