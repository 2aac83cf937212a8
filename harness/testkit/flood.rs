//! A flood of servers: clients that hold connections and memory, of all kinds at once, most of which never complete a request.
//!
//! The clients run in their own thread, so that they do not delay the tasks of the test. A client whose connection the server
//! closes connects again; all clients together connect again a hundred times per second.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::task::JoinSet;

use crate::tls::{RawClient, RawTlsClient};
use crate::until::until;

/// Maximum growth of the resident memory of a server during a flood, in KiB. The servers of tests are debug builds, whose futures and
/// stacks are larger than those of a release. The bodies of one port alone have 140 MB, the headers of one up to 70 MB.
const GROWTH_KIB: u64 = 96 * 1024;

/// Permitted increase of the 99th percentile by a flood, in addition to its double. The clients of the flood, the client of the
/// measured requests and the server share the cores of the machine. A request that waits for a time limit of the server takes
/// three seconds or more, which is the timeout of the webhooks.
const SLACK: Duration = Duration::from_millis(1_500);

/// Number of requests of which the 99th percentile is measured.
const REQUESTS: usize = 200;

/// Number of clients of each port that connect at the same time when the flood starts.
const PARALLEL: usize = 8;

/// Number of connections per second that are opened again.
const RECONNECTS: u32 = 100;

/// Time limit for the start of all clients, long enough for a busy machine.
const STARTING: Duration = Duration::from_mins(5);

/// Pause before each byte of a slow client.
const SLOW: Duration = Duration::from_secs(1);

/// Time for which other clients keep a connection, longer than any test.
const FOREVER: Duration = Duration::from_hours(1);

/// Start of a TLS record of 16 kB with a `ClientHello`.
const HELLO: &[u8] = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03";

/// A port that is flooded.
#[derive(Debug, Clone)]
pub struct Target {
    /// Address of the port.
    pub address: SocketAddr,
    /// Name of the server and configuration of clients; `None` for a port without TLS.
    pub tls: Option<(String, ClientConfig)>,
    /// Method and path of requests, such as `POST /validate/kyma`.
    pub request: String,
    /// Size of an incomplete header: just below the limit of the server, where it takes the most memory.
    pub header_bytes: usize,
}

/// Clients of one kind.
struct Kind {
    count: usize,
    /// Whether the bytes are sent over TLS, if the port has TLS.
    over_tls: bool,
    /// Whether a further byte follows every second.
    is_slow: bool,
    sent: Arc<[u8]>,
}

impl Target {
    /// Returns a port without TLS for probes or scrapes.
    pub fn plain(address: SocketAddr, path: &str) -> Self {
        Self {
            address,
            tls: None,
            request: format!("GET {path}"),
            header_bytes: 7_000,
        }
    }

    /// Returns all kinds of clients: 1,024 silent ones, 1,000 with an incomplete header, 20 with an incomplete body of 7 MB, 10,000
    /// that send one byte per second of a TLS handshake, of a header or of a body, and 250 that send a complete request and no
    /// further one on the connection.
    fn kinds(&self) -> Vec<Kind> {
        let start = format!("{} HTTP/1.1\r\nHost: a\r\n", self.request);
        let filled = "x".repeat(self.header_bytes.saturating_sub(start.len()));
        let header = format!("{start}A: {filled}");
        let body = format!("{start}Content-Length: 7000000\r\n\r\n");
        let complete = format!("{start}Content-Length: 0\r\n\r\n");
        let large = body.clone() + &"x".repeat(6_999_000);
        // Most connections of a flood with TLS have no handshake, which takes as much of the client as of the server.
        let (handshakes, requests) = match &self.tls {
            Some(_) => (9_500, 250),
            None => (0, 5_000),
        };
        let silent = (1_024, false, false, Vec::new());
        let hello = (handshakes, false, true, HELLO.to_vec());
        let kinds = [
            silent,
            hello,
            (1_000, true, false, header.into_bytes()),
            (20, true, false, large.into_bytes()),
            (requests, true, true, start.into_bytes()),
            (requests, true, true, body.into_bytes()),
            (250, true, false, complete.into_bytes()),
        ];
        let kind = |(count, over_tls, is_slow, sent): (_, _, _, Vec<u8>)| Kind {
            count,
            over_tls,
            is_slow,
            sent: sent.into(),
        };
        kinds.map(kind).into()
    }

    /// Returns all clients in the order in which they start. The kinds are mixed evenly.
    fn clients(self) -> Vec<Client> {
        let target = Arc::new(self);
        let opening = Arc::new(Semaphore::new(PARALLEL));
        let mut clients = Vec::new();
        for kind in target.kinds().into_iter().map(Arc::new) {
            for number in 0..kind.count {
                let place = (2 * number + 1) * 1_000_000 / (2 * kind.count);
                let client = Client {
                    target: Arc::clone(&target),
                    kind: Arc::clone(&kind),
                    opening: Arc::clone(&opening),
                };
                clients.push((place, client));
            }
        }
        clients.sort_by_key(|(place, _)| *place);
        clients.into_iter().map(|(_, client)| client).collect()
    }
}

struct Client {
    target: Arc<Target>,
    kind: Arc<Kind>,
    /// Permits to connect for the first time.
    opening: Arc<Semaphore>,
}

impl Client {
    async fn run(self, reconnects: Arc<Semaphore>, started: Arc<AtomicUsize>) {
        let connecting = self.opening.acquire().await.ok();
        let mut first = Some(&*started);
        // Errors are expected, because the server ends each connection.
        let _ended = self.connect(connecting, &mut first).await;
        while let Ok(permit) = reconnects.acquire().await {
            permit.forget();
            let _ended = self.connect(None, &mut first).await;
        }
    }

