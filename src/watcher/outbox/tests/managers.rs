//! Tests of the managers whose events are stored, with restarts and many invented names.

use rstest::rstest;

use super::disk::FakeDisk;
use super::fixture::{Fixture, Settings, manager, settings};
use crate::outbox::{Dropped, Item, Limits, Managers, Settlement, Stored};

/// Maximum number of registered managers without a configuration.
const CAPACITY: usize = 32;

fn taken(fixture: &Fixture) -> Vec<String> {
    let items = fixture.outbox.take(fixture.now, usize::MAX);
    let names = items.iter().map(|Item { manager, event, .. }| {
        let object = &event.watched.name;
        format!("{manager}/{object}")
    });
    names.collect()
}

fn receivers(fixture: &Fixture) -> Vec<String> {
    let receivers = fixture.outbox.receivers().into_iter();
    receivers
        .map(|receiver| receiver.name.to_string())
        .collect()
}

/// The spool of an earlier release, or of a process without configured managers.
#[test]
fn configured_managers_keep_their_places_after_a_kill_with_a_spool_full_of_other_names() {
    let mut fixture = Fixture::new();
    for number in 0..1_216 {
        if number % CAPACITY == 0 {
            fixture.pass(60);
        }
        assert_eq!(fixture.put(&format!("m{number}"), 1), Stored::Spooled);
    }
    assert_eq!(fixture.put("lifecycle-manager", 1), Stored::TooManyManagers);
    fixture.pass(60);
    assert_eq!(fixture.put("lifecycle-manager", 1), Stored::Spooled);
    fixture.configure(&["lifecycle-manager", "other"]);
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.unusable), (1, None));
    let dropped = fixture.outbox.report(fixture.now).dropped;
    assert_eq!(recovered.dropped, dropped.total());
    assert_eq!(
        dropped,
        Dropped {
            manager_not_configured: 1_216,
            ..Dropped::default()
        }
    );
    assert_eq!(receivers(&fixture), ["lifecycle-manager", "other"]);
    assert_eq!(fixture.put("lifecycle-manager", 2), Stored::Spooled);
    assert_eq!(fixture.put("m1", 1), Stored::NotConfigured);
    assert_eq!(
        taken(&fixture),
        ["lifecycle-manager/1", "lifecycle-manager/2"]
    );
    // The events are not on the disk anymore either.
    assert_eq!(fixture.kill().dropped, 0);
}

/// Managers that lost events by evictions are managers that are not configured.
#[test]
fn a_manager_that_is_configured_anew_is_asked_for_a_resync_if_events_of_unknown_managers_were_lost()
{
    let mut fixture = Fixture::new();
    for number in 0..=CAPACITY {
        let _ = fixture.put(&format!("m{number}"), 1);
    }
    fixture.configure(&["m1", "new"]);
    let recovered = fixture.kill();
    assert!(recovered.resync);
    assert!(fixture.lost("new"));
    let report = fixture.outbox.manager_report(&manager("new"), fixture.now);
    let mark = report.resync.unwrap();
    fixture
        .outbox
        .resync_reported(&manager("new"), mark, fixture.now);
    fixture.kill();
    assert!(!fixture.lost("new"));
}

#[test]
fn of_more_managers_than_fit_the_least_recently_used_is_evicted() {
    let mut fixture = Fixture::new();
    for number in 0..CAPACITY {
        assert_eq!(fixture.put(&format!("m{number}"), 1), Stored::Spooled);
    }
    fixture.pass(59);
    assert_eq!(fixture.put("late", 1), Stored::TooManyManagers);
    fixture.pass(1);
    // A change of an object that already waits also counts as use.
    assert_eq!(fixture.put("m0", 1), Stored::Coalesced);
    assert_eq!(fixture.put("late", 1), Stored::Spooled);
    let report = fixture.outbox.report(fixture.now);
    assert_eq!(report.depth, CAPACITY);
    // One event found no capacity, and one event belonged to the evicted manager.
    assert_eq!(report.dropped.too_many_managers, 2);
    let left = taken(&fixture);
    assert!(left.contains(&"m0/1".to_owned()) && left.contains(&"late/1".to_owned()));
    assert!(!left.contains(&"m1/1".to_owned()), "{left:?}");
    assert!(fixture.lost("m1"));
    assert!(!fixture.lost("m0") && !fixture.lost("m2"));
    // The manager gets a request for a resync after it is registered again.
    fixture.pass(60);
    assert_eq!(fixture.put("m1", 1), Stored::Spooled);
    assert!(receivers(&fixture).contains(&"m1".to_owned()));
}

