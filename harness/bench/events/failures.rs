//! Checks that KCP receives the final state of every object: after SIGKILL at random times, and after an hour without KCP.
//!
//! In *kills* each process of the watcher has its own objects, so that later changes do not hide the loss of one kill. A
//! process is killed at any time from its first instruction on, while KCP is up, refuses connections or hangs at random. A
//! watcher without a spool is the control: if it lost nothing, the bench could not detect a loss. In *outage* the 36,000
//! reviews of an hour arrive within two minutes; backoff, heartbeats and timeouts are not shortened.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::time::sleep_until;

use super::kcp::{Expected, Gateway, Kcp, Mode};
use super::watcher::{Reviews, SPOOL, Watcher};
use crate::environment::Bench;
use crate::load::{Client, Exchange, latencies};
use crate::process::Process;
use crate::report::{Bound, Row, Table};

pub(super) async fn kills(bench: &Bench) -> anyhow::Result<Table> {
    let kills = bench.effort.count(KILLS);
    let (control, of, _) = kill(bench, CONTROL, false).await?;
    ensure!(
        control > 0,
        "without a spool nothing is lost: a loss would not be detected"
    );
    let (lost, expected, took) = kill(bench, kills, true).await?;
    let objects = expected.objects();
    ensure!(objects > 0, "no review was answered");
    let result = format!(
        "{lost} of {objects} objects, {} reviews; the last event {:.1} s after the last start. Control without a spool: {} \
         of {} in {CONTROL} kills",
        expected.reviews,
        took.as_secs_f64(),
        control,
        of.objects()
    );
    let row = Row::new([format!("final states lost, {kills} times SIGKILL"), result]);
    let rows = vec![row.bound(Bound::zero(lost))];
    Ok(Table::new(["measure", "watcher"], rows))
}

/// Kills the watcher `count` times. Without a spool, events are only in its memory. Returns the number of lost states, the
/// expected states, and the time until the last event.
async fn kill(
    bench: &Bench,
    count: u32,
    spool: bool,
) -> anyhow::Result<(usize, Expected, Duration)> {
    let mut kcp = Kcp::start().await?;
    let watcher = Watcher::new(bench, &kcp, "watcher")?;
    if !spool {
        fs::remove_dir_all(watcher.program.file(SPOOL))?;
    }
    let (mut random, mut expected) = (fastrand::Rng::with_seed(1), Expected::default());
    for number in 0..count {
        kcp.gateway.set(random_mode(&mut random)).await?;
        let lifetime = match (number + 1) % LONG_EVERY {
            0 => LONG,
            _ => random.u32(0..SHORT),
        };
        let reviews = Reviews::new(format!("process-{number}"), OBJECTS);
        let mut requests = reviews.requests()?;
        requests.may_break = true;
        let mut client = Client::connect(&watcher.target, requests).await?;
        let mut process = watcher.start("async")?;
        let changes = client.run(0..lifetime / (1_000_000 / CHANGES), CHANGES);
        let end = Instant::now() + Duration::from_micros(lifetime.into());
        let killed = async {
            sleep_until(end.into()).await;
            process.kill().await
        };
        let (exchanges, killed) = tokio::join!(changes, killed);
        killed?;
        expected.add_reviews(&reviews, &exchanges?);
    }
    kcp.gateway.set(Mode::Up).await?;
    let mut process = watcher.start("async")?;
    let deadline = if spool { DEADLINE } else { SETTLED };
    let (lost, took) = expected.settle(&kcp.events, deadline).await;
    process.check_running()?;
    Ok((lost, expected, took))
}

fn random_mode(random: &mut fastrand::Rng) -> Mode {
    match random.u8(0..10) {
        0 => Mode::Hanging,
        1 | 2 => Mode::Refusing,
        _ => Mode::Up,
    }
}

