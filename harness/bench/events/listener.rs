//! The capacity of one listener on one core: events per second with and without its cache, and 5,000 concurrent clients.
//!
//! The listener caches the client of a verified `X-Forwarded-Client-Cert` header, for up to 20,000 headers. Each *cold* request
//! has a header that is new to the listener, with the certificates of 10,000 runtimes. So the listener parses every header and
//! verifies its certificate chain. *Warm* requests repeat 1,000 headers. All events are different, so none is coalesced.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::json;
use testkit::pki::Authority;
use testkit::until::until;
use watcher_types::{BOOT_ID_HEADER, SEQUENCE_HEADER};

use super::kcp::{Gateway, MANAGER, Operator, XFCC_HEADER, forwarded};
use crate::environment::Bench;
use crate::load::{Client, Connection, Cost, Requests, Server, Target, post};
use crate::process::Program;
use crate::report::{Bound, Row, Table};
use crate::statistics::{Estimate, number, quantile};

/// Arguments of the operator process.
#[derive(Debug, Clone, Args)]
pub struct OperatorArgs {
    /// Address of the listener.
    #[arg(long)]
    address: SocketAddr,
    /// File with the certificate authority of watchers.
    #[arg(long)]
    authority: PathBuf,
}

/// Number of events from the listener's stream in an operator process, and of runtimes with a heartbeat.
type Received = (usize, usize);

/// Runs an operator with the listener until standard input ends. Returns [`Received`] as JSON.
pub(crate) async fn operate(arguments: &OperatorArgs) -> anyhow::Result<String> {
    let authority = std::fs::read_to_string(&arguments.authority)?;
    let events = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&events);
    let take = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let operator = Operator::start(arguments.address, &authority, take).await?;
    tokio::task::spawn_blocking(|| io::read_to_string(io::stdin())).await??;
    let known = operator.liveness.snapshot();
    let alive = known.iter().filter(|it| it.since_heartbeat.is_some());
    let received: Received = (events.load(Ordering::Relaxed), alive.count());
    Ok(serde_json::to_string(&received)?)
}

async fn start(bench: &Bench, name: &'static str, authority: &Authority) -> anyhow::Result<Server> {
    let program = Program::with_certificate(bench, name, authority, None)?;
    let address = program.address;
    let arguments = [
        "bench".to_owned(),
        "operator".to_owned(),
        format!("--address={address}"),
        format!("--authority={}", program.file("ca.crt")),
    ];
    let process = program.start_as(&std::env::current_exe()?, &arguments)?;
    let target = Target { address, tls: None };
    until("the listener", START, || target.connect()).await?;
    Ok(Server { process, target })
}

