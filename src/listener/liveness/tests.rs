//! Tests of silence, missing events, and memory limits.

mod entries;
mod pauses;
mod resync;
mod reviews;

use futures::{FutureExt as _, StreamExt as _};
use rstest::rstest;
use tokio::time::advance;
use watcher_types::HEARTBEAT_INTERVAL;

use super::*;
use crate::queue::{Notification, Notifications, UnresponsiveReason, queue};

/// A listener without requests: tests pass heartbeats and events directly, and checks run at the same interval as in a
/// running listener.
pub(super) struct Listening {
    pub(super) liveness: Liveness,
    queue: Sender,
    notifications: Notifications,
}

impl Listening {
    /// Creates a listener with the default interval of a minute.
    pub(super) fn new() -> Self {
        Self::with(10, HEARTBEAT_INTERVAL, 1024)
    }

    fn with(limit: usize, interval: Duration, total: usize) -> Self {
        let per_runtime = 64;
        let (queue, notifications) = queue(total, per_runtime);
        Self {
            liveness: Liveness::new(limit, interval),
            queue,
            notifications,
        }
    }

    pub(super) fn send(&self, runtime: &str, heartbeat: Heartbeat) -> EnqueueResult {
        self.liveness
            .heartbeat(&id(runtime), heartbeat, &self.queue)
    }

    fn beat(&self, boot_id: &str, sequence: u64, spool_depth: u64) {
        self.send("r", beat(boot_id, sequence, spool_depth));
    }

    fn event(&self, boot_id: &str, number: u64) {
        self.liveness.event(&id("r"), Some((boot(boot_id), number)));
    }

    /// Advances the time, and runs the due checks.
    pub(super) async fn pass(&self, time: Duration) {
        let step = self.liveness.check_interval();
        let mut left = time;
        while !left.is_zero() {
            let next = left.min(step);
            advance(next).await;
            self.liveness.check(&self.queue);
            left -= next;
        }
    }

    /// Takes the queued notifications.
    pub(super) fn taken(&mut self) -> Vec<Notification> {
        let next = || self.notifications.next().now_or_never().flatten();
        std::iter::from_fn(next).collect()
    }

    fn only(&self) -> RuntimeLiveness {
        let [runtime] = self.liveness.snapshot().try_into().unwrap();
        assert_eq!(self.liveness.runtime(&id("r")).as_ref(), Some(&runtime));
        runtime
    }
}

pub(super) fn id(name: &str) -> RuntimeId {
    RuntimeId::parse(name).unwrap()
}

pub(super) fn boot(name: &str) -> BootId {
    BootId::parse(name).unwrap()
}

/// Returns a heartbeat in the format of older releases.
pub(super) fn beat(boot_id: &str, sequence: u64, spool_depth: u64) -> Heartbeat {
    let mut heartbeat = Heartbeat::new(boot(boot_id), "1".into());
    (heartbeat.sequence, heartbeat.spool_depth) = (sequence, spool_depth);
    heartbeat
}

fn unresponsive(reason: UnresponsiveReason) -> Notification {
    let runtime_id = id("r");
    Notification::Unresponsive { runtime_id, reason }
}

fn recovered() -> Notification {
    let runtime_id = id("r");
    Notification::Recovered { runtime_id }
}

const MISSING: UnresponsiveReason = UnresponsiveReason::HeartbeatMissing;

#[rstest]
#[case::the_default(HEARTBEAT_INTERVAL)]
#[case::another(Duration::from_secs(10))]
#[tokio::test(start_paused = true)]
async fn runtime_is_unresponsive_after_three_missed_heartbeats_until_the_next(
    #[case] interval: Duration,
) {
    let mut listening = Listening::with(10, interval, 1024);
    listening.beat("b", 0, 0);
    listening.pass(interval * 2 + interval * 99 / 100).await;
    assert_eq!(
        (listening.only().silent, listening.taken()),
        (false, vec![])
    );
    listening.pass(interval / 100).await;
    let runtime = listening.only();
    assert_eq!(
        (runtime.silent, runtime.unresponsive),
        (true, Some(MISSING))
    );
    assert_eq!(runtime.since_heartbeat, Some(interval * 3));
    listening.pass(interval * 60).await;
    assert_eq!(listening.taken(), [unresponsive(MISSING)], "once");
    listening.beat("b", 0, 0);
    assert!(!listening.only().silent);
    listening.pass(interval / 10).await;
    assert_eq!(listening.taken(), [recovered()]);
}

