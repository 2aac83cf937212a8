//! Tests of times in which no watcher of a runtime was ready, so that changes had no review.

use super::resync::{current, last};
use super::*;

/// For example both Pods are deleted, or the only node is restarted. No watcher reviews the changes until new watchers run.
#[rstest]
#[case::at_once(0, 0)]
#[case::in_half_an_interval(30, 0)]
#[case::later(31, 1)]
#[case::in_two_intervals(120, 1)]
#[case::in_an_hour(3600, 1)]
#[tokio::test(start_paused = true)]
async fn watchers_that_all_ended_before_others_started_require_a_resync(
    #[case] pause: u64,
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.beats(|it| current(it, 0, 0), &["a", "b"]).await;
    listening.send("r", last("a", 0));
    listening.send("r", last("b", 0));
    listening.pass(Duration::from_secs(pause)).await;
    listening.beats(|it| current(it, 0, 0), &["c", "d"]).await;
    assert_eq!(listening.resyncs(), expected);
}

/// The last watcher says that it was terminating for 12 seconds, and the new one for how many milliseconds it was ready. It may be
/// heard first by an event.
#[rstest]
#[case::ready_before(33_000, |_: &Listening| (), 0)]
#[case::ready_as_the_last_one_terminated(32_000, |_: &Listening| (), 0)]
#[case::heartbeats_arrive_with_delay(31_500, |_: &Listening| (), 0)]
#[case::ready_while_the_last_one_ended(31_499, |_: &Listening| (), 1)]
#[case::ready_later(19_000, |_: &Listening| (), 1)]
#[case::ready_later_with_an_event(5_000, |it: &Listening| it.event("c", 9), 1)]
#[case::ready_before_the_clock(u64::MAX, |_: &Listening| (), 0)]
#[tokio::test(start_paused = true)]
async fn short_time_without_any_watcher_requires_one_resync(
    #[case] ready: u64,
    #[case] before: fn(&Listening),
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.beats(|it| current(it, 0, 0), &["a"]).await;
    let mut ending = last("a", 0);
    ending.terminating_milliseconds = Some(12_000);
    listening.send("r", ending);
    listening.pass(Duration::from_secs(20)).await;
    before(&listening);
    for later in [0, 60_000, 120_000] {
        listening.send("r", ready_for("c", ready.saturating_add(later)));
        listening.pass(Duration::from_mins(1)).await;
    }
    assert_eq!(listening.resyncs(), expected);
}

/// After a start of the listener, the other watcher is heard late. It was ready all the time.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_is_heard_late_shows_that_there_was_no_time_without_any() {
    let mut listening = Listening::new();
    listening.send("r", ready_for("c", 4_000));
    let mut ending = last("a", 0);
    ending.terminating_milliseconds = Some(12_000);
    listening.send("r", ending);
    listening.pass(Duration::from_secs(40)).await;
    listening.send("r", ready_for("b", 600_000));
    listening.send("r", ready_for("c", 44_000));
    listening.pass(Duration::from_mins(2)).await;
    assert_eq!(listening.resyncs(), 0);
}

/// A watcher that never gets a certificate is the only one for a time.
#[tokio::test(start_paused = true)]
async fn a_time_with_a_watcher_that_is_never_ready_requires_a_resync() {
    let mut listening = Listening::new();
    listening.send("r", ready_for("a", 0));
    listening.pass(Duration::from_secs(100)).await;
    let mut ending = last("a", 0);
    ending.ready_milliseconds = Some(0);
    listening.send("r", ending);
    listening.pass(Duration::from_secs(10)).await;
    listening.send("r", ready_for("c", 8_000));
    listening.pass(Duration::from_mins(1)).await;
    assert_eq!(listening.resyncs(), 1);
}

