//! The latency of a change on a runtime, and the delivery of its event to the operator.
//!
//! Every review is about another object, which is the most expensive case, because no events are coalesced. All times are from
//! one clock, that of this process, which is both API server and KCP. The cost of an event is compared with a baseline server
//! that only reads the same review, in interleaved rounds.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testkit::until::{holds, until};

use super::kcp::{Kcp, Mode};
use super::watcher::{Reviews, Watcher};
use crate::environment::Bench;
use crate::load::{CLOSED_LOOP, CONNECTIONS, Cost, Exchange, latencies};
use crate::process::Process;
use crate::report::{Bound, Row, Table};
use crate::statistics::{Estimate, number};

type Running<'a> = (Watcher<'a>, Process);

/// A watcher with the default delivery mode, a watcher with `sync`, and KCP.
struct Setting<'a> {
    bench: &'a Bench,
    kcp: Kcp,
    spool: Running<'a>,
    sync: Running<'a>,
}

impl<'a> Setting<'a> {
    async fn start(bench: &'a Bench) -> anyhow::Result<Self> {
        let kcp = Kcp::start().await?;
        let start = async |name, mode| {
            let program = Watcher::new(bench, &kcp, name)?;
            let process = program.start_ready(mode).await?;
            anyhow::Ok((program, process))
        };
        Ok(Self {
            bench,
            spool: start("watcher", "async").await?,
            sync: start("watcher-sync", "sync").await?,
            kcp,
        })
    }

    /// Waits for an event of every reviewed object, and returns the times of the first events.
    async fn received(&self, reviews: &Reviews, objects: u32) -> anyhow::Result<Vec<Instant>> {
        let received = until("an event of every object", LONGEST, || async {
            let received = self.kcp.events.first_of(&reviews.prefix);
            let count = received.len();
            ensure!(count >= objects as usize, "{count} of {objects}");
            anyhow::Ok(received)
        });
        Ok(received.await?)
    }

    /// Returns the cost of reviews in a closed loop for a watcher, including the delivery of all their events.
    async fn cost(&self, name: String, watcher: &Running<'_>, count: u32) -> anyhow::Result<Cost> {
        let (reviews, (program, process)) = (Reviews::distinct(name), watcher);
        let mut client = reviews.client(&program.target).await?;
        let (cpu, begin) = (process.cpu()?, Instant::now());
        client.run(0..count, CLOSED_LOOP).await?;
        let last = self.received(&reviews, count).await?.into_iter().max();
        let cpu = (process.cpu()? - cpu) * 1e6;
        let last = last.context("no event")?.max(begin);
        Ok([
            cpu / number(count),
            number(count) / (last - begin).as_secs_f64(),
        ])
    }
}

/// Measures part `admission`: the latency of a review while KCP is up, refuses connections and hangs, and while the disk of the
/// spool writes cached data of another process.
pub(super) async fn admission(bench: &Bench) -> anyhow::Result<Table> {
    let mut setting = Setting::start(bench).await?;
    let mut rows = Vec::new();
    for mode in [Mode::Up, Mode::Refusing, Mode::Hanging] {
        setting.kcp.gateway.set(mode).await?;
        let kcp = format!("KCP {mode:?}").to_lowercase().replace("kcp", "KCP");
        rows.extend(admission_rows(&setting, mode, &kcp).await?);
    }
    setting.kcp.gateway.set(Mode::Up).await?;
    let _writing = write_back(&setting.spool.0.program.file("write-back"))?;
    rows.extend(admission_rows(&setting, Mode::Up, "disk under write-back").await?);
    Ok(Table::new(COLUMNS, rows))
}

