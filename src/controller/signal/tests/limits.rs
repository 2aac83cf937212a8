//! Tests of the limits that stop signals, of the reported conditions, and of resuming.

use std::num::NonZeroU32;
use std::time::Duration;

use policy::sync::rollout::MaxFailures;
use rstest::rstest;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::env::*;

const SUSPEND: &str = "operator.kyma-project.io/suspend-patch-reconciliation";

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("r{index:02}")).collect()
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn set_state(env: &Env, name: &str, state: &str) {
    let patch = json!({"status": {"state": state}});
    env.kcp.merge("runtimes", name, &patch);
}

fn count(env: &Env, reason: &str) -> usize {
    let events = env.events();
    events.iter().filter(|it| *it == reason).count()
}

/// KIM acknowledges before it copies, and the Runtime may stay Ready meanwhile.
#[tokio::test(start_paused = true)]
async fn a_change_is_completed_when_kim_had_the_time_to_copy_it() {
    let env = Env::initialized(&["a"]).await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.take("a", "annotations");
    let acknowledged = Instant::now();
    sleep(Duration::from_secs(50)).await;
    assert_eq!(env.condition("Completed").0, "False");
    assert_eq!(env.counts(), (0, 1));
    env.until("completed", |it| it.condition("Completed").0 == "True")
        .await;
    let duration = acknowledged.elapsed();
    assert!(duration < Duration::from_secs(70), "{duration:?}");
    assert_eq!(env.counts(), (0, 0));
}

/// The leader changes after the acknowledgement.
#[tokio::test(start_paused = true)]
async fn the_next_leader_waits_for_the_copies_too() {
    let mut env = Env::initialized(&["a"]).await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.take("a", "annotations");
    sleep(Duration::from_secs(5)).await;
    env.kill().await;
    env.start().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.condition("Completed").0, "False");
    env.until("completed", |it| it.condition("Completed").0 == "True")
        .await;
    // A completed change stays completed.
    env.kill().await;
    env.start().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.condition("Completed").0, "True");
}

/// After some errors KIM stops a reconcile before it acknowledges the signal. The first change was applied to the
/// Ready Runtime.
#[tokio::test(start_paused = true)]
async fn runtimes_on_which_kim_gave_up_do_not_keep_a_later_change_from_the_others() {
    let names = names(51);
    let (ready, broken) = names.split_first().unwrap();
    let mut env = Env::new(&texts(&names));
    for name in broken {
        set_state(&env, name, "Failed");
    }
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until("it is signaled", |it| it.keys(ready).1).await;
    env.take(ready, "annotations");
    env.until("all are signaled", |it| it.signals().len() == 51)
        .await;
    env.quiet().await;
    env.forget();
    env.change("three.example");
    env.until("the one that is Ready is signaled", |it| it.keys(ready).1)
        .await;
    env.quiet().await;
    assert_eq!(env.signaled_revision(ready), Some(env.revision()));
    let is_marked = |name: &String| env.signaled_revision(name).as_deref() == Some("stale");
    assert!(broken.iter().all(is_marked), "each is woken");
    assert_eq!(env.signals().len(), 51, "once");
    assert_eq!(env.condition("Completed").0, "False");
}

#[rstest]
#[case::at_full_rate(100)]
#[case::slowly(2)]
#[tokio::test(start_paused = true)]
async fn no_more_than_fifty_signals_are_unacknowledged(#[case] per_second: u32) {
    let names = names(60);
    let mut env = Env::new(&texts(&names));
    env.settings.per_second = NonZeroU32::new(per_second).unwrap();
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until("it stops", |it| it.is_stopped("UnacknowledgedLimitReached"))
        .await;
    env.quiet().await;
    assert_eq!(env.signals().len(), 50);
    assert_eq!(env.counts(), (10, 50));
    assert!(env.metric("signal_unacknowledged_runtimes", 50));
    assert!(env.metric("signal_pending_runtimes", 10));
    assert_eq!(count(&env, "SignalsSuspended"), 1);
    // One acknowledgement allows one further signal.
    env.take(&env.signalled()[0], "annotations");
    env.until("the next one", |it| it.signals().len() == 51)
        .await;
    env.quiet().await;
    assert_eq!(env.signals().len(), 51);
    for name in env.signalled() {
        if env.keys(&name).1 {
            env.take(&name, "annotations");
        }
    }
    env.until_signalled(&texts(&names)).await;
    env.quiet().await;
    assert_eq!(env.signalled(), names, "once");
    let (stopped, reason, _) = env.condition("Stopped");
    assert_eq!((stopped.as_str(), reason.as_str()), ("False", "NotStopped"));
}

