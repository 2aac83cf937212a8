//! Addresses of host names, by `getaddrinfo` of the system, bounded and cached.
//!
//! `getaddrinfo` blocks a thread, and cannot be canceled. Invariants: at most [`CONCURRENT_LOOKUPS`] threads are
//! blocked, also after callers timed out; there is one lookup per host at a time, which its callers share; an IP
//! address or a cached host does not wait for a lookup. Other resolvers are not used, since operators expect
//! `/etc/hosts`, the search domains of `/etc/resolv.conf` and the behavior of the C library.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Maximum number of concurrent lookups. With responses within 10 ms, thousands of hosts are resolved per second.
pub(super) const CONCURRENT_LOOKUPS: usize = 32;

/// Lifetime of cached addresses. Addresses of API servers change, and their names have a similar TTL.
pub(super) const POSITIVE_TTL: Duration = Duration::from_secs(30);

/// Lifetime of a cached failure.
pub(super) const NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// Resolves host names.
pub(super) struct Resolver {
    query: Query,
    /// The longest wait for a lookup, after which it counts as stalled.
    wait_limit: Duration,
    permits: Arc<Semaphore>,
    cache: Mutex<Cache>,
}

type Query = Arc<dyn Fn(Arc<str>) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

#[derive(Default)]
struct Cache {
    by_host: HashMap<Arc<str>, Entry>,
    sweep_at: usize,
}

/// A lookup in progress, or its result until the result expires.
struct Entry {
    started: Instant,
    lookup: Shared<BoxFuture<'static, Answer>>,
}

#[derive(Clone)]
struct Answer {
    result: Result<Arc<[IpAddr]>, Arc<io::Error>>,
    expires: Instant,
}

impl Resolver {
    /// Creates a resolver that uses `getaddrinfo` of the system. A caller waits for at most `wait_limit`.
    pub(super) fn new(wait_limit: Duration) -> Self {
        Self::over(wait_limit, Arc::new(|host| system(host).boxed()))
    }

    /// Creates a resolver with another source of addresses.
    pub(super) fn over(wait_limit: Duration, query: Query) -> Self {
        Self {
            query,
            wait_limit,
            permits: Arc::new(Semaphore::new(CONCURRENT_LOOKUPS)),
            cache: Mutex::default(),
        }
    }

    /// Returns the addresses of a host; never empty.
    pub(super) async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let (lookup, left) = self.lookup(host);
        let answer = match lookup.peek() {
            Some(answer) => answer.clone(),
            None => timeout(left, lookup).await.map_err(|_| stalled())?,
        };
        match answer.result {
            Ok(addresses) => Ok(addresses.to_vec()),
            Err(error) => Err(io::Error::new(error.kind(), error)),
        }
    }

    /// Returns the lookup of a host, and the remaining time to wait for it.
    fn lookup(&self, host: &str) -> (Shared<BoxFuture<'static, Answer>>, Duration) {
        let now = Instant::now();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = cache.by_host.get(host).filter(|it| it.is_valid(now)) {
            let age = now.duration_since(entry.started);
            return (entry.lookup.clone(), self.wait_limit.saturating_sub(age));
        }
        if cache.by_host.len() >= cache.sweep_at {
            cache.by_host.retain(|_, it| it.is_valid(now));
            // Doubling keeps the cost of sweeps proportional to that of lookups.
            cache.sweep_at = (cache.by_host.len() * 2).max(FIRST_SWEEP);
        }
        let host = Arc::<str>::from(host);
        let lookup = self.start(host.clone());
        let entry = Entry {
            started: now,
            lookup: lookup.clone(),
        };
        cache.by_host.insert(host, entry);
        (lookup, self.wait_limit)
    }

    /// Starts a lookup, which continues after its callers timed out and holds its permit until it ends.
    fn start(&self, host: Arc<str>) -> Shared<BoxFuture<'static, Answer>> {
        let (query, permits, wait_limit) =
            (self.query.clone(), self.permits.clone(), self.wait_limit);
        let lookup = async move {
            let Ok(_permit) = timeout(wait_limit, permits.acquire_owned()).await else {
                // The host is not the cause, so the failure is not cached.
                return Answer::new(Err(stalled()), Duration::ZERO);
            };
            match query(host).await {
                Ok(found) if found.is_empty() => {
                    Answer::new(Err(io::ErrorKind::NotFound.into()), NEGATIVE_TTL)
                }
                Ok(found) => Answer::new(Ok(found), POSITIVE_TTL),
                Err(error) => Answer::new(Err(error), NEGATIVE_TTL),
            }
        };
        let lookup = lookup.boxed().shared();
        drop(tokio::spawn(lookup.clone()));
        lookup
    }
}

impl Entry {
    fn is_valid(&self, now: Instant) -> bool {
        self.lookup.peek().is_none_or(|it| it.expires > now)
    }
}

impl Answer {
    fn new(result: io::Result<Vec<IpAddr>>, ttl: Duration) -> Self {
        Self {
            result: result.map(Into::into).map_err(Arc::new),
            expires: Instant::now() + ttl,
        }
    }
}

async fn system(host: Arc<str>) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((&*host, 0)).await?;
    Ok(found.map(|it| it.ip()).collect())
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no response of the resolver")
}

const FIRST_SWEEP: usize = 64;
