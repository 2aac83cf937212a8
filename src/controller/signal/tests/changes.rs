//! Tests of the changes that are signaled, and of the Runtimes that are signaled.

use std::num::NonZeroU32;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Recorded;
use tokio::time::{Instant, sleep};

use super::super::*;
use super::env::*;

#[tokio::test(start_paused = true)]
async fn the_first_start_ever_records_and_signals_no_runtime() {
    let mut env = Env::new(&["a", "b"]);
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert_eq!(env.states().len(), 1);
    assert_eq!(env.counts(), (0, 0));
    assert_eq!(env.state()["baseline"], env.state()["revision"]);
    assert_eq!(env.events(), ["StateInitialized"]);
    assert!(env.readiness.is_ready(), "{:?}", env.readiness.report());
}

#[tokio::test(start_paused = true)]
async fn nothing_to_do_is_nothing_written() {
    let mut env = Env::initialized(&["a"]).await;
    env.forget();
    env.stop().await;
    env.start().await;
    env.quiet().await;
    env.kcp.store().expire_watches();
    env.kcp.store().expire_watches();
    env.kcp
        .merge("runtimes", "a", &json!({"status": {"state": "Pending"}}));
    env.quiet().await;
    assert!(env.writes().is_empty(), "{:?}", env.writes());
    assert!(env.metric("signal_pending_runtimes", 0));
}

/// KIM provisions the new Runtime with the current sources.
#[tokio::test(start_paused = true)]
async fn runtime_that_joins_later_is_not_signalled_before_the_next_change() {
    let env = Env::initialized(&["a"]).await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.state()["baseline"], env.revision().as_str());
    env.forget();
    env.kcp.put(runtime("b"));
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    env.change("three.example");
    env.until_signalled(&["a", "b"]).await;
}

/// KIM may not have reconciled it since the change.
#[tokio::test(start_paused = true)]
async fn older_runtime_that_is_selected_after_a_change_is_signalled() {
    let mut env = Env::new(&["a"]);
    env.settings.selector = Selector::from_iter([("plan", "aws")]);
    env.kcp.put(labelled("b", "plan", "gcp"));
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.take("a", "annotations");
    env.quiet().await;
    env.stop().await;
    assert!(env.state()["revision.since"].is_string());
    // Far later than the creation of the Runtime: both were in the same second.
    let since = json!({"data": {"revision.since": "2100-01-01T00:00:00Z"}});
    env.kcp.merge("configmaps", STATE, &since);
    env.start().await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    let label = json!({"metadata": {"labels": {"plan": "aws"}}});
    env.kcp.merge("runtimes", "b", &label);
    env.until_signalled(&["a", "b"]).await;
}

/// The baseline of a Runtime that joins is the earlier revision then, so it is signaled as well.
#[tokio::test(start_paused = true)]
async fn runtime_that_joins_while_others_wait_for_a_signal_is_signalled() {
    let env = Env::initialized(&["a"]).await;
    env.pause(true);
    env.quiet().await;
    env.change("two.example");
    env.quiet().await;
    env.kcp.put(runtime("b"));
    env.pause(false);
    env.until_signalled(&["a", "b"]).await;
}

/// Thousands of complete resources would be stored only for their names.
#[tokio::test(start_paused = true)]
async fn resources_of_direct_runtimes_are_listed_and_watched_as_metadata() {
    let env = Env::initialized(&["a"]).await;
    for verb in ["list", "watch"] {
        let requests = env.kcp.requests_of(&format!("{verb} runtimebootstrappers"));
        assert!(!requests.is_empty(), "{verb}");
        let partial = |it: &Recorded| it.accept.contains("as=PartialObjectMetadata");
        assert!(requests.iter().all(partial), "{requests:?}");
    }
}

