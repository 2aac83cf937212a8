//! Tests of host names, and of a resolver that is slow or fails.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::advance;

use super::*;
use crate::clients::kubeconfig::Credentials;
use crate::clients::resolver::{CONCURRENT_LOOKUPS, NEGATIVE_TTL, POSITIVE_TTL};

const WAIT_LIMIT: Duration = Duration::from_secs(4);

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Record of the lookups of a resolver: the hosts, and the number of concurrent lookups.
#[derive(Default)]
struct Source {
    asked: Mutex<Vec<String>>,
    running: AtomicUsize,
    busiest: AtomicUsize,
}

impl Source {
    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// Returns a resolver and the record of its lookups. Each lookup of a host that starts with `slow` waits for a permit
/// of the gate. Hosts that start with `missing` do not exist, and hosts that start with `empty` have no address.
fn resolver(gate: &Arc<Semaphore>) -> (Resolver, Arc<Source>) {
    let source = Arc::<Source>::default();
    let (asked, gate) = (source.clone(), gate.clone());
    let query = move |host: Arc<str>| {
        let (source, gate) = (asked.clone(), gate.clone());
        async move {
            source.asked.lock().unwrap().push(host.to_string());
            let running = source.running.fetch_add(1, Ordering::SeqCst) + 1;
            source.busiest.fetch_max(running, Ordering::SeqCst);
            if host.starts_with("slow") {
                gate.acquire().await.unwrap().forget();
            }
            source.running.fetch_sub(1, Ordering::SeqCst);
            if host.starts_with("missing") {
                return Err(io::Error::new(io::ErrorKind::NotFound, "no such host"));
            }
            let found = (!host.starts_with("empty")).then_some(ADDRESS);
            Ok(found.into_iter().collect())
        }
        .boxed()
    };
    (Resolver::over(WAIT_LIMIT, Arc::new(query)), source)
}

fn closed() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

/// Resolves this number of hosts; each lookup times out.
async fn stall(resolver: &Resolver, hosts: usize) {
    let lookups = (0..hosts).map(async |index| resolver.resolve(&format!("slow-{index}")).await);
    for result in join_all(lookups).await {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_host_share_a_lookup() {
    let gate = closed();
    let (resolver, source) = resolver(&gate);
    let callers = join_all((0..10).map(|_| resolver.resolve("slow")));
    let release = async { gate.add_permits(1) };
    let (found, ()) = tokio::join!(callers, release);
    assert!(found.iter().all(|it| *it.as_ref().unwrap() == [ADDRESS]));
    assert_eq!(source.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn addresses_are_used_again_until_their_time_is_over() {
    let (resolver, source) = resolver(&closed());
    for (wait, expected) in [(0, 1), (29, 1), (1, 2)] {
        advance(Duration::from_secs(wait)).await;
        assert_eq!(resolver.resolve("a").await.unwrap(), [ADDRESS]);
        assert_eq!(source.asked(), expected);
    }
    assert_eq!(POSITIVE_TTL, Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_again_for_a_short_time() {
    let (resolver, source) = resolver(&closed());
    for host in ["missing", "empty"] {
        let before = source.asked();
        for wait in [Duration::ZERO, NEGATIVE_TTL / 2, NEGATIVE_TTL / 2] {
            advance(wait).await;
            let error = resolver.resolve(host).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(source.asked() - before, 2, "{host}");
    }
}

#[tokio::test(start_paused = true)]
async fn lookups_at_the_same_time_are_bounded_also_when_their_callers_gave_up() {
    let gate = closed();
    let (resolver, source) = resolver(&gate);
    for _ in 0..3 {
        stall(&resolver, 5 * CONCURRENT_LOOKUPS).await;
    }
    assert_eq!(source.busiest.load(Ordering::SeqCst), CONCURRENT_LOOKUPS);
    assert_eq!(source.asked(), CONCURRENT_LOOKUPS);
    // The lookups continue without a caller, and their results are cached for the next caller.
    gate.add_permits(CONCURRENT_LOOKUPS);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(source.running.load(Ordering::SeqCst), 0);
    assert_eq!(resolver.resolve("slow-0").await.unwrap(), [ADDRESS]);
    assert_eq!(resolver.resolve("other").await.unwrap(), [ADDRESS]);
    assert_eq!(source.asked(), CONCURRENT_LOOKUPS + 1);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_lookup_delays_its_host_once() {
    let (resolver, _source) = resolver(&closed());
    let begun = tokio::time::Instant::now();
    for _ in 0..3 {
        stall(&resolver, 1).await;
        assert_eq!(begun.elapsed(), WAIT_LIMIT);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cached_host_waits_for_no_lookup() {
    let (resolver, _source) = resolver(&closed());
    assert_eq!(resolver.resolve("a").await.unwrap(), [ADDRESS]);
    stall(&resolver, CONCURRENT_LOOKUPS).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(resolver.resolve("a").await.unwrap(), [ADDRESS]);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let error = resolver.resolve("b").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(begun.elapsed(), WAIT_LIMIT);
}

#[tokio::test]
async fn a_stalled_resolver_delays_no_runtime_with_an_address() {
    let server = answering(BOTH).await;
    let (resolver, source) = resolver(&closed());
    let options = ClientOptions {
        allow_loopback: true,
        ..ClientOptions::default()
    };
    let env = Env::with_resolver(options, resolver);
    let mut stalled = tokio::task::JoinSet::new();
    for index in 0..CONCURRENT_LOOKUPS {
        let mut access = access(&server);
        access.server = format!("https://slow-{index}").parse().unwrap();
        let remote = env.clients.open(access).unwrap();
        stalled.spawn(async move { remote.list(POD).await });
    }
    until("the resolver is stalled", || {
        source.running.load(Ordering::SeqCst) == CONCURRENT_LOOKUPS
    })
    .await;
    env.open(&server).list(POD).await.unwrap();
    assert!(stalled.try_join_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stalled_resolver_is_distinguished_from_a_slow_connection() {
    let (resolver, _source) = resolver(&closed());
    let env = Env::with_resolver(ClientOptions::default(), resolver);
    let access = Access {
        server: "https://slow".parse().unwrap(),
        server_name: "slow".try_into().unwrap(),
        authority: vec![PKI.certificate.der.clone()],
        credentials: Credentials::Token("token".to_owned().into()),
    };
    let error = env.clients.open(access).unwrap().list(POD).await;
    assert!(
        matches!(error, Err(CallError::Unreachable(TransportError::Name(_)))),
        "{error:?}"
    );
}

#[tokio::test]
async fn names_are_resolved_by_the_system() {
    let resolver = Resolver::new(WAIT_LIMIT);
    let found = resolver.resolve("localhost").await.unwrap();
    assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
}
