//! Load for a server: one thread, some kept-alive TLS connections, on each one POST after the other.
//!
//! `load ADDRESS NAME AUTHORITY PATH BODY CONNECTIONS` connects, trusting the PEM file AUTHORITY for NAME, and says
//! `connected`. Then each line `REQUESTS RATE` on standard input is one measurement, answered by one line
//! `requests elapsed failed`, times in nanoseconds.
//!
//! - RATE 0 is a closed loop: each connection sends as soon as it has its answer.
//! - Any other RATE is an open loop of so many requests a second. Each has a time at which it is due, and its latency
//!   counts from there, even if no connection was free (no coordinated omission). The latencies end the line.
//!
//! [`UID`], if it is in BODY, is another one in each request. An answer that is not 200, or of another length than the
//! first one, is a failure.
#![expect(
    clippy::print_stdout,
    reason = "a program that talks through its standard output"
)]

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The placeholder in a body.
const UID: &[u8] = b"00000000-0000-4000-8000-000000000000";

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut connections = runtime.block_on(connect())?;
    println!("connected");
    for line in io::stdin().lines() {
        let line = line?;
        let (requests, rate) = line.split_once(' ').ok_or("expected: REQUESTS RATE")?;
        let plan = Plan::new(requests.parse()?, rate.parse()?);
        connections = measure(&runtime, &Arc::new(plan), connections)?;
    }
    Ok(())
}

async fn connect() -> Result<Vec<Connection>, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, name, authority, path, body, connections] = arguments.as_slice() else {
        return Err("usage: load ADDRESS NAME AUTHORITY PATH BODY CONNECTIONS".into());
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let request = Request::new(name, path, &std::fs::read(body)?);
    let length = Arc::new(AtomicUsize::new(0));
    let mut open = Vec::new();
    for _ in 0..connections.parse()? {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(name.clone())?;
        open.push(Connection {
            stream: connector.connect(name, tcp).await?,
            request: request.clone(),
            answer: vec![0; 1 << 20],
            length: Arc::clone(&length),
        });
    }
    Ok(open)
}

/// What one line asks for, shared by the connections.
struct Plan {
    requests: u32,
    period: Duration,
    begin: Instant,
    next: AtomicU32,
}

impl Plan {
    fn new(requests: u32, rate: u32) -> Self {
        let period = match rate {
            0 => Duration::ZERO,
            _ => Duration::from_secs(1) / rate,
        };
        Self {
            requests,
            period,
            begin: Instant::now(),
            next: AtomicU32::new(0),
        }
    }

    /// The number of the next request, and when it is due.
    fn take(&self) -> Option<(u32, Instant)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.requests).then(|| (number, self.begin + self.period * number))
    }
}

/// What one connection saw.
#[derive(Default)]
struct Seen {
    latencies: Vec<u128>,
    failed: usize,
}

fn measure(
    runtime: &Runtime,
    plan: &Arc<Plan>,
    connections: Vec<Connection>,
) -> Result<Vec<Connection>, Box<dyn Error>> {
    let (seen, connections) = runtime.block_on(async {
        let tasks: Vec<_> = connections
            .into_iter()
            .map(|connection| tokio::spawn(connection.work(Arc::clone(plan))))
            .collect();
        let mut all = Seen::default();
        let mut connections = Vec::new();
        for task in tasks {
            let (seen, connection) = task.await??;
            all.latencies.extend(seen.latencies);
            all.failed += seen.failed;
            connections.push(connection);
        }
        Ok::<_, Box<dyn Error>>((all, connections))
    })?;
    let elapsed = plan.begin.elapsed().as_nanos();
    let mut line = format!("{} {elapsed} {}", plan.requests, seen.failed);
    for latency in seen.latencies {
        write!(line, " {latency}")?;
    }
    println!("{line}");
    Ok(connections)
}

struct Connection {
    stream: TlsStream<TcpStream>,
    request: Request,
    answer: Vec<u8>,
    /// That of the first answer's body, on any connection.
    length: Arc<AtomicUsize>,
}

impl Connection {
    async fn work(mut self, plan: Arc<Plan>) -> io::Result<(Seen, Self)> {
        let mut seen = Seen::default();
        while let Some((number, due)) = plan.take() {
            // A timer's millisecond is longer than most answers take; this thread has a core of its own to wait on.
            while Instant::now() < due {
                tokio::task::yield_now().await;
            }
            if !self.exchange(number).await? {
                seen.failed += 1;
            }
            if !plan.period.is_zero() {
                seen.latencies.push(due.elapsed().as_nanos());
            }
        }
        Ok((seen, self))
    }

    /// Whether the answer was right.
    async fn exchange(&mut self, number: u32) -> io::Result<bool> {
        self.stream.write_all(self.request.stamped(number)).await?;
        self.stream.flush().await?;
        let mut filled = 0;
        let head = loop {
            filled += self.fill(filled).await?;
            if let Some(head) = Head::read(&self.answer[..filled])? {
                break head;
            }
        };
        while filled < head.length + head.body {
            filled += self.fill(filled).await?;
        }
        let expected = match self.length.load(Ordering::Relaxed) {
            0 => {
                self.length.store(head.body, Ordering::Relaxed);
                head.body
            }
            length => length,
        };
        Ok(head.good && head.body == expected)
    }

    async fn fill(&mut self, filled: usize) -> io::Result<usize> {
        match self.stream.read(&mut self.answer[filled..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

/// The head of an answer.
struct Head {
    length: usize,
    body: usize,
    good: bool,
}

impl Head {
    fn read(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = str::from_utf8(&bytes[..end]).map_err(io::Error::other)?;
        let mut lines = text.lines();
        let good = lines
            .next()
            .is_some_and(|line| line.starts_with("HTTP/1.1 200"));
        let length = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.trim().parse().ok());
        Ok(Some(Self {
            length: end + 4,
            body: length.ok_or_else(|| io::Error::other("an answer without a length"))?,
            good,
        }))
    }
}

/// Header and body in one piece, and where in it the uid is.
#[derive(Clone)]
struct Request {
    bytes: Vec<u8>,
    uid: Option<usize>,
}

impl Request {
    fn new(name: &str, path: &str, body: &[u8]) -> Self {
        let mut bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: load\r\nContent-Type: application/json\r\n\
             Accept: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        let uid = bytes.windows(UID.len()).position(|it| it == UID);
        Self { bytes, uid }
    }

    /// The request with a uid of its own.
    fn stamped(&mut self, number: u32) -> &[u8] {
        if let Some(uid) = self.uid {
            let digits = format!("{number:012x}");
            let end = uid + UID.len();
            self.bytes[end - digits.len()..end].copy_from_slice(digits.as_bytes());
        }
        &self.bytes
    }
}
