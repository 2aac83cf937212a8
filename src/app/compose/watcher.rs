//! Composition of the component `watcher`: the admission endpoint puts events into the outbox, the sender delivers them,
//! and heartbeats report about both.
//!
//! The shutdown has this order: readiness fails, the endpoint serves until the end of the shutdown delay, and requests in
//! progress end. Then the sender tries the remaining events once. Events that KCP does not accept stay in the spool for the
//! next process in this Pod. A last heartbeat reports their number, five seconds later if a change was lost at the end. Each step
//! has a time limit: with the default delay of 12 s, all steps take at most 31 s.

pub(crate) mod meters;
mod settings;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use component_base::admin::{Admin, AdminOptions};
use component_base::listen::bind_server;
use component_base::readiness::Readiness;
use component_base::shutdown::Shutdown;
use component_base::telemetry;
use serve::{BoundServer, Statistics};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use watcher::admission::{self, AdmissionService, RequestLog, Watchers};
use watcher::certificates::{CertificateLapse, Certificates};
use watcher::delivery::{Channel, ChannelOptions, IN_FLIGHT, Sender, Timeouts};
use watcher::heartbeat::{HeartbeatOptions, HeartbeatSources, Heartbeats, ReviewActivity};
use watcher::metrics::{State, WatcherMetrics};
use watcher::outbox::{Outbox, Recovered};
use watcher_types::BootId;

use self::settings::Settings;
use crate::cli::watcher::{DeliveryMode, WatcherArgs};

/// Output of `-version`. Scripts search for the first words.
const VERSION: &str = concat!("Runtime Watcher version: ", env!("CARGO_PKG_VERSION"), "\n");

/// Number of connections to KCP in addition to those of the sender: one for heartbeats, and those of `--delivery-mode=sync`.
const FURTHER_CONNECTIONS: usize = 1 + admission::MAX_SYNC_DELIVERIES;

/// Interval of updates of the readiness.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the component until a signal.
///
/// # Errors
/// The process cannot start: a setting is missing, or an address is in use.
pub(crate) fn run(arguments: &WatcherArgs) -> anyhow::Result<ExitCode> {
    if arguments.version {
        crate::edge::write_out(VERSION)?;
        return Ok(ExitCode::SUCCESS);
    }
    telemetry::init(arguments.log_format, arguments.log_filter.clone())?;
    let settings = Settings::new(arguments)?;
    super::run_to_end(compose(arguments, settings))
}

async fn compose(arguments: &WatcherArgs, settings: Settings) -> anyhow::Result<()> {
    settings.log();
    let shutdown = Shutdown::on_signals()?;
    let readiness = Readiness::default();
    let certificates = Certificates::load(settings.certificates.clone());
    let options = super::admission_options(certificates.tls(), arguments.shutdown_delay_duration);
    let server = bind_server(settings.webhook, "reviews", options)?;
    let (outbox, recovered) = Outbox::open(settings.spool.clone(), Instant::now());
    log_recovered(&recovered);
    let state = State {
        outbox: outbox.clone(),
        certificates: certificates.clone(),
    };
    let connections = server.statistics();
    let admin = Admin::bind(AdminOptions {
        health: arguments.health_probe_bind_address,
        metrics: settings.metrics,
    })?;
    let servers = admin.statistics().into_iter();
    let servers = servers.chain([("webhook", connections.clone())]);
    let (counters, metrics) = meters::register(state, servers);
    let ended = CancellationToken::new();
    let admin = admin.run(readiness.clone(), Arc::new(metrics), ended.clone());
    let admin = tokio::spawn(admin);
    let parts = Parts {
        arguments,
        settings,
        readiness,
        certificates,
        outbox,
        reviews: ReviewActivity::default(),
        connections,
        metrics: counters,
    };
    tokio::select! {
        outcome = parts.run(server, shutdown.token()) => outcome?,
        () = parts.keep_readiness() => {}
        () = shutdown.second_signal() => tracing::warn!("second SIGTERM received, exiting"),
    }
    ended.cancel();
    admin.await.context("the admin endpoint failed")
}

/// Objects that most functions of the composition use.
struct Parts<'a> {
    arguments: &'a WatcherArgs,
    settings: Settings,
    readiness: Readiness,
    certificates: Certificates,
    outbox: Outbox,
    reviews: ReviewActivity,
    connections: Statistics,
    metrics: WatcherMetrics,
}

