//! Conversion of the command line and the environment to the settings of the modules.
//!
//! The rules are those of the public watcher: an empty value counts as missing, and the error names the first missing value
//! in the order of the public watcher. An invalid port is logged and replaced by the default. The public watcher accepts
//! only the ports 2 to 65534 and exits with status 0, in contrast to this watcher.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use component_base::listen::unspecified_address;
use policy::change::Watcher;
use watcher::certificates::CertificateOptions;
use watcher::delivery::KcpAddress;
use watcher::outbox::Options;
use watcher_types::PathSegment;

use crate::cli::watcher::{KcpArgs, SpoolArgs, WatcherArgs};
use crate::watchers;

/// Settings of the modules.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) webhook: SocketAddr,
    pub(super) metrics: SocketAddr,
    pub(super) certificates: CertificateOptions,
    pub(super) kcp_address: KcpAddress,
    pub(super) contract: PathSegment,
    /// Watchers whose changes are sent; empty means all changes.
    pub(super) watchers: Vec<Watcher>,
    pub(super) heartbeat_receivers: Vec<PathSegment>,
    pub(super) spool: Options,
}

impl Settings {
    /// Creates the settings from the arguments.
    ///
    /// # Errors
    /// The first missing or invalid value.
    pub(super) fn new(arguments: &WatcherArgs) -> anyhow::Result<Self> {
        let certificates = certificates(&arguments.kcp)?;
        let kcp = &arguments.kcp;
        let address = given(
            &kcp.kcp_addr,
            "KCP_ADDR",
            "host or host:port of KCP's gateway",
        )?;
        let contract = given(
            &kcp.kcp_contract,
            "KCP_CONTRACT",
            "version of the API of KCP, such as v2",
        )?;
        let listed = match &arguments.watchers_file {
            Some(file) => watchers::read(file).context("--watchers-file")?,
            None => Vec::new(),
        };
        let watchers: Vec<Watcher> = listed.into_iter().map(|it| it.watcher).collect();
        let mut managers = parsed(&kcp.managers)?;
        managers.extend(watchers.iter().map(|it| it.manager.clone()));
        Ok(Self {
            webhook: unspecified_address(port("WEBHOOK_PORT", &arguments.webhook_port, 8443)),
            metrics: unspecified_address(port("METRICS_PORT", &arguments.metrics_port, 2112)),
            certificates,
            kcp_address: KcpAddress::parse(address).context("KCP_ADDR (--kcp-addr)")?,
            contract: PathSegment::parse(contract).context("KCP_CONTRACT (--kcp-contract)")?,
            watchers,
            heartbeat_receivers: parsed(&kcp.heartbeat_receivers)?,
            spool: Options {
                managers,
                ..spool(&arguments.spool)
            },
        })
    }

    /// Logs the effective settings in one message, as the public watcher does.
    pub(super) fn log(&self) {
        tracing::info!(
            webhook_port = self.webhook.port(),
            metrics_port = self.metrics.port(),
            ca_cert = %self.certificates.authorities.display(),
            tls_cert = %self.certificates.certificate.display(),
            tls_key = %self.certificates.key.display(),
            kcp_addr = %self.kcp_address,
            kcp_contract = %self.contract,
            spool = %self.spool.folder.display(),
            "watcher started"
        );
    }
}

fn certificates(kcp: &KcpArgs) -> anyhow::Result<CertificateOptions> {
    let file = |value, variable, meaning| given(value, variable, meaning).map(PathBuf::from);
    Ok(CertificateOptions {
        authorities: file(
            &kcp.ca_cert,
            "CA_CERT",
            "PEM file with the CA certificates of KCP",
        )?,
        certificate: file(
            &kcp.tls_cert,
            "TLS_CERT",
            "PEM file with the certificate of the watcher",
        )?,
        key: file(
            &kcp.tls_key,
            "TLS_KEY",
            "PEM file with the private key of the certificate",
        )?,
    })
}

fn given<'a>(value: &'a str, variable: &str, meaning: &str) -> anyhow::Result<&'a str> {
    let flag = variable.to_lowercase().replace('_', "-");
    anyhow::ensure!(
        !value.is_empty(),
        "{variable} (--{flag}) is required: {meaning}"
    );
    Ok(value)
}

fn parsed(names: &[String]) -> anyhow::Result<Vec<PathSegment>> {
    let given = names.iter().map(|it| it.trim());
    given
        .filter(|it| !it.is_empty())
        .map(|name| PathSegment::parse(name).with_context(|| format!("manager {name:?}")))
        .collect()
}