#[tokio::test(start_paused = true)]
async fn change_of_state_that_finds_the_queue_full_is_notified_later() {
    let mut listening = Listening::with(10, HEARTBEAT_INTERVAL, 1);
    let runtime_id = id("other");
    let other = Notification::ResyncRequired { runtime_id };
    assert_eq!(
        listening.queue.enqueue(other.clone()),
        EnqueueResult::Accepted
    );
    listening.beat("b", 0, 1);
    listening.pass(Duration::from_mins(5)).await;
    assert_eq!(listening.only().unresponsive, None);
    assert_eq!(listening.taken(), [other]);
    listening.pass(Duration::from_secs(6)).await;
    let runtime_id = id("r");
    assert_eq!(
        listening.taken(),
        [Notification::ResyncRequired { runtime_id }]
    );
    listening.pass(Duration::from_secs(6)).await;
    assert_eq!(listening.taken(), [unresponsive(MISSING)]);
}

#[tokio::test(start_paused = true)]
async fn public_watcher_is_never_unresponsive_unless_it_is_expected() {
    let mut listening = Listening::new();
    listening.liveness.event(&id("r"), None);
    listening.pass(Duration::from_hours(1)).await;
    let runtime = listening.only();
    assert_eq!((runtime.silent, runtime.since_heartbeat), (false, None));
    assert_eq!(runtime.since_event, Some(Duration::from_hours(1)));
    assert_eq!(listening.taken(), []);
    listening.liveness.expect(&id("r"));
    listening.pass(Duration::from_mins(2)).await;
    // A reconcile repeats the call. Only the first call has an effect.
    listening.liveness.expect(&id("r"));
    listening.pass(Duration::from_mins(1)).await;
    assert_eq!(listening.taken(), [unresponsive(MISSING)]);
}

#[tokio::test(start_paused = true)]
async fn runtime_that_never_sent_anything_is_unresponsive_until_it_is_forgotten() {
    let mut listening = Listening::new();
    listening.liveness.expect(&id("r"));
    listening.pass(Duration::from_mins(3)).await;
    assert_eq!(listening.taken(), [unresponsive(MISSING)]);
    listening.liveness.forget(&id("r"));
    listening.pass(Duration::from_mins(3)).await;
    assert_eq!(
        (listening.liveness.snapshot(), listening.taken()),
        (vec![], vec![])
    );
}

/// The watcher runs until its cluster is deleted.
#[tokio::test(start_paused = true)]
async fn forgotten_runtime_whose_last_heartbeats_come_later_is_not_unresponsive() {
    let mut listening = Listening::new();
    listening.beat("b", 1, 0);
    listening.liveness.forget(&id("r"));
    for _ in 2..6 {
        listening.beat("b", 1, 0);
        listening.pass(HEARTBEAT_INTERVAL).await;
    }
    listening.pass(Duration::from_hours(1)).await;
    assert_eq!(listening.taken(), []);
    assert_eq!(listening.liveness.snapshot(), []);
    // A new runtime with the same ID.
    listening.beat("c", 1, 0);
    listening.pass(Duration::from_mins(3)).await;
    let runtime_id = id("r");
    let resync = Notification::ResyncRequired { runtime_id };
    assert_eq!(listening.taken(), [resync, unresponsive(MISSING)]);
}

#[tokio::test(start_paused = true)]
async fn forgotten_runtime_that_is_expected_again_becomes_unresponsive() {
    let mut listening = Listening::new();
    listening.liveness.forget(&id("r"));
    listening.liveness.expect(&id("r"));
    listening.pass(Duration::from_mins(3)).await;
    assert_eq!(listening.taken(), [unresponsive(MISSING)]);
}

#[rstest]
#[case::all_came(&[1, 2, 3], 3, 0, 0)]
#[case::the_last_is_missing(&[1, 2], 3, 0, 1)]
#[case::the_last_is_spooled(&[1, 2], 3, 1, 0)]
#[case::one_between(&[1, 3], 3, 0, 1)]
#[tokio::test(start_paused = true)]
async fn heartbeat_shows_what_did_not_arrive(
    #[case] numbers: &[u64],
    #[case] sequence: u64,
    #[case] spooled: u64,
    #[case] missing: u64,
) {
    let listening = Listening::new();
    for &number in numbers {
        listening.event("b", number);
    }
    listening.beat("b", sequence, spooled);
    let runtime = listening.only();
    assert_eq!(runtime.missing_events, missing);
    let expected = beat("b", sequence, spooled);
    assert_eq!(runtime.watchers[0].heartbeat, Some(expected));
    assert_eq!(
        listening.liveness.totals().missing_events,
        0,
        "it may still come"
    );
    listening.beat("b", sequence, spooled);
    assert_eq!(listening.liveness.totals().missing_events, missing);
    listening.liveness.forget(&id("r"));
    assert_eq!(listening.liveness.totals().missing_events, missing);
}