async fn admission_rows(
    setting: &Setting<'_>,
    mode: Mode,
    condition: &str,
) -> anyhow::Result<[Row; 2]> {
    let (effort, is_up) = (setting.bench.effort, mode == Mode::Up);
    let prefix = condition.to_lowercase().replace(' ', "-");
    let measure = async |name: &str, round: u32, (watcher, _): &Running<'_>, count, rate| {
        let reviews = Reviews::distinct(format!("{name}-{prefix}-{round}"));
        anyhow::Ok(latencies(&reviews.run(&watcher.target, count, rate).await?))
    };
    let (mut spool, mut sync) = (Vec::new(), Vec::new());
    for round in 0..effort.choose(15, 5) {
        spool.push(measure("spool", round, &setting.spool, RATE, RATE).await?);
        if is_up {
            sync.push(measure("sync", round, &setting.sync, RATE, RATE).await?);
        }
    }
    if !is_up {
        // A review that waits for KCP takes seconds, so each connection sends only one.
        sync.push(measure("sync", 0, &setting.sync, CONNECTIONS, CLOSED_LOOP).await?);
    }
    let row = |index: usize, kind: &str, limit: Option<f64>| {
        let [spool, sync] = [&spool, &sync].map(|it| Estimate::of_rounds(it, index));
        let (spool, measure) = (
            spool?,
            format!("admission {kind}, ms, {condition}, {RATE}/s"),
        );
        let bound = limit.map(|limit| Bound::at_most(spool, limit, " ms"));
        anyhow::Ok(Row::of(&measure, [spool, sync?], 2).bound(bound))
    };
    // On a busy machine the bound only proves that no review waits for KCP, which would take seconds.
    let quick = (!is_up).then_some(1_000.0);
    Ok([
        row(0, "p50", effort.choose(Some(1.0), quick))?,
        row(1, "p99", effort.choose(Some(2.0), None))?,
    ])
}

/// Starts another process on the node that writes to the disk of the spool at full speed, with little CPU time. The process
/// ends when the handle is dropped.
fn write_back(file: &str) -> anyhow::Result<tokio::process::Child> {
    let line = format!(
        "while dd if=/dev/zero of={file} bs=1M count={WRITTEN_MIB} conv=fdatasync; do :; done"
    );
    let mut command = tokio::process::Command::new("nice");
    command.args(["-n", "39", "sh", "-c", &line]);
    command.stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().context("nice sh dd")
}

/// Measures part `delivery`: the time from the review to the operator.
pub(super) async fn delivery(bench: &Bench) -> anyhow::Result<Table> {
    let mut setting = Setting::start(bench).await?;
    let mut rows = vec![end_to_end(&setting).await?];
    rows.extend(costs(&setting).await?);
    rows.push(backlog(&mut setting).await?);
    Ok(Table::new(COLUMNS, rows))
}

/// Measures the time from a review to its event, without other load.
async fn end_to_end(setting: &Setting<'_>) -> anyhow::Result<Row> {
    let effort = setting.bench.effort;
    let count = effort.count(1_000);
    let measure = async |name, (watcher, _): &Running<'_>| {
        let reviews = Reviews::distinct(name);
        let exchanges = reviews.run(&watcher.target, count, IDLE_RATE).await?;
        setting.received(&reviews, count).await?;
        let time = |exchange: &Exchange| {
            let received = setting.kcp.events.first(&reviews.object(exchange.number))?;
            let time = received.saturating_duration_since(exchange.begin);
            Some(time.as_secs_f64() * 1e3)
        };
        Estimate::of(&exchanges.iter().filter_map(time).collect::<Vec<_>>())
    };
    let spool = measure("idle-spool", &setting.spool).await?;
    let sync = measure("idle-sync", &setting.sync).await?;
    let name = "end to end p50, ms: review sent → event received";
    let bound = Bound::at_most(spool, effort.choose(50.0, 1_000.0), " ms");
    Ok(Row::of(name, [spool, sync], 2).bound(bound))
}

