//! What is a change, and for whom.

use std::num::NonZeroU32;
use std::time::Duration;

use kube::core::Selector;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::super::*;
use super::world::*;

const MODE: &str = "rt-bootstrapper.kyma-project.io/mode";

#[tokio::test(start_paused = true)]
async fn the_first_start_ever_records_and_signals_nobody() {
    let mut world = World::new(&["a", "b"]);
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert_eq!(world.kcp.writes("configmaps").len(), 1);
    assert!(world.record().is_empty());
    assert_eq!(world.events(), ["StateInitialized"]);
    assert!(world.readiness.is_ready(), "{:?}", world.readiness.report());
}

#[tokio::test(start_paused = true)]
async fn nothing_to_do_is_nothing_written() {
    let mut world = World::recorded(&["a"]).await;
    world.forget();
    world.stop().await;
    world.start().await;
    world.quiet().await;
    world.kcp.behind_the_watch("runtimes", |_| {});
    world.kcp.behind_the_watch("runtimebootstrappers", |_| {});
    world
        .kcp
        .merge("runtimes", "a", &json!({"status": {"state": "Pending"}}));
    world.kcp.put("runtimes", runtime("new"));
    world.quiet().await;
    assert!(
        world.kcp.lock().writes.is_empty(),
        "{:?}",
        world.kcp.lock().writes
    );
    assert!(world.metric("signal_pending_runtimes 0"));
}

