//! Tests of the failures that count against the failure limit of a rollout, and of causes that could delay a step permanently.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use policy::sync::Lane;
use rstest::rstest;
use serde_json::json;

use super::env::*;
use super::gates::{
    CONFIGURATION_LANE, WEBHOOK_LANE, count, is_completed, one_by_one, pause, progress, set_paused,
    stopped,
};
use crate::runtime_cluster::{RESET, RuntimeCluster};

/// A deadline that exceeds every reconcile here, and is short enough for a test to wait for it.
const SHORT: Duration = Duration::from_millis(600);

/// Returns two converged runtimes with one rollout step for each.
pub(super) async fn steps(
    allowed: u32,
    deadline: Option<Duration>,
) -> (Env, RuntimeCluster, RuntimeCluster) {
    let mut env = Env::new();
    for lane in Lane::ALL {
        let settings = env.settings.rollouts.get_mut(lane);
        *settings = one_by_one(settings, allowed);
    }
    let mut clusters = env.converge(&["a", "b"]).await;
    if let Some(deadline) = deadline {
        // Converging on a busy machine can take longer than the deadline.
        env.stop().await;
        for lane in Lane::ALL {
            env.settings.rollouts.get_mut(lane).deadline = deadline;
        }
        env.start();
        env.settle().await;
    }
    let second = clusters.pop().unwrap();
    (env, clusters.pop().unwrap(), second)
}

pub(super) fn is_stopped(env: &Env, lane: &str) -> bool {
    stopped(env, lane) == "FailureLimitExceeded"
}

async fn until_tried(env: &Env, cluster: &RuntimeCluster, write: &str, times: usize) {
    env.until("tried again and again", |_| cluster.count(write) >= times)
        .await;
}

/// Restarts the controller with the next image.
pub(super) async fn upgrade(env: &mut Env) {
    env.until("the first rollout is completed", |it| {
        is_completed(it, WEBHOOK_LANE)
    })
    .await;
    env.stop().await;
    env.image = super::gates::NEXT_IMAGE.to_owned();
    env.start();
}

#[rstest]
#[case::conflict(409)]
#[case::throttled(429)]
#[case::internal(500)]
#[case::unavailable(503)]
#[case::reset(RESET)]
#[tokio::test]
async fn a_write_that_may_succeed_later_is_no_failure(#[case] status: u16) {
    let (mut env, first, second) = steps(0, None).await;
    let refusal = first.refuse(INSTALL[4], status);
    env.content.registry("two.example");
    env.publish();
    until_tried(&env, &first, INSTALL[4], 5).await;
    env.until("the first one is progressing", |it| {
        count(it, CONFIGURATION_LANE, "progressing") == 1
    })
    .await;
    assert_eq!(stopped(&env, CONFIGURATION_LANE), "");
    assert_eq!(second.take(), [""; 0]);
    refusal.stop();
    env.until("the second step", |_| second.take() == [INSTALL[4]])
        .await;
}

/// The API server responds with 409 if the object changed since it was read.
#[tokio::test]
async fn a_transfer_that_came_too_late_is_no_failure() {
    const TRANSFER: &str = "patch configmaps kyma-system/rt-bootstrapper-config";
    let (mut env, first, second) = steps(0, None).await;
    first.refuse(TRANSFER, 409);
    first.change(DOCUMENT, |it| {
        it["metadata"]["managedFields"] = json!([{
            "manager": "kim-bootstrapper", "operation": "Update", "apiVersion": "v1", "fieldsV1": {},
        }]);
    });
    env.content.registry("two.example");
    env.publish();
    until_tried(&env, &first, TRANSFER, 5).await;
    env.until("the first one is progressing", |it| {
        count(it, CONFIGURATION_LANE, "progressing") == 1
    })
    .await;
    assert_eq!(stopped(&env, CONFIGURATION_LANE), "");
    assert_eq!(second.take(), [""; 0]);
}

#[tokio::test]
async fn a_write_that_never_succeeds_fails_at_the_deadline() {
    let (mut env, first, second) = steps(0, Some(SHORT)).await;
    let refusal = first.refuse(INSTALL[4], 429);
    let since = Instant::now();
    env.content.registry("two.example");
    env.publish();
    env.until("stopped", |it| is_stopped(it, CONFIGURATION_LANE))
        .await;
    assert!(since.elapsed() >= SHORT, "{:?}", since.elapsed());
    assert_eq!(second.take(), [""; 0]);
    refusal.stop();
    env.until("the second step", |_| second.take() == [INSTALL[4]])
        .await;
}