/// The state after a period without a valid certificate, in which no review arrived.
#[test]
fn a_time_without_reviews_requires_a_resync_of_every_manager_in_the_next_process_too() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    fixture.deliver_twice();
    fixture.outbox.mark_all_lost(fixture.now);
    assert!(fixture.lost("a") && fixture.lost("further"));
    let a = manager("a");
    let report = fixture.outbox.manager_report(&a, fixture.now);
    let outbox = &fixture.outbox;
    outbox.resync_reported(&a, report.resync.unwrap(), fixture.now);
    // The put waits until the earlier records are on the disk.
    let _ = fixture.put("a", 2);
    fixture.kill();
    assert_eq!((fixture.lost("a"), fixture.lost("further")), (false, true));
}

/// The admission of a change precedes its storage. A later loss for another reason does not shorten the time.
#[test]
fn a_resync_before_the_change_may_be_stored_is_repeated() {
    let mut fixture = Fixture::new();
    let a = manager("a");
    fixture.outbox.set_watching(&[], fixture.now);
    fixture
        .outbox
        .set_watching(std::slice::from_ref(&a), fixture.now);
    fixture.outbox.mark_unread(&a, fixture.now);
    fixture.outbox.mark_all_lost(fixture.now);
    for (seconds, expected) in [(0, true), (4, true), (1, false)] {
        fixture.pass(seconds);
        let mark = fixture.outbox.manager_report(&a, fixture.now).resync;
        let outbox = &fixture.outbox;
        outbox.resync_reported(&a, mark.unwrap(), fixture.now);
        assert_eq!(fixture.lost("a"), expected);
    }
}

/// The manager has acknowledged the loss of all managers in an earlier process, and has a loss of its own now.
#[test]
fn a_later_loss_of_a_manager_survives_a_compaction() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("a", 1);
    fixture.outbox.mark_all_lost(fixture.now);
    let a = manager("a");
    let mark = fixture.outbox.manager_report(&a, fixture.now).resync;
    fixture
        .outbox
        .resync_reported(&a, mark.unwrap(), fixture.now);
    // The put waits until the earlier records are on the disk.
    let _ = fixture.put("a", 2);
    fixture.kill();
    assert!(!fixture.lost("a"));
    fixture
        .outbox
        .set_watching(std::slice::from_ref(&a), fixture.now);
    fixture.outbox.mark_unread(&a, fixture.now);
    assert!(fixture.lost("a"));
    fixture.compact();
    fixture.kill();
    assert!(fixture.lost("a"));
}

/// A loss of an unregistered manager is spooled as a loss of all managers, until a compaction records the managers without
/// a loss.
#[test]
fn after_a_compaction_the_loss_of_evicted_managers_concerns_no_registered_one_in_the_next_life() {
    let mut fixture = Fixture::new();
    for number in 0..CAPACITY {
        let _ = fixture.put(&format!("m{number}"), 1);
    }
    assert_eq!(fixture.put("late", 1), Stored::TooManyManagers);
    fixture.compact();
    for _ in 0..2 {
        fixture.kill();
        assert!(fixture.lost("late"));
        assert!(!fixture.lost("m0") && !fixture.lost("m31"));
    }
}

/// KCP accepts only events of its own managers.
#[test]
fn a_manager_that_has_taken_an_event_is_not_evicted_by_one_that_has_not() {
    let mut fixture = Fixture::new();
    let _ = fixture.put("real", 1);
    fixture.deliver_twice();
    for number in 0..1_000 {
        fixture.pass(60);
        let _ = fixture.put(&format!("m{number}"), 1);
    }
    assert_eq!(receivers(&fixture)[0], "real");
    assert!(!fixture.lost("real"));
    assert_eq!(fixture.put("real", 2), Stored::Spooled);
}

/// After a restart during an outage, the stored events of the manager would be dropped.
#[test]
fn a_manager_that_has_a_watcher_is_not_evicted_by_invented_ones() {
    let mut fixture = Fixture::new();
    let real = manager("real");
    fixture.outbox.set_watching(&[real], fixture.now);
    let _ = fixture.put("real", 1);
    for number in 0..100 {
        fixture.pass(60);
        let _ = fixture.put(&format!("m{number}"), 1);
    }
    assert!(!fixture.lost("real"));
    assert_eq!(fixture.put("real", 1), Stored::Coalesced);
}

#[test]
fn of_managers_that_have_all_taken_events_the_least_recently_used_is_evicted() {
    let mut fixture = Fixture::new();
    for number in 0..CAPACITY {
        let _ = fixture.put(&format!("m{number}"), 1);
    }
    fixture.deliver_twice();
    fixture.pass(60);
    let _ = fixture.put("m0", 1);
    assert_eq!(fixture.put("late", 1), Stored::Spooled);
    let receivers = receivers(&fixture);
    assert!(receivers.contains(&"m0".to_owned()) && !receivers.contains(&"m1".to_owned()));
    // No event of the manager was pending, so no event is lost.
    assert!(!fixture.lost("m1"));
}

