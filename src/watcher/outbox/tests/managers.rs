//! Which managers events are kept for, over restarts and floods of invented names.

use super::world::World;
use crate::outbox::{Dropped, Item, Stored};

/// So many managers have a place where none are configured.
const CAPACITY: usize = 32;

fn taken(world: &World) -> Vec<String> {
    let items = world.outbox.take(world.now, usize::MAX);
    let names = items.iter().map(|Item { manager, event, .. }| {
        let object = &event.watched.name;
        format!("{manager}/{object}")
    });
    names.collect()
}

fn receivers(world: &World) -> Vec<String> {
    let receivers = world.outbox.receivers().into_iter();
    receivers
        .map(|receiver| receiver.name.to_string())
        .collect()
}

/// What an earlier release, or a life without configured managers, has left.
#[test]
fn configured_managers_keep_their_places_after_a_kill_with_a_spool_full_of_other_names() {
    let mut world = World::new();
    for number in 0..1_216 {
        if number % CAPACITY == 0 {
            world.pass(60);
        }
        assert_eq!(world.put(&format!("m{number}"), 1), Stored::Spooled);
    }
    assert_eq!(world.put("lifecycle-manager", 1), Stored::TooManyManagers);
    world.pass(60);
    assert_eq!(world.put("lifecycle-manager", 1), Stored::Spooled);
    world.configure(&["lifecycle-manager", "other"]);
    let recovered = world.kill();
    assert_eq!((recovered.items, recovered.unusable), (1, None));
    let dropped = world.outbox.report(world.now).dropped;
    assert_eq!(recovered.dropped, dropped.total());
    assert_eq!(
        dropped,
        Dropped {
            manager_not_configured: 1_216,
            ..Dropped::default()
        }
    );
    assert_eq!(receivers(&world), ["lifecycle-manager", "other"]);
    assert_eq!(world.put("lifecycle-manager", 2), Stored::Spooled);
    assert_eq!(world.put("m1", 1), Stored::NotConfigured);
    assert_eq!(
        taken(&world),
        ["lifecycle-manager/1", "lifecycle-manager/2"]
    );
    // They are not on the disk any more, either.
    assert_eq!(world.kill().dropped, 0);
}

/// The managers that lost events by evictions are those that are not configured.
#[test]
fn a_manager_that_is_configured_anew_is_asked_for_a_resync_if_events_of_unknown_managers_were_lost()
{
    let mut world = World::new();
    for number in 0..=CAPACITY {
        let _ = world.put(&format!("m{number}"), 1);
    }
    world.configure(&["m1", "new"]);
    let recovered = world.kill();
    assert!(recovered.resync);
    assert!(world.lost("new"));
    let report = world
        .outbox
        .manager_report(&super::manager("new"), world.now);
    let mark = report.resync.unwrap();
    world
        .outbox
        .resync_told(&super::manager("new"), mark, world.now);
    world.kill();
    assert!(!world.lost("new"));
}

#[test]
fn of_more_managers_than_there_is_room_for_the_least_recently_used_is_evicted() {
    let mut world = World::new();
    for number in 0..CAPACITY {
        assert_eq!(world.put(&format!("m{number}"), 1), Stored::Spooled);
    }
    world.pass(59);
    assert_eq!(world.put("late", 1), Stored::TooManyManagers);
    world.pass(1);
    // A change of an object that waits is use, too.
    assert_eq!(world.put("m0", 1), Stored::Coalesced);
    assert_eq!(world.put("late", 1), Stored::Spooled);
    let report = world.outbox.report(world.now);
    assert_eq!(report.depth, CAPACITY);
    // One that found no room, and one that made room.
    assert_eq!(report.dropped.too_many_managers, 2);
    let left = taken(&world);
    assert!(left.contains(&"m0/1".to_owned()) && left.contains(&"late/1".to_owned()));
    assert!(!left.contains(&"m1/1".to_owned()), "{left:?}");
    assert!(world.lost("m1"));
    assert!(!world.lost("m0") && !world.lost("m2"));
    // It is asked for a resync when it is back.
    world.pass(60);
    assert_eq!(world.put("m1", 1), Stored::Spooled);
    assert!(receivers(&world).contains(&"m1".to_owned()));
}

/// What the spool says of managers that are not registered it says of all, until a compaction names those that know.
#[test]
fn after_a_compaction_the_loss_of_evicted_managers_concerns_no_registered_one_in_the_next_life() {
    let mut world = World::new();
    for number in 0..CAPACITY {
        let _ = world.put(&format!("m{number}"), 1);
    }
    assert_eq!(world.put("late", 1), Stored::TooManyManagers);
    world.compact();
    for _ in 0..2 {
        world.kill();
        assert!(world.lost("late"));
        assert!(!world.lost("m0") && !world.lost("m31"));
    }
}

/// KCP takes events of its own managers only.
#[test]
fn a_manager_that_has_taken_an_event_is_not_evicted_by_one_that_has_not() {
    let mut world = World::new();
    let _ = world.put("real", 1);
    world.deliver_twice();
    for number in 0..1_000 {
        world.pass(60);
        let _ = world.put(&format!("m{number}"), 1);
    }
    assert_eq!(receivers(&world)[0], "real");
    assert!(!world.lost("real"));
    assert_eq!(world.put("real", 2), Stored::Spooled);
}

#[test]
fn of_managers_that_have_all_taken_events_the_least_recently_used_is_evicted() {
    let mut world = World::new();
    for number in 0..CAPACITY {
        let _ = world.put(&format!("m{number}"), 1);
    }
    world.deliver_twice();
    world.pass(60);
    let _ = world.put("m0", 1);
    assert_eq!(world.put("late", 1), Stored::Spooled);
    let receivers = receivers(&world);
    assert!(receivers.contains(&"m0".to_owned()) && !receivers.contains(&"m1".to_owned()));
    // Nothing of it waited, so nothing is lost.
    assert!(!world.lost("m1"));
}

/// A post that is under way when its manager is evicted comes back to nothing.
#[test]
fn an_event_under_way_of_an_evicted_manager_changes_nothing_when_it_comes_back() {
    let mut world = World::new();
    for number in 0..CAPACITY {
        let _ = world.put(&format!("m{number}"), 1);
    }
    let items = world.outbox.take(world.now, usize::MAX);
    world.pass(60);
    for item in &items[1..] {
        world.outbox.failed(item, world.now);
    }
    assert_eq!(world.put("late", 1), Stored::Spooled);
    world.outbox.delivered(&items[0], world.now);
    world.outbox.failed(&items[0], world.now);
    assert_eq!(world.outbox.report(world.now).depth, CAPACITY);
    assert_eq!(taken(&world).len(), CAPACITY);
}

/// However many names are invented, memory, evictions and heartbeats are bounded.
#[test]
fn a_flood_of_names_registers_a_bounded_number_a_minute() {
    let mut world = World::new();
    let mut registered = 0;
    for number in 0..6_000 {
        if number % 1_000 == 0 {
            world.pass(60);
        }
        let stored = world.put(&format!("m{number}"), 1);
        registered += usize::from(stored == Stored::Spooled);
        assert!(world.outbox.receivers().len() <= CAPACITY);
        assert!(world.outbox.report(world.now).depth <= CAPACITY);
    }
    assert_eq!(registered, 6 * CAPACITY);
    assert_eq!(world.outbox.evictions(), 5 * CAPACITY as u64);
}
