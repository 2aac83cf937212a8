//! Flags of the component `watcher`. Environment variables of the public watcher have the same names here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use watcher::outbox::FsyncPolicy;

use super::values::{bind_address, duration, period, size};

/// Runs the watcher: turns admission reviews of a runtime into events and delivers them to KCP.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatcherArgs {
    /// Print the version and exit; `-version` does so, too
    #[arg(long)]
    pub(crate) version: bool,
    /// Port of the admission endpoint (TLS); an invalid value falls back to the default, as in the public watcher
    #[arg(long, env = "WEBHOOK_PORT", default_value = "8443")]
    pub(crate) webhook_port: String,
    /// Port of /metrics; an invalid value falls back to the default, as in the public watcher
    #[arg(long, env = "METRICS_PORT", default_value = "2112")]
    pub(crate) metrics_port: String,
    /// Address of /healthz and /readyz; `:PORT` binds all addresses
    #[arg(long, default_value = ":8081", value_parser = bind_address)]
    pub(crate) health_probe_bind_address: SocketAddr,
    #[command(flatten)]
    pub(crate) kcp: KcpArgs,
    #[command(flatten)]
    pub(crate) spool: SpoolArgs,
    /// Delivery of events to KCP
    #[arg(
        long,
        env = "WATCHER_DELIVERY_MODE",
        value_enum,
        default_value = "async"
    )]
    pub(crate) delivery_mode: DeliveryMode,
    /// File with the Watchers whose resources are sent, as for `manifests watcher`. If unset, every review is sent
    #[arg(long)]
    pub(crate) watchers_file: Option<PathBuf>,
    /// Time between SIGTERM and the end of serving, as in `12s`, in which API servers remove the endpoint
    #[arg(long, default_value = "12s", value_parser = duration)]
    pub(crate) shutdown_delay_duration: Duration,
    /// Format of the log: json or text
    #[arg(long, default_value = "json")]
    pub(crate) log_format: component_base::telemetry::Format,
    /// Filter of the log, as in `info,hyper=warn`
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub(crate) log_filter: component_base::telemetry::Filter,
}

/// Address of KCP and the certificates for it. The five values without a default are required.
#[derive(Args, Clone, Debug)]
pub(crate) struct KcpArgs {
    /// PEM file with the CA certificates of KCP
    #[arg(long, env = "CA_CERT", default_value = "", hide_default_value = true)]
    pub(crate) ca_cert: String,
    /// PEM file with the certificate: client certificate for KCP and serving certificate
    #[arg(long, env = "TLS_CERT", default_value = "", hide_default_value = true)]
    pub(crate) tls_cert: String,
    /// PEM file with the private key of the certificate
    #[arg(long, env = "TLS_KEY", default_value = "", hide_default_value = true)]
    pub(crate) tls_key: String,
    /// Address of KCP's gateway: host or host:port
    #[arg(long, env = "KCP_ADDR", default_value = "", hide_default_value = true)]
    pub(crate) kcp_addr: String,
    /// Version of the API of KCP, the first segment of its path, such as v2
    #[arg(
        long,
        env = "KCP_CONTRACT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) kcp_contract: String,
    /// Names of the managers to which events and heartbeats are sent, in addition to those of `--watchers-file`. Reviews
    /// for other managers are answered with 404. If empty, every manager that a review names, at most 32
    #[arg(long, env = "WATCHER_MANAGERS", value_delimiter = ',')]
    pub(crate) managers: Vec<String>,
    /// Names of further managers to which heartbeats are sent, without a limit to the managers of reviews
    #[arg(long, env = "WATCHER_HEARTBEAT_RECEIVERS", value_delimiter = ',')]
    pub(crate) heartbeat_receivers: Vec<String>,
    /// File with the names of further such managers, one a line, at most 100; it is read before each heartbeat
    #[arg(long, env = "WATCHER_HEARTBEAT_RECEIVERS_FILE")]
    pub(crate) heartbeat_receivers_file: Option<PathBuf>,
    /// File with a line for each manager: its name and a hash of its entries of the webhook configuration, which heartbeats report; it is read before each heartbeat
    #[arg(long, env = "WATCHER_WEBHOOK_ENTRIES_FILE")]
    pub(crate) webhook_entries_file: Option<PathBuf>,
    /// Interval of heartbeats, as in `1m`
    #[arg(long, default_value = "1m", value_parser = period)]
    pub(crate) heartbeat_interval: Duration,
}

/// Flags of the spool.
#[derive(Args, Clone, Debug)]
pub(crate) struct SpoolArgs {
    /// Directory of undelivered events. An emptyDir survives restarts of the container
    #[arg(long, env = "WATCHER_SPOOL_DIR", default_value = "/var/spool/watcher")]
    pub(crate) spool_dir: PathBuf,
    /// Size limit of the spool, at least 256Ki; a quarter of it holds events, the rest is for compaction
    #[arg(long, default_value = "64Mi", value_parser = size)]
    pub(crate) spool_size_limit: u64,
    /// Sync of the spool to disk, for a loss of power of the node: never, always (each response waits for it, at most 1s),
    /// or after a duration such as `1s`
    #[arg(long, default_value = "1s", value_parser = fsync)]
    pub(crate) spool_fsync: FsyncPolicy,
    /// Delay of the follow-up event, as in `5s`, which is sent because admission precedes storage; 0 disables it
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) follow_up_delay: Duration,
}

/// When an event is delivered to KCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeliveryMode {
    /// After the response to the API server, which does not wait for KCP
    Async,
    /// Before the response to the API server, as in the public watcher; at most 64 responses wait for KCP at a time, each
    /// for 10 seconds at most
    Sync,
}

fn fsync(text: &str) -> Result<FsyncPolicy, &'static str> {
    match (text, period(text)) {
        ("never", _) => Ok(FsyncPolicy::Never),
        ("always", _) => Ok(FsyncPolicy::Always),
        (_, Ok(time)) => Ok(FsyncPolicy::EachBatch(time)),
        _ => Err("expected never, always or a duration (1s)"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("never", Some(FsyncPolicy::Never))]
    #[case("always", Some(FsyncPolicy::Always))]
    #[case("2s", Some(FsyncPolicy::EachBatch(Duration::from_secs(2))))]
    #[case("0", None)]
    #[case("-1s", None)]
    #[case("2", None)]
    #[case("", None)]
    fn the_disk_is_reached_in_one_of_three_ways(
        #[case] text: &str,
        #[case] expected: Option<FsyncPolicy>,
    ) {
        assert_eq!(fsync(text).ok(), expected);
    }
}