#[rstest]
#[case::annotation(SignalKeys::Only(Place::Annotation), json!({"annotations": {KEY: "true"}}))]
#[case::label(SignalKeys::Only(Place::Label), json!({"labels": {KEY: "true"}, "annotations": {}}))]
#[case::both(SignalKeys::default(), json!({"labels": {KEY: "true"}, "annotations": {KEY: "true"}}))]
#[tokio::test(start_paused = true)]
async fn signal_writes_its_key_and_the_revision_in_one_patch(
    #[case] keys: SignalKeys,
    #[case] mut metadata: Value,
) {
    let mut env = Env::new(&["a"]);
    env.settings.keys = keys;
    env.start().await;
    env.quiet().await;
    let before = env.kcp.object("runtimes", "a").unwrap();
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.quiet().await;
    metadata["annotations"][REVISION] = json!(env.revision());
    assert_eq!(
        env.signals(),
        [format!("a {}", json!({"metadata": metadata}))]
    );
    // Specification, status, generation, finalizers, and labels and annotations of other clients are unchanged.
    let mut after = env.kcp.object("runtimes", "a").unwrap();
    for map in ["labels", "annotations"] {
        for key in [KEY, REVISION] {
            after["metadata"][map].as_object_mut().unwrap().remove(key);
        }
    }
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    let metadata = after["metadata"].as_object_mut().unwrap();
    assert!(metadata.remove("managedFields").is_some());
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn creation_change_and_deletion_of_each_source_are_signalled() {
    let env = Env::initialized(&["a", "b"]).await;
    let settle = async |what: &str| {
        let grace = if what.ends_with("deleted") {
            env.settings.deletion_grace
        } else {
            Duration::ZERO
        };
        let began = Instant::now();
        env.until_signalled(&["a", "b"]).await;
        let took = began.elapsed();
        let late = took.checked_sub(grace);
        assert!(
            late.is_some_and(|it| it < Duration::from_secs(1)),
            "{what}: {took:?}"
        );
        env.take("a", "annotations");
        env.take("b", "annotations");
        env.quiet().await;
        assert_eq!(env.signalled(), ["a", "b"], "{what}");
        assert_eq!(env.counts(), (0, 0), "{what}");
        let events = env.events();
        env.forget();
        events
    };
    env.kcp.put(pull_secret("one"));
    let events = settle("Secret created").await;
    assert_eq!(events, ["StateInitialized", "SourcesChanged"]);
    env.kcp.put(pull_secret("two"));
    settle("Secret changed").await;
    env.kcp.delete("secrets", "pull");
    settle("Secret deleted").await;
    env.kcp.put(trust_bundle());
    settle("bundle created").await;
    env.kcp.put(trust_bundle());
    settle("bundle changed").await;
    env.kcp.delete("clustertrustbundles", "roots");
    settle("bundle deleted").await;
    env.change("two.example");
    settle("ConfigMap changed").await;
    env.kcp.delete("configmaps", "rt-bootstrapper-config");
    settle("ConfigMap deleted").await;
    env.change("three.example");
    settle("ConfigMap created").await;
}

#[rstest]
#[case::changed(|env: &Env| env.change("two.example"))]
#[case::created(|env: &Env| env.kcp.put(pull_secret("one")))]
#[case::deleted(|env: &Env| env.kcp.delete("configmaps", "rt-bootstrapper-config"))]
#[tokio::test(start_paused = true)]
async fn change_while_no_process_ran_is_signalled_at_the_start(#[case] change: fn(&Env)) {
    let mut env = Env::initialized(&["a", "b"]).await;
    env.kill().await;
    change(&env);
    env.start().await;
    env.until_signalled(&["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn source_that_is_absent_under_another_name_signals_no_runtime() {
    let mut env = Env::new(&["a"]);
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    env.stop().await;
    "pul".clone_into(&mut env.pull_secret);
    env.start().await;
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
}

/// A configured source that never existed is reported, and changes of the other sources are signaled.
#[tokio::test(start_paused = true)]
async fn source_that_was_never_there_is_reported_and_holds_no_other_back() {
    let mut env = Env::new(&["a"]);
    env.kcp.put(trust_bundle());
    env.start().await;
    env.quiet().await;
    let mut events = env.kcp.events();
    events.sort();
    assert_eq!(events, ["SourceNotFound", "StateInitialized"]);
    let gauge = "source_not_found{source=\"pullSecret\",controller=\"signal\"}";
    assert!(env.metric(gauge, 1));
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.kcp.put(pull_secret("one"));
    env.quiet().await;
    assert!(env.metric(gauge, 0));
}

#[tokio::test(start_paused = true)]
async fn other_objects_and_metadata_are_not_signalled() {
    let env = Env::initialized(&["a"]).await;
    env.forget();
    let mut other = config_map("two.example");
    other["metadata"]["name"] = json!("other");
    env.kcp.put(other);
    let noted = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    env.kcp
        .merge("configmaps", "rt-bootstrapper-config", &noted);
    env.kcp.store().expire_watches();
    env.quiet().await;
    assert!(env.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unusable_source_changes_nothing_and_neither_does_its_repair() {
    let env = Env::initialized(&["a"]).await;
    let mut broken = config_map("one.example");
    broken["data"]["rt-bootstrapper-config.json"] = json!("{");
    env.kcp.put(broken);
    env.quiet().await;
    env.change("one.example");
    env.quiet().await;
    assert!(env.signals().is_empty());
    env.change("two.example");
    env.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn signals_to_a_thousand_runtimes_are_paced_and_counted() {
    let mut env = Env::new(&[]);
    for index in 0..1000 {
        env.kcp.put(runtime(&format!("runtime-{index:04}")));
    }
    env.settings.per_second = NonZeroU32::new(50).unwrap();
    env.settings.limits.max_unacknowledged = 1000;
    env.start().await;
    env.quiet().await;
    env.forget();
    let began = Instant::now();
    env.change("two.example");
    env.until("all are signalled", |it| {
        it.metric("signal_writes_total{action=\"set\"}", 1000)
    })
    .await;
    let took = began.elapsed();
    assert!(
        took > Duration::from_secs(19) && took < Duration::from_secs(21),
        "{took:?}"
    );
    assert!(env.kcp.most_at_once("patch runtimes") <= 16);
    // There is no burst: the rate in each second is at most a fifth above the configured rate.
    let writes = env.kcp.writes_of("runtimes");
    for (first, last) in writes.iter().zip(writes.iter().skip(61)) {
        assert!(last.begin - first.begin >= Duration::from_secs(1));
    }
    sleep(Duration::from_secs(20)).await;
    assert!(
        env.metric("signal_unacknowledged_runtimes", 1000),
        "{:?}",
        env.samples()
    );
    assert!(env.metric("signal_writes_total{action=\"set\"}", 1000));
    // The state was written for the change and for the new baseline, and contains no Runtime.
    let states = env.states();
    assert_eq!(states.len(), 2, "{states:?}");
    let size = env.state().to_string().len();
    assert!(size < 1000, "{size}");
    // The status is written at most once per second.
    let statuses = env.kcp.writes_of("runtimebootstrapperrollouts");
    for pair in statuses.windows(2) {
        assert!(pair[1].begin - pair[0].begin >= Duration::from_secs(1));
    }
}
