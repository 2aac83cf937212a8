use std::time::Duration;

use rstest::rstest;
use tokio::time::advance;

use super::*;

fn limiter(cap: usize) -> (Arc<ConnectionLimiter>, Statistics) {
    let statistics = Statistics::default();
    let limits = Limits {
        connections: cap,
        ..Limits::default()
    };
    (
        ConnectionLimiter::new(&limits, false, statistics.clone()),
        statistics,
    )
}

async fn is_evicted(permit: &ConnectionPermit) -> bool {
    tokio::time::timeout(Duration::from_millis(1), permit.state.evicted())
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn places_are_given_back() {
    let (limiter, statistics) = limiter(1);
    drop(limiter.admit().unwrap());
    let permit = limiter.admit().unwrap();
    assert_eq!(permit.number, 1, "numbers are not used twice");
    assert_eq!(
        (
            statistics.get(Counter::Open),
            statistics.get(Counter::Evicted)
        ),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn the_newest_is_refused_when_all_are_busy() {
    let (limiter, statistics) = limiter(2);
    let permits = [limiter.admit().unwrap(), limiter.admit().unwrap()];
    for permit in &permits {
        permit.state.begin("GET");
    }
    assert!(limiter.admit().is_none());
    assert_eq!(statistics.get(Counter::Rejected), 1);
    assert!(!is_evicted(&permits[0]).await && !is_evicted(&permits[1]).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_asked_goes_before_an_idle_one() {
    let (limiter, statistics) = limiter(3);
    let used = limiter.admit().unwrap();
    used.state.begin("GET");
    used.state.rest();
    advance(Duration::from_secs(1)).await;
    let silent = limiter.admit().unwrap();
    advance(Duration::from_secs(1)).await;
    let young = limiter.admit().unwrap();

    let _fourth = limiter.admit().unwrap();
    assert!(is_evicted(&silent).await, "the longest silent");
    assert!(!is_evicted(&young).await && !is_evicted(&used).await);
    assert_eq!(statistics.get(Counter::Evicted), 1);
}

/// If a client holds all other connections as idle, a new connection is not evicted by the next one.
#[tokio::test(start_paused = true)]
async fn a_new_connection_stays_while_there_are_idle_ones() {
    let (limiter, _) = limiter(16);
    let idle: Vec<_> = (0..15).map(|_| limiter.admit().unwrap()).collect();
    for permit in &idle {
        permit.state.begin("GET");
        permit.state.rest();
        advance(Duration::from_secs(1)).await;
    }
    let new = limiter.admit().unwrap();
    advance(Duration::from_secs(1)).await;

    let _next = limiter.admit().unwrap();
    assert!(is_evicted(&idle[0]).await && !is_evicted(&idle[1]).await);
    assert!(!is_evicted(&new).await);
    // New connections occupy an eighth of the places, which is two, so the older one is evicted.
    let _last = limiter.admit().unwrap();
    assert!(is_evicted(&new).await && !is_evicted(&idle[1]).await);
}

#[rstest]
#[case::header(|state: &ConnectionState| state.received(b"POST"))]
#[case::body(|state: &ConnectionState| { state.begin("GET"); state.await_body(); })]
#[tokio::test(start_paused = true)]
async fn a_connection_with_an_incomplete_request_goes_before_an_idle_one(
    #[case] begin: fn(&ConnectionState),
) {
    let (limiter, _) = limiter(2);
    let (idle, incomplete) = (limiter.admit().unwrap(), limiter.admit().unwrap());
    for permit in [&idle, &incomplete] {
        permit.state.begin("GET");
        permit.state.rest();
    }
    advance(Duration::from_secs(1)).await;
    begin(&incomplete.state);
    let _new = limiter.admit().unwrap();
    assert!(is_evicted(&incomplete).await && !is_evicted(&idle).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_body_is_complete_is_not_evicted() {
    let (limiter, statistics) = limiter(1);
    let permit = limiter.admit().unwrap();
    permit.state.begin("GET");
    permit.state.await_body();
    permit.state.handle_body();
    assert!(limiter.admit().is_none());
    assert_eq!(statistics.get(Counter::Rejected), 1);
}

#[tokio::test(start_paused = true)]
async fn a_displaced_one_is_not_evicted_again() {
    let (limiter, statistics) = limiter(1);
    let first = limiter.admit().unwrap();
    let second = limiter.admit().unwrap();
    let _third = limiter.admit().unwrap();
    assert!(is_evicted(&first).await && is_evicted(&second).await);
    drop(first);
    assert_eq!(
        (
            statistics.get(Counter::Evicted),
            statistics.get(Counter::Open)
        ),
        (2, 2)
    );
}

/// Incomplete headers take memory. All of them together take at most the limit.
#[tokio::test(start_paused = true)]
async fn when_headers_hold_too_many_bytes_the_oldest_incomplete_one_is_evicted() {
    let statistics = Statistics::default();
    let limits = Limits {
        header_bytes: 100,
        headers_bytes: 250,
        ..Limits::default()
    };
    let limiter = ConnectionLimiter::new(&limits, false, statistics.clone());
    let permits = [(); 4].map(|()| limiter.admit().unwrap());
    for permit in &permits {
        permit.state.rest();
    }
    let [complete, first, second, third] = &permits;
    complete.received(&[b'a'; 100]);
    complete.state.begin("GET");
    first.received(&[b'a'; 100]);
    advance(Duration::from_secs(1)).await;
    second.received(&[b'a'; 100]);
    advance(Duration::from_secs(1)).await;
    third.received(&[b'a'; 50]);
    assert_eq!(statistics.get(Counter::Evicted), 0);
    third.received(b"a");
    assert!(is_evicted(first).await);
    assert!(!is_evicted(second).await && !is_evicted(third).await && !is_evicted(complete).await);
    assert_eq!(statistics.get(Counter::Evicted), 1);
}