impl Parts<'_> {
    /// Runs all tasks until the end of the drain. Each task continues until the tasks that depend on it have ended.
    async fn run(&self, server: BoundServer, shutdown: CancellationToken) -> anyhow::Result<()> {
        let boot_id = BootId::parse(&format!("{:032x}", fastrand::u128(..)))?;
        let channel = Arc::new(self.channel(&boot_id));
        let [admitted, delivered, ended] = [(); 3].map(|()| CancellationToken::new());

        let serving = async {
            let outcome = self.serve(server, self.admission(&channel), shutdown).await;
            admitted.cancel();
            outcome
        };
        let delivering = async {
            self.sender(&channel).run(admitted.clone()).await;
            delivered.cancel();
        };
        let heartbeats = async {
            let heartbeats = self.heartbeats(boot_id, &channel);
            heartbeats.run(delivered.clone()).await;
            ended.cancel();
        };
        let spooling = self.outbox.clone().run(ended.clone());
        let reading = self.certificates.clone().run(ended.clone());
        let (outcome, (), (), (), ()) =
            tokio::join!(serving, delivering, heartbeats, spooling, reading);
        outcome
    }

    fn channel(&self, boot_id: &BootId) -> Channel {
        let options = ChannelOptions {
            kcp_address: self.settings.kcp_address.clone(),
            contract: self.settings.contract.clone(),
            boot_id: boot_id.clone(),
            connections: IN_FLIGHT + FURTHER_CONNECTIONS,
            timeouts: Timeouts::default(),
        };
        Channel::new(options, &self.certificates)
    }

    fn sender(&self, channel: &Arc<Channel>) -> Sender {
        Sender::new(
            Arc::clone(channel),
            self.outbox.clone(),
            self.metrics.clone(),
        )
    }

    fn heartbeats(&self, boot_id: BootId, channel: &Arc<Channel>) -> Heartbeats {
        let options = HeartbeatOptions {
            interval: self.arguments.kcp.heartbeat_interval,
            boot_id,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            receivers: self.settings.heartbeat_receivers.clone(),
            receivers_file: self.arguments.kcp.heartbeat_receivers_file.clone(),
            entries_file: self.arguments.kcp.webhook_entries_file.clone(),
        };
        Heartbeats::new(
            options,
            Arc::clone(channel),
            HeartbeatSources {
                outbox: self.outbox.clone(),
                reviews: self.reviews.clone(),
                connections: self.connections.clone(),
                certificates: self.certificates.clone(),
                readiness: self.readiness.clone(),
            },
            self.metrics.clone(),
        )
    }

    fn admission(&self, channel: &Arc<Channel>) -> AdmissionService {
        AdmissionService {
            watchers: Watchers::listed(self.settings.watchers.clone()),
            outbox: self.outbox.clone(),
            delivery_mode: match self.arguments.delivery_mode {
                DeliveryMode::Async => admission::DeliveryMode::Async,
                DeliveryMode::Sync => admission::DeliveryMode::sync(Arc::clone(channel)),
            },
            metrics: self.metrics.clone(),
            reviews: self.reviews.clone(),
            log: RequestLog::default(),
        }
    }

    /// Serves until the end of the drain.
    async fn serve(
        &self,
        server: BoundServer,
        service: AdmissionService,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let drain = async {
            shutdown.cancelled().await;
            self.readiness.drain();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = server.run(admission::router(service), shutdown.clone()) => Ok(outcome?),
            () = drain => Ok(()),
        }
    }

    /// Updates the readiness. The process is ready while it has a valid serving certificate. Other problems are only
    /// details, because reviews still get responses and events are stored.
    async fn keep_readiness(&self) {
        let certificate = self.readiness.check("certificate");
        let spool = self.readiness.check("spool");
        let tls = self.certificates.tls();
        let mut lapse = CertificateLapse::default();
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let looked = looks.tick().await;
            let report = self.certificates.report();
            // API servers reject an expired certificate.
            let is_invalid = tls.is_empty() || report.expired;
            if lapse.observe(!is_invalid, looked) {
                tracing::warn!(
                    "no reviews without a valid certificate, resync of all managers pending"
                );
                self.outbox.mark_all_lost(looked.into_std());
            }
            match (is_invalid, report.problem) {
                (true, None) => certificate.not_ready("no valid certificate"),
                (true, Some(problem)) => certificate.not_ready(problem),
                (false, Some(problem)) => certificate.detail(problem),
                (false, None) => certificate.ready(),
            }
            if self.outbox.is_spool_writable() {
                spool.ready();
            } else {
                spool.detail("spool not writable, events are in memory only");
            }
        }
    }
}

fn log_recovered(recovered: &Recovered) {
    let Recovered {
        items,
        dropped,
        torn_bytes,
        newer_version,
        resync,
        unusable,
    } = recovered;
    if let Some(reason) = unusable {
        tracing::error!(reason, "spool not usable, events are in memory only");
    }
    if *torn_bytes > 0 || *newer_version > 0 {
        tracing::warn!(
            torn_bytes,
            newer_version,
            resync,
            "recovered spool is incomplete"
        );
    }
    if *dropped > 0 {
        tracing::warn!(
            dropped,
            "recovered events dropped: their managers are not configured, or too many"
        );
    }
    if *items > 0 {
        tracing::info!(items, "recovered undelivered events");
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use testkit::logs::Logs;
    use tracing::Level;

    use super::*;

    #[rstest]
    #[case::empty(0, 0)]
    #[case::one_event(1, 1)]
    fn recovered_events_are_logged_if_there_are_any(#[case] items: usize, #[case] lines: usize) {
        let logs = Logs::of(Level::INFO);
        log_recovered(&Recovered {
            items,
            ..Recovered::default()
        });
        assert_eq!(logs.lines().len(), lines, "{:?}", logs.lines());
    }
}
