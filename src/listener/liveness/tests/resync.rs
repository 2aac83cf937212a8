//! Tests of when a resync is required, and that a runtime cannot cause more than one resync per interval.

use super::*;

/// Returns a heartbeat in the format of this release.
pub(super) fn current(boot_id: &str, spool_depth: u64, follow_up_depth: u64) -> Heartbeat {
    let mut heartbeat = beat(boot_id, 9, spool_depth);
    heartbeat.follow_up_depth = follow_up_depth;
    heartbeat.reviews_seen = Some(0);
    heartbeat
}

pub(super) fn last(boot_id: &str, spool_depth: u64) -> Heartbeat {
    let mut heartbeat = current(boot_id, spool_depth, 1);
    heartbeat.ending = true;
    heartbeat
}

fn requesting(boot_id: &str) -> Heartbeat {
    let mut heartbeat = current(boot_id, 0, 0);
    heartbeat.resync_needed = true;
    heartbeat
}

impl Listening {
    /// Returns the number of resyncs since the last call, all of runtime `r`.
    pub(super) fn resyncs(&mut self) -> usize {
        let runtime_id = id("r");
        let resync = Notification::ResyncRequired { runtime_id };
        let taken = self.taken();
        taken.iter().filter(|it| **it == resync).count()
    }

    /// Sends heartbeats of these watchers for five minutes.
    pub(super) async fn beats(&self, make: impl Fn(&str) -> Heartbeat, watchers: &[&str]) {
        for _ in 0..5 {
            for watcher in watchers {
                self.send("r", make(watcher));
                self.pass(Duration::from_secs(5)).await;
            }
            self.pass(Duration::from_secs(50)).await;
        }
    }
}

/// Watchers of this release say since when they are ready, and for how long they were terminating. Each new one is ready a second
/// before an old one terminates.
#[rstest]
#[case::of_an_earlier_release(false)]
#[case::of_this_release(true)]
#[tokio::test(start_paused = true)]
async fn rollout_of_a_fleet_requires_no_resync(#[case] says_readiness: bool) {
    const RUNTIMES: usize = 5_000;
    let mut listening = Listening::with(RUNTIMES, HEARTBEAT_INTERVAL, 1024);
    let begin = Instant::now();
    let each = |make: fn(&str) -> Heartbeat, watcher: &str| {
        let mut heartbeat = make(watcher);
        if says_readiness {
            let uptime = begin.elapsed() + Duration::from_mins(10);
            let ready = Duration::from_secs(match watcher {
                "c" => 612,
                "d" => 632,
                _ => 0,
            });
            let ready = uptime.checked_sub(ready).unwrap().as_millis();
            heartbeat.ready_milliseconds = Some(u64::try_from(ready).unwrap());
            heartbeat.terminating_milliseconds = heartbeat.ending.then_some(7_000);
        }
        for number in 0..RUNTIMES {
            let result = listening.send(&format!("r{number}"), heartbeat.clone());
            assert_eq!(result, EnqueueResult::Accepted);
        }
    };
    // All have events under way in their last regular heartbeat, which arrive before the last one.
    let busy = |watcher: &str| current(watcher, 3, 2);
    let deliver = |listening: &Listening, watcher: &str| {
        for number in 0..RUNTIMES {
            for event in 7..=9 {
                let event = Some((boot(watcher), event));
                listening.liveness.event(&id(&format!("r{number}")), event);
            }
        }
    };
    each(busy, "a");
    each(busy, "b");
    listening.pass(Duration::from_secs(20)).await;
    each(busy, "c");
    deliver(&listening, "a");
    each(|it| last(it, 0), "a");
    listening.pass(Duration::from_secs(20)).await;
    each(busy, "d");
    deliver(&listening, "b");
    each(|it| last(it, 0), "b");
    // The watchers that ended would be judged within three intervals.
    for _ in 0..5 {
        each(busy, "c");
        each(busy, "d");
        listening.pass(HEARTBEAT_INTERVAL).await;
    }
    assert_eq!(listening.taken(), []);
    assert_eq!(listening.liveness.totals().resyncs_required, 0);
    let watchers = &listening.liveness.runtime(&id("r7")).unwrap().watchers;
    assert!(watchers.iter().map(|it| it.boot_id.as_str()).eq(["c", "d"]));
}