#[rstest]
#[case::annotation(SignalKeys::Only(Place::Annotation), json!({"annotations": {KEY: "true"}}))]
#[case::label(SignalKeys::Only(Place::Label), json!({"labels": {KEY: "true"}}))]
#[case::both(SignalKeys::default(), json!({"labels": {KEY: "true"}, "annotations": {KEY: "true"}}))]
#[tokio::test(start_paused = true)]
async fn signal_writes_its_key_alone(#[case] keys: SignalKeys, #[case] metadata: Value) {
    let mut world = World::new(&["a"]);
    world.settings.keys = keys;
    world.start().await;
    world.quiet().await;
    let before = world.kcp.object("runtimes", "a").unwrap();
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.quiet().await;
    assert_eq!(
        world.signals(),
        [format!("a {}", json!({"metadata": metadata}))]
    );
    // Everything else is as it was: specification, status, generation, finalizers, labels and annotations of others.
    let mut after = world.kcp.object("runtimes", "a").unwrap();
    for map in ["labels", "annotations"] {
        after["metadata"][map].as_object_mut().unwrap().remove(KEY);
    }
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn creation_change_and_deletion_of_each_source_are_signalled() {
    let world = World::recorded(&["a", "b"]).await;
    let settle = async |what: &str| {
        let grace = if what.ends_with("deleted") {
            world.settings.deletion_grace
        } else {
            Duration::ZERO
        };
        let began = Instant::now();
        world.until_signalled(&["a", "b"]).await;
        let took = began.elapsed();
        let late = took.checked_sub(grace);
        assert!(
            late.is_some_and(|it| it < Duration::from_secs(1)),
            "{what}: {took:?}"
        );
        world.take("a", "annotations");
        world.take("b", "annotations");
        world.quiet().await;
        assert_eq!(world.signalled(), ["a", "b"], "{what}");
        assert!(world.record().is_empty(), "{what}");
        world.forget();
    };
    world.kcp.put("secrets", pull_secret("one"));
    settle("Secret created").await;
    assert_eq!(world.events(), ["StateInitialized", "SourcesChanged"]);
    world.kcp.put("secrets", pull_secret("two"));
    settle("Secret changed").await;
    world.kcp.delete("secrets", "pull");
    settle("Secret deleted").await;
    world.kcp.put("clustertrustbundles", trust_bundle());
    settle("bundle created").await;
    world.kcp.put("clustertrustbundles", trust_bundle());
    settle("bundle changed").await;
    world.kcp.delete("clustertrustbundles", "roots");
    settle("bundle deleted").await;
    world.change("two.example");
    settle("ConfigMap changed").await;
    world.kcp.delete("configmaps", "rt-bootstrapper-config");
    settle("ConfigMap deleted").await;
    world.change("three.example");
    settle("ConfigMap created").await;
}

#[rstest]
#[case::changed(|world: &World| world.change("two.example"))]
#[case::created(|world: &World| world.kcp.put("secrets", pull_secret("one")))]
#[case::deleted(|world: &World| world.kcp.delete("configmaps", "rt-bootstrapper-config"))]
#[tokio::test(start_paused = true)]
async fn change_while_no_process_ran_is_signalled_at_the_start(#[case] change: fn(&World)) {
    let mut world = World::recorded(&["a", "b"]).await;
    world.kill().await;
    change(&world);
    world.start().await;
    world.until_signalled(&["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn source_that_is_absent_under_another_name_signals_no_runtime() {
    let mut world = World::new(&["a"]);
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.quiet().await;
    world.stop().await;
    "pul".clone_into(&mut world.pull_secret);
    world.start().await;
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
}

/// A source that is named and was never there is said, and the others are signaled all the same.
#[tokio::test(start_paused = true)]
async fn source_that_was_never_there_is_reported_and_holds_no_other_back() {
    let mut world = World::new(&["a"]);
    world.kcp.put("clustertrustbundles", trust_bundle());
    world.start().await;
    world.quiet().await;
    let mut events = world.kcp.lock().events.clone();
    events.sort();
    assert_eq!(events, ["SourceNotFound", "StateInitialized"]);
    let gauge = "source_not_found{source=\"pullSecret\",controller=\"signal\"}";
    assert!(world.metric(&format!("{gauge} 1")));
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.kcp.put("secrets", pull_secret("one"));
    world.quiet().await;
    assert!(world.metric(&format!("{gauge} 0")));
}

#[tokio::test(start_paused = true)]
async fn other_objects_and_metadata_are_not_signalled() {
    let world = World::recorded(&["a"]).await;
    world.forget();
    let mut other = config_map("two.example");
    other["metadata"]["name"] = json!("other");
    world.kcp.put("configmaps", other);
    let noted = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    world
        .kcp
        .merge("configmaps", "rt-bootstrapper-config", &noted);
    world.kcp.behind_the_watch("configmaps", |_| {});
    world.quiet().await;
    assert!(world.kcp.lock().writes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unusable_source_changes_nothing_and_neither_does_its_repair() {
    let world = World::recorded(&["a"]).await;
    let mut broken = config_map("one.example");
    broken["data"]["rt-bootstrapper-config.json"] = json!("{");
    world.kcp.put("configmaps", broken);
    world.quiet().await;
    world.change("one.example");
    world.quiet().await;
    assert!(world.signals().is_empty());
    world.change("two.example");
    world.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn only_affected_runtimes_are_signalled() {
    let mut world = World::new(&["plain"]);
    world.settings.selector = Selector::from_iter([("plan", "aws")]);
    let kcp = &world.kcp;
    kcp.put("runtimes", labelled("signal", MODE, "signal"));
    kcp.put("runtimes", labelled("direct", MODE, "direct"));
    kcp.put("runtimes", labelled("trial", "plan", "trial"));
    let mut deleting = runtime("deleting");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
    kcp.put("runtimes", deleting);
    let mut terminating = runtime("terminating");
    terminating["status"]["state"] = json!("Terminating");
    kcp.put("runtimes", terminating);
    kcp.put("runtimes", runtime("lifecycle"));
    kcp.put(
        "runtimebootstrappers",
        json!({"metadata": {"name": "lifecycle"}}),
    );
    let mut unnamed = runtime("without-id");
    unnamed["metadata"]["labels"] = json!({"plan": "aws"});
    kcp.put("runtimes", unnamed);
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world.quiet().await;
    assert_eq!(world.signalled(), ["plain", "signal", "without-id"]);
}

/// Sources, Runtimes, resources and record are all where the controller is.
#[tokio::test(start_paused = true)]
async fn all_of_it_may_be_in_another_namespace() {
    let mut world = World::new(&["a", "b"]);
    world.kcp.lock().store.namespace = "elsewhere";
    "elsewhere".clone_into(&mut world.settings.namespace);
    world
        .kcp
        .put("runtimebootstrappers", json!({"metadata": {"name": "b"}}));
    world.start().await;
    world
        .until("recorded", |it| {
            it.kcp.object("configmaps", RECORD).is_some()
        })
        .await;
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["a"]);
    assert!(world.readiness.is_ready(), "{:?}", world.readiness.report());
}

/// Direct mode has let it go; that another finalizer is on the resource keeps the runtime from nobody.
#[rstest]
#[case::seen_from_the_start(true)]
#[case::seen_later(false)]
#[tokio::test(start_paused = true)]
async fn a_resource_that_was_let_go_is_in_nobodys_way(#[case] first: bool) {
    let mut world = World::new(&["a"]);
    let metadata = |more: Value| {
        let mut metadata = json!({"name": "a", "finalizers": ["someone.else/holds"]});
        metadata
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "metadata": metadata })
    };
    let let_go = metadata(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    let before = if first {
        let_go.clone()
    } else {
        metadata(json!({}))
    };
    world.kcp.put("runtimebootstrappers", before);
    world.start().await;
    world.quiet().await;
    world.kcp.put("runtimebootstrappers", let_go);
    world.quiet().await;
    world.change("two.example");
    world.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_signalled_before_it_is_known_who_is_direct() {
    let mut world = World::recorded(&["a"]).await;
    world.kill().await;
    world
        .kcp
        .put("runtimebootstrappers", json!({"metadata": {"name": "a"}}));
    world.kcp.lock().unreadable.insert("runtimebootstrappers");
    world.change("two.example");
    world.start().await;
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert!(!world.readiness.is_ready());
    world.kcp.lock().unreadable.clear();
    world.quiet().await;
    assert!(world.signals().is_empty());
    // And from then on one that is handed back is as any other.
    world.kcp.delete("runtimebootstrappers", "a");
    world.quiet().await;
    world.change("three.example");
    world.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_without_the_lifecycle_kind_has_no_direct_runtimes() {
    let mut world = World::new(&["a"]);
    world
        .kcp
        .lock()
        .served
        .remove("operator.kyma-project.io/v1alpha1");
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.take("a", "annotations");
    // Installed later, it counts from then on.
    let kind = ("operator.kyma-project.io/v1alpha1", "runtimebootstrappers");
    world.kcp.lock().served.extend([kind]);
    world
        .kcp
        .put("runtimebootstrappers", json!({"metadata": {"name": "a"}}));
    world.quiet().await;
    world.forget();
    world.change("three.example");
    world.quiet().await;
    assert!(world.signals().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_leaves_before_its_turn_is_not_signalled() {
    let mut world = World::new(&["a", "b", "c", "d"]);
    world.settings.per_second = NonZeroU32::MIN;
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world
        .until("the first", |it| !it.signals().is_empty())
        .await;
    let first = world.signalled().remove(0);
    let rest: Vec<&str> = ["a", "b", "c", "d"]
        .into_iter()
        .filter(|it| *it != first)
        .collect();
    world.kcp.merge(
        "runtimes",
        rest[0],
        &json!({"metadata": {"labels": {MODE: "direct"}}}),
    );
    world.kcp.put(
        "runtimebootstrappers",
        json!({"metadata": {"name": rest[1]}}),
    );
    world.kcp.delete("runtimes", rest[2]);
    world.quiet().await;
    assert_eq!(world.signalled(), std::slice::from_ref(&first));
    world.take(&first, "annotations");
    world.quiet().await;
    assert!(world.record().is_empty());
}

#[tokio::test(start_paused = true)]
async fn signals_to_five_thousand_runtimes_are_paced_counted_and_recorded() {
    let mut world = World::new(&[]);
    for index in 0..5000 {
        world
            .kcp
            .put("runtimes", runtime(&format!("runtime-{index:04}")));
    }
    world.settings.per_second = NonZeroU32::new(50).unwrap();
    world.start().await;
    world.quiet().await;
    world.forget();
    let began = Instant::now();
    world.change("two.example");
    // Beside them, some writes of the record.
    world
        .until("all are signalled", |it| {
            it.kcp.lock().writes.len() >= 5000
                && it.metric("signal_writes_total{action=\"set\"} 5000")
        })
        .await;
    let took = began.elapsed();
    assert!(
        took > Duration::from_secs(95) && took < Duration::from_secs(105),
        "{took:?}"
    );
    assert!(world.kcp.lock().most_writing <= 16);
    // No burst: in no second more than a fifth above the rate.
    let writes = world.kcp.instants("runtimes/");
    for (first, last) in writes.iter().zip(writes.iter().skip(61)) {
        assert!(*last - *first >= Duration::from_secs(1));
    }
    sleep(Duration::from_secs(20)).await;
    assert!(
        world.metric("signal_unacknowledged_runtimes 5000"),
        "{}",
        world.metrics_text()
    );
    assert!(world.metric("signal_writes_total{action=\"set\"} 5000"));
    // A write of the record every five seconds, and not one for each runtime.
    let records = world.kcp.writes("configmaps");
    assert!(records.len() < 30, "{}", records.len());
    let largest = records.iter().map(String::len).max().unwrap();
    assert!(largest < 200_000, "{largest}");
}
