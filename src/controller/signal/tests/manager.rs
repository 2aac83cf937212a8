//! Tests from the signal to its acknowledgement by KIM, and of the keys that KIM leaves.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tokio::time::sleep;

use super::super::*;
use super::env::*;

const BOTH: SignalKeys = SignalKeys::Both { obeyed: None };

async fn signalled(keys: SignalKeys) -> Env {
    let mut env = Env::new(&["a"]);
    env.settings.keys = keys;
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.quiet().await;
    env.forget();
    env
}

#[rstest]
#[case::annotation(SignalKeys::Only(Place::Annotation), "annotations")]
#[case::label(SignalKeys::Only(Place::Label), "labels")]
#[tokio::test(start_paused = true)]
async fn a_signal_that_the_manager_takes_whole_needs_nothing_more(
    #[case] keys: SignalKeys,
    #[case] map: &str,
) {
    let env = signalled(keys).await;
    assert_eq!(env.counts(), (0, 1));
    env.take("a", map);
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert_eq!(env.counts(), (0, 0));
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
    let env = signalled(keys).await;
    env.take("a", map);
    env.quiet().await;
    assert_eq!(
        env.signals(),
        [format!("a {}", json!({"metadata": removal}))]
    );
    assert_eq!(env.keys("a"), (false, false));
    assert_eq!(env.counts(), (0, 0));
    assert!(env.metric("signal_writes_total{action=\"remove\"}", 1));
    env.forget();
    env.change("three.example");
    env.until_signalled(&["a"]).await;
    assert_eq!(env.keys("a"), (true, true));
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
    let env = signalled(SignalKeys::Both {
        obeyed: Some(obeyed),
    })
    .await;
    env.take("a", vanishes);
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert_eq!(env.counts(), (0, 1));
    env.take("a", taken);
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert_eq!(env.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn standing_signal_is_not_written_again_and_a_change_meanwhile_is_not_lost() {
    let env = signalled(SignalKeys::Only(Place::Annotation)).await;
    env.change("three.example");
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert_eq!(env.counts(), (1, 0));
    env.take("a", "annotations");
    env.until_signalled(&["a"]).await;
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    assert_eq!(env.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn signal_of_another_client_is_not_written_again_but_followed_by_ours() {
    let mut env = Env::new(&["b"]);
    let mut forced = runtime("a");
    forced["metadata"]["annotations"][KEY] = json!("true");
    env.kcp.put(forced);
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["b"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["b"]);
    // The key may have been set before the change.
    env.take("a", "annotations");
    env.until_signalled(&["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_signal_is_on_its_way_is_not_lost() {
    let env = Env::initialized(&["a"]).await;
    let hold = env.kcp.fault("patch runtimes").hold();
    env.change("two.example");
    env.until("sent", |it| !it.signals().is_empty()).await;
    env.change("three.example");
    sleep(Duration::from_secs(1)).await;
    drop(hold);
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    env.take("a", "annotations");
    env.until_signalled(&["a", "a"]).await;
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a", "a"]);
    assert_eq!(env.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_quicker_than_the_watch_is_understood() {
    let env = Env::initialized(&["a"]).await;
    env.change("two.example");
    env.until("stands", |it| it.keys("a").1).await;
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
    assert_eq!(env.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_signal_on_a_runtime_that_goes_over_to_direct_is_taken_back() {
    let env = signalled(BOTH).await;
    let mode = json!({"metadata": {"labels": {"rt-bootstrapper.kyma-project.io/mode": "direct"}}});
    env.kcp.merge("runtimes", "a", &mode);
    env.quiet().await;
    assert_eq!(env.keys("a"), (false, false));
    assert_eq!(env.signalled(), ["a"]);
    assert_eq!(env.counts(), (0, 0));
    env.change("three.example");
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"]);
}

/// The controller `direct` signals an orphaned runtime, and then removes the resource.
#[tokio::test(start_paused = true)]
async fn what_the_manager_leaves_of_a_hand_back_is_removed() {
    let mut env = Env::new(&["a"]);
    env.settings.keys = BOTH;
    env.kcp.put(bootstrapper("a"));
    env.start().await;
    env.quiet().await;
    let told = json!({"labels": {KEY: "true"}, "annotations": {KEY: "true"}});
    env.kcp.merge("runtimes", "a", &json!({"metadata": told}));
    env.quiet().await;
    assert_eq!(env.keys("a"), (true, true), "it is direct still");
    env.kcp.delete("runtimebootstrappers", "a");
    env.quiet().await;
    assert!(env.signals().is_empty());
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.keys("a"), (false, false));
    assert_eq!(env.signalled(), ["a"]);
    assert_eq!(env.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn runtimes_that_are_listed_again_are_not_signalled_again() {
    let env = signalled(BOTH).await;
    env.kcp.store().expire_watches();
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    env.kcp.store().expire_watches();
    env.take("a", "annotations");
    env.quiet().await;
    assert_eq!(env.signals().len(), 1, "the leftover: {:?}", env.signals());
    assert_eq!(env.keys("a"), (false, false));
}

/// Another client sets the key that KIM reads, for example KIM's own controller for changed sources.
#[tokio::test(start_paused = true)]
async fn key_that_another_client_sets_later_is_left_to_kim() {
    let env = signalled(BOTH).await;
    env.take("a", "annotations");
    env.quiet().await;
    env.forget();
    let forced = json!({"metadata": {"annotations": {KEY: "true"}}});
    env.kcp.merge("runtimes", "a", &forced);
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    assert!(env.keys("a").1);
    assert!(env.metric("signal_unacknowledged_runtimes", 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_runtime_that_goes() {
    let env = signalled(BOTH).await;
    env.kcp.delete("runtimes", "a");
    env.quiet().await;
    assert!(env.signals().is_empty());
    assert_eq!(env.counts(), (0, 0));
    assert!(env.metric("signal_unacknowledged_runtimes", 0));
}

#[tokio::test(start_paused = true)]
async fn how_long_a_signal_stands_can_be_seen() {
    let mut env = signalled(SignalKeys::Only(Place::Annotation)).await;
    assert!(env.metric("signal_unacknowledged_runtimes", 1));
    let oldest = |env: &Env| {
        env.samples()
            .count("signal_oldest_unacknowledged_age_seconds")
    };
    let before = oldest(&env);
    assert!(before >= 890, "{before}");
    sleep(Duration::from_mins(1)).await;
    let after = oldest(&env);
    assert!((59..=61).contains(&(after - before)), "{before} {after}");
    env.stop().await;
    assert!(env.metric("signal_unacknowledged_runtimes", 0));
    assert!(env.metric("signal_oldest_unacknowledged_age_seconds", 0));
}
