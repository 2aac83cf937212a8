//! What a change on a runtime waits for, and how its event reaches the operator.
//!
//! Every review is about another object, which is the most work: no events are coalesced. Begin and end of a time are of
//! one clock, that of this process, which is both API server and KCP. The cost of an event is compared with a baseline
//! server that only reads the same review, in interleaved rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use testkit::pki::Authority;
use testkit::until::{holds, until};

use super::kcp::{Gateway, Mode, Operator, ReceivedEvents};
use super::watcher::{Program, Reviews, load};
use crate::environment::Bench;
use crate::load::{CONNECTIONS, Exchange, Target, latencies};
use crate::process::Process;
use crate::report::{Bound, Row, Table};
use crate::statistics::{Estimate, number};

/// A watcher with the default delivery mode, one with `sync`, and KCP.
struct Setting<'a, 'b> {
    bench: &'a Bench<'b>,
    authority: Authority,
    gateway: Gateway,
    events: Arc<ReceivedEvents>,
    spool: (Program, Process),
    sync: (Program, Process),
    _operator: Operator,
}

impl<'a, 'b> Setting<'a, 'b> {
    async fn start(bench: &'a Bench<'b>) -> anyhow::Result<Self> {
        let authority = Authority::new("bench")?;
        let (operator, events) = ReceivedEvents::recorded(authority.pem()).await?;
        let gateway = Gateway::start(&authority, operator.address).await?;
        let start = async |name, mode| {
            let program = Program::new(bench, &authority, name, gateway.address)?;
            let process = program.start_ready(mode).await?;
            anyhow::Ok((program, process))
        };
        let spool = start("watcher", "async").await?;
        let sync = start("watcher-sync", "sync").await?;
        Ok(Self {
            bench,
            authority,
            gateway,
            events,
            spool,
            sync,
            _operator: operator,
        })
    }

    /// Waits for an event of every object that was reviewed; gives the times of the first events.
    async fn received(&self, reviews: &Reviews, objects: usize) -> anyhow::Result<Vec<Instant>> {
        let received = until("an event of every object", LONGEST, || async {
            let received = self.events.first_of(&reviews.prefix());
            ensure!(received.len() >= objects, "{} of {objects}", received.len());
            anyhow::Ok(received)
        });
        Ok(received.await?)
    }

    /// CPU time per review in microseconds, and reviews per second, until the events of the reviews were received. Reviews
    /// without a name are for the baseline server and have no events.
    async fn cost(
        &self,
        (target, process): (&Target, &Process),
        named: Option<Reviews>,
        count: u32,
    ) -> anyhow::Result<[f64; 2]> {
        let baseline = || Reviews::new("baseline", u32::MAX);
        let reviews = named.clone().unwrap_or_else(baseline);
        let mut client = reviews.client(target).await?;
        let (cpu, begin) = (process.cpu()?, Instant::now());
        client.run(load(0, count, 0)).await?;
        let mut last = Instant::now();
        if named.is_some() {
            let received = self.received(&reviews, count as usize).await?;
            last = received.into_iter().max().unwrap_or(last);
        }
        let cpu = process.cpu()?.saturating_sub(cpu).as_secs_f64() * 1e6;
        let seconds = last.saturating_duration_since(begin).as_secs_f64();
        Ok([cpu / number(count), number(count) / seconds])
    }
}

/// Part `admission`: the latency of a review while KCP is up, refuses connections and hangs.
pub(super) async fn admission(bench: &Bench<'_>) -> anyhow::Result<Table> {
    let mut setting = Setting::start(bench).await?;
    let mut rows = Vec::new();
    for mode in Mode::ALL {
        setting.gateway.set(mode).await?;
        let title = format!("admission, KCP {mode:?}");
        let measure = admission_rows(&setting, mode);
        rows.extend(bench.progress.show(&title, measure).await?);
    }
    Ok(Table::new(
        &["measure", "watcher", "watcher, `--delivery-mode=sync`"],
        rows,
    ))
}

