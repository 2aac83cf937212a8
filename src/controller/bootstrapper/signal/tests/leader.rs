//! One writes, and only as long as it leads. Who leads is the Lease's affair.

use serde_json::json;
use std::num::NonZeroU32;

use super::world::*;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

async fn half_way(names: &[&str]) -> World {
    let mut world = World::new(names);
    world.settings.per_second = NonZeroU32::MIN;
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world
        .until("half of them", |it| {
            it.signals().len() == 3 && !it.kcp.is_writing()
        })
        .await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_its_lease_writes_nothing_more() {
    let mut world = half_way(&NAMES).await;
    let writes = world.kcp.lock().writes.len();
    world.kill().await;
    world.change("three.example");
    world.quiet().await;
    assert_eq!(world.kcp.lock().writes.len(), writes);
    assert!(world.metric("signal_pending_runtimes 0"));
}

#[tokio::test(start_paused = true)]
async fn its_successor_goes_on_and_signals_everybody() {
    let mut world = half_way(&NAMES).await;
    world.kill().await;
    world.start().await;
    world.quiet().await;
    for name in NAMES {
        assert!(world.keys(name).1, "{name}");
    }
    // What stood already is not written again.
    assert_eq!(world.signals().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_is_under_way_and_stores_it() {
    let mut world = half_way(&NAMES).await;
    world.stop().await;
    let record = world.record();
    let count = |key: &str| {
        let names = record.iter().find(|(it, _)| it == key);
        names.map_or(0, |(_, names)| names.split(' ').count())
    };
    assert_eq!(
        (count("signal.unacknowledged"), count("signal.pending")),
        (3, 3),
        "{record:?}"
    );
    let writes = world.kcp.lock().writes.len();
    world.quiet().await;
    assert_eq!(world.kcp.lock().writes.len(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_second_leader_by_mistake_is_stopped_by_the_record() {
    let names: Vec<String> = (0..40).map(|index| format!("runtime-{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = half_way(&names).await;
    // Another one has done the rest meanwhile and written so: what this one knew is void.
    let done = json!({"data": {"signal.pending": null, "signal.unacknowledged": null}});
    world.kcp.merge("configmaps", RECORD, &done);
    world.quiet().await;
    let signals = world.signals().len();
    assert!(signals < 12, "{signals}");
    assert!(world.record().is_empty());
    assert!(world.readiness.is_ready(), "{:?}", world.readiness.report());
}