#[rstest]
#[case::nothing_that_it_reported(current("a", 0, 0), 1)]
#[case::events(current("a", 2, 0), 1)]
#[case::follow_ups(current("a", 0, 2), 1)]
#[case::events_of_an_old_release(beat("a", 9, 2), 1)]
#[case::nothing_of_an_old_release(beat("a", 9, 0), 0)]
#[case::the_last_heartbeat(last("a", 0), 0)]
#[case::the_last_heartbeat_with_events(last("a", 2), 1)]
#[tokio::test(start_paused = true)]
async fn replaced_watcher_requires_one_resync_if_it_left_something(
    #[case] heartbeat: Heartbeat,
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.send("r", heartbeat);
    listening.pass(Duration::from_secs(20)).await;
    for watcher in ["b", "c"] {
        for _ in 0..60 {
            listening.send("r", current(watcher, 0, 0));
            listening.pass(HEARTBEAT_INTERVAL).await;
        }
        listening.send("r", last(watcher, 0));
    }
    assert_eq!(listening.resyncs(), expected);
    assert_eq!(listening.only().watchers, []);
}

/// The spool of the watcher may be deleted with its Pod. If the watcher runs again, it delivers its spooled events.
#[tokio::test(start_paused = true)]
async fn watcher_with_spooled_events_that_is_not_heard_requires_one_resync() {
    let mut listening = Listening::new();
    listening.beat("b", 5, 3);
    listening.pass(Duration::from_secs(179)).await;
    assert_eq!(listening.resyncs(), 0);
    listening.pass(Duration::from_hours(1)).await;
    assert_eq!(listening.resyncs(), 1);
    listening.beat("b", 8, 0);
    listening.pass(Duration::from_hours(1)).await;
    assert_eq!(listening.resyncs(), 0, "nothing was spooled");
    listening.beat("b", 9, 1);
    listening.pass(Duration::from_mins(3)).await;
    assert_eq!(listening.resyncs(), 1);
    listening.event("b", 9);
    assert_eq!(listening.resyncs(), 0);
    assert_eq!(listening.only().resyncs_required, 2);
    listening.liveness.forget(&id("r"));
    assert_eq!(listening.liveness.totals().resyncs_required, 2);
}

/// It may answer reviews and be unable to send the events, while the other replica reaches KCP.
#[tokio::test(start_paused = true)]
async fn replica_that_is_not_heard_makes_the_runtime_unresponsive_until_it_is_heard_or_replaced() {
    let mut listening = Listening::new();
    let make = |it: &str| current(it, 0, 0);
    listening.beats(make, &["a", "b"]).await;
    for back in ["a", "c"] {
        listening.beats(make, &["b"]).await;
        let taken = listening.taken();
        let runtime_id = id("r");
        let resync = Notification::ResyncRequired { runtime_id };
        assert!(taken.contains(&unresponsive(MISSING)), "{taken:?}");
        assert!(taken.contains(&resync) && taken.len() == 2, "{taken:?}");
        assert_eq!(listening.liveness.totals().unresponsive, 1);
        listening.beats(make, &[back, "b"]).await;
        let taken = listening.taken();
        assert!(taken.contains(&recovered()), "{taken:?}");
        assert_eq!(listening.liveness.totals().unresponsive, 0);
    }
}

/// The operator reconciled everything at its start, when no webhook sent reviews of its objects on this runtime.
#[rstest]
#[case::soon_after_the_start(179, |_: &Listening| (), 0)]
#[case::later(180, |_: &Listening| (), 1)]
#[case::later_although_expected(180, |it: &Listening| it.liveness.expect(&id("r")), 1)]
#[case::deleted(180, |it: &Listening| it.liveness.forget(&id("r")), 0)]
#[tokio::test(start_paused = true)]
async fn first_heartbeat_long_after_the_start_of_the_listener_requires_one_resync(
    #[case] seconds: u64,
    #[case] before: fn(&Listening),
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.liveness.check(&listening.queue);
    listening.pass(Duration::from_secs(seconds)).await;
    before(&listening);
    listening.beats(|it| current(it, 0, 0), &["a", "b"]).await;
    assert_eq!(listening.resyncs(), expected);
}