#[tokio::test]
async fn pods_that_do_not_come_up_fail_at_the_deadline() {
    let (mut env, first, second) = steps(1, Some(SHORT)).await;
    first.stop_rollouts();
    upgrade(&mut env).await;
    // One failure is allowed, so the second step starts. Without a deadline it would wait permanently.
    env.until("the second step", |_| second.answered(INSTALL[5]))
        .await;
    let is_failed = |it: &Env| progress(it, WEBHOOK_LANE)["failedRuntimes"] == json!(["a"]);
    env.until("the first one failed", is_failed).await;
    first.roll_out();
    env.until("done after all", |it| count(it, WEBHOOK_LANE, "done") == 2)
        .await;
}

#[tokio::test]
async fn a_runtime_that_the_control_plane_keeps_from_being_reconciled_does_not_delay_a_step_permanently()
 {
    let (mut env, first, second) = steps(1, Some(SHORT)).await;
    let kubeconfig = "get secrets kcp-system/kubeconfig-id-a";
    let refusal = env.kcp.fault(kubeconfig).status(500);
    env.content.registry("two.example");
    env.publish();
    env.until("the second step", |_| second.take() == [INSTALL[4]])
        .await;
    assert_eq!(first.take(), [""; 0]);
    let is_failed = |it: &Env| progress(it, CONFIGURATION_LANE)["failedRuntimes"] == json!(["a"]);
    env.until("the first one failed", is_failed).await;
    refusal.stop();
    env.until("done after all", |it| {
        count(it, CONFIGURATION_LANE, "done") == 2
    })
    .await;
}

/// The upgrade itself may have caused the outage of the API server.
#[tokio::test]
async fn a_runtime_that_is_lost_after_it_was_written_is_a_failure_also_for_the_next_leader() {
    let (mut env, first, second) = steps(0, None).await;
    first.stop_rollouts();
    // The Deployment is written, and all later requests fail.
    let outage = Arc::new(OnceLock::new());
    let begun = Arc::clone(&outage);
    let write = first.fault(INSTALL[5]).times(1);
    let written = write.before(move |server| {
        let others = server.fault("get|list|create|patch|delete");
        begun.set(others.status(503)).unwrap();
    });
    upgrade(&mut env).await;
    env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
        .await;
    assert_eq!(written.hits(), 1);
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    assert_eq!(second.take(), [""; 0]);
    env.stop().await;
    env.start();
    env.until_passes(5).await;
    assert_eq!(second.take(), [""; 0]);
    // The failure also remains after a change of the configuration.
    let before = progress(&env, CONFIGURATION_LANE)["revision"].clone();
    env.content.registry("two.example");
    env.publish();
    let is_another = |it: &Env| progress(it, CONFIGURATION_LANE)["revision"] != before;
    env.until("another rollout", is_another).await;
    assert!(
        is_stopped(&env, WEBHOOK_LANE),
        "{}",
        progress(&env, WEBHOOK_LANE)
    );
    assert!(!second.answered(INSTALL[5]));
    outage.get().unwrap().stop();
    first.roll_out();
    env.until("the second step", |_| second.answered(INSTALL[5]))
        .await;
}

/// Upgrades the first of two runtimes until the upgrade waits for Pods.
async fn upgrade_without_pods() -> (Env, RuntimeCluster, RuntimeCluster) {
    let (mut env, first, second) = steps(0, None).await;
    first.stop_rollouts();
    upgrade(&mut env).await;
    env.until_condition("a", "Installed", "False Installing")
        .await;
    env.until("the progress says so", |it| {
        count(it, WEBHOOK_LANE, "progressing") == 1
    })
    .await;
    assert_eq!(second.take(), [""; 0]);
    (env, first, second)
}

#[tokio::test]
async fn a_runtime_without_ready_pods_holds_the_next_step_under_the_next_leader_too() {
    let (mut env, first, second) = upgrade_without_pods().await;
    env.stop().await;
    env.start();
    env.until_passes(6).await;
    assert_eq!(second.take(), [""; 0]);
    assert_eq!(count(&env, WEBHOOK_LANE, "done"), 0);
    first.roll_out();
    env.until("the second step", |_| second.answered(INSTALL[5]))
        .await;
}

#[rstest]
#[case::before_the_leader_changes(true)]
#[case::while_the_leader_changes(false)]
#[tokio::test]
async fn a_runtime_without_ready_pods_that_is_lost_is_a_failure_for_the_next_leader(
    #[case] is_noticed: bool,
) {
    let (mut env, first, second) = upgrade_without_pods().await;
    if is_noticed {
        first.outage(503);
        env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
            .await;
        env.until_condition("a", "Reachable", "False APIServerError")
            .await;
        env.stop().await;
    } else {
        env.stop().await;
        first.outage(503);
    }
    env.start();
    env.until_passes(6).await;
    env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
        .await;
    assert_eq!(second.take(), [""; 0]);
}