pub(super) async fn outage(bench: &Bench) -> anyhow::Result<Table> {
    let mut kcp = Kcp::start().await?;
    let watcher = Watcher::new(bench, &kcp, "watcher")?;
    let mut process = watcher.start_ready("async").await?;
    let idle = watcher.program.idle_memory(&process).await?;
    let reviews = Reviews::new("hour", bench.effort.count(OBJECTS_IN_OUTAGE));
    let hour = an_hour(bench, &reviews, &watcher, (&mut kcp.gateway, &process));
    let (exchanges, memory) = hour.await?;
    let answered = exchanges.iter().all(|it| it.answered);
    ensure!(answered, "reviews without a response");
    let spool = watcher.spool_bytes()? >> 10;
    kcp.gateway.set(Mode::Up).await?;
    let mut expected = Expected::default();
    expected.add_reviews(&reviews, &exchanges);
    let (lost, took) = expected.settle(&kcp.events, DEADLINE).await;
    process.check_running()?;
    let [median, _] = latencies(&exchanges);
    let (first, most) = (memory[0], memory.iter().copied().fold(0.0, f64::max));
    let (rss, growth, latency) = bench.effort.choose((12.0, 1.0, 1.0), (20.0, 3.0, 1_000.0));
    let (objects, sent, took) = (expected.objects(), expected.reviews, took.as_secs_f64());
    let row = |measure: &str, result: String, (value, limit, unit): (f64, f64, &str)| {
        Row::new([measure, &result]).bound(Bound::at_most(value, limit, unit))
    };
    let lost_states = format!("{lost} of {objects} objects, {sent} reviews; spool {spool} KiB");
    let rows = vec![
        row("RSS idle, MiB", format!("{idle:.1}"), (idle, rss, " MiB")),
        row(
            "RSS, MiB, once every object waits, and the most",
            format!("{first:.1}, {most:.1}"),
            (most - first, growth, " MiB more"),
        ),
        row(
            &format!("admission p50, ms, {OUTAGE_RATE}/s"),
            format!("{median:.2}"),
            (median, latency, " ms"),
        ),
        Row::new(["final states lost", &lost_states]).bound(Bound::zero(lost)),
        row(
            "… the last event after KCP is reachable again, s",
            format!("{took:.1}"),
            (took, 90.0, " s"),
        ),
    ];
    Ok(Table::new(["measure", "watcher"], rows))
}

/// Sends the reviews of an hour without KCP. Returns the memory (RSS) of the watcher in MiB after each tenth of them.
async fn an_hour(
    bench: &Bench,
    reviews: &Reviews,
    watcher: &Watcher<'_>,
    (gateway, process): (&mut Gateway, &Process),
) -> anyhow::Result<(Vec<Exchange>, Vec<f64>)> {
    let mut client = reviews.client(&watcher.target).await?;
    let (mut exchanges, mut memory) = (Vec::new(), Vec::new());
    gateway.set(Mode::Refusing).await?;
    let slice = bench.effort.count(REVIEWS) / SLICES;
    for number in 0..SLICES {
        if number == SLICES / 2 {
            gateway.set(Mode::Hanging).await?;
        }
        let run = client.run(number * slice..(number + 1) * slice, OUTAGE_RATE);
        exchanges.extend(run.await?);
        memory.push(process.memory("VmRSS")?);
    }
    Ok((exchanges, memory))
}

const KILLS: u32 = 1_000;
const CONTROL: u32 = 50;
/// Longest lifetime of most processes in microseconds, uniformly distributed. Some end before they listen.
const SHORT: u32 = 200_000;
/// One of this number of processes runs until events are confirmed.
const LONG_EVERY: u32 = 100;
const LONG: u32 = 6_000_000;
const OBJECTS: u32 = 16;
/// Reviews per second while a process runs.
const CHANGES: u32 = 2_000;
/// The longest backoff, and the time of the delivery.
const DEADLINE: Duration = Duration::from_mins(2);
/// Longer than events stay in memory.
const SETTLED: Duration = Duration::from_secs(10);
/// Ten reviews per second for an hour.
const REVIEWS: u32 = 36_000;
const OUTAGE_RATE: u32 = 300;
const SLICES: u32 = 10;
/// More watched objects than a runtime has.
const OBJECTS_IN_OUTAGE: u32 = 1_000;