async fn admission_rows(setting: &Setting<'_, '_>, mode: Mode) -> anyhow::Result<Vec<Row>> {
    let effort = setting.bench.effort;
    let rounds = effort.choose(15, 5);
    let kcp = format!("{mode:?}").to_lowercase();
    let name = |kind: &str, round: u32| format!("{kind}-{kcp}-{round}");
    let (mut spool, mut sync) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let reviews = Reviews::new(name("spool", round), u32::MAX);
        let mut client = reviews.client(&setting.spool.0.target).await?;
        spool.push(latencies(&client.run(load(0, RATE, RATE)).await?)?);
        if mode == Mode::Up {
            let reviews = Reviews::new(name("sync", round), u32::MAX);
            let mut client = reviews.client(&setting.sync.0.target).await?;
            sync.push(latencies(&client.run(load(0, RATE, RATE)).await?)?);
        }
    }
    if mode != Mode::Up {
        // A review that waits for KCP takes seconds: one for each connection.
        let reviews = Reviews::new(name("sync", 0), u32::MAX);
        let mut client = reviews.client(&setting.sync.0.target).await?;
        sync.push(latencies(&client.run(load(0, CONNECTIONS, 0)).await?)?);
    }
    let row = |index: usize, kind: &str, limit: Option<f64>| {
        let results = [
            Estimate::of_rounds(&spool, index)?,
            Estimate::of_rounds(&sync, index)?,
        ];
        let measure = format!("admission {kind}, ms, KCP {kcp}, {RATE}/s");
        let bound = limit.map(|limit| Bound::at_most(results[0], limit, " ms"));
        anyhow::Ok(Row::of(&measure, results, 2).bound(bound))
    };
    // On a busy machine it is shown that no review waits for KCP, which takes seconds.
    let quick = (mode != Mode::Up).then_some(1_000.0);
    Ok(vec![
        row(0, "p50", effort.choose(Some(1.0), quick))?,
        row(1, "p99", effort.choose(Some(2.0), None))?,
    ])
}

/// Part `delivery`: from the review to the operator.
pub(super) async fn delivery(bench: &Bench<'_>) -> anyhow::Result<Table> {
    let mut setting = Setting::start(bench).await?;
    let mut rows = Vec::new();
    let idle = bench
        .progress
        .show("one review at a time", end_to_end(&setting));
    rows.push(idle.await?);
    let costs = bench
        .progress
        .show("cost of an event", costs(&setting))
        .await?;
    rows.extend(costs);
    rows.push(backlog(&mut setting).await?);
    Ok(Table::new(
        &["measure", "watcher", "watcher, `--delivery-mode=sync`"],
        rows,
    ))
}

/// From a review to the event, where nothing else happens.
async fn end_to_end(setting: &Setting<'_, '_>) -> anyhow::Result<Row> {
    let count = setting.bench.effort.count(1_000);
    let measure = async |kind: &str, target: &Target| {
        let reviews = Reviews::new(format!("idle-{kind}"), u32::MAX);
        let exchanges = reviews
            .client(target)
            .await?
            .run(load(0, count, IDLE_RATE))
            .await?;
        setting.received(&reviews, exchanges.len()).await?;
        let time = |exchange: &Exchange| {
            let received = setting.events.of(&reviews.object(exchange.number));
            let time = received?.first.saturating_duration_since(exchange.begin);
            Some(time.as_secs_f64() * 1e3)
        };
        Estimate::of(&exchanges.iter().filter_map(time).collect::<Vec<_>>())
    };
    let spool = measure("spool", &setting.spool.0.target).await?;
    let sync = measure("sync", &setting.sync.0.target).await?;
    let limit = setting.bench.effort.choose(50.0, 1_000.0);
    let name = "end to end p50, ms: review sent → event received";
    Ok(Row::of(name, [spool, sync], 2).bound(Bound::at_most(spool, limit, " ms")))
}

