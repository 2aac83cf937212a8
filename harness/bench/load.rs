//! The load generator: requests on kept-alive connections, in a closed loop or at a fixed rate.
//!
//! A wrong response is an error, not a result. At a fixed rate (open loop) a request has a time at which it is due and its
//! latency counts from there, also if no connection was free then (no coordinated omission).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::http::{Connection, Target};
use crate::statistics::milliseconds;

/// What is sent and what is expected.
#[derive(Clone)]
pub(crate) struct Requests {
    /// The bytes of the request with this number.
    pub(crate) make: Arc<dyn Fn(u32) -> Vec<u8> + Send + Sync>,
    /// Bytes that the body of every response has.
    pub(crate) expect: &'static str,
}

impl Requests {
    /// The same request each time, but for its number, which replaces [`PLACEHOLDER`].
    pub(crate) fn numbered(template: Vec<u8>, expect: &'static str) -> Self {
        let placeholder = PLACEHOLDER.as_bytes();
        let at = template
            .windows(placeholder.len())
            .position(|it| it == placeholder);
        let make = move |number| {
            let mut request = template.clone();
            if let Some(at) = at {
                let digits = format!("{number:012}");
                request[at..at + digits.len()].copy_from_slice(digits.as_bytes());
            }
            request
        };
        Self {
            make: Arc::new(make),
            expect,
        }
    }

    async fn send(&self, connection: &mut Connection, number: u32) -> anyhow::Result<()> {
        let response = connection.request(&(self.make)(number)).await?;
        let body = response.body();
        let expected = self.expect.is_empty()
            || body
                .windows(self.expect.len())
                .any(|it| it == self.expect.as_bytes());
        ensure!(
            response.status() == 200 && expected,
            "response {} to request {number}: {}",
            response.status(),
            String::from_utf8_lossy(body)
        );
        Ok(())
    }
}

/// How requests are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// The number of the first request.
    pub(crate) first: u32,
    pub(crate) requests: u32,
    /// Requests per second; 0 is a closed loop, in which each connection sends as soon as it has its response.
    pub(crate) rate: u32,
    /// After this time the client closes the connection without a response.
    pub(crate) give_up: Duration,
}

/// One request that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange {
    pub(crate) number: u32,
    /// When it was due.
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
    /// Whether a response came before the client gave up.
    pub(crate) answered: bool,
}

/// The median and the 99th percentile of the latencies, in milliseconds.
///
/// # Errors
/// Without exchanges.
pub(crate) fn latencies(exchanges: &[Exchange]) -> anyhow::Result<[f64; 2]> {
    let latencies = || exchanges.iter().map(|it| it.end - it.begin);
    let quantile = |share| milliseconds(latencies(), share).context("no requests");
    Ok([quantile(0.5)?, quantile(0.99)?])
}

/// Open connections to one server.
pub(crate) struct Client {
    target: Target,
    requests: Requests,
    connections: Vec<Connection>,
}

impl Client {
    pub(crate) async fn connect(target: &Target, requests: Requests) -> anyhow::Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(target.connect().await?);
        }
        Ok(Self {
            target: target.clone(),
            requests,
            connections,
        })
    }

    /// Sends all requests of the load and returns when every one has its response.
    pub(crate) async fn run(&mut self, load: Load) -> anyhow::Result<Vec<Exchange>> {
        let plan = Arc::new(Plan {
            load,
            begin: Instant::now(),
            next: AtomicU32::new(0),
        });
        let mut tasks = JoinSet::new();
        for connection in self.connections.drain(..) {
            let (target, requests) = (self.target.clone(), self.requests.clone());
            tasks.spawn(work(Arc::clone(&plan), target, requests, connection));
        }
        let mut all = Vec::new();
        while let Some(done) = tasks.join_next().await {
            let (connection, exchanges) = done??;
            self.connections.push(connection);
            all.extend(exchanges);
        }
        Ok(all)
    }
}

struct Plan {
    load: Load,
    begin: Instant,
    next: AtomicU32,
}

impl Plan {
    /// The number of the next request and the time at which it is due.
    fn take(&self) -> Option<(u32, Instant)> {
        let Load {
            first,
            requests,
            rate,
            ..
        } = self.load;
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let after = match rate {
            0 => return (index < requests).then(|| (first + index, Instant::now())),
            _ => Duration::from_secs(1) * index / rate,
        };
        (index < requests).then(|| (first + index, self.begin + after))
    }
}

async fn work(
    plan: Arc<Plan>,
    target: Target,
    requests: Requests,
    mut connection: Connection,
) -> anyhow::Result<(Connection, Vec<Exchange>)> {
    let mut exchanges = Vec::new();
    while let Some((number, begin)) = plan.take() {
        // A timer has the precision of a millisecond, which is longer than most responses take.
        let early = begin.checked_sub(TIMER).unwrap_or(begin);
        if early > Instant::now() {
            tokio::time::sleep_until(early.into()).await;
        }
        while Instant::now() < begin {
            tokio::task::yield_now().await;
        }
        let response = timeout(plan.load.give_up, requests.send(&mut connection, number)).await;
        let answered = response.is_ok();
        exchanges.push(Exchange {
            number,
            begin,
            end: Instant::now(),
            answered,
        });
        if let Ok(response) = response {
            response?;
        } else {
            connection = target.connect().await.context("after a timeout")?;
        }
    }
    Ok((connection, exchanges))
}

/// The number of a request, as text in its template.
pub(crate) const PLACEHOLDER: &str = "%%number%%%%";
/// About as many as an API server keeps open to a busy webhook.
pub(crate) const CONNECTIONS: u32 = 16;
const TIMER: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: u32) -> Plan {
        Plan {
            load: Load {
                first: 7,
                requests: 2,
                rate,
                give_up: TIMER,
            },
            begin: Instant::now(),
            next: AtomicU32::new(0),
        }
    }

    #[test]
    fn requests_are_due_at_their_rate() {
        let plan = plan(10);
        let due = |millis| plan.begin + Duration::from_millis(millis);
        assert_eq!(plan.take(), Some((7, due(0))));
        assert_eq!(plan.take(), Some((8, due(100))));
        assert_eq!(plan.take(), None);
    }

    #[test]
    fn request_has_its_number_in_place_of_the_placeholder() {
        let template = format!("a{PLACEHOLDER}b").into_bytes();
        let requests = Requests::numbered(template, "");
        assert_eq!((requests.make)(42), b"a000000000042b");
    }

    #[tokio::test]
    async fn response_that_is_not_the_expected_one_is_an_error() {
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let mut server = Connection::new(far);
            for (status, body) in [(200, "yes"), (200, "no"), (500, "yes")] {
                let length = body.len();
                let response =
                    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
                server.read().await.unwrap();
                server.write(response.as_bytes()).await.unwrap();
            }
        });
        let requests = Requests::numbered(crate::http::post("/", "", ""), "yes");
        let mut connection = Connection::new(near);
        assert!(requests.send(&mut connection, 0).await.is_ok());
        assert!(
            requests.send(&mut connection, 1).await.is_err(),
            "another body"
        );
        assert!(
            requests.send(&mut connection, 2).await.is_err(),
            "status 500"
        );
    }
}