/// Each heartbeat evicts another runtime, whose next heartbeat then looks like its first.
#[tokio::test(start_paused = true)]
async fn runtimes_beyond_the_limit_require_no_resync_with_each_heartbeat() {
    let mut listening = Listening::with(1, HEARTBEAT_INTERVAL, 1024);
    for _ in 0..10 {
        for runtime in ["r", "s"] {
            listening.send(runtime, current("a", 0, 0));
        }
        listening.pass(HEARTBEAT_INTERVAL).await;
    }
    assert_eq!(listening.taken(), []);
}

/// Another listener has accepted them, and did not pass them on before its process ended.
#[rstest]
#[case::by_two_heartbeats(false)]
#[case::by_the_last_heartbeat(true)]
#[tokio::test(start_paused = true)]
async fn events_that_cannot_arrive_any_more_require_one_resync(#[case] ending: bool) {
    let mut listening = Listening::new();
    let beat = |sequence, ending| {
        let mut heartbeat = current("b", 0, 0);
        (heartbeat.sequence, heartbeat.ending) = (sequence, ending);
        heartbeat
    };
    listening.send("r", beat(5, false));
    listening.event("b", 6);
    listening.event("b", 8);
    listening.send("r", beat(8, ending));
    listening.pass(Duration::from_mins(1)).await;
    assert_eq!(listening.resyncs(), usize::from(ending));
    if !ending {
        // Until the next heartbeat, the event may be under way.
        listening.send("r", beat(8, false));
        listening.pass(Duration::from_mins(1)).await;
        assert_eq!(listening.resyncs(), 1);
    }
    assert_eq!(listening.only().missing_events, 1);
}

/// KCP was unreachable from before the first change on, so no heartbeat could say that anything was spooled. The heartbeats of the
/// watchers are up to an interval apart.
#[rstest]
#[case::both_are_back(&["a", "b"], 0)]
#[case::one_was_replaced(&["b", "c"], 1)]
#[case::one_was_replaced_and_comes_first(&["c", "b"], 1)]
#[case::both_were_replaced(&["c", "d"], 1)]
#[tokio::test(start_paused = true)]
async fn watcher_that_is_replaced_while_it_is_not_heard_requires_a_resync(
    #[case] back: &[&str],
    #[case] expected: usize,
    #[values(|it: &str| beat(it, 0, 0), |it: &str| current(it, 0, 0))] make: fn(&str) -> Heartbeat,
) {
    let mut listening = Listening::new();
    listening.beats(make, &["a", "b"]).await;
    listening.send("r", make("a"));
    listening.pass(Duration::from_secs(50)).await;
    listening.send("r", make("b"));
    assert_eq!(listening.resyncs(), 0);
    listening.pass(Duration::from_mins(10)).await;
    listening.beats(make, back).await;
    assert_eq!(listening.resyncs(), expected);
    // The watchers are restarted while KCP is reachable.
    for ended in ["a", "b", "c", "d"] {
        let mut heartbeat = make(ended);
        heartbeat.ending = heartbeat.reviews_seen.is_some();
        listening.send("r", heartbeat);
    }
    listening.beats(make, &["x", "y"]).await;
    assert_eq!(listening.resyncs(), 0);
}

/// It is unknown which reviews they received after their last regular heartbeats.
#[rstest]
#[case::one_of_two(&["b", "c"])]
#[case::both(&["c", "d"])]
#[case::both_by_one(&["c"])]
#[tokio::test(start_paused = true)]
async fn killed_replicas_that_are_replaced_in_time_require_one_resync(#[case] after: &[&str]) {
    let mut listening = Listening::new();
    let make = |it: &str| current(it, 0, 0);
    listening.beats(make, &["a", "b"]).await;
    assert_eq!(listening.resyncs(), 0);
    for _ in 0..4 {
        listening.beats(make, after).await;
    }
    assert_eq!(listening.resyncs(), 1);
    let watchers = listening.only().watchers;
    let boots = watchers.iter().map(|it| it.boot_id.as_str());
    assert!(boots.eq(after.iter().copied()));
}