/// The replacement of a deleted Pod is heard while the Pod drains.
#[rstest]
#[case::ready_before(13_000, None, 0)]
#[case::ready_later(4_000, None, 1)]
#[case::not_ready_yet(0, None, 1)]
#[case::while_another_one_was_ready(4_000, Some(3_000), 0)]
#[case::while_another_one_terminated_earlier(4_000, Some(14_000), 1)]
#[tokio::test(start_paused = true)]
async fn time_between_two_watchers_requires_a_resync_if_the_next_one_is_heard_first(
    #[case] ready: u64,
    #[case] other_terminating: Option<u64>,
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.send("r", ready_for("a", 600_000));
    if other_terminating.is_some() {
        listening.send("r", ready_for("b", 600_000));
    }
    let ending = |watcher, milliseconds| {
        let mut ending = last(watcher, 0);
        ending.ready_milliseconds = Some(700_000);
        ending.terminating_milliseconds = Some(milliseconds);
        ending
    };
    if let Some(milliseconds) = other_terminating {
        listening.send("r", ending("b", milliseconds));
    }
    listening.send("r", ready_for("c", ready));
    listening.send("r", ending("a", 12_000));
    for later in [50_000, 110_000] {
        listening.pass(Duration::from_secs(50)).await;
        listening.send("r", ready_for("c", ready + later));
    }
    listening.pass(Duration::from_mins(1)).await;
    assert_eq!(listening.resyncs(), expected);
}

fn ready_for(watcher: &str, milliseconds: u64) -> Heartbeat {
    let mut heartbeat = current(watcher, 0, 0);
    heartbeat.ready_milliseconds = Some(milliseconds);
    heartbeat
}

/// It gets no reviews, so objects may change until it, or another one, is ready.
#[rstest]
#[case::ended(|it: &Listening| _ = it.send("r", last("a", 0)), 1, "c", 1)]
#[case::killed(|_: &Listening| (), 240, "c", 1)]
#[case::replaced(|it: &Listening| _ = it.send("r", last("a", 0)), 1, "d", 1)]
#[case::first_of_the_runtime(|it: &Listening| it.liveness.forget(&id("r")), 240, "c", 1)]
#[case::other_serves(|_: &Listening| (), 1, "a", 0)]
#[tokio::test(start_paused = true)]
async fn watcher_that_is_not_ready_requires_a_resync_later(
    #[case] pause: fn(&Listening),
    #[case] seconds: u64,
    #[case] ready: &str,
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.send("r", ready_for("a", 600_000));
    pause(&listening);
    listening.pass(Duration::from_secs(seconds)).await;
    for _ in 0..2 {
        listening.send("r", ready_for("c", 0));
        listening.pass(Duration::from_secs(50)).await;
    }
    listening.taken();
    if ready == "d" {
        let mut ending = last("c", 0);
        ending.ready_milliseconds = Some(0);
        listening.send("r", ending);
    }
    for seconds in [10, 70] {
        let before = if ready == "a" { 700_000 } else { 0 };
        listening.send("r", ready_for(ready, before + seconds * 1_000));
        listening.pass(Duration::from_mins(1)).await;
    }
    assert_eq!(listening.resyncs(), expected);
}

/// All Pods ended, for example after scaling to 0. The changes before the start of the next Pods had no review. An event may
/// arrive before the first heartbeat.
#[rstest]
#[case::heartbeat(|_: &Listening| ())]
#[case::events(|it: &Listening| (1..=9).for_each(|number| it.event("c", number)))]
#[tokio::test(start_paused = true)]
async fn watchers_that_start_after_a_silence_require_a_resync_although_the_last_ones_ended_well(
    #[case] first: fn(&Listening),
) {
    let mut listening = Listening::new();
    let make = |it: &str| current(it, 0, 0);
    listening.beats(make, &["a", "b"]).await;
    for ended in ["a", "b"] {
        listening.send("r", last(ended, 0));
    }
    listening.pass(Duration::from_mins(10)).await;
    assert_eq!(listening.resyncs(), 0);
    first(&listening);
    listening.beats(make, &["c", "d"]).await;
    assert_eq!(listening.resyncs(), 1);
}
