//! The role `watcher`, put together: the edge fills the outbox, the sender empties it, heartbeats tell of both.
//!
//! The end, in order: readiness fails, serving goes on for the shutdown delay, open requests end; the sender tries what is
//! left once, and what KCP does not take stays in the spool for the next process in this Pod; a last heartbeat says how much
//! that is. Each step is bounded: with the default delay of 10 s all of them take 24 s at most.

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

/// What `-version` says; scripts look for the first words.
const VERSION: &str = concat!("Runtime Watcher version: ", env!("CARGO_PKG_VERSION"), "\n");

/// Connections to KCP beside the sender's: one for heartbeats, and those of `--delivery-mode=sync`.
const FURTHER_CONNECTIONS: usize = 1 + admission::MAX_SYNC_DELIVERIES;

/// How often readiness is brought up to date.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the role until a signal.
///
/// # Errors
/// When the process cannot begin: a setting is missing, an address is in use.
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
        connections: server.statistics(),
    };
    let connections = server.statistics();
    let (counters, metrics) = meters::register(state);
    let addresses = AdminOptions {
        health: arguments.health_probe_bind_address,
        metrics: settings.metrics,
    };
    let admin = Admin::bind(addresses, readiness.clone(), Arc::new(metrics))?;
    let ended = CancellationToken::new();
    let admin = tokio::spawn(admin.run(ended.clone()));
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

/// What most parts are made of.
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
    /// Everything, until the drain is over. Each part goes on until those that need it have ended.
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

    /// Serves until the drain is over.
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

    /// Ready while there is a certificate to serve with; what else is wrong is a remark, since reviews are answered and
    /// events kept all the same.
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
    tracing::info!(items, "recovered undelivered events");
}
