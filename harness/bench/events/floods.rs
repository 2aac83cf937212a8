//! Reviews of the API server and the memory of the watcher while hostile clients hold connections and incomplete requests.
//!
//! A flood is there before the reviews are measured; a client whose connection the watcher closes connects again, all of them
//! together [`RECONNECTS`] times a second. Rounds without and with the flood alternate in blocks (A, B, A).

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use testkit::tls::RawClient;
use testkit::until::until;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::interval;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::kcp::Kcp;
use super::watcher::{Reviews, Watcher};
use crate::environment::Bench;
use crate::load::{Target, latencies};
use crate::report::{Bound, Row, Table};
use crate::statistics::Estimate;

/// What each client of a flood sends after it has connected, if it does at all.
struct Flood {
    name: &'static str,
    clients: u32,
    /// TLS and these bytes; `None`: neither.
    sent: Option<String>,
    /// Whether one more byte follows each second.
    slow: bool,
}

fn floods() -> [Flood; 4] {
    let begin = "POST /validate/kyma HTTP/1.1\r\nHost: a\r\n";
    let body = format!("{begin}Content-Length: 7000000\r\n\r\n");
    [
        Flood {
            name: "1,024 silent connections",
            clients: 1_024,
            sent: None,
            slow: false,
        },
        Flood {
            name: "1,000 headers of 15 kB without end",
            clients: 1_000,
            sent: Some(format!("{begin}A: {:x<15000}", "")),
            slow: false,
        },
        Flood {
            name: "20 bodies of 7 MB without end",
            clients: 20,
            sent: Some(body.clone() + &"x".repeat(6_999_000)),
            slow: false,
        },
        Flood {
            name: "10,000 clients that send a byte a second",
            clients: 10_000,
            sent: Some(body),
            slow: true,
        },
    ]
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Table> {
    let kcp = Kcp::start().await?;
    let mut rows = Vec::new();
    for flood in floods() {
        // Each has a process of its own, whose peak memory is this flood's.
        let watcher = Watcher::new(bench, &kcp, "watcher")?;
        let process = watcher.start_ready("async").await?;
        let reviews = Reviews::distinct("flood");
        let mut client = reviews.client(&watcher.target).await?;
        let (rounds, mut next) = (bench.effort.choose(5, 2), 0);
        let mut p99 = async |rounds: u32| {
            let mut seen = Vec::new();
            for _ in 0..rounds {
                seen.push(latencies(&client.run(next..next + RATE, RATE).await?)[1]);
                next += RATE;
            }
            anyhow::Ok(seen)
        };
        let mut calm = p99(rounds).await?;
        let clients = flood.clients / bench.effort.choose(1, 10);
        let flooding = start(&flood, clients, &watcher.target);
        until("the flood", STARTING, || async {
            let samples = watcher.program.metrics().await?;
            let accepted = samples.count("watcher_server_connections_accepted_total");
            ensure!(accepted >= u64::from(clients), "{accepted} connections");
            anyhow::Ok(())
        })
        .await?;
        let flooded = Estimate::of(&p99(2 * rounds).await?)?;
        let memory = process.memory("VmHWM")?;
        drop(flooding);
        calm.extend(p99(rounds).await?);
        let (name, calm) = (flood.name, Estimate::of(&calm)?);
        let ratio = Bound::at_most(flooded.median / calm.median, 2.0, " × without");
        let most = Bound::at_most(memory, MOST_MEMORY, " MiB");
        let row = Row::of(&format!("p99, ms, {RATE}/s, {name}"), [calm, flooded], 2);
        rows.push(row.bound(bench.effort.choose(Some(ratio), None)));
        rows.push(Row::new(["… RSS, most, MiB", "", &format!("{memory:.1}")]).bound(most));
    }
    Ok(Table::new(
        ["measure", "without flood", "during the flood"],
        rows,
    ))
}

/// Starts clients of a flood; they end with the handle.
#[expect(
    clippy::disallowed_methods,
    reason = "connections are opened at a fixed rate"
)]
fn start(flood: &Flood, count: u32, target: &Target) -> DropGuard {
    let (end, reconnects) = (CancellationToken::new(), Arc::new(Semaphore::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..count {
        let (target, sent, slow) = (target.clone(), flood.sent.clone(), flood.slow);
        let reconnects = Arc::clone(&reconnects);
        clients.spawn(async move {
            loop {
                // The error is that of a connection which the watcher has ended, as it should.
                let _ended = hold(&target, sent.as_deref(), slow).await;
                let Ok(permit) = reconnects.acquire().await else {
                    return;
                };
                permit.forget();
            }
        });
    }
    let ending = end.clone();
    tokio::spawn(async move {
        let mut ticks = interval(Duration::from_secs(1) / RECONNECTS);
        while ending.run_until_cancelled(ticks.tick()).await.is_some() {
            reconnects.add_permits(1);
        }
        clients.shutdown().await;
    });
    end.drop_guard()
}

/// Holds one connection until the watcher ends it.
#[expect(clippy::disallowed_methods, reason = "bytes are sent at a fixed rate")]
async fn hold(target: &Target, sent: Option<&str>, slow: bool) -> std::io::Result<()> {
    let Some(sent) = sent else {
        let mut client = RawClient::new(TcpStream::connect(target.address).await?);
        return client.rest().await.map(drop);
    };
    let mut client = target.connect().await?;
    client.send(sent).await?;
    if !slow {
        return client.rest().await.map(drop);
    }
    let mut ticks = interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        client.send("x").await?;
    }
}

const RATE: u32 = 200;
/// Connections of a flood that are opened again, a second.
const RECONNECTS: u32 = 100;
/// MiB; half of the container's limit.
const MOST_MEMORY: f64 = 64.0;
const STARTING: Duration = Duration::from_mins(2);