/// The status of the runtime shows a complete revision; only that of the rollout shows the failure.
#[tokio::test]
async fn a_runtime_that_is_lost_while_it_soaks_is_a_failure_for_the_next_leader() {
    let (mut env, first, second) = steps(0, None).await;
    env.settings.rollouts.webhook.soak = Duration::from_mins(10);
    upgrade(&mut env).await;
    env.until("it soaks", |it| count(it, WEBHOOK_LANE, "soaking") == 1)
        .await;
    first.outage(503);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    env.kcp.merge("runtimebootstrappers", "a", &label);
    env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
        .await;
    env.until_condition("a", "Reachable", "False APIServerError")
        .await;
    env.stop().await;
    env.settings.rollouts.webhook.soak = Duration::ZERO;
    env.start();
    env.until_passes(6).await;
    assert_eq!(second.take(), [""; 0]);
    assert!(is_stopped(&env, WEBHOOK_LANE));
}

/// The webhook configuration is created after the Pods are ready, so no manifest hash shows a complete installation.
#[tokio::test]
async fn a_runtime_that_is_lost_during_its_first_installation_is_a_failure_for_the_next_leader() {
    let mut env = Env::new();
    env.settings.rollouts.webhook = one_by_one(&env.settings.rollouts.webhook, 0);
    let clusters = env.add_all(&["a", "b"]).await;
    clusters[0].stop_rollouts();
    env.start();
    env.until_condition("a", "Installed", "False Installing")
        .await;
    env.until("the progress says so", |it| {
        count(it, WEBHOOK_LANE, "progressing") == 1
    })
    .await;
    env.stop().await;
    clusters[0].outage(503);
    env.start();
    env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
        .await;
    assert!(!clusters[1].answered(INSTALL[5]));
}

/// The runtime is lost in a reconcile that started before the other configuration, and whose result does not apply to
/// that configuration.
#[tokio::test]
async fn a_runtime_without_ready_pods_that_is_lost_is_a_failure_for_another_configuration_too() {
    let (mut env, first, second) = upgrade_without_pods().await;
    let before = progress(&env, CONFIGURATION_LANE)["revision"].clone();
    let hold = first.fault("*").hold();
    env.until("the reconcile has begun", |_| hold.hits() > 0)
        .await;
    env.content.registry("two.example");
    env.publish();
    let is_another = |it: &Env| progress(it, CONFIGURATION_LANE)["revision"] != before;
    env.until("another rollout", is_another).await;
    first.outage(503);
    drop(hold);
    env.until("stopped", |it| is_stopped(it, WEBHOOK_LANE))
        .await;
    assert!(!second.answered(INSTALL[5]));
}

/// Returns runtimes `a` and `b` with a rollout of the configuration that stopped because `a` failed. A cluster that is dropped does
/// not respond any more.
async fn stopped_by_a() -> (Env, RuntimeCluster, RuntimeCluster) {
    let (mut env, first, second) = steps(0, None).await;
    first.refuse(INSTALL[4], 422);
    env.content.registry("two.example");
    env.publish();
    env.until("stopped", |it| is_stopped(it, CONFIGURATION_LANE))
        .await;
    (env, first, second)
}

/// A new revision would otherwise reach one more runtime with each deletion.
#[tokio::test]
async fn a_failed_runtime_that_is_deleted_starts_no_other_until_an_operator_resumes_the_rollout() {
    let (mut env, _first, second) = stopped_by_a().await;
    env.kcp.delete("runtimebootstrappers", "a");
    env.until("deleted", |it| {
        it.kcp.object("runtimebootstrappers", "a").is_none()
    })
    .await;
    env.until("reported", |it| {
        let status = progress(it, CONFIGURATION_LANE).to_string();
        status.contains("1 of them were deleted since")
    })
    .await;
    env.stop().await;
    env.start();
    env.until_passes(1).await;
    env.settle().await;
    assert_eq!(second.take(), [""; 0]);
    let status = progress(&env, CONFIGURATION_LANE);
    assert_eq!(status["failedRuntimes"], json!(["a"]));
    assert_eq!(status["runtimes"]["failed"], 0);
    assert!(is_stopped(&env, CONFIGURATION_LANE), "{status}");
    pause(&env, CONFIGURATION_LANE).await;
    set_paused(&env, CONFIGURATION_LANE, false);
    env.until("the second one", |_| second.take() == [INSTALL[4]])
        .await;
    env.until("completed", |it| is_completed(it, CONFIGURATION_LANE))
        .await;
    let status = progress(&env, CONFIGURATION_LANE);
    assert_eq!(status["failedRuntimes"], json!([]), "{status}");
}

/// The operator excludes the runtime on purpose.
#[tokio::test]
async fn a_failed_runtime_that_is_paused_does_not_stop_the_rollout() {
    let (env, _first, second) = stopped_by_a().await;
    assert_eq!(second.take(), [""; 0]);
    let excluded = json!({"spec": {"paused": true}});
    env.kcp.merge("runtimebootstrappers", "a", &excluded);
    env.until("the second one", |_| second.take() == [INSTALL[4]])
        .await;
}
