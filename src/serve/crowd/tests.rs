use std::time::Duration;

use tokio::time::advance;

use super::*;

fn crowd(cap: usize) -> (Arc<Crowd>, Statistics) {
    let statistics = Statistics::default();
    (Crowd::new(cap, statistics.clone()), statistics)
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
