//! The load generator: requests on kept-alive connections, in a closed loop or at a fixed rate.
//!
//! A wrong response is an error, not a result. At a fixed rate (open loop), each request has a scheduled time. Its latency
//! starts at that time, even if no connection was free (no coordinated omission).

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use testkit::pki::{self, Leaf};
use testkit::tls::{RawClient, RawResponse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::process::Process;
use crate::statistics::{number, quantile};

#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open connection, on which requests are sequential.
pub(crate) type Connection = RawClient<Box<dyn Stream>>;

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) target: Target,
}

impl Target {
    /// Returns a server whose certificate these CAs verify. Clients present `leaf`, if any. They do not resume TLS sessions, so
    /// that every counted handshake is a full one.
    pub(crate) fn tls(
        address: SocketAddr,
        authorities: RootCertStore,
        leaf: Option<&Leaf>,
    ) -> anyhow::Result<Self> {
        let versions = &[&rustls::version::TLS13];
        let mut config = pki::client_config_of(versions, authorities, leaf, &[])?;
        config.resumption = Resumption::disabled();
        Ok(Self {
            address,
            tls: Some(Arc::new(config)),
        })
    }

    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(tcp),
            Some(tls) => {
                let name = ServerName::from(self.address.ip());
                let connector = TlsConnector::from(Arc::clone(tls));
                Box::new(connector.connect(name, tcp).await?)
            }
        };
        let mut connection = RawClient::new(stream);
        connection.patience = PATIENCE;
        Ok(connection)
    }
}

/// Returns a POST request in the format of a Go client; each header line ends in CRLF.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: application/json\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) make: Arc<dyn Fn(u32) -> String + Send + Sync>,
    /// Text that the body of every response must contain.
    expect: &'static str,
    /// Whether the server may end at any time, so that a broken connection is not an error.
    pub(crate) may_break: bool,
}

impl Requests {
    pub(crate) fn new(
        make: impl Fn(u32) -> String + Send + Sync + 'static,
        expect: &'static str,
    ) -> Self {
        Self {
            make: Arc::new(make),
            expect,
            may_break: false,
        }
    }

    /// Returns requests that are equal except for their number, which replaces [`PLACEHOLDER`].
    pub(crate) fn numbered(template: String, expect: &'static str) -> Self {
        let make = move |number| template.replacen(PLACEHOLDER, &format!("{number:012}"), 1);
        Self::new(make, expect)
    }

    /// Sends a request. The error is an [`io::Error`] of the connection, or another error for an unexpected response.
    pub(crate) async fn send(
        &self,
        connection: &mut Connection,
        number: u32,
    ) -> anyhow::Result<RawResponse> {
        let response = connection.ask((self.make)(number)).await?;
        let expected = response.status == 200 && response.body.contains(self.expect);
        ensure!(expected, "request {number}: {response:?}");
        Ok(response)
    }
}

pub(crate) struct Exchange {
    pub(crate) number: u32,
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
    /// Whether a response arrived before the client's timeout.
    pub(crate) answered: bool,
}

/// Returns the median and the 99th percentile of the latencies, in milliseconds.
pub(crate) fn latencies(exchanges: &[Exchange]) -> [f64; 2] {
    let latencies = exchanges
        .iter()
        .map(|it| (it.end - it.begin).as_secs_f64() * 1e3);
    let latencies: Vec<f64> = latencies.collect();
    [0.5, 0.99].map(|share| quantile(&latencies, share))
}

pub(crate) struct Client {
    target: Target,
    requests: Requests,
    /// Connections; absent ones are opened with the next request.
    connections: Vec<Option<Connection>>,
}

/// Both values of one round: CPU time of the server in microseconds per request, and requests per second.
pub(crate) type Cost = [f64; 2];

