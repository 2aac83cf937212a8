//! Checks that no handshake fails and no final state is lost while the CA of both sides is rotated under load.
//!
//! The steps are those of docs/watcher.md, "Certificates"; a step is taken once the watcher uses the files of the last one. A
//! round has objects and connections of its own, as those of an API server with the CAs that it trusts at that time, and a step
//! is taken in the middle of a round. After a step the gateway closes each older connection with its next response, so that
//! the watcher connects again.

use std::time::{Duration, Instant};

use anyhow::ensure;
use testkit::pki::{Authority, Leaf};
use tokio::time::sleep_until;

use super::kcp::{Expected, Kcp, Trusted};
use super::watcher::{Reviews, Watcher};
use crate::environment::Bench;
use crate::load::{Exchange, Target, latencies};
use crate::report::{Bound, Row, Table};

/// What is in use after a step.
#[derive(Clone, Copy)]
struct Step<'a> {
    trusted: &'a Trusted,
    gateway: &'a Leaf,
    watcher: &'a Leaf,
    /// Number of different sets of files that the watcher has read since its start.
    sets: u64,
}

struct Rotation<'a> {
    kcp: Kcp,
    watcher: Watcher<'a>,
    exchanges: Vec<Exchange>,
    expected: Expected,
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Table> {
    let kcp = Kcp::start().await?;
    let (old, new) = (&kcp.authority, Authority::new("bench")?);
    let (both, last) = (Trusted::new(&[&new, old]), Trusted::new(&[&new]));
    let [old_gateway, gateway] = [old.leaf("gateway")?, new.leaf("gateway")?];
    let [old_watcher, watcher] = [old.leaf("watcher")?, new.leaf("watcher")?];
    let step = |trusted, gateway, watcher, sets| Step {
        trusted,
        gateway,
        watcher,
        sets,
    };
    let steps = [
        step(&both, &old_gateway, &old_watcher, 2),
        step(&both, &gateway, &old_watcher, 2),
        step(&both, &gateway, &watcher, 3),
        step(&last, &gateway, &watcher, 4),
    ];
    let program = Watcher::new(bench, &kcp, "watcher")?;
    program.program.write_certificate(old.pem(), &old_watcher)?;
    let mut process = program.start_ready("async").await?;
    let mut rotation = Rotation {
        kcp,
        watcher: program,
        exchanges: Vec::new(),
        expected: Expected::default(),
    };
    for step in &steps {
        rotation
            .take(step, bench.effort.choose(ROUNDS, QUICK_ROUNDS))
            .await?;
    }
    let table = rotation.table().await?;
    process.check_running()?;
    Ok(table)
}

impl Rotation<'_> {
    /// Takes a step and sends reviews for at least this number of rounds, until the watcher uses the files of the step.
    async fn take(&mut self, step: &Step<'_>, rounds: u32) -> anyhow::Result<()> {
        self.round(Some(step)).await?;
        for round in 1.. {
            let sets = self.metric(RELOADS).await?;
            if round >= rounds && sets >= step.sets {
                break;
            }
            ensure!(round < MOST_ROUNDS, "{sets} sets instead of {}", step.sets);
            self.round(None).await?;
        }
        Ok(())
    }

    /// Sends reviews for a second.
    async fn round(&mut self, step: Option<&Step<'_>>) -> anyhow::Result<()> {
        let reviews = Reviews::new(format!("round-{}", self.expected.reviews), OBJECTS);
        let mut client = reviews.client(&self.watcher.target).await?;
        let middle = Instant::now() + Duration::from_millis(500);
        let taken = async {
            sleep_until(middle.into()).await;
            let Some(step) = step else { return Ok(()) };
            self.kcp.rotate(step.trusted, step.gateway)?;
            let program = &self.watcher.program;
            program.write_certificate(&step.trusted.pem, step.watcher)
        };
        let (exchanges, taken) = tokio::join!(client.run(0..RATE, RATE), taken);
        taken?;
        if let Some(Step { trusted, .. }) = step {
            let address = self.watcher.program.address;
            self.watcher.target = Target::tls(address, trusted.roots.clone(), None)?;
        }
        let exchanges = exchanges?;
        self.expected.add_reviews(&reviews, &exchanges);
        self.exchanges.extend(exchanges);
        Ok(())
    }

    async fn metric(&self, series: &str) -> anyhow::Result<u64> {
        Ok(self.watcher.program.metrics().await?.count(series))
    }

    async fn table(self) -> anyhow::Result<Table> {
        let (lost, took) = self.expected.settle(&self.kcp.events, DEADLINE).await;
        let gateway = &self.kcp.gateway;
        let [succeeded, failed] = [gateway.handshakes(), gateway.failed_handshakes()];
        let served = self.metric(HANDSHAKE_ERRORS).await?;
        let posts = self.metric(FAILED_POSTS).await?;
        let unanswered = self.exchanges.iter().filter(|it| !it.answered).count();
        let [median, p99] = latencies(&self.exchanges);
        let (objects, reviews) = (self.expected.objects(), self.expected.reviews);
        let row = |measure: &str, result: String| Row::new([measure, &result]);
        let rows = vec![
            row(
                "TLS handshakes failed: with the gateway, with API servers",
                format!("{failed} of {}, {served}", failed + succeeded),
            )
            .bound(Bound::zero(failed + served)),
            row("failed posts", posts.to_string()),
            row(
                "final states lost",
                format!(
                    "{lost} of {objects} objects, {reviews} reviews; the last event {:.1} s after the last review",
                    took.as_secs_f64()
                ),
            )
            .bound(Bound::zero(lost)),
            row("reviews without a response", unanswered.to_string())
                .bound(Bound::zero(unanswered)),
            row(
                &format!("admission p99, ms, {RATE}/s"),
                format!("{p99:.2}; p50 {median:.2}"),
            ),
        ];
        Ok(Table::new(["measure", "watcher"], rows))
    }
}

/// Reviews per second, and in a round.
const RATE: u32 = 500;
const OBJECTS: u32 = 100;
/// Least number of rounds after a step. Follow-up events of the last reviews are delivered meanwhile.
const ROUNDS: u32 = 15;
const QUICK_ROUNDS: u32 = 3;
/// Much longer than the watcher takes to read its files.
const MOST_ROUNDS: u32 = 60;
const RELOADS: &str = "watcher_certificate_reloads_total{result=\"success\"}";
const HANDSHAKE_ERRORS: &str = "server_tls_handshake_errors_total";
const FAILED_POSTS: &str = "watcher_failed_kcp_total";
/// The longest backoff of the watcher, and the time of the delivery.
const DEADLINE: Duration = Duration::from_secs(90);
