//! What a listener carries: events a second on one core, and a fleet that comes back.
//!
//! Invariants: the listener is a process of its own on a core of its own, with its defaults; no two events are equal, so
//! that none is coalesced; each request carries a certificate as a gateway forwards it, which is verified each time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustls_pki_types::UnixTime;
use tokio::task::JoinSet;

use super::authority::{Authority, forwarded, verifier};
use super::kcp::Kcp;
use super::report::{Row, mebibytes, number};
use super::roles::{Player, Role};
use super::senders::{Came, Senders, event, name};
use super::stage::Stage;
use super::wire::Wire;
use crate::statistics::Spread;

/// Measures it.
pub(super) async fn measure(stage: &Stage<'_>) -> anyhow::Result<Vec<Row>> {
    let authority = &stage.authority.pem;
    let carried = rate(stage, Some(authority));
    let carried = stage.progress.show("listener: rate", carried).await?;
    let unchecked = stage
        .progress
        .show("without certificates", rate(stage, None));
    let unchecked = unchecked.await?;
    let check = check(&stage.authority)?;
    let mut rows = vec![
        Row::new(
            format!("listener: events/s on one core, {RUNTIMES} runtimes"),
            format!("{:.0}", carried.rate),
        )
        .at_least(carried.rate.median, RATE, "/s"),
        Row::new(
            "listener: CPU µs/event, and RSS MiB after that",
            format!("{:.1}, {:.1}", carried.cpu, carried.rss),
        ),
        Row::new(
            "… to check the chain of one certificate, alone: µs",
            format!("{check:.1}, so ≤ {:.0}/s", 1e6 / check.median),
        ),
        Row::new(
            "… with nobody's certificate looked at: events/s, µs",
            format!("{:.0}, {:.1}", unchecked.rate, unchecked.cpu),
        ),
    ];
    rows.extend(reconnects(stage).await?);
    Ok(rows)
}

/// What was carried.
struct Carried {
    /// Events a second.
    rate: Spread,
    /// Microseconds an event.
    cpu: Spread,
    /// MiB in the end.
    rss: f64,
}

/// As fast as one listener takes it, which asks for certificates of this authority, if there is one.
async fn rate(stage: &Stage<'_>, authority: Option<&str>) -> anyhow::Result<Carried> {
    let mut operator = Player::start(stage, Role::Operator, &authority).await?;
    let load = Arc::new(Load::new(stage, operator.address)?);
    let events = stage.count(EVENTS);
    load.clone().send(events / 4).await?;
    let (mut rates, mut cpus) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let cpu = operator.process.cpu()?;
        let begin = Instant::now();
        load.clone().send(events).await?;
        let took = begin.elapsed().as_secs_f64();
        let cpu = operator.process.cpu()?.saturating_sub(cpu);
        rates.push(number(events) / took);
        cpus.push(cpu.as_secs_f64() * 1e6 / number(events));
    }
    let sent = load.next.load(Ordering::Relaxed);
    let seen = operator.seen().await?.events;
    ensure!(seen == u64::from(sent), "{seen} events of {sent}");
    let rss = mebibytes(operator.process.memory("VmRSS")?);
    operator.process.end().await?;
    Ok(Carried {
        rate: Spread::of(rates).context("no round")?,
        cpu: Spread::of(cpus).context("no round")?,
        rss,
    })
}

/// Microseconds for what a listener cannot do without: whether an authority signed a certificate.
fn check(authority: &Authority) -> anyhow::Result<Spread> {
    let leaf = authority.leaf(&name(0))?.der()?;
    let verifier = verifier(&authority.pem)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for _ in 0..CHECKS {
            verifier.verify_client_cert(&leaf, &[], UnixTime::now())?;
        }
        rounds.push(begin.elapsed().as_secs_f64() * 1e6 / number(CHECKS));
    }
    Spread::of(rounds).context("no round")
}

/// What a gateway hands on, over the connections that it keeps.
struct Load {
    listener: SocketAddr,
    /// Who the sender is, for each runtime.
    heads: Vec<String>,
    /// The number of the next event.
    next: AtomicU32,
}

