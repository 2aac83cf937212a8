//! Flags of the role `watcher`. What the public watcher reads from its environment has the same variable here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{bind_address, duration, period, size};

/// Turns changes on an SKR into events and delivers them to KCP.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatcherArgs {
    /// Print the version and exit; `-version` does so, too
    #[arg(long)]
    pub(crate) version: bool,
    /// Port of the admission endpoint (TLS); what is no port means the default
    #[arg(long, env = "WEBHOOK_PORT", default_value = "8443")]
    pub(crate) webhook_port: String,
    /// Port of /metrics; what is no port means the default
    #[arg(long, env = "METRICS_PORT", default_value = "2112")]
    pub(crate) metrics_port: String,
    /// Address of /healthz and /readyz; `:PORT` is all addresses
    #[arg(long, default_value = ":8081", value_parser = bind_address)]
    pub(crate) health_probe_bind_address: SocketAddr,
    #[command(flatten)]
    pub(crate) kcp: KcpArgs,
    #[command(flatten)]
    pub(crate) spool: SpoolArgs,
    /// When KCP is told of a change
    #[arg(long, env = "NOTIFY", value_enum, default_value = "spool")]
    pub(crate) notify: NotifyMode,
    /// Send only what these Watchers name: a file as for `manifests watcher`. Without it, whatever the API server sends here
    #[arg(long)]
    pub(crate) watchers: Option<PathBuf>,
    /// Time of serving after SIGTERM, until every API server has seen that the endpoint is gone, as in `10s`
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub(crate) linger: Duration,
    /// Log format: json or text
    #[arg(long, default_value = "json")]
    pub(crate) log_format: chassis::telemetry::Format,
    /// Log filter, as in `info,hyper=warn`
    #[arg(long, env = "LOG_FILTER", default_value = "info")]
    pub(crate) log_filter: chassis::telemetry::Filter,
}

/// KCP, and who we are there. The five without a default have to be given.
#[derive(Args, Clone, Debug)]
pub(crate) struct KcpArgs {
    /// File with the authorities that KCP is known by, in PEM
    #[arg(long, env = "CA_CERT", default_value = "", hide_default_value = true)]
    pub(crate) ca_cert: String,
    /// File with the certificate, for KCP and for the API server, in PEM
    #[arg(long, env = "TLS_CERT", default_value = "", hide_default_value = true)]
    pub(crate) tls_cert: String,
    /// File with its key, in PEM
    #[arg(long, env = "TLS_KEY", default_value = "", hide_default_value = true)]
    pub(crate) tls_key: String,
    /// KCP's gateway: host or host:port
    #[arg(long, env = "KCP_ADDR", default_value = "", hide_default_value = true)]
    pub(crate) kcp_addr: String,
    /// Version of the contract with KCP: the first segment of the path, such as v2
    #[arg(
        long,
        env = "KCP_CONTRACT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) kcp_contract: String,
    /// Managers that events and heartbeats are sent to, with those of `--watchers`. Requests for others are answered 404. Empty: any manager that a request names, at most 32
    #[arg(long, env = "MANAGERS", value_delimiter = ',')]
    pub(crate) managers: Vec<String>,
    /// Time between two heartbeats, as in `1m`
    #[arg(long, default_value = "1m", value_parser = period)]
    pub(crate) heartbeat_interval: Duration,
}

/// The spool.
#[derive(Args, Clone, Debug)]
pub(crate) struct SpoolArgs {
    /// Folder of events that are not delivered yet. It should outlive the process: an emptyDir outlives its containers
    #[arg(long, env = "SPOOL_FOLDER", default_value = "/var/spool/watcher")]
    pub(crate) spool_folder: PathBuf,
    /// Size that it may take, at least 256Ki; a quarter of it is for what waits, the rest for writing it anew
    #[arg(long, default_value = "64Mi", value_parser = size)]
    pub(crate) spool_bytes: u64,
    /// When it is brought to the disk itself, which matters only if the node loses power: never, always, or after a time such as `1s`
    #[arg(long, default_value = "1s")]
    pub(crate) fsync: Fsync,
    /// Time after a change at which KCP is told once more, because admission precedes storage; 0: it is not
    #[arg(long, default_value = "5s", value_parser = duration)]
    pub(crate) confirm_after: Duration,
}

/// When KCP is told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NotifyMode {
    /// After the answer, which never waits.
    Spool,
    /// Before the answer, as the public watcher does it.
    Sync,
}

/// When the spool is brought to the disk itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsync {
    /// When the system likes.
    Never,
    /// Before each answer.
    Always,
    /// At most this much later.
    After(Duration),
}

impl std::str::FromStr for Fsync {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, period(text)) {
            ("never", _) => Ok(Self::Never),
            ("always", _) => Ok(Self::Always),
            (_, Ok(time)) => Ok(Self::After(time)),
            _ => Err("neither `never`, `always` nor a duration such as 1s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("never", Some(Fsync::Never))]
    #[case("always", Some(Fsync::Always))]
    #[case("2s", Some(Fsync::After(Duration::from_secs(2))))]
    #[case("0", None)]
    #[case("-1s", None)]
    #[case("2", None)]
    #[case("", None)]
    fn the_disk_is_reached_in_one_of_three_ways(
        #[case] text: &str,
        #[case] expected: Option<Fsync>,
    ) {
        assert_eq!(text.parse().ok(), expected);
    }
}