/// If KIM acknowledges in time, the limit stops signals for short periods only, and no condition reports it.
#[tokio::test(start_paused = true)]
async fn limit_that_is_reached_for_moments_is_not_reported() {
    let names = names(10);
    let mut env = Env::new(&texts(&names));
    env.settings.limits.max_unacknowledged = 1;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    for signals in 1..=names.len() {
        env.until("the next one", |it| {
            it.signals().len() == signals && !it.is_writing()
        })
        .await;
        sleep(Duration::from_secs(20)).await;
        assert_eq!(env.signals().len(), signals);
        let signalled = env.signalled();
        let waiting = signalled.iter().find(|it| env.keys(it).1).unwrap();
        env.take(waiting, "annotations");
    }
    env.quiet().await;
    assert_eq!(env.signalled(), names);
    assert_eq!(env.events(), ["StateInitialized", "SourcesChanged"]);
}

#[tokio::test(start_paused = true)]
async fn suspended_runtimes_are_signalled_and_do_not_count_as_unacknowledged() {
    let mut env = Env::new(&["c"]);
    for name in ["a", "b"] {
        let mut suspended = runtime(name);
        suspended["metadata"]["annotations"][SUSPEND] = json!("true");
        env.kcp.put(suspended);
    }
    env.settings.limits.max_unacknowledged = 1;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a", "b", "c"]).await;
    env.take("c", "annotations");
    env.quiet().await;
    assert!(env.metric("signal_unacknowledged_runtimes", 0));
    assert!(env.metric("signal_oldest_unacknowledged_age_seconds", 0));
    assert_eq!(env.counts(), (0, 2));
    assert_eq!(env.condition("Completed").0, "True");
}

/// The Runtimes are not Ready, as after the deletion of a source without which KIM does not complete a reconcile.
#[tokio::test(start_paused = true)]
async fn signals_stop_while_more_signalled_runtimes_than_the_limit_are_not_ready() {
    let mut env = Env::new(&["a", "b", "c", "d", "e"]);
    env.settings.per_second = NonZeroU32::MIN;
    env.settings.limits.max_failures = MaxFailures::Count(1);
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    for name in ["a", "b"] {
        env.until("the next one", |it| it.keys(name).1 && !it.is_writing())
            .await;
        set_state(&env, name, "Pending");
        env.take(name, "annotations");
    }
    env.until("it stops", |it| it.is_stopped("FailureLimitExceeded"))
        .await;
    env.quiet().await;
    let signals = env.signals().len();
    assert!(signals <= 3, "{:?}", env.signals());
    let status = env.status();
    assert_eq!(status["runtimes"]["failed"], 2);
    assert_eq!(status["failedRuntimes"], json!(["a", "b"]));
    let (_, _, message) = env.condition("Stopped");
    assert_eq!(message, "2 signaled Runtimes are not Ready, the limit is 1");
    let (ready, report) = env.readiness.report();
    assert!(ready && report.contains("FailureLimitExceeded"), "{report}");
    assert_eq!(count(&env, "SignalsSuspended"), 1);
    assert_eq!(count(&env, "SignalsResumed"), 0);
    // One Runtime recovers, so the number of failures equals the limit.
    set_state(&env, "a", "Ready");
    env.until_signalled(&["a", "b", "c", "d", "e"]).await;
    env.quiet().await;
    assert_eq!(env.condition("Stopped").0, "False");
    assert_eq!(count(&env, "SignalsResumed"), 1);
}