async fn finish(listener: Server) -> anyhow::Result<Received> {
    Ok(serde_json::from_str(&listener.process.finish().await?)?)
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Table> {
    let authority = Authority::new("bench")?;
    let mut rows = rates(bench, &authority).await?;
    rows.extend(heartbeats(bench, &authority).await?);
    rows.extend(reconnects(bench, &authority).await?);
    Ok(Table::new(["measure", "listener"], rows))
}

/// A listener under load from a gateway, which sends these headers in turn.
struct Side {
    listener: Server,
    client: Client,
    sent: u32,
    rounds: Vec<Cost>,
}

impl Side {
    async fn start(
        bench: &Bench,
        authority: &Authority,
        name: &'static str,
        make: impl Fn(u32) -> String + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = start(bench, name, authority).await?;
        Ok(Self {
            client: Client::connect(&listener.target, Requests::new(make, "")).await?,
            listener,
            sent: 0,
            rounds: Vec::new(),
        })
    }

    async fn round(&mut self, events: u32) -> anyhow::Result<()> {
        let numbers = self.sent..self.sent + events;
        self.sent = numbers.end;
        let cost = self.client.cost(&self.listener.process, numbers);
        self.rounds.push(cost.await?);
        Ok(())
    }

    /// Returns both estimates, the memory (RSS) in MiB, and the numbers of received events and heartbeats.
    async fn end(self) -> anyhow::Result<([Estimate; 2], Estimate, Received)> {
        let memory = self.listener.process.memory("VmRSS")?;
        let received = finish(self.listener).await?;
        let [cpu, rate] = [0, 1].map(|index| Estimate::of_rounds(&self.rounds, index));
        Ok(([cpu?, rate?], memory.into(), received))
    }

    /// Returns the estimates and the memory, after a check that no event is missing.
    async fn end_of_events(self) -> anyhow::Result<([Estimate; 2], Estimate)> {
        let sent = self.sent;
        let (costs, memory, (received, _)) = self.end().await?;
        ensure!(received == sent as usize, "{received} events of {sent}");
        Ok((costs, memory))
    }
}

async fn rates(bench: &Bench, authority: &Authority) -> anyhow::Result<Vec<Row>> {
    let (events, effort) = (bench.effort.choose(3_000, 1_000), bench.effort);
    let rounds = effort.choose(10, 3);
    let certificate = |number| anyhow::Ok(authority.leaf(&format!("runtime-{number}"))?.der);
    let certificates: anyhow::Result<Vec<_>> = (0..2 * rounds * events).map(certificate).collect();
    let certificates = certificates?;
    let clients: Vec<String> = certificates.iter().map(forwarded).collect();
    let events_of = |clients: Vec<String>| {
        move |number: u32| {
            let index = number as usize % clients.len();
            let header = format!("{XFCC_HEADER}: {}\r\n", clients[index]);
            event(&header, index, number)
        }
    };
    let warm = events_of(clients[..WARM_HEADERS].to_vec());
    let mut cold = Side::start(bench, authority, "listener-cold", events_of(clients)).await?;
    let mut warm = Side::start(bench, authority, "listener-warm", warm).await?;
    // This round fills the cache of the warm listener.
    warm.round(u32::try_from(WARM_HEADERS)?).await?;
    warm.rounds.clear();
    for _ in 0..rounds {
        cold.round(events).await?;
        warm.round(events).await?;
        warm.round(events).await?;
        cold.round(events).await?;
    }
    let check = verification(authority, &certificates)?;
    let ([cold_cpu, cold_rate], cold_memory) = cold.end_of_events().await?;
    let ([warm_cpu, warm_rate], warm_memory) = warm.end_of_events().await?;
    // The speed of the machine cancels out in these ratios, which are therefore the bounds of a quick run.
    let ratio = |cpu: Estimate, limit| {
        let bound = Bound::at_most(cpu.high / check.median, limit, " × a verification");
        effort.choose(None, Some(bound))
    };
    let rate =
        |rate, wanted| effort.choose(Some(Bound::at_least(rate, wanted, "/s").target()), None);
    let memory = Bound::at_most(cold_memory, MOST_MEMORY, " MiB");
    Ok(vec![
        Row::of("events per second on one core, cold", [cold_rate], 0)
            .bound(rate(cold_rate, COLD_RATE)),
        Row::of("events per second on one core, warm", [warm_rate], 0)
            .bound(rate(warm_rate, WARM_RATE)),
        Row::of("CPU, µs per event, cold", [cold_cpu], 1).bound(ratio(cold_cpu, MOST_COLD)),
        Row::of("CPU, µs per event, warm", [warm_cpu], 1).bound(ratio(warm_cpu, MOST_WARM)),
        Row::of("… verification of one certificate alone, µs", [check], 1),
        Row::of("RSS, MiB, 20,000 clients in the cache", [cold_memory], 1).bound(memory),
        Row::of("RSS, MiB, 1,000 clients in the cache", [warm_memory], 1),
    ])
}

/// Measures the heartbeats of 10,000 watchers, which a fleet sends once a minute.
async fn heartbeats(bench: &Bench, authority: &Authority) -> anyhow::Result<[Row; 3]> {
    let count = bench.effort.count(WATCHERS);
    let header = |number| {
        let leaf = authority.leaf(&format!("runtime-{number}"))?;
        anyhow::Ok(format!("{XFCC_HEADER}: {}\r\n", forwarded(&leaf.der)))
    };
    let headers: Vec<String> = (0..count).map(header).collect::<anyhow::Result<_>>()?;
    let make = move |number: u32| heartbeat(&headers[(number % count) as usize], number % count);
    let mut side = Side::start(bench, authority, "listener-heartbeats", make).await?;
    // The listener verifies the first request of each watcher; afterwards the client is cached, as in a fleet.
    side.round(count).await?;
    side.rounds.clear();
    for _ in 0..bench.effort.choose(5, 3) {
        side.round(count).await?;
    }
    let ([cpu, rate], memory, (_, alive)) = side.end().await?;
    ensure!(alive == count as usize, "{alive} runtimes of {count}");
    let memory_bound = Bound::at_most(memory, MOST_MEMORY, " MiB");
    let name = format!("CPU, µs per heartbeat of {count} watchers");
    Ok([
        Row::of(&name, [cpu], 1),
        Row::of("heartbeats per second on one core", [rate], 0),
        Row::of(
            "RSS, MiB, with their liveness and certificates",
            [memory],
            1,
        )
        .bound(memory_bound),
    ])
}

/// Returns the microseconds for verifying the chain of one certificate, on the core of the load generator.
fn verification(
    authority: &Authority,
    certificates: &[CertificateDer<'static>],
) -> anyhow::Result<Estimate> {
    let verifier = authority.client_verifier()?;
    let mut rounds = Vec::new();
    for chunk in certificates.chunks(1_000) {
        let begin = Instant::now();
        for certificate in chunk {
            verifier.verify_client_cert(certificate, &[], UnixTime::now())?;
        }
        rounds.push(begin.elapsed().as_secs_f64() * 1e6 / number(chunk.len()));
    }
    Estimate::of(&rounds)
}

/// Measures 5,000 runtimes with different certificates that connect to the gateway at the same time, each with a heartbeat and
/// an event.
async fn reconnects(bench: &Bench, authority: &Authority) -> anyhow::Result<[Row; 2]> {
    let listener = start(bench, "listener", authority).await?;
    let gateway = Gateway::start(authority, listener.target.address).await?;
    let count = bench.effort.count(5_000);
    let mut clients = Vec::new();
    for number in 0..count {
        let leaf = authority.leaf(&format!("runtime-{number}"))?;
        clients.push(Target::tls(
            gateway.address,
            authority.roots(),
            Some(&leaf),
        )?);
    }
    let (begin, cpu) = (Instant::now(), listener.process.cpu()?);
    let connect = |(number, target): (usize, Target)| {
        tokio::spawn(async move {
            let connection = reconnect(&target, number).await?;
            anyhow::Ok((begin.elapsed(), connection))
        })
    };
    // All connections stay open during the measurement.
    let clients = clients.into_iter().enumerate().map(connect);
    let clients = futures::future::try_join_all(clients).await?;
    let cpu = listener.process.cpu()? - cpu;
    let times = clients.iter().flatten().map(|(time, _)| time.as_secs_f64());
    let times: Vec<f64> = times.collect();
    let [median, last] = [0.5, 1.0].map(|share| quantile(&times, share));
    let errors = || clients.iter().filter_map(|it| it.as_ref().err());
    let first = errors()
        .next()
        .map_or_else(String::new, |it| format!("; {it:#}"));
    let (events, runtimes) = finish(listener).await?;
    let [unknown, missing] = [runtimes, events].map(|it| clients.len().saturating_sub(it));
    let failed = errors().count();
    let name = format!("{count} clients connect at once: TLS, heartbeat, event; last, s");
    let result = format!("{last:.1}; p50 {median:.1} s; listener CPU {cpu:.2} s");
    let bound = Bound::at_most(last, 60.0, " s");
    let errors = "… clients with an error, unknown runtimes, missing events";
    let counted = format!("{failed}, {unknown}, {missing}{first}");
    let none = Bound::zero(failed + unknown + missing);
    Ok([
        Row::new([name, result]).bound(bound),
        Row::new([errors, &counted]).bound(none),
    ])
}

/// Connects a runtime and keeps the connection open, as a watcher does.
async fn reconnect(target: &Target, number: usize) -> anyhow::Result<Connection> {
    let mut connection = target.connect().await.context("connection")?;
    for request in [heartbeat("", u32::try_from(number)?), event("", number, 1)] {
        let status = connection.ask(request).await?.status;
        ensure!(status == 200, "{status}");
    }
    Ok(connection)
}

fn heartbeat(header: &str, runtime: u32) -> String {
    let heartbeat = json!({
        "bootId": format!("{runtime:032x}"), "sequence": 1, "spoolDepth": 1, "oldestAgeSeconds": 60, "version": "0.0.0",
    });
    let path = format!("/v2/{MANAGER}/event/heartbeat");
    post(&path, header, &heartbeat.to_string())
}

fn event(header: &str, runtime: usize, number: u32) -> String {
    let event = json!({
        "watched": {"Namespace": "kyma-system", "Name": format!("object-{number:09}")},
        "watchedGvk": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
    });
    let (path, sequence) = (format!("/v2/{MANAGER}/event"), number + 1);
    let sequence = format!("{SEQUENCE_HEADER}: {sequence}\r\n");
    let headers = format!("{header}{BOOT_ID_HEADER}: {runtime:032x}\r\n{sequence}");
    post(&path, &headers, &event.to_string())
}

const START: Duration = Duration::from_mins(1);
const WARM_HEADERS: usize = 1_000;
const WATCHERS: u32 = 10_000;
/// Events per second: 10,000 runtimes whose certificates are all new to a listener send an event within a second.
const COLD_RATE: f64 = 12_000.0;
const WARM_RATE: f64 = 50_000.0;
/// Largest CPU time of an event as a multiple of that of a verification, in a quick run, whose listener is a development build.
/// It is about 3.5 times the value of a busy machine (11 and 2.3).
const MOST_COLD: f64 = 40.0;
const MOST_WARM: f64 = 8.0;
/// Largest memory in MiB. A cached client needs about two kilobytes.
const MOST_MEMORY: f64 = 128.0;
