//! From the signal to its being taken, and what is left over.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tokio::time::sleep;

use super::super::*;
use super::world::*;

const BOTH: SignalKeys = SignalKeys::Both { obeyed: None };

async fn signalled(keys: SignalKeys) -> World {
    let mut world = World::new(&["a"]);
    world.settings.keys = keys;
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.quiet().await;
    world.forget();
    world
}

#[rstest]
#[case::annotation(SignalKeys::Only(Place::Annotation), "annotations")]
#[case::label(SignalKeys::Only(Place::Label), "labels")]
#[tokio::test(start_paused = true)]
async fn a_signal_that_the_manager_takes_whole_needs_nothing_more(
    #[case] keys: SignalKeys,
    #[case] map: &str,
) {
    let world = signalled(keys).await;
    assert_eq!(
        world.record(),
        [("signal.unacknowledged".to_owned(), "a".to_owned())]
    );
    world.take("a", map);
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert!(world.record().is_empty());
}

#[rstest]
#[case::annotation_unsaid(BOTH, "annotations", json!({"labels": {KEY: null}}))]
#[case::label_unsaid(BOTH, "labels", json!({"annotations": {KEY: null}}))]
#[case::annotation(
    SignalKeys::Both { obeyed: Some(Place::Annotation) }, "annotations", json!({"labels": {KEY: null}})
)]
#[case::label(SignalKeys::Both { obeyed: Some(Place::Label) }, "labels", json!({"annotations": {KEY: null}}))]
#[tokio::test(start_paused = true)]
async fn what_the_manager_leaves_is_removed_so_that_the_next_change_is_one(
    #[case] keys: SignalKeys,
    #[case] map: &str,
    #[case] removal: serde_json::Value,
) {
    let world = signalled(keys).await;
    world.take("a", map);
    world.quiet().await;
    assert_eq!(
        world.signals(),
        [format!("a {}", json!({"metadata": removal}))]
    );
    assert_eq!(world.keys("a"), (false, false));
    assert!(world.record().is_empty());
    assert!(world.metric("signal_writes_total{action=\"remove\"} 1"));
    world.forget();
    world.change("three.example");
    world.until_signalled(&["a"]).await;
    assert_eq!(world.keys("a"), (true, true));
}

#[rstest]
#[case::label_first(Place::Annotation, "labels", "annotations")]
#[case::annotation_first(Place::Label, "annotations", "labels")]
#[tokio::test(start_paused = true)]
async fn a_key_that_the_manager_does_not_obey_may_vanish_without_the_signal(
    #[case] obeyed: Place,
    #[case] vanishes: &str,
    #[case] taken: &str,
) {
    let world = signalled(SignalKeys::Both {
        obeyed: Some(obeyed),
    })
    .await;
    world.take("a", vanishes);
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert_eq!(
        world.record(),
        [("signal.unacknowledged".to_owned(), "a".to_owned())]
    );
    world.take("a", taken);
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert!(world.record().is_empty());
}

#[tokio::test(start_paused = true)]
async fn standing_signal_is_not_written_again_and_a_change_meanwhile_is_not_lost() {
    let world = signalled(SignalKeys::Only(Place::Annotation)).await;
    world.change("three.example");
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert_eq!(
        world.record(),
        [("signal.stale".to_owned(), "a".to_owned())]
    );
    world.take("a", "annotations");
    world.until_signalled(&["a"]).await;
    world.take("a", "annotations");
    world.quiet().await;
    assert_eq!(world.signalled(), ["a"]);
    assert!(world.record().is_empty());
}

#[tokio::test(start_paused = true)]
async fn signal_of_another_client_is_not_written_again_but_followed_by_ours() {
    let mut world = World::new(&["b"]);
    let mut forced = runtime("a");
    forced["metadata"]["annotations"][KEY] = json!("true");
    world.kcp.put("runtimes", forced);
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world.until_signalled(&["b"]).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["b"]);
    // It may have been on its way before the change.
    world.take("a", "annotations");
    world.until_signalled(&["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_signal_is_on_its_way_is_not_lost() {
    let world = World::recorded(&["a"]).await;
    world.change("two.example");
    world.until("sent", |it| !it.signals().is_empty()).await;
    // Not answered yet: the API server takes 20 ms.
    world.change("three.example");
    world.quiet().await;
    assert_eq!(world.signalled(), ["a"]);
    world.take("a", "annotations");
    world.until_signalled(&["a", "a"]).await;
    world.take("a", "annotations");
    world.quiet().await;
    assert_eq!(world.signalled(), ["a", "a"]);
    assert!(world.record().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_quicker_than_the_watch_is_understood() {
    let world = World::recorded(&["a"]).await;
    world.change("two.example");
    world.until("stands", |it| it.keys("a").1).await;
    world.take("a", "annotations");
    world.quiet().await;
    assert_eq!(world.signalled(), ["a"]);
    assert!(world.record().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_signal_on_a_runtime_that_goes_over_to_direct_is_taken_back() {
    let world = signalled(BOTH).await;
    let mode = json!({"metadata": {"labels": {"rt-bootstrapper.kyma-project.io/mode": "direct"}}});
    world.kcp.merge("runtimes", "a", &mode);
    world.quiet().await;
    assert_eq!(world.keys("a"), (false, false));
    assert_eq!(world.signalled(), ["a"]);
    assert!(world.record().is_empty());
    world.change("three.example");
    world.quiet().await;
    assert_eq!(world.signalled(), ["a"]);
}

/// Direct mode signals a runtime that it hands back, and is gone.
#[tokio::test(start_paused = true)]
async fn what_the_manager_leaves_of_a_hand_back_is_removed() {
    let mut world = World::new(&["a"]);
    world.settings.keys = BOTH;
    world
        .kcp
        .put("runtimebootstrappers", json!({"metadata": {"name": "a"}}));
    world.start().await;
    world.quiet().await;
    let told = json!({"labels": {KEY: "true"}, "annotations": {KEY: "true"}});
    world.kcp.merge("runtimes", "a", &json!({"metadata": told}));
    world.quiet().await;
    assert!(world.record().is_empty(), "it is direct still");
    world.kcp.delete("runtimebootstrappers", "a");
    world.quiet().await;
    assert!(world.signals().is_empty());
    world.take("a", "annotations");
    world.quiet().await;
    assert_eq!(world.keys("a"), (false, false));
    assert_eq!(world.signalled(), ["a"]);
    assert!(world.record().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_runtime_that_goes() {
    let world = signalled(BOTH).await;
    world.kcp.delete("runtimes", "a");
    world.quiet().await;
    assert!(world.signals().is_empty());
    assert!(world.record().is_empty());
    assert!(world.metric("signal_unacknowledged_runtimes 0"));
}

#[tokio::test(start_paused = true)]
async fn how_long_a_signal_stands_can_be_seen() {
    let mut world = signalled(SignalKeys::Only(Place::Annotation)).await;
    assert!(world.metric("signal_unacknowledged_runtimes 1"));
    let oldest = |world: &World| {
        let text = world.metrics_text();
        let line = text
            .lines()
            .find_map(|it| it.strip_prefix("signal_oldest_unacknowledged_age_seconds "));
        line.unwrap().parse::<u64>().unwrap()
    };
    let before = oldest(&world);
    assert!(before >= 890, "{before}");
    sleep(Duration::from_mins(1)).await;
    let after = oldest(&world);
    assert!((59..=61).contains(&(after - before)), "{before} {after}");
    world.stop().await;
    assert!(world.metric("signal_unacknowledged_runtimes 0"));
    assert!(world.metric("signal_oldest_unacknowledged_age_seconds 0"));
}
