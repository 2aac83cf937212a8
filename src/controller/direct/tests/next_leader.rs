//! Tests of failures of runtimes that only the status of the rollout shows to the next leader.

use serde_json::json;

use super::env::*;
use super::failures::{is_stopped, steps, upgrade};
use super::gates::{CONFIGURATION_LANE, WEBHOOK_LANE, one_by_one, pause, progress, set_paused};

/// Otherwise each deletion would let the next leader upgrade one more runtime.
#[tokio::test]
async fn a_failed_runtime_that_was_deleted_and_created_again_starts_no_other_under_the_next_leader()
{
    let (mut env, first, second) = steps(0, None).await;
    let refusal = first.refuse(INSTALL[5], 422);
    upgrade(&mut env).await;
    env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
        .await;
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("reported", |it| {
        let status = progress(it, WEBHOOK_LANE).to_string();
        status.contains("1 of them were deleted since")
    })
    .await;
    env.until("deleted", |it| {
        it.kcp.object("runtimebootstrappers", "a").is_none()
    })
    .await;
    refusal.stop();
    env.kcp.put(bootstrapper("a", &json!({})));
    env.until_ready("a").await;
    env.stop().await;
    env.start();
    env.until_ready("a").await;
    env.until_passes(2).await;
    env.settle().await;
    assert_eq!(second.take(), [""; 0]);
    let status = progress(&env, WEBHOOK_LANE);
    assert_eq!(status["failedRuntimes"], json!(["a"]));
    assert!(is_stopped(&env, WEBHOOK_LANE), "{status}");
    pause(&env, WEBHOOK_LANE).await;
    set_paused(&env, WEBHOOK_LANE, false);
    env.until("the second one", |_| second.answered(INSTALL[5]))
        .await;
}

/// The status of the runtime has no revision, because nothing of the webhook was written.
#[tokio::test]
async fn a_failed_first_installation_is_tried_again_under_the_next_leader() {
    let mut env = Env::new();
    env.settings.rollouts.webhook = one_by_one(&env.settings.rollouts.webhook, 0);
    let clusters = env.add_all(&["a", "b"]).await;
    let refusal = clusters[0].refuse(INSTALL[1], 422);
    env.start();
    env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
        .await;
    env.stop().await;
    env.start();
    env.until_passes(2).await;
    assert!(is_stopped(&env, WEBHOOK_LANE));
    assert!(!clusters[1].answered(INSTALL[5]));
    refusal.stop();
    env.until_ready("a").await;
    env.until_ready("b").await;
}

/// The status of the runtime shows a part of the configuration, and no failure.
#[tokio::test]
async fn a_runtime_that_is_lost_while_its_configuration_is_written_is_a_failure_for_the_next_leader()
 {
    let (mut env, first, second) = steps(0, None).await;
    let _refusal = first.refuse(INSTALL[4], 503);
    env.content.password = Some("two");
    env.content.registry("two.example");
    env.publish();
    env.until("a part is written", |_| first.answered(INSTALL[2]))
        .await;
    first.outage(503);
    env.until("stopped", |it| is_stopped(it, CONFIGURATION_LANE))
        .await;
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    env.stop().await;
    env.start();
    env.until_passes(4).await;
    assert_eq!(second.take(), [""; 0]);
    let status = progress(&env, CONFIGURATION_LANE);
    assert!(is_stopped(&env, CONFIGURATION_LANE), "{status}");
}
