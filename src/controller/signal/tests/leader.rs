//! One writes, and only as long as it leads. Who leads is the Lease's affair.

use serde_json::json;
use std::num::NonZeroU32;

use super::env::*;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

async fn half_way(names: &[&str]) -> Env {
    let mut env = Env::new(names);
    env.settings.per_second = NonZeroU32::MIN;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until("half of them", |it| {
        it.signals().len() == 3 && !it.is_writing()
    })
    .await;
    env
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_its_lease_writes_nothing_more() {
    let mut env = half_way(&NAMES).await;
    let writes = env.writes().len();
    env.kill().await;
    env.change("three.example");
    env.quiet().await;
    assert_eq!(env.writes().len(), writes);
    assert!(env.metric("signal_pending_runtimes", 0));
}

#[tokio::test(start_paused = true)]
async fn its_successor_continues_and_signals_all_runtimes() {
    let mut env = half_way(&NAMES).await;
    env.kill().await;
    env.start().await;
    env.quiet().await;
    for name in NAMES {
        assert!(env.keys(name).1, "{name}");
    }
    // What stood already is not written again.
    assert_eq!(env.signals().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_is_under_way_and_stores_it() {
    let mut env = half_way(&NAMES).await;
    env.stop().await;
    let record = env.record();
    let count = |key: &str| {
        let names = record.iter().find(|(it, _)| it == key);
        names.map_or(0, |(_, names)| names.split(' ').count())
    };
    assert_eq!(
        (count("signal.unacknowledged"), count("signal.pending")),
        (3, 3),
        "{record:?}"
    );
    let writes = env.writes().len();
    env.quiet().await;
    assert_eq!(env.writes().len(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_second_leader_by_mistake_is_stopped_by_the_record() {
    let names: Vec<String> = (0..40).map(|index| format!("runtime-{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let env = half_way(&names).await;
    // Another one has done the rest meanwhile and written so: what this one knew is void.
    let done = json!({"data": {"signal.pending": null, "signal.unacknowledged": null}});
    env.kcp.merge("configmaps", RECORD, &done);
    env.quiet().await;
    let signals = env.signals().len();
    assert!(signals < 12, "{signals}");
    assert!(env.record().is_empty());
    assert!(env.readiness.is_ready(), "{:?}", env.readiness.report());
}
