//! Tests of evictions.

use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::repairs::EvictionSettings;
use rstest::rstest;
use serde_json::json;
use tokio::time::sleep;

use super::MISSED;
use super::env::*;

fn missed_only() -> EvictionSettings {
    EvictionSettings {
        missed: true,
        outdated: Vec::new(),
    }
}

#[rstest]
#[case::replica_set("apps/v1", "ReplicaSet", Some(true), true)]
#[case::stateful_set("apps/v1", "StatefulSet", Some(true), true)]
#[case::daemon_set("apps/v1", "DaemonSet", Some(true), true)]
#[case::job("batch/v1", "Job", Some(true), false)]
#[case::kind_of_another_group("example.com/v1", "ReplicaSet", Some(true), false)]
#[case::owner_that_is_not_the_controller("apps/v1", "ReplicaSet", None, false)]
#[case::owner_that_denies_it("apps/v1", "ReplicaSet", Some(false), false)]
#[case::no_owner("", "", None, false)]
#[tokio::test(start_paused = true)]
async fn a_missed_pod_is_evicted_only_if_its_controller_replaces_it(
    #[case] api_version: &str,
    #[case] kind: &str,
    #[case] controller: Option<bool>,
    #[case] expected: bool,
) {
    let mut env = Environment::start(missed_only()).await;
    // The Pod has another owner while there is no leader.
    env.stop().await;
    env.put_pod("web", false);
    env.server.edit("pods", ("shop", "web"), |pod| {
        pod["metadata"]["ownerReferences"] = match kind {
            "" => json!([]),
            _ => json!([{
                "apiVersion": api_version, "kind": kind, "name": "owner", "uid": "1", "controller": controller,
            }]),
        };
    });
    env.lead(missed_only()).await;
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.evictions() > 0, expected);
}

#[rstest]
#[case::forbidden(403, "forbidden", 1)]
#[case::budget(429, "budget_exhausted", 3)]
#[case::gone(404, "gone", 6)]
#[case::broken(500, "failed", 6)]
#[tokio::test(start_paused = true)]
async fn a_refused_eviction_is_never_an_error_loop(
    #[case] status: u16,
    #[case] result: &str,
    #[case] most: usize,
) {
    let env = Environment::start(missed_only()).await;
    env.server.fault(EVICTION).status(status);
    env.put_pod("web", false);
    let series = format!("pod_evictions_total{{result=\"{result}\"}}");
    env.until(&series, Some(1.0)).await;
    sleep(Duration::from_mins(3)).await;
    let evictions = env.evictions();
    assert!(evictions <= most, "{evictions} in three minutes");
    assert_eq!(env.value(MISSED), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_while_the_probe_fails() {
    let env = Environment::start(missed_only()).await;
    env.probe.store(false, Ordering::Relaxed);
    env.put_pod("web", false);
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(env.evictions(), 0);
    env.probe.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(env.evictions(), 1);
}