/// Old releases send no last heartbeat, and the new Pod of a rolling update starts before the old one ends.
#[rstest]
#[case::old_release(|it: &str| beat(it, 0, 0), 0)]
#[case::this_release_would_have_said_so(|it: &str| current(it, 0, 0), 1)]
#[tokio::test(start_paused = true)]
async fn watcher_that_started_shortly_before_replaces_one_of_an_old_release(
    #[case] make: fn(&str) -> Heartbeat,
    #[case] expected: usize,
) {
    let mut listening = Listening::new();
    listening.beats(make, &["a"]).await;
    listening.beats(make, &["b"]).await;
    listening.beats(make, &["b"]).await;
    listening.send("r", make("c"));
    listening.pass(Duration::from_secs(20)).await;
    listening.send("r", make("b"));
    listening.beats(make, &["c"]).await;
    listening.beats(make, &["d"]).await;
    assert_eq!(listening.resyncs(), expected);
}

#[tokio::test(start_paused = true)]
async fn forgotten_watcher_with_spooled_events_requires_a_resync() {
    let mut listening = Listening::new();
    listening.beat("first", 5, 1);
    for start in 0..8 {
        listening.beat(&format!("b{start}"), 0, 0);
        listening.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(listening.resyncs(), 1);
    listening.pass(Duration::from_hours(1)).await;
    assert_eq!(listening.resyncs(), 0);
}

#[tokio::test(start_paused = true)]
async fn requested_resync_is_queued_before_the_heartbeat_is_accepted() {
    let mut listening = Listening::with(10, HEARTBEAT_INTERVAL, 1);
    let runtime_id = id("other");
    let other = Notification::Recovered { runtime_id };
    assert_eq!(listening.queue.enqueue(other), EnqueueResult::Accepted);
    assert_eq!(listening.send("r", requesting("a")), EnqueueResult::Full);
    assert!(!listening.only().silent, "it was heard nevertheless");
    listening.taken();
    assert_eq!(
        listening.send("r", requesting("a")),
        EnqueueResult::Accepted
    );
    // The queued resync covers the loss of the second replica.
    assert_eq!(
        listening.send("r", requesting("b")),
        EnqueueResult::Coalesced
    );
    assert_eq!(listening.resyncs(), 1);
    // The operator may have listed before this loss, so the watcher has to repeat the request.
    assert_eq!(
        listening.send("r", requesting("b")),
        EnqueueResult::RuntimeLimit
    );
    assert_eq!(
        listening.send("r", current("b", 0, 0)),
        EnqueueResult::Accepted
    );
    assert_eq!(
        listening.send("s", requesting("a")),
        EnqueueResult::Accepted
    );
    listening.taken();
    listening.pass(HEARTBEAT_INTERVAL).await;
    assert_eq!(listening.resyncs(), 0);
    assert_eq!(
        listening.send("r", requesting("b")),
        EnqueueResult::Accepted
    );
    assert_eq!(listening.resyncs(), 1);
}

/// The watcher cannot repeat the request.
#[rstest]
#[case::with_its_last_heartbeat(true)]
#[case::before_it_was_killed(false)]
#[tokio::test(start_paused = true)]
async fn resync_requested_too_soon_by_a_watcher_that_ends_is_required_later(#[case] ending: bool) {
    let mut listening = Listening::new();
    listening.send("r", current("c", 0, 0));
    assert_eq!(
        listening.send("r", requesting("a")),
        EnqueueResult::Accepted
    );
    listening.send("r", current("a", 0, 0));
    assert_eq!(listening.resyncs(), 1);
    let mut heartbeat = requesting("b");
    heartbeat.ending = ending;
    assert_eq!(listening.send("r", heartbeat), EnqueueResult::RuntimeLimit);
    for _ in 0..10 {
        listening.send("r", current("c", 0, 0));
        listening.pass(HEARTBEAT_INTERVAL).await;
    }
    assert_eq!(listening.resyncs(), 1);
}

#[rstest]
#[case::new_boot_ids_with_spooled_events(|it: &str| current(it, 1, 0))]
#[case::last_heartbeats_with_spooled_events(|it: &str| last(it, 1))]
#[case::requests(requesting)]
#[tokio::test(start_paused = true)]
async fn hostile_runtime_causes_at_most_one_resync_per_interval(
    #[case] make: fn(&str) -> Heartbeat,
) {
    let mut listening = Listening::new();
    let mut resyncs = 0;
    for number in 0..6_000 {
        listening.send("r", make(&format!("b{number}")));
        listening.pass(Duration::from_millis(100)).await;
        // The operator takes each notification at once.
        resyncs += listening.resyncs();
    }
    assert!((9..=11).contains(&resyncs), "{resyncs} in ten minutes");
    assert!(listening.only().watchers.len() <= 4);
}
