//! Tests that only the leader writes. The Lease, which selects the leader, is not tested here.

use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::sleep;

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
async fn its_successor_signals_each_remaining_runtime_once() {
    let mut env = half_way(&NAMES).await;
    // KIM acknowledges some signals before, and some after the change of the leader.
    let first = env.signalled();
    env.take(&first[0], "annotations");
    env.kill().await;
    env.take(&first[1], "annotations");
    env.start().await;
    env.until_signalled(&NAMES).await;
    for name in NAMES {
        if env.keys(name).1 {
            env.take(name, "annotations");
        }
    }
    env.quiet().await;
    assert_eq!(env.signalled(), NAMES);
    assert_eq!(env.state()["baseline"], env.revision().as_str());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_what_is_under_way() {
    let mut env = half_way(&NAMES).await;
    let hold = env.kcp.fault("patch runtimes").hold();
    env.until("one is under way", Env::is_writing).await;
    let release = async {
        tokio::task::yield_now().await;
        drop(hold);
    };
    tokio::join!(env.stop(), release);
    assert!(!env.is_writing());
    let writes = env.writes().len();
    env.quiet().await;
    assert_eq!(env.writes().len(), writes);
}

/// The state is stored on the Runtimes, so each leader observes the writes of the other one.
#[tokio::test(start_paused = true)]
async fn runtimes_that_another_leader_signalled_by_mistake_are_not_signalled_again() {
    let env = half_way(&NAMES).await;
    let done = json!({"metadata": {"annotations": {REVISION: env.revision()}}});
    let first = env.signalled();
    for name in NAMES
        .iter()
        .filter(|it| !first.contains(&(**it).to_owned()))
    {
        env.kcp.merge("runtimes", name, &done);
    }
    env.quiet().await;
    assert_eq!(env.signalled(), first);
    assert!(env.readiness.is_ready(), "{:?}", env.readiness.report());
}

/// The first start saves the current sources as the baseline. The annotations of the Runtimes contain the revisions
/// with which they were signaled.
#[tokio::test(start_paused = true)]
async fn after_a_loss_of_the_state_only_runtimes_with_another_revision_are_signalled() {
    let mut env = Env::initialized(&["a", "b", "c"]).await;
    env.change("two.example");
    env.until_signalled(&["a", "b", "c"]).await;
    for name in ["a", "b", "c"] {
        env.take(name, "annotations");
    }
    env.quiet().await;
    env.stop().await;
    env.kcp.delete("configmaps", STATE);
    env.kcp.put(runtime("d"));
    let earlier = json!({"metadata": {"annotations": {REVISION: "0".repeat(64)}}});
    env.kcp.merge("runtimes", "b", &earlier);
    env.forget();
    env.start().await;
    env.until_signalled(&["b"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["b"]);
}

/// KIM may have copied the other content to Runtimes that were not signaled with it.
#[tokio::test(start_paused = true)]
async fn content_that_returns_during_a_pause_is_signalled_under_the_next_leader() {
    let mut env = Env::initialized(&["a", "b"]).await;
    env.pause(true);
    env.until("it is shown", |it| it.is_stopped("Paused")).await;
    let first = env.revision();
    env.change("two.example");
    env.until("it is saved", |it| it.revision() != first).await;
    env.change("one.example");
    env.quiet().await;
    env.kill().await;
    env.pause(false);
    env.start().await;
    env.until_signalled(&["a", "b"]).await;
}

const ROLLOUTS: &str = "runtimebootstrapperrollouts";

fn edit(env: &Env, status: &Value) {
    env.kcp
        .merge(ROLLOUTS, "signal", &json!({"status": status}));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_client_edits_or_deletes_is_written_again_once() {
    let env = Env::initialized(&["a"]).await;
    let before = env.status();
    let edits = [
        json!({"completedRevision": "0"}),
        json!({"failedRuntimes": ["a"], "runtimes": {"failed": 1}}),
        Value::Null,
    ];
    for status in &edits {
        env.forget();
        edit(&env, status);
        assert_ne!(env.status(), before);
        env.quiet().await;
        assert_eq!(env.status(), before);
        assert_eq!(env.kcp.writes_of(ROLLOUTS).len(), 1);
    }
    env.kcp.delete(ROLLOUTS, "signal");
    env.quiet().await;
    assert_eq!(env.status()["revision"], before["revision"]);
}

#[tokio::test(start_paused = true)]
async fn another_writer_of_the_status_causes_a_write_per_second() {
    let env = Env::initialized(&["a"]).await;
    let before = env.status();
    env.forget();
    for number in 0..600 {
        edit(&env, &json!({"completedRevision": number.to_string()}));
        sleep(Duration::from_millis(100)).await;
    }
    let writes = env.kcp.writes_of(ROLLOUTS).len();
    assert!((50..=60).contains(&writes), "{writes}");
    env.quiet().await;
    assert_eq!(env.status(), before);
}