/// The cost of an event, with the reviews of all connections in a closed loop.
async fn costs(setting: &Setting<'_, '_>) -> anyhow::Result<Vec<Row>> {
    let bench = setting.bench;
    let (target, process) = bench.start_baseline(&setting.authority).await?;
    let baseline = (&target, &process);
    let watcher = (&setting.spool.0.target, &setting.spool.1);
    let with_sync = (&setting.sync.0.target, &setting.sync.1);
    let reviews = bench.effort.choose(2_000, 500);
    let (mut spool, mut sync, mut ratios, mut handshakes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for round in 0..bench.effort.choose(15, 6) {
        let before = setting.gateway.handshakes();
        let name = |kind: &str| Some(Reviews::new(format!("{kind}-{round}"), u32::MAX));
        let first = setting.cost(baseline, None, reviews).await?;
        let one = setting.cost(watcher, name("spool-a"), reviews).await?;
        let other = setting.cost(watcher, name("spool-b"), reviews).await?;
        let last = setting.cost(baseline, None, reviews).await?;
        handshakes += setting.gateway.handshakes() - before;
        ratios.push((one[0] + other[0]) / (first[0] + last[0]));
        spool.extend([one, other]);
        sync.push(setting.cost(with_sync, name("sync"), reviews).await?);
    }
    let row = |measure: &str, index: usize| {
        let results = [
            Estimate::of_rounds(&spool, index)?,
            Estimate::of_rounds(&sync, index)?,
        ];
        anyhow::Ok(Row::of(measure, results, 0))
    };
    let ratio = Estimate::of(&ratios)?;
    let bound = Bound::at_most(ratio, MOST_OF_BASELINE, " ×");
    let events = number(spool.len()) * number(reviews);
    let handshakes = format!("{:.1}", number(handshakes) * 1e3 / events);
    let by_baseline = "… by CPU of a baseline server for the same review";
    let rate = "events per second, reviewed and delivered, 16 connections";
    Ok(vec![
        row("CPU, µs per event: review and delivery", 0)?,
        Row::of(by_baseline, [ratio], 2).bound(bench.effort.choose(None, Some(bound))),
        row(rate, 1)?,
        Row::new(["TLS handshakes with KCP, per 1000 events", &handshakes]),
    ])
}

/// Events that waited while KCP was unreachable.
async fn backlog(setting: &mut Setting<'_, '_>) -> anyhow::Result<Row> {
    // Confirmations of earlier events would be counted here.
    holds("no more confirmations", CONFIRMED, || async { true }).await?;
    setting.gateway.set(Mode::Refusing).await?;
    let count = setting.bench.effort.count(20_000);
    let reviews = Reviews::new("backlog", u32::MAX);
    let mut client = reviews.client(&setting.spool.0.target).await?;
    let exchanges = client.run(load(0, count, 0)).await?;
    ensure!(
        exchanges.iter().all(|it| it.answered),
        "reviews without a response"
    );
    let process = &setting.spool.1;
    let (memory, cpu) = (process.memory("VmRSS")?, process.cpu()?);
    setting.gateway.set(Mode::Up).await?;
    let received = setting.received(&reviews, exchanges.len()).await?;
    let cpu = setting.spool.1.cpu()?.saturating_sub(cpu).as_secs_f64() * 1e6 / number(count);
    let span = received
        .iter()
        .min()
        .zip(received.iter().max())
        .context("no event")?;
    let rate = number(count) / span.1.saturating_duration_since(*span.0).as_secs_f64();
    let name = format!("events per second of a backlog of {count} objects");
    let result = format!("{rate:.0}; {cpu:.0} µs CPU per event; RSS {memory:.1} MiB before");
    Ok(Row::new([name, result]))
}

/// Reviews per second: more changes of watched objects than a runtime has.
const RATE: u32 = 200;
/// Reviews per second that do not overlap.
const IDLE_RATE: u32 = 25;
/// A review is parsed, its event stored, sent and confirmed: about five times the work of reading it.
const MOST_OF_BASELINE: f64 = 12.0;
/// A little more than `--follow-up-delay` and a confirmation.
const CONFIRMED: Duration = Duration::from_secs(7);
/// The longest back-off of the watcher, and delivery.
const LONGEST: Duration = Duration::from_secs(90);
