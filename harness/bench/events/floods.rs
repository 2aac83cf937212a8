//! Reviews of the API server and the memory of the watcher while hostile clients hold connections and incomplete requests.
//!
//! A flood starts before the reviews are measured. A client whose connection the watcher closes connects again; all clients
//! together connect [`RECONNECTS`] times per second. Blocks of rounds without and with the flood alternate (A, B, A).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use testkit::tls::RawClient;
use testkit::until::until;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::time::interval;

use super::kcp::Kcp;
use super::watcher::{Reviews, Watcher};
use crate::Outcome;
use crate::environment::Bench;
use crate::load::{Target, latencies};
use crate::process::Program;
use crate::report::{Bound, Row, Table};
use crate::statistics::Estimate;

/// Data that each client of a flood sends after it has connected.
struct Flood {
    name: &'static str,
    clients: u32,
    /// TLS handshake and these bytes; `None` for a connection without either.
    sent: Option<String>,
    /// Whether one further byte follows every second.
    slow: bool,
}

fn floods() -> [Flood; 4] {
    let begin = "POST /validate/kyma HTTP/1.1\r\nHost: a\r\n";
    let body = format!("{begin}Content-Length: 7000000\r\n\r\n");
    let headers = format!("{begin}A: {:x<15000}", "");
    let bodies = body.clone() + &"x".repeat(6_999_000);
    let slow = "10,000 clients that send a byte a second";
    [
        ("1,024 silent connections", 1_024, None),
        ("1,000 headers of 15 kB without end", 1_000, Some(headers)),
        ("20 bodies of 7 MB without end", 20, Some(bodies)),
        (slow, 10_000, Some(body)),
    ]
    .map(|(name, clients, sent)| Flood {
        name,
        clients,
        sent,
        slow: name == slow,
    })
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Table> {
    let kcp = Kcp::start().await?;
    let mut rows = Vec::new();
    for (number, flood) in floods().into_iter().enumerate() {
        // Each flood has its own watcher process, so that the peak memory belongs to this flood.
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
        let mut flooding = start(number, clients, &watcher.program)?;
        until("the flood", STARTING, || async {
            let samples = watcher.program.metrics().await?;
            let accepted =
                samples.count(r#"watcher_server_connections_accepted_total{server="webhook"}"#);
            ensure!(accepted >= u64::from(clients), "{accepted} connections");
            anyhow::Ok(())
        })
        .await?;
        let flooded = Estimate::of(&p99(2 * rounds).await?)?;
        let memory = process.memory("VmHWM")?;
        ensure!(flooding.try_wait()?.is_none(), "the flood has ended");
        flooding.kill().await?;
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

/// Starts the clients of a flood in a process with low priority on the core of the load generator. The process ends when the
/// handle is dropped.
fn start(number: usize, clients: u32, program: &Program) -> anyhow::Result<Child> {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0"]).arg(std::env::current_exe()?);
    command.args(["bench", "flood"]);
    command.arg(format!("--number={number}"));
    command.arg(format!("--clients={clients}"));
    command.arg(format!("--address={}", program.address));
    command.arg(format!("--authority={}", program.file("ca.crt")));
    let started = command.stdin(Stdio::null()).kill_on_drop(true).spawn();
    started.context("chrt is needed")
}

/// Arguments of the process with the clients of a flood.
#[derive(Debug, Clone, Args)]
pub struct FloodArgs {
    /// Number of the flood.
    #[arg(long)]
    number: usize,
    /// Number of clients.
    #[arg(long)]
    clients: u32,
    /// Address of the watcher.
    #[arg(long)]
    address: SocketAddr,
    /// File with the certificate authority of the watcher.
    #[arg(long)]
    authority: PathBuf,
}

/// Runs the clients of a flood until the process is killed.
#[expect(
    clippy::disallowed_methods,
    reason = "connections are opened at a fixed rate"
)]
pub(crate) async fn flood(arguments: &FloodArgs) -> anyhow::Result<Outcome> {
    let flood = floods().into_iter().nth(arguments.number);
    let flood = flood.context("no such flood")?;
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&arguments.authority)? {
        authorities.add(certificate?)?;
    }
    let target = Target::tls(arguments.address, authorities, None)?;
    let reconnects = Arc::new(Semaphore::new(0));
    for _ in 0..arguments.clients {
        let (target, sent, slow) = (target.clone(), flood.sent.clone(), flood.slow);
        let reconnects = Arc::clone(&reconnects);
        tokio::spawn(async move {
            loop {
                // The error is expected, because the watcher ends the connection.
                let _ended = hold(&target, sent.as_deref(), slow).await;
                let Ok(permit) = reconnects.acquire().await else {
                    return;
                };
                permit.forget();
            }
        });
    }
    let mut ticks = interval(Duration::from_secs(1) / RECONNECTS);
    loop {
        ticks.tick().await;
        reconnects.add_permits(1);
    }
}

/// Holds one connection until the watcher closes it.
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
/// Number of connections of a flood that are opened again per second.
const RECONNECTS: u32 = 100;
/// Largest memory in MiB: half of the container's limit.
const MOST_MEMORY: f64 = 64.0;
const STARTING: Duration = Duration::from_mins(2);
