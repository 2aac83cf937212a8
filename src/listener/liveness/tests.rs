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