impl Client {
    /// Returns a client. It connects immediately, unless the server may end at any time.
    pub(crate) async fn connect(target: &Target, requests: Requests) -> anyhow::Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let lazy = requests.may_break;
            connections.push(if lazy {
                None
            } else {
                Some(target.connect().await?)
            });
        }
        Ok(Self {
            target: target.clone(),
            requests,
            connections,
        })
    }

    /// Sends the requests with these numbers at a rate per second, or at [`CLOSED_LOOP`]. Returns when every request has its
    /// response.
    pub(crate) async fn run(
        &mut self,
        numbers: Range<u32>,
        rate: u32,
    ) -> anyhow::Result<Vec<Exchange>> {
        let schedule = Arc::new(Mutex::new(schedule(numbers, rate)));
        let mut tasks = JoinSet::new();
        for connection in self.connections.drain(..) {
            let (target, requests) = (self.target.clone(), self.requests.clone());
            tasks.spawn(work(Arc::clone(&schedule), target, requests, connection));
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (connection, exchanges) = done??;
            self.connections.push(connection);
            all.extend(exchanges);
        }
        Ok(all)
    }

    /// Returns the cost of requests in a closed loop for the server.
    pub(crate) async fn cost(
        &mut self,
        server: &Process,
        numbers: Range<u32>,
    ) -> anyhow::Result<Cost> {
        let requests = number(numbers.len());
        let (cpu, begin) = (server.cpu()?, Instant::now());
        self.run(numbers, CLOSED_LOOP).await?;
        let elapsed = begin.elapsed().as_secs_f64();
        Ok([(server.cpu()? - cpu) * 1e6 / requests, requests / elapsed])
    }
}

/// Returns the numbers of the requests, and their scheduled times.
fn schedule(numbers: Range<u32>, rate: u32) -> impl Iterator<Item = (u32, Instant)> {
    let begin = Instant::now();
    numbers.zip(0_u32..).map(move |(number, index)| match rate {
        CLOSED_LOOP => (number, Instant::now()),
        rate => (number, begin + Duration::from_secs(1) * index / rate),
    })
}

async fn work(
    schedule: Arc<Mutex<impl Iterator<Item = (u32, Instant)>>>,
    target: Target,
    requests: Requests,
    mut connection: Option<Connection>,
) -> anyhow::Result<(Option<Connection>, Vec<Exchange>)> {
    let mut exchanges = Vec::new();
    let next = || schedule.lock().ok()?.next();
    while let Some((number, begin)) = next() {
        // The precision of a timer is a millisecond, which is longer than most responses take.
        let early = begin.checked_sub(TIMER).unwrap_or(begin);
        if early > Instant::now() {
            tokio::time::sleep_until(early.into()).await;
        }
        while Instant::now() < begin {
            tokio::task::yield_now().await;
        }
        let mut open = connection.take();
        let response = timeout(GIVE_UP, async {
            if open.is_none() {
                open = Some(target.connect().await?);
            }
            let open = open.as_mut().context("no connection")?;
            requests.send(open, number).await
        });
        let response = response.await;
        exchanges.push(Exchange {
            number,
            begin,
            end: Instant::now(),
            answered: matches!(response, Ok(Ok(_))),
        });
        match response {
            Ok(Ok(_)) => connection = open,
            Ok(Err(error)) if !(requests.may_break && error.is::<io::Error>()) => {
                return Err(error);
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Ok((connection, exchanges))
}

/// Placeholder for the number of a request in its template.
pub(crate) const PLACEHOLDER: &str = "%%number%%%%";
/// Number of connections: about as many as an API server keeps open to a busy webhook.
pub(crate) const CONNECTIONS: u32 = 16;
/// Rate at which each connection sends a request as soon as it has received its response.
pub(crate) const CLOSED_LOOP: u32 = 0;
/// Time after which a client closes a connection without a response: `timeoutSeconds` of the webhook configuration that
/// lifecycle-manager installs.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(15);
const TIMER: Duration = Duration::from_millis(2);
/// Longer than the timeout of any client.
const PATIENCE: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn requests_are_due_at_their_rate() {
        let requests: Vec<_> = schedule(7..9, 10).collect();
        let due = requests[0].1 + Duration::from_millis(100);
        assert_eq!(requests[1..], [(8, due)]);
    }

    #[tokio::test]
    async fn response_that_is_not_the_expected_one_is_an_error() {
        let (near, mut far) = tokio::io::duplex(1024);
        for (status, body) in [(200, "yes"), (200, "no"), (500, "yes")] {
            let length = body.len();
            let response = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
            far.write_all(response.as_bytes()).await.unwrap();
        }
        let requests = Requests::numbered(post("/", "", ""), "yes");
        let mut connection = Connection::new(Box::new(near));
        for (number, expected) in [(0, true), (1, false), (2, false)] {
            let sent = requests.send(&mut connection, number).await;
            assert_eq!(sent.is_ok(), expected, "{sent:?}");
        }
    }
}
