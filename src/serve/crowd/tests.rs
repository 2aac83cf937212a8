use std::time::Duration;

use rstest::rstest;
use tokio::time::advance;

use super::*;

fn crowd(cap: usize) -> (Arc<Crowd>, Statistics) {
    let statistics = Statistics::default();
    (Crowd::new(cap, 0, statistics.clone()), statistics)
}

async fn is_displaced(seat: &Seat) -> bool {
    tokio::time::timeout(Duration::from_millis(1), seat.pulse.displaced())
        .await
        .is_ok()
}

#[tokio::test(start_paused = true)]
async fn places_are_given_back() {
    let (crowd, statistics) = crowd(1);
    drop(crowd.admit().unwrap());
    let seat = crowd.admit().unwrap();
    assert_eq!(seat.number, 1, "numbers are not used twice");
    assert_eq!(
        (statistics.snapshot().open, statistics.snapshot().displaced),
        (1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn the_newest_is_refused_when_all_are_busy() {
    let (crowd, statistics) = crowd(2);
    let seats = [crowd.admit().unwrap(), crowd.admit().unwrap()];
    for seat in &seats {
        seat.pulse.begin(|_| ());
    }
    assert!(crowd.admit().is_none());
    assert_eq!(statistics.snapshot().refused_at_cap, 1);
    assert!(!is_displaced(&seats[0]).await && !is_displaced(&seats[1]).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_asked_goes_before_an_idle_one() {
    let (crowd, statistics) = crowd(3);
    let used = crowd.admit().unwrap();
    used.pulse.begin(|_| ());
    used.pulse.rest();
    advance(Duration::from_secs(1)).await;
    let silent = crowd.admit().unwrap();
    advance(Duration::from_secs(1)).await;
    let young = crowd.admit().unwrap();

    let _fourth = crowd.admit().unwrap();
    assert!(is_displaced(&silent).await, "the longest silent");
    assert!(!is_displaced(&young).await && !is_displaced(&used).await);
    assert_eq!(statistics.snapshot().displaced, 1);
}

/// A client that holds all other places with idle connections does not evict each new connection by the next.
#[tokio::test(start_paused = true)]
async fn a_new_connection_stays_while_there_are_idle_ones() {
    let (crowd, _) = crowd(16);
    let idle: Vec<_> = (0..15).map(|_| crowd.admit().unwrap()).collect();
    for seat in &idle {
        seat.pulse.begin(|_| ());
        seat.pulse.rest();
        advance(Duration::from_secs(1)).await;
    }
    let new = crowd.admit().unwrap();
    advance(Duration::from_secs(1)).await;

    let _next = crowd.admit().unwrap();
    assert!(is_displaced(&idle[0]).await && !is_displaced(&idle[1]).await);
    assert!(!is_displaced(&new).await);
    // An eighth of the places, two, is taken by new ones: the older of them makes room.
    let _last = crowd.admit().unwrap();
    assert!(is_displaced(&new).await && !is_displaced(&idle[1]).await);
}

#[rstest]
#[case::header(|pulse: &Pulse| pulse.received(b"POST"))]
#[case::body(|pulse: &Pulse| { pulse.begin(|_| ()); pulse.await_body(); })]
#[tokio::test(start_paused = true)]
async fn a_connection_with_an_incomplete_request_goes_before_an_idle_one(
    #[case] begin: fn(&Pulse),
) {
    let (crowd, _) = crowd(2);
    let (idle, incomplete) = (crowd.admit().unwrap(), crowd.admit().unwrap());
    for seat in [&idle, &incomplete] {
        seat.pulse.begin(|_| ());
        seat.pulse.rest();
    }
    advance(Duration::from_secs(1)).await;
    begin(&incomplete.pulse);
    let _new = crowd.admit().unwrap();
    assert!(is_displaced(&incomplete).await && !is_displaced(&idle).await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_body_is_complete_is_not_displaced() {
    let (crowd, statistics) = crowd(1);
    let seat = crowd.admit().unwrap();
    seat.pulse.begin(|_| ());
    seat.pulse.await_body();
    seat.pulse.handle_body();
    assert!(crowd.admit().is_none());
    assert_eq!(statistics.snapshot().refused_at_cap, 1);
}

#[tokio::test(start_paused = true)]
async fn a_displaced_one_is_not_displaced_again() {
    let (crowd, statistics) = crowd(1);
    let first = crowd.admit().unwrap();
    let second = crowd.admit().unwrap();
    let _third = crowd.admit().unwrap();
    assert!(is_displaced(&first).await && is_displaced(&second).await);
    drop(first);
    assert_eq!(
        (statistics.snapshot().displaced, statistics.snapshot().open),
        (2, 2)
    );
}