/// Any client with a certificate of the runtime can set the numbers in heartbeats and headers.
#[rstest]
#[case::of_a_heartbeat(|listening: &Listening| listening.beat("b", u64::MAX, 0))]
#[case::of_an_event(|listening: &Listening| listening.event("b", u64::MAX))]
#[tokio::test(start_paused = true)]
async fn absurd_leap_counts_a_window_and_requires_one_resync(#[case] leap: fn(&Listening)) {
    let mut listening = Listening::new();
    listening.beat("b", 1, 0);
    leap(&listening);
    for _ in 0..5 {
        listening.beat("b", u64::MAX, 0);
        listening.pass(HEARTBEAT_INTERVAL).await;
    }
    let runtime_id = id("r");
    let resync = Notification::ResyncRequired { runtime_id };
    assert_eq!(listening.taken(), [resync]);
    let counted = listening.liveness.totals().missing_events;
    assert!((130_000..132_000).contains(&counted), "{counted}");
    // Lost events of another runtime still count.
    for sequence in [1, 2, 2] {
        listening.send("s", beat("b", sequence, 0));
    }
    let totals = listening.liveness.totals();
    assert_eq!(totals.missing_events, counted + 1);
}

/// After an outage each object of a full spool is retried with its old number, in any order.
#[tokio::test(start_paused = true)]
async fn events_delayed_by_an_outage_are_not_missing_and_lost_ones_are() {
    const SPOOLED: u64 = 100_000;
    let listening = Listening::new();
    listening.beat("b", 0, 0);
    // The numbers are assigned in order and arrive in a different order: 7919 is prime, and not a divisor of the count.
    let numbers = (0..SPOOLED).map(|place| place * 7919 % SPOOLED + 1);
    for number in numbers.filter(|number| *number != 500) {
        listening.event("b", number);
    }
    listening.beat("b", SPOOLED, SPOOLED - 499);
    assert_eq!(listening.only().missing_events, 1, "it may be under way");
    listening.event("b", 500);
    assert_eq!(listening.only().missing_events, 0);
    listening.event("b", SPOOLED + 2);
    listening.beat("b", SPOOLED + 2, 0);
    listening.beat("b", SPOOLED + 2, 0);
    assert_eq!(listening.only().missing_events, 1, "it is not sent again");
}

#[tokio::test(start_paused = true)]
async fn replicas_are_counted_apart_and_a_restart_misses_nothing() {
    let listening = Listening::new();
    for (watcher, number) in [("a", 1), ("b", 90), ("a", 2), ("b", 91), ("c", 1)] {
        listening.event(watcher, number);
    }
    let runtime = listening.only();
    assert_eq!(runtime.missing_events, 0);
    let watchers = runtime.watchers.iter();
    let watchers = watchers.map(|it| (it.boot_id.as_str(), it.sequence));
    assert!(watchers.eq([("a", 2), ("b", 91), ("c", 1)]));
}

#[tokio::test(start_paused = true)]
async fn each_watcher_shows_the_time_since_its_own_heartbeat() {
    let listening = Listening::new();
    for watcher in ["a", "b"] {
        listening.beat(watcher, 0, 0);
    }
    listening.event("mute", 1);
    listening.pass(Duration::from_mins(2)).await;
    listening.beat("b", 0, 0);
    listening.pass(Duration::from_secs(59)).await;
    // An event does not replace a due heartbeat.
    listening.event("a", 1);
    listening.event("mute", 2);
    listening.pass(Duration::from_secs(1)).await;
    let runtime = listening.only();
    let watchers = runtime.watchers.iter();
    let watchers = watchers.map(|it| (it.boot_id.as_str(), it.since_heartbeat, it.silent));
    assert_eq!(
        watchers.collect::<Vec<_>>(),
        [
            ("a", Some(Duration::from_mins(3)), true),
            ("b", Some(Duration::from_mins(1)), false),
            ("mute", None, false),
        ]
    );
    assert!(!runtime.silent);
}

#[tokio::test(start_paused = true)]
async fn missing_events_of_a_replaced_watcher_stay_counted() {
    let listening = Listening::new();
    listening.event("old", 1);
    listening.event("old", 3);
    listening.pass(Duration::from_mins(1)).await;
    listening.beat("new", 0, 0);
    listening.pass(Duration::from_mins(2)).await;
    let runtime = listening.only();
    assert_eq!((runtime.missing_events, runtime.watchers.len()), (1, 1));
    assert_eq!(runtime.watchers[0].boot_id, boot("new"));
}