/// Measures the cost of an event, with the reviews of all connections in a closed loop.
async fn costs(setting: &Setting<'_>) -> anyhow::Result<[Row; 4]> {
    let effort = setting.bench.effort;
    let server = setting.bench.start_baseline(&setting.kcp.authority).await?;
    let count = effort.choose(2_000, 500);
    let (mut spool, mut sync, mut ratios, mut handshakes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for round in 0..effort.choose(15, 6) {
        let before = setting.kcp.gateway.handshakes();
        let baseline = async || {
            let mut client = Reviews::distinct("baseline").client(&server.target).await?;
            client.cost(&server.process, 0..count).await
        };
        let watcher = async |kind, watcher| {
            let name = format!("{kind}-{round}");
            setting.cost(name, watcher, count).await
        };
        let first = baseline().await?;
        let one = watcher("spool-a", &setting.spool).await?;
        let other = watcher("spool-b", &setting.spool).await?;
        let last = baseline().await?;
        handshakes += setting.kcp.gateway.handshakes() - before;
        ratios.push((one[0] + other[0]) / (first[0] + last[0]));
        spool.extend([one, other]);
        sync.push(watcher("sync", &setting.sync).await?);
    }
    let row = |measure: &str, index: usize| {
        let [spool, sync] = [&spool, &sync].map(|it| Estimate::of_rounds(it, index));
        anyhow::Ok(Row::of(measure, [spool?, sync?], 0))
    };
    let ratio = Estimate::of(&ratios)?;
    let bound = Bound::at_most(ratio, MOST_OF_BASELINE, " ×");
    let events = number(spool.len()) * number(count);
    let handshakes = format!("{:.1}", number(handshakes) * 1e3 / events);
    let by_baseline = "… by CPU of a baseline server for the same review";
    let per_second = "events per second, reviewed and delivered, 16 connections";
    Ok([
        row("CPU, µs per event: review and delivery", 0)?,
        Row::of(by_baseline, [ratio], 2).bound(effort.choose(None, Some(bound))),
        row(per_second, 1)?,
        Row::new(["TLS handshakes with KCP, per 1000 events", &handshakes]),
    ])
}

/// Measures the delivery of events that were queued while KCP was unreachable.
async fn backlog(setting: &mut Setting<'_>) -> anyhow::Result<Row> {
    // Confirmations of earlier events would be counted as events of the backlog.
    holds("no more confirmations", CONFIRMED, || async { true }).await?;
    setting.kcp.gateway.set(Mode::Refusing).await?;
    let count = setting.bench.effort.count(20_000);
    let reviews = Reviews::distinct("backlog");
    let (watcher, process) = &setting.spool;
    let exchanges = reviews.run(&watcher.target, count, CLOSED_LOOP).await?;
    let answered = exchanges.iter().all(|it| it.answered);
    ensure!(answered, "reviews without a response");
    let (memory, cpu) = (process.memory("VmRSS")?, process.cpu()?);
    setting.kcp.gateway.set(Mode::Up).await?;
    let received = setting.received(&reviews, count).await?;
    let cpu = (process.cpu()? - cpu) * 1e6 / number(count);
    let span = received.iter().min().zip(received.iter().max());
    let (first, last) = span.context("no event")?;
    let rate = number(count) / last.saturating_duration_since(*first).as_secs_f64();
    let name = format!("events per second of a backlog of {count} objects");
    let result = format!("{rate:.0}; {cpu:.0} µs CPU per event; RSS {memory:.1} MiB before");
    Ok(Row::new([name, result]))
}

const COLUMNS: [&str; 3] = ["measure", "watcher", "watcher, `--delivery-mode=sync`"];
/// Reviews per second: more changes of watched objects than a runtime has.
const RATE: u32 = 200;
/// Reviews per second, at which reviews do not overlap.
const IDLE_RATE: u32 = 25;
/// Largest cost as a multiple of the baseline. Parsing a review, and storing, sending and confirming its event, is about five
/// times the work of reading the review.
const MOST_OF_BASELINE: f64 = 12.0;
/// Number of MiB between two flushes to the disk.
const WRITTEN_MIB: usize = 256;
/// A little more than `--follow-up-delay` and the time of a confirmation.
const CONFIRMED: Duration = Duration::from_secs(7);
/// The longest backoff of the watcher, and the time of the delivery.
const LONGEST: Duration = Duration::from_secs(90);
