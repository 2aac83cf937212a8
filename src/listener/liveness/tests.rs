//! Silence, loss, and what is forgotten.

use api::event::HEARTBEAT_INTERVAL;
use rstest::rstest;
use tokio::time::advance;

use super::*;

/// With the watchers' own interval of a minute.
fn remembering(limit: usize) -> Liveness {
    Liveness::new(limit, HEARTBEAT_INTERVAL)
}

fn id(name: &str) -> RuntimeId {
    RuntimeId::parse(name).unwrap()
}

fn boot(name: &str) -> BootId {
    BootId::parse(name).unwrap()
}

fn beat(boot_id: &str, sequence: u64, spool_depth: u64) -> Heartbeat {
    Heartbeat {
        boot_id: boot(boot_id),
        sequence,
        spool_depth,
        oldest_age_seconds: 0,
        version: "1".into(),
        resync_needed: false,
    }
}

fn only(liveness: &Liveness) -> RuntimeLiveness {
    let [runtime] = liveness.snapshot().try_into().unwrap();
    runtime
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_silent_after_three_missed_heartbeats() {
    let liveness = remembering(10);
    liveness.heartbeat(&id("r"), beat("b", 0, 0));
    advance(Duration::from_secs(179)).await;
    assert!(!only(&liveness).silent);
    advance(Duration::from_secs(1)).await;
    assert!(only(&liveness).silent);
    assert_eq!(
        only(&liveness).since_heartbeat,
        Some(Duration::from_mins(3))
    );
    liveness.heartbeat(&id("r"), beat("b", 0, 0));
    assert!(!only(&liveness).silent);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_with_another_interval_is_silent_after_three_of_those() {
    let liveness = Liveness::new(10, Duration::from_secs(10));
    liveness.heartbeat(&id("r"), beat("b", 0, 0));
    advance(Duration::from_secs(29)).await;
    assert!(!only(&liveness).silent);
    advance(Duration::from_secs(1)).await;
    assert!(only(&liveness).silent);
}

#[tokio::test(start_paused = true)]
async fn a_public_watcher_is_never_silent_unless_it_is_counted_on() {
    let liveness = remembering(10);
    liveness.event(&id("r"), None);
    advance(Duration::from_hours(1)).await;
    let runtime = only(&liveness);
    assert_eq!((runtime.silent, runtime.since_heartbeat), (false, None));
    assert_eq!(runtime.since_event, Some(Duration::from_hours(1)));
    liveness.expect(id("r"));
    assert!(!only(&liveness).silent);
    advance(Duration::from_mins(3)).await;
    assert!(only(&liveness).silent);
}

#[tokio::test(start_paused = true)]
async fn one_that_never_spoke_is_found_and_one_that_is_gone_forgotten() {
    let liveness = remembering(10);
    liveness.expect(id("r"));
    advance(Duration::from_mins(2)).await;
    // Said again at each reconciliation; the first time counts.
    liveness.expect(id("r"));
    advance(Duration::from_mins(1)).await;
    assert!(only(&liveness).silent);
    liveness.forget(&id("r"));
    assert_eq!(liveness.snapshot(), []);
}

#[rstest]
#[case::all_came(&[1, 2, 3], 3, 0, 0)]
#[case::the_last_is_missing(&[1, 2], 3, 0, 1)]
#[case::the_last_still_waits(&[1, 2], 3, 1, 0)]
#[case::one_between(&[1, 3], 3, 0, 1)]
#[tokio::test(start_paused = true)]
async fn a_heartbeat_shows_what_did_not_come(
    #[case] numbers: &[u64],
    #[case] sequence: u64,
    #[case] waiting: u64,
    #[case] missing: u64,
) {
    let liveness = remembering(10);
    for &number in numbers {
        liveness.event(&id("r"), Some((boot("b"), number)));
    }
    liveness.heartbeat(&id("r"), beat("b", sequence, waiting));
    let runtime = only(&liveness);
    assert_eq!(runtime.missing_events, missing);
    assert_eq!(
        runtime.watchers[0].heartbeat,
        Some(beat("b", sequence, waiting))
    );
}

/// After an outage each object of a full spool is tried again under its old number, and they come as they come.
#[tokio::test(start_paused = true)]
async fn what_an_outage_has_delayed_is_no_loss_and_what_it_has_cost_is_one() {
    const SPOOLED: u64 = 100_000;
    let liveness = remembering(10);
    liveness.heartbeat(&id("r"), beat("b", 0, 0));
    // The numbers were given in order and come in another: 7919 is prime, and no divisor of the count.
    let numbers = (0..SPOOLED).map(|place| place * 7919 % SPOOLED + 1);
    for number in numbers.filter(|number| *number != 500) {
        liveness.event(&id("r"), Some((boot("b"), number)));
    }
    liveness.heartbeat(&id("r"), beat("b", SPOOLED, SPOOLED - 499));
    assert_eq!(only(&liveness).missing_events, 1, "it may be under way");
    liveness.event(&id("r"), Some((boot("b"), 500)));
    assert_eq!(only(&liveness).missing_events, 0);
    liveness.event(&id("r"), Some((boot("b"), SPOOLED + 2)));
    liveness.heartbeat(&id("r"), beat("b", SPOOLED + 2, 0));
    liveness.heartbeat(&id("r"), beat("b", SPOOLED + 2, 0));
    assert_eq!(
        only(&liveness).missing_events,
        1,
        "nobody will send it any more"
    );
}

/// The watcher takes its mark back once it was heard, so the last heartbeat alone would not tell for long.
#[tokio::test(start_paused = true)]
async fn a_call_for_a_look_at_everything_outlasts_the_heartbeat_that_made_it() {
    let liveness = remembering(10);
    let call = Heartbeat {
        resync_needed: true,
        ..beat("b", 0, 0)
    };
    for heartbeat in [beat("b", 0, 0), call, beat("b", 0, 0)] {
        liveness.heartbeat(&id("r"), heartbeat);
    }
    assert_eq!(only(&liveness).resyncs_needed, 1);
}

/// What was spooled may have gone with its Pod; a watcher that comes back has perhaps seen changes after the look.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_quiet_with_something_spooled_calls_for_a_look_once() {
    let liveness = remembering(10);
    let calls = || only(&liveness).resyncs_needed;
    liveness.heartbeat(&id("r"), beat("b", 5, 3));
    advance(Duration::from_secs(179)).await;
    assert_eq!(calls(), 0);
    advance(Duration::from_secs(1)).await;
    assert_eq!(calls(), 1);
    advance(Duration::from_hours(1)).await;
    assert_eq!(calls(), 1);
    liveness.heartbeat(&id("r"), beat("b", 8, 0));
    assert_eq!(calls(), 1, "it was called for, whoever comes back");
    advance(Duration::from_hours(1)).await;
    assert_eq!(calls(), 1, "nothing was spooled");
    liveness.heartbeat(&id("r"), beat("b", 9, 1));
    advance(Duration::from_mins(3)).await;
    assert_eq!(calls(), 2);
    liveness.event(&id("r"), Some((boot("b"), 9)));
    assert_eq!(calls(), 2);
}

/// A watcher is replaced, another one the day after.
#[rstest]
#[case::nothing_was_spooled(0, 0)]
#[case::something_was(3, 1)]
#[tokio::test(start_paused = true)]
async fn a_rollout_calls_for_a_look_if_something_was_spooled(
    #[case] spooled: u64,
    #[case] expected: u64,
) {
    let liveness = remembering(10);
    liveness.heartbeat(&id("r"), beat("old", 5, spooled));
    advance(Duration::from_secs(20)).await;
    for watcher in ["new", "newer"] {
        for _ in 0..24 * 60 {
            liveness.heartbeat(&id("r"), beat(watcher, 0, 0));
            advance(HEARTBEAT_INTERVAL).await;
        }
        assert_eq!(only(&liveness).resyncs_needed, expected, "with {watcher}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_dropped_for_want_of_a_place_with_something_spooled_calls_for_a_look() {
    let liveness = remembering(10);
    liveness.heartbeat(&id("r"), beat("first", 5, 1));
    for life in 0..8 {
        liveness.heartbeat(&id("r"), beat(&format!("b{life}"), 0, 0));
        advance(Duration::from_secs(1)).await;
    }
    assert_eq!(only(&liveness).resyncs_needed, 1);
    advance(Duration::from_hours(1)).await;
    assert_eq!(only(&liveness).resyncs_needed, 1);
}

/// KCP was away from before the first change on, so no heartbeat could say that anything was spooled.
#[rstest]
#[case::both_are_back(&["a", "b"], 0)]
#[case::one_was_replaced(&["b", "c"], 1)]
#[case::one_was_replaced_and_comes_first(&["c", "b"], 1)]
#[tokio::test(start_paused = true)]
async fn a_watcher_that_is_replaced_while_it_is_not_heard_calls_for_a_look(
    #[case] back: &[&str],
    #[case] expected: u64,
) {
    let liveness = remembering(10);
    let beats = async |watchers: &[&str]| {
        for _ in 0..10 {
            for watcher in watchers {
                liveness.heartbeat(&id("r"), beat(watcher, 0, 0));
                advance(Duration::from_secs(5)).await;
            }
            advance(HEARTBEAT_INTERVAL).await;
        }
    };
    beats(&["a", "b"]).await;
    assert_eq!(only(&liveness).resyncs_needed, 0);
    advance(Duration::from_mins(10)).await;
    beats(back).await;
    assert_eq!(only(&liveness).resyncs_needed, expected);
    // A rollout while all is well.
    beats(&["x", "y"]).await;
    beats(&["z"]).await;
    assert_eq!(only(&liveness).resyncs_needed, expected);
}

#[tokio::test(start_paused = true)]
async fn replicas_are_counted_apart_and_a_restart_misses_nothing() {
    let liveness = remembering(10);
    for (watcher, number) in [("a", 1), ("b", 90), ("a", 2), ("b", 91), ("c", 1)] {
        liveness.event(&id("r"), Some((boot(watcher), number)));
    }
    let runtime = only(&liveness);
    assert_eq!(runtime.missing_events, 0);
    let watchers = runtime
        .watchers
        .iter()
        .map(|it| (it.boot_id.as_str(), it.sequence));
    assert_eq!(
        watchers.collect::<Vec<_>>(),
        [("a", 2), ("b", 91), ("c", 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_was_there_before_is_no_replacement() {
    let liveness = remembering(10);
    liveness.heartbeat(&id("r"), beat("a", 0, 0));
    advance(Duration::from_secs(5)).await;
    liveness.heartbeat(&id("r"), beat("b", 0, 0));
    advance(Duration::from_mins(10)).await;
    liveness.heartbeat(&id("r"), beat("c", 0, 0));
    assert_eq!(only(&liveness).resyncs_needed, 1);
}

#[tokio::test(start_paused = true)]
async fn each_watcher_says_how_long_ago_its_own_heartbeat_was() {
    let liveness = remembering(10);
    for watcher in ["a", "b"] {
        liveness.heartbeat(&id("r"), beat(watcher, 0, 0));
    }
    liveness.event(&id("r"), Some((boot("mute"), 1)));
    advance(Duration::from_mins(2)).await;
    liveness.heartbeat(&id("r"), beat("b", 0, 0));
    advance(Duration::from_mins(1)).await;
    // Of a heartbeat that is due an event tells nothing.
    liveness.event(&id("r"), Some((boot("a"), 1)));
    let runtime = only(&liveness);
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
async fn a_watcher_that_was_replaced_leaves_its_losses_behind() {
    let liveness = remembering(10);
    liveness.event(&id("r"), Some((boot("old"), 1)));
    liveness.event(&id("r"), Some((boot("old"), 3)));
    advance(Duration::from_mins(3)).await;
    liveness.heartbeat(&id("r"), beat("new", 0, 0));
    let runtime = only(&liveness);
    assert_eq!((runtime.missing_events, runtime.watchers.len()), (1, 1));
    assert_eq!(runtime.watchers[0].boot_id, boot("new"));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_in_a_crash_loop_takes_no_more_than_its_places() {
    let liveness = remembering(10);
    for life in 0..100 {
        liveness.heartbeat(&id("r"), beat(&format!("b{life}"), 0, 0));
        advance(Duration::from_secs(1)).await;
    }
    let watchers = only(&liveness).watchers;
    let boots: Vec<_> = watchers.iter().map(|it| it.boot_id.as_str()).collect();
    assert_eq!(boots, ["b96", "b97", "b98", "b99"]);
}

#[tokio::test(start_paused = true)]
async fn one_runtime_too_many_takes_the_place_of_the_quietest() {
    let liveness = remembering(2);
    for runtime in ["a", "b", "a", "c"] {
        liveness.heartbeat(&id(runtime), beat("b", 0, 0));
        advance(Duration::from_secs(1)).await;
    }
    let known: Vec<_> = liveness
        .snapshot()
        .into_iter()
        .map(|it| it.runtime_id)
        .collect();
    assert_eq!(known, [id("a"), id("c")]);
    assert_eq!(liveness.forgotten(), 1);
}