/// KIM reconciles a Runtime that is not Ready until it is, so that it gets the corrected source without a signal.
#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_used_for_a_time_does_not_reset_the_failure_limit() {
    let mut env = Env::new(&["a", "b", "c"]);
    env.settings.limits.max_unacknowledged = 1;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    set_state(&env, "a", "Pending");
    env.take("a", "annotations");
    env.until("it stops", |it| it.is_stopped("FailureLimitExceeded"))
        .await;
    env.quiet().await;
    let mut invalid = config_map("two.example");
    invalid["data"] = json!({"another-key.json": "{}"});
    env.kcp.put(invalid);
    env.until("it is invalid", |it| it.is_stopped("InvalidSource"))
        .await;
    env.quiet().await;
    env.change("two.example");
    env.until("it stops", |it| it.is_stopped("FailureLimitExceeded"))
        .await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    assert_eq!(env.status()["failedRuntimes"], json!(["a"]));
}

/// The flags were changed from both controllers to the controller `signal` alone, or the selector of the controller
/// `direct` does not match a Runtime.
#[rstest]
#[case::managed(true, true, "Completed")]
#[case::disabled(false, true, "DirectDisabled")]
#[case::not_selected(true, false, "RuntimeBootstrapperNotFound")]
#[tokio::test(start_paused = true)]
async fn runtimes_in_mode_direct_that_nothing_synchronizes_are_shown(
    #[case] has_direct: bool,
    #[case] has_resource: bool,
    #[case] expected: &str,
) {
    let mut env = Env::new(&["a"]);
    let mode = "rt-bootstrapper.kyma-project.io/mode";
    env.kcp.put(labelled("b", mode, "direct"));
    if has_resource {
        env.kcp.put(bootstrapper("b"));
    }
    env.settings.has_direct = has_direct;
    env.start().await;
    env.quiet().await;
    let (status, reason, message) = env.condition("Completed");
    assert_eq!(reason, expected);
    let is_completed = expected == "Completed";
    assert_eq!(status == "True", is_completed);
    let is_shown = message.starts_with("1 Runtimes are in mode direct");
    assert_eq!(is_shown, !is_completed, "{message}");
}

/// KIM acknowledges a signal before it copies the sources.
#[tokio::test(start_paused = true)]
async fn signals_are_completed_once_the_runtimes_are_ready_again() {
    let env = Env::initialized(&["a", "b"]).await;
    env.change("two.example");
    env.until_signalled(&["a", "b"]).await;
    for name in ["a", "b"] {
        set_state(&env, name, "Pending");
        env.take(name, "annotations");
    }
    set_state(&env, "b", "Ready");
    env.quiet().await;
    let (completed, _, message) = env.condition("Completed");
    assert_eq!(completed, "False");
    assert!(
        message.ends_with("1 were acknowledged and are not Ready"),
        "{message}"
    );
    set_state(&env, "a", "Ready");
    env.quiet().await;
    assert_eq!(env.condition("Completed").0, "True");
}