    /// Holds one connection until the server closes it. Drops `connecting` when it is connected, and counts the client in `first`
    /// when the server has got its first bytes or has refused them.
    async fn connect(
        &self,
        connecting: Option<SemaphorePermit<'_>>,
        first: &mut Option<&AtomicUsize>,
    ) -> io::Result<()> {
        let address = self.target.address;
        match &self.target.tls {
            Some((name, config)) if self.kind.over_tls => {
                let client = RawTlsClient::connect_tls(address, name, config.clone()).await?;
                drop(connecting);
                self.hold(client, first).await
            }
            _ => {
                let client = RawClient::connect(address).await?;
                drop(connecting);
                self.hold(client, first).await
            }
        }
    }

    async fn hold(
        &self,
        mut client: RawClient<impl AsyncRead + AsyncWrite + Unpin>,
        first: &mut Option<&AtomicUsize>,
    ) -> io::Result<()> {
        let sent = client.send(&self.kind.sent).await;
        if let Some(started) = first.take() {
            started.fetch_add(1, Ordering::Relaxed);
        }
        sent?;
        client.patience = if self.kind.is_slow { SLOW } else { FOREVER };
        while client.rest().await.is_err() {
            client.send("x").await?;
        }
        Ok(())
    }
}

/// Running clients, which end when they are dropped.
#[derive(Debug)]
pub struct Flood {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Flood {
    fn drop(&mut self) {
        drop(self.end.take());
        // A panic of the thread has already been printed.
        let _panic = self.thread.take().map(JoinHandle::join);
    }
}

impl Flood {
    /// Starts all kinds of clients of each port at once, and waits until each client has connected and sent its first bytes.
    pub async fn start(targets: impl IntoIterator<Item = Target>) -> anyhow::Result<Self> {
        Self::start_within(STARTING, targets).await
    }

    async fn start_within(
        limit: Duration,
        targets: impl IntoIterator<Item = Target>,
    ) -> anyhow::Result<Self> {
        permit_open_files()?;
        let clients: Vec<_> = targets.into_iter().flat_map(Target::clients).collect();
        let total = clients.len();
        let started = Arc::<AtomicUsize>::default();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let counter = Arc::clone(&started);
        let thread = thread::spawn(move || runtime.block_on(run(clients, counter, ended)));
        let flood = Self {
            end: Some(end),
            thread: Some(thread),
        };
        until("the start of all clients", limit, async || {
            let started = started.load(Ordering::Relaxed);
            let all = started == total;
            all.then_some(()).ok_or(format!("{started} of {total}"))
        })
        .await?;
        Ok(flood)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "connections are opened again at a fixed rate"
)]
async fn run(clients: Vec<Client>, started: Arc<AtomicUsize>, ended: oneshot::Receiver<()>) {
    let reconnects = Arc::new(Semaphore::new(0));
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(client.run(Arc::clone(&reconnects), Arc::clone(&started)));
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RECONNECTS);
    let reconnect = async {
        loop {
            ticks.tick().await;
            reconnects.add_permits(1);
        }
    };
    tokio::select! {
        // The sender is dropped, which ends the flood.
        _ = ended => {}
        () = reconnect => {}
    }
}

/// Raises the limit of open files of this process to its maximum. By default many systems permit 1,024.
fn permit_open_files() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("limit of open files")
}

/// Checks that a server withstands a flood of its ports: its resident memory grows by at most 96 MiB, and the 99th percentile
/// of the duration of `request` at most doubles, apart from one and a half seconds. Returns the flood, which continues. `process` is
/// the ID of the process of the server. `request` sends one valid request and checks the response.
///
/// # Errors
/// The flood does not start, or the process does not run.
///
/// # Panics
/// If the server does not withstand the flood.
pub async fn assert_withstands(
    process: u32,
    targets: impl IntoIterator<Item = Target>,
    mut request: impl AsyncFnMut(),
) -> anyhow::Result<Flood> {
    let calm = p99(&mut request).await;
    // The pages of the program that valid requests need are in memory now. They are many in a debug build.
    let before = peak_memory_kib(process)?;
    let flood = Flood::start(targets).await?;
    let flooded = p99(&mut request).await;
    assert!(
        flooded <= 2 * calm + SLACK,
        "99th percentile: {calm:?}, with the flood {flooded:?}"
    );
    let growth = peak_memory_kib(process)?.saturating_sub(before);
    assert!(growth <= GROWTH_KIB, "{growth} KiB");
    Ok(flood)
}

/// Returns the 99th percentile of the durations of requests, one after the other.
async fn p99(request: &mut impl AsyncFnMut()) -> Duration {
    let mut durations = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let start = Instant::now();
        request().await;
        durations.push(start.elapsed());
    }
    durations.sort_unstable();
    durations[REQUESTS * 99 / 100 - 1]
}

/// Returns the peak resident memory of a process since its start, in KiB.
pub fn peak_memory_kib(process: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let peak = peak.context("no resident memory: the process has ended")?;
    Ok(peak.trim().trim_end_matches(" kB").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn flood_of_a_port_on_which_no_server_listens_does_not_start() {
        let bound = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = bound.local_addr().unwrap();
        drop(bound);
        let target = Target::plain(address, "/");
        let started = Flood::start_within(Duration::from_secs(2), [target]).await;
        let error = started.unwrap_err().to_string();
        assert!(error.contains(": 0 of "), "{error}");
    }
}