fn spool(arguments: &SpoolArgs) -> Options {
    Options {
        max_bytes: arguments.spool_size_limit,
        fsync: arguments.spool_fsync,
        follow_up_delay: arguments.follow_up_delay,
        ..Options::new(arguments.spool_dir.clone())
    }
}

fn port(variable: &'static str, value: &str, default: u16) -> u16 {
    match value.parse() {
        Ok(port) if port > 0 => port,
        _ => {
            tracing::error!(
                variable,
                value,
                default,
                "invalid port range, using the default"
            );
            default
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: WatcherArgs,
    }

    const REQUIRED: [(&str, &str); 5] = [
        ("CA_CERT", "--ca-cert=/a"),
        ("TLS_CERT", "--tls-cert=/b"),
        ("TLS_KEY", "--tls-key=/c"),
        ("KCP_ADDR", "--kcp-addr=kcp.test:8443"),
        ("KCP_CONTRACT", "--kcp-contract=v2"),
    ];

    fn settings(flags: &[&str]) -> anyhow::Result<Settings> {
        let line = Line::try_parse_from([&["watcher"], flags].concat()).unwrap();
        Settings::new(&line.arguments)
    }

    fn with(further: &[&str]) -> anyhow::Result<Settings> {
        let required = REQUIRED.map(|(_, flag)| flag);
        settings(&[&required, further].concat())
    }

    #[test]
    fn required_settings_that_are_set_are_all_read() {
        let settings = with(&["--managers=a, b,,"]).unwrap();
        assert_eq!(settings.certificates.authorities, PathBuf::from("/a"));
        assert_eq!(settings.certificates.certificate, PathBuf::from("/b"));
        assert_eq!(settings.certificates.key, PathBuf::from("/c"));
        assert_eq!(settings.kcp_address.to_string(), "kcp.test:8443");
        assert_eq!(settings.contract, PathSegment::V2);
        let managers: Vec<&str> = settings
            .spool
            .managers
            .iter()
            .map(PathSegment::as_str)
            .collect();
        assert_eq!(managers, ["a", "b"]);
        assert_eq!(settings.webhook.to_string(), "[::]:8443");
        assert_eq!(settings.metrics.to_string(), "[::]:2112");
    }

    #[rstest]
    fn missing_required_settings_are_an_error_that_names_the_first(
        #[values(0, 1, 2, 3, 4)] missing: usize,
    ) {
        let given: Vec<&str> = REQUIRED[..missing].iter().map(|(_, flag)| *flag).collect();
        let error = settings(&given).unwrap_err().to_string();
        let variable = REQUIRED[missing].0;
        assert!(
            error.starts_with(&format!("{variable} (--")) && error.contains(") is required: "),
            "{error}"
        );
    }

    #[rstest]
    #[case::scheme("--kcp-addr=https://kcp.test", "KCP_ADDR (--kcp-addr)")]
    #[case::path("--kcp-contract=v2/a", "KCP_CONTRACT (--kcp-contract)")]
    #[case::manager("--managers=a/b", "manager \"a/b\"")]
    #[case::watchers("--watchers-file=/nowhere", "--watchers-file")]
    #[case::empty_is_missing("--kcp-contract=", "KCP_CONTRACT (--kcp-contract) is required: ")]
    fn what_cannot_be_used_is_named(#[case] flag: &str, #[case] expected: &str) {
        let name = flag.split('=').next().unwrap();
        let kept = REQUIRED
            .iter()
            .map(|(_, flag)| *flag)
            .filter(|it| !it.starts_with(name));
        let flags: Vec<&str> = kept.chain([flag]).collect();
        let error = settings(&flags).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    /// The defaults are those of the public watcher. 1 and 65535 are valid ports.
    #[rstest]
    #[case("1234", 1234)]
    #[case("1", 1)]
    #[case("65535", 65535)]
    #[case("0", 8443)]
    #[case("65536", 8443)]
    #[case("-1", 8443)]
    #[case("https", 8443)]
    #[case("", 8443)]
    fn port_that_is_no_port_number_is_the_default(#[case] value: &str, #[case] expected: u16) {
        let settings = with(&[&format!("--webhook-port={value}")]).unwrap();
        assert_eq!(settings.webhook.port(), expected);
        let expected = if expected == 8443 { 2112 } else { expected };
        let settings = with(&[&format!("--metrics-port={value}")]).unwrap();
        assert_eq!(settings.metrics.port(), expected);
    }
}