#[tokio::test(start_paused = true)]
async fn number_of_remembered_watchers_is_bounded() {
    let listening = Listening::new();
    for start in 0..100 {
        listening.beat(&format!("b{start}"), 0, 0);
        listening.pass(Duration::from_secs(1)).await;
    }
    let watchers = listening.only().watchers;
    let boots = watchers.iter().map(|it| it.boot_id.as_str());
    assert!(boots.eq(["b96", "b97", "b98", "b99"]));
}

/// Each boot ID leaves as much state as a watcher can.
#[tokio::test(start_paused = true)]
async fn events_with_a_new_boot_id_each_keep_the_memory_bounded() {
    let listening = Listening::new();
    for start in 0..1_000 {
        let boot_id = format!("b{start}");
        for number in [1, 3, 131_000] {
            listening.event(&boot_id, number);
        }
        assert!(listening.only().watchers.len() <= 4);
    }
    let runtime = listening.only();
    assert_eq!(runtime.missing_events, 1_000 * (131_000 - 3));
    let resync = listening.liveness.totals().resyncs_required;
    assert_eq!(resync, 0, "no heartbeat says that they are watchers");
}

#[tokio::test(start_paused = true)]
async fn number_of_remembered_runtimes_is_bounded() {
    let listening = Listening::with(2, HEARTBEAT_INTERVAL, 1024);
    for runtime in ["a", "b", "a", "c"] {
        listening.send(runtime, beat("b", 0, 0));
        listening.pass(Duration::from_secs(1)).await;
    }
    let known = listening.liveness.snapshot().into_iter();
    assert!(known.map(|it| it.runtime_id).eq([id("a"), id("c")]));
    assert_eq!(listening.liveness.totals().evicted, 1);
}

/// A search for each of many new runtimes would take most of the time of a listener at its limit.
#[tokio::test(start_paused = true)]
async fn runtimes_are_evicted_by_the_hundredth_part_of_the_limit() {
    let listening = Listening::with(300, HEARTBEAT_INTERVAL, 1024);
    let runtimes: Vec<_> = (0..301).map(|number| format!("{number:03}")).collect();
    for runtime in &runtimes {
        listening.send(runtime, beat("b", 0, 0));
        listening.pass(Duration::from_millis(1)).await;
    }
    let known = listening.liveness.snapshot().into_iter();
    assert!(
        known
            .map(|it| it.runtime_id)
            .eq(runtimes[3..].iter().map(|name| id(name)))
    );
    assert_eq!(listening.liveness.totals().evicted, 3);
}

/// The intervals are from the configuration of the operator.
#[rstest]
#[case::none(Duration::ZERO)]
#[case::endless(Duration::MAX)]
#[tokio::test(start_paused = true)]
async fn absurd_intervals_and_ages_do_no_harm(#[case] interval: Duration) {
    let listening = Listening::with(10, interval, 1024);
    let mut heartbeat = beat("b", u64::MAX, u64::MAX);
    heartbeat.oldest_age_seconds = u64::MAX;
    heartbeat.reviews_seen = Some(u64::MAX);
    heartbeat.handshake_failures = Some(u64::MAX);
    heartbeat.last_review_age_seconds = Some(u64::MAX);
    heartbeat.ready_milliseconds = Some(u64::MAX);
    heartbeat.terminating_milliseconds = Some(u64::MAX);
    heartbeat.webhook_entry_hash = Some("one".to_owned());
    heartbeat.webhook_entry_age_seconds = Some(u64::MAX);
    heartbeat.certificate_not_after = Some(i64::MIN);
    for _ in 0..5 {
        listening.send("r", heartbeat.clone());
        listening.liveness.expect_review(&id("r"));
        listening.pass(listening.liveness.check_interval()).await;
    }
    assert_eq!(listening.only().since_review, None);
}

#[tokio::test(start_paused = true)]
async fn last_rejection_is_kept_for_known_runtimes_alone() {
    let listening = Listening::new();
    listening.beat("b", 0, 0);
    listening.liveness.rejected("other", "no".into());
    listening.liveness.rejected("", "no".into());
    assert_eq!(listening.only().last_rejection, None);
    listening.liveness.rejected("r", "expired".into());
    listening.pass(Duration::from_secs(9)).await;
    let rejection = listening.only().last_rejection.unwrap();
    assert_eq!(
        (rejection.since.as_secs(), &*rejection.reason),
        (9, "expired")
    );
}