/// The next leader stops as well. The next change is signaled, because it may correct the failure.
#[tokio::test(start_paused = true)]
async fn failures_count_under_the_next_leader_until_the_next_change() {
    let mut env = Env::new(&["a", "b", "c"]);
    env.settings.per_second = NonZeroU32::MIN;
    env.settings.limits.max_unacknowledged = 1;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.kill().await;
    set_state(&env, "a", "Pending");
    env.take("a", "annotations");
    env.start().await;
    env.until("it stops", |it| it.is_stopped("FailureLimitExceeded"))
        .await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    env.settings.limits.max_unacknowledged = 50;
    env.stop().await;
    env.start().await;
    env.change("one.example");
    env.until("all are signalled again", |it| it.signals().len() == 4)
        .await;
    assert_eq!(env.signalled(), ["a", "a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn runtimes_that_are_ready_are_signalled_first() {
    let mut env = Env::new(&["a", "b", "c"]);
    set_state(&env, "a", "Failed");
    env.settings.limits.max_unacknowledged = 1;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    for name in ["b", "c"] {
        env.until("the next one", |it| it.keys(name).1).await;
        env.take(name, "annotations");
    }
    env.until_signalled(&["a", "b", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn operator_pauses_and_resumes_signals() {
    let env = Env::initialized(&["a", "b"]).await;
    env.pause(true);
    env.until("it is shown", |it| it.is_stopped("Paused")).await;
    env.change("two.example");
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    assert_eq!(env.counts(), (2, 0));
    assert!(env.metric("signal_pending_runtimes", 2));
    assert_eq!(count(&env, "SignalsSuspended"), 1);
    env.pause(false);
    env.until_signalled(&["a", "b"]).await;
    env.quiet().await;
    assert_eq!(env.condition("Stopped").1, "NotStopped");
    assert_eq!(count(&env, "SignalsResumed"), 1);
}

#[tokio::test(start_paused = true)]
async fn pause_in_the_middle_lets_started_signals_be_acknowledged() {
    let mut env = Env::new(&["a", "b", "c"]);
    env.settings.per_second = NonZeroU32::MIN;
    env.settings.keys = super::super::SignalKeys::default();
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.pause(true);
    env.quiet().await;
    let first = env.signalled();
    assert!(first.len() < 3, "{first:?}");
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.keys("a"), (false, false), "the leftover is removed");
    env.pause(false);
    env.until("all", |it| it.keys("b").0 && it.keys("c").0)
        .await;
}

#[tokio::test(start_paused = true)]
async fn no_runtime_is_signalled_before_the_pause_is_known() {
    let mut env = Env::initialized(&["a"]).await;
    env.kill().await;
    env.pause(true);
    let forbidden = env.kcp.forbid_reads("runtimebootstrapperrollouts");
    env.change("two.example");
    env.start().await;
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert!(!env.readiness.is_ready());
    forbidden.stop();
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert!(env.readiness.is_ready(), "{:?}", env.readiness.report());
    env.kcp.delete("runtimebootstrapperrollouts", "signal");
    env.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn status_shows_the_progress_and_is_written_when_it_differs() {
    let env = Env::initialized(&["a", "b"]).await;
    let revision = env.revision();
    let status = env.status();
    assert_eq!(status["revision"], revision.as_str());
    assert_eq!(status["completedRevision"], revision.as_str());
    assert_eq!(status["runtimes"]["done"], 2);
    assert_eq!(env.condition("Completed").0, "True");
    env.change("two.example");
    env.until_signalled(&["a", "b"]).await;
    env.take("a", "annotations");
    env.quiet().await;
    let status = env.status();
    assert_eq!(status["revision"], env.revision().as_str());
    let counts = json!({"total": 2, "progressing": 1, "done": 1});
    for (key, value) in counts.as_object().unwrap() {
        assert_eq!(&status["runtimes"][key], value, "{key}");
    }
    let (completed, reason, message) = env.condition("Completed");
    assert_eq!(
        (completed.as_str(), reason.as_str()),
        ("False", "Progressing")
    );
    assert!(!message.is_empty());
    env.forget();
    let since = Instant::now();
    env.kcp.merge(
        "runtimes",
        "a",
        &json!({"metadata": {"labels": {"x": "y"}}}),
    );
    env.quiet().await;
    assert!(since.elapsed() > Duration::from_mins(10));
    assert!(env.writes().is_empty(), "{:?}", env.writes());
}

#[tokio::test(start_paused = true)]
async fn invalid_and_missing_sources_are_reasons() {
    let mut env = Env::new(&["a"]);
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    env.kcp.delete("secrets", "pull");
    env.until("it is shown", |it| it.is_stopped("DeletionPending"))
        .await;
    let mut secret = pull_secret("one");
    secret["type"] = json!("Opaque");
    env.kcp.put(secret);
    env.until("it is shown", |it| it.is_stopped("InvalidSource"))
        .await;
    env.kcp.put(pull_secret("one"));
    env.until("it is shown", |it| it.condition("Stopped").0 == "False")
        .await;
    assert!(env.signals().is_empty());
}