/// A request is in progress when its manager is evicted. Its result is ignored.
#[test]
fn an_event_under_way_of_an_evicted_manager_changes_nothing_when_it_comes_back() {
    let mut fixture = Fixture::new();
    for number in 0..CAPACITY {
        let _ = fixture.put(&format!("m{number}"), 1);
    }
    let items = fixture.outbox.take(fixture.now, usize::MAX);
    fixture.pass(60);
    for item in &items[1..] {
        fixture.outbox.failed(item, fixture.now);
    }
    assert_eq!(fixture.put("late", 1), Stored::Spooled);
    fixture.outbox.delivered(&items[0], fixture.now);
    fixture.outbox.failed(&items[0], fixture.now);
    assert_eq!(fixture.outbox.report(fixture.now).depth, CAPACITY);
    assert_eq!(taken(&fixture).len(), CAPACITY);
}

/// Memory, evictions and heartbeats are limited, for any number of invented names.
#[test]
fn a_flood_of_names_registers_a_bounded_number_a_minute() {
    let mut fixture = Fixture::new();
    let mut registered = 0;
    for number in 0..6_000 {
        if number % 1_000 == 0 {
            fixture.pass(60);
        }
        let stored = fixture.put(&format!("m{number}"), 1);
        registered += usize::from(stored == Stored::Spooled);
        assert!(fixture.outbox.receivers().len() <= CAPACITY);
        assert!(fixture.outbox.report(fixture.now).depth <= CAPACITY);
    }
    assert_eq!(registered, 6 * CAPACITY);
    assert_eq!(
        fixture.outbox.managers(Managers::evictions),
        5 * CAPACITY as u64
    );
}

/// Puts events of further objects until one is not stored. Returns the number of those before it.
fn fill(fixture: &mut Fixture, name: &str) -> usize {
    let mut numbers = 100_000..110_000;
    let stored = numbers
        .by_ref()
        .take_while(|it| fixture.put(name, *it) == Stored::Spooled);
    let count = stored.count();
    assert!(!numbers.is_empty(), "everything is stored");
    count
}

/// Any client in the cluster can post reviews for any manager.
#[rstest]
#[case::objects(Limits { keys: 400, ..Limits::WATCHER })]
#[case::memory(Limits { memory: 100_000, ..Limits::WATCHER })]
#[case::disk(Limits::WATCHER)]
fn invented_managers_fill_a_quarter_and_new_objects_of_others_are_stored(#[case] limits: Limits) {
    let limited = Settings {
        limits,
        ..settings()
    };
    let mut fixture = Fixture::with(FakeDisk::default(), limited);
    let _ = fixture.put("real", 1);
    fixture.deliver_twice();
    let watched = manager("watched");
    let outbox = &fixture.outbox;
    outbox.set_watching(std::slice::from_ref(&watched), fixture.now);
    let invented = fill(&mut fixture, "invented");
    assert_eq!(fill(&mut fixture, "also-invented"), 0);
    assert!(fixture.lost("invented") && !fixture.lost("real"));
    assert_eq!(fixture.put("watched", 1), Stored::Spooled);
    let real = fill(&mut fixture, "real");
    assert!(invented > 50, "{invented}");
    assert!(
        (5 * invented / 2..=7 * invented / 2).contains(&real),
        "{real} and {invented}"
    );
    let items = fixture.outbox.take(fixture.now, usize::MAX);
    let item = items.iter().find(|it| it.manager == manager("invented"));
    fixture
        .outbox
        .settle(item.unwrap(), Settlement::DropAll, fixture.now);
    assert!((1..=invented).contains(&fill(&mut fixture, "also-invented")));
}

/// No manager has accepted an event of the new process yet.
#[test]
fn a_restart_keeps_more_events_than_invented_managers_could_store() {
    let limited = Settings {
        limits: Limits {
            keys: 40,
            ..Limits::WATCHER
        },
        ..settings()
    };
    let mut fixture = Fixture::with(FakeDisk::default(), limited);
    fixture.outbox.took(&manager("real"), fixture.now);
    for number in 0..20 {
        assert_eq!(fixture.put("real", number), Stored::Spooled);
    }
    let recovered = fixture.kill();
    assert_eq!((recovered.items, recovered.resync), (20, false));
    assert_eq!(fixture.put("real", 19), Stored::Coalesced);
    assert_eq!(fixture.put("real", 20), Stored::Full);
    let real = manager("real");
    let outbox = &fixture.outbox;
    outbox.set_watching(std::slice::from_ref(&real), fixture.now);
    assert_eq!(fixture.put("real", 20), Stored::Spooled);
}