impl Load {
    fn new(stage: &Stage<'_>, listener: SocketAddr) -> anyhow::Result<Self> {
        let head = |number| {
            let name = name(number);
            let leaf = stage.authority.leaf(&name)?;
            Ok(forwarded(&leaf.der()?, &name))
        };
        let heads: anyhow::Result<_> = (0..RUNTIMES).map(head).collect();
        Ok(Self {
            listener,
            heads: heads?,
            next: AtomicU32::new(0),
        })
    }

    /// Sends so many events, and has an answer of each.
    async fn send(self: Arc<Self>, events: u32) -> anyhow::Result<()> {
        let end = self.next.load(Ordering::Relaxed) + events;
        let mut connections: JoinSet<_> =
            (0..CONNECTIONS).map(|_| self.clone().work(end)).collect();
        while let Some(worked) = connections.join_next().await {
            worked??;
        }
        Ok(())
    }

    async fn work(self: Arc<Self>, end: u32) -> anyhow::Result<()> {
        let mut wire = Wire::plain(self.listener).await?;
        while let Some(object) = self.take(end) {
            let runtimes = u32::try_from(self.heads.len())?;
            let runtime = object % runtimes;
            let mut request = event(runtime, object, object / runtimes + 1);
            let line = request.windows(2).position(|it| it == b"\r\n");
            let line = line.context("no request line")? + 2;
            let head = self
                .heads
                .get(runtime as usize)
                .context("no such runtime")?;
            request.splice(line..line, head.bytes());
            let answer = wire.ask(&request).await?;
            ensure!(answer.status() == 200, "{}", answer.status());
        }
        Ok(())
    }

    fn take(&self, end: u32) -> Option<u32> {
        let following = |number| (number < end).then_some(number + 1);
        let next = &self.next;
        next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, following)
            .ok()
    }
}

async fn reconnects(stage: &Stage<'_>) -> anyhow::Result<Vec<Row>> {
    let mut operator = Player::start(stage, Role::Operator, &Some(&stage.authority.pem)).await?;
    let kcp = Kcp::before(&stage.authority, operator.address).await?;
    let count = stage.count(SENDERS);
    let senders = Senders::new(&stage.authority, count)?;
    let mut rows = Vec::new();
    let mut refused = 0;
    for (time, manner, over) in [
        (1, "spread over a minute", stage.time(MINUTE)),
        (2, "all at one moment", MOMENT),
    ] {
        let title = format!("{count} senders reconnect, {manner}");
        let cpu = operator.process.cpu()?;
        let coming = senders.come(time, kcp.address, over);
        let came = stage.progress.show(&title, coming).await?;
        let cpu = operator.process.cpu()?.saturating_sub(cpu);
        refused += came.refused;
        let row = Row::new(title, told(&came, cpu));
        rows.push(match over {
            // How long that takes is given.
            over if over > MOMENT => row,
            _ => row.at_most(came.last.as_secs_f64(), MINUTE.as_secs_f64(), " s"),
        });
    }
    let seen = operator.seen().await?;
    let rss = mebibytes(operator.process.memory("VmRSS")?);
    let events = (2 * u64::from(count)).saturating_sub(seen.events);
    let unknown = (count as usize).saturating_sub(seen.runtimes);
    let figures = format!("{refused}, {unknown}, {events}; listener RSS {rss:.1} MiB");
    let title = "… senders refused, runtimes unknown, events missing";
    let faults = refused + unknown + usize::try_from(events)?;
    rows.push(Row::new(title, figures).none(faults));
    operator.process.end().await?;
    Ok(rows)
}

fn told(came: &Came, cpu: Duration) -> String {
    let refusal = came.refusal.as_ref();
    let refusal = refusal.map_or_else(String::new, |refusal| format!("; refused: {refusal}"));
    format!(
        "last after {:.1} s; TLS, heartbeat, event: p50 {:.1} ms, p99 {:.1} ms; listener CPU {:.2} s{refusal}",
        came.last.as_secs_f64(),
        came.times.quantile(0.5),
        came.times.quantile(0.99),
        cpu.as_secs_f64()
    )
}

/// Events a second on one core.
const RATE: f64 = 20_000.0;
const EVENTS: u32 = 60_000;
const ROUNDS: u32 = 5;
/// As many as certificates differ enough not to lie in a cache.
const RUNTIMES: u32 = 1_000;
/// A gateway's to one listener.
const CONNECTIONS: u32 = 32;
const CHECKS: u32 = 2_000;
const SENDERS: u32 = 5_000;
const MOMENT: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_mins(1);
