//! What is not signalled while a source cannot be used, as the manager would copy it, and that nothing of it is lost.

use std::num::NonZeroU32;

use rstest::rstest;
use serde_json::{Value, json};

use super::world::*;

const MODE: &str = "rt-bootstrapper.kyma-project.io/mode";

fn of_another_type() -> Value {
    let mut secret = pull_secret("one");
    secret["type"] = json!("Opaque");
    secret
}

fn no_pem() -> Value {
    let mut bundle = trust_bundle();
    bundle["spec"]["trustBundle"] = json!("no PEM");
    bundle
}

fn without_the_key() -> Value {
    let mut config_map = config_map("one.example");
    config_map["data"] = json!({"another-key.json": "{}"});
    config_map
}

/// One whose three sources are known and whose pull Secret then cannot be used.
async fn unusable(names: &[&str]) -> World {
    let mut world = World::new(names);
    world.kcp.put("secrets", pull_secret("one"));
    world.kcp.put("clustertrustbundles", trust_bundle());
    world.start().await;
    world.quiet().await;
    world.kcp.put("secrets", of_another_type());
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    world
}

fn due(names: &str) -> [(String, String); 1] {
    [("signal.pending".to_owned(), names.to_owned())]
}

#[rstest]
#[case::a_secret_of_another_type("secrets", of_another_type(), |world: &World| world.change("two.example"))]
#[case::no_pem("clustertrustbundles", no_pem(), |world: &World| world.change("two.example"))]
#[case::a_document_without_its_key("configmaps", without_the_key(), |world: &World| {
    world.kcp.put("secrets", pull_secret("two"));
})]
#[tokio::test(start_paused = true)]
async fn nobody_is_signalled_for_one_source_while_another_cannot_be_used(
    #[case] plural: &str,
    #[case] broken: Value,
    #[case] change: fn(&World),
) {
    let mut world = World::new(&["a", "b"]);
    let name = broken["metadata"]["name"].as_str().unwrap().to_owned();
    let mut usable = vec![
        ("configmaps", config_map("one.example")),
        ("secrets", pull_secret("one")),
        ("clustertrustbundles", trust_bundle()),
    ];
    for (plural, object) in &usable {
        world.kcp.put(plural, object.clone());
    }
    world.start().await;
    world.quiet().await;
    world.kcp.put(plural, broken);
    world.quiet().await;
    change(&world);
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    assert_eq!(world.record(), due("a b"));
    assert!(world.metric("signal_pending_runtimes 2"));
    // Mended to what it was, which is no change by itself.
    usable.retain(|(_, object)| object["metadata"]["name"] == name);
    world.kcp.put(plural, usable.remove(0).1);
    world.until_signalled(&["a", "b"]).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["a", "b"], "once");
}

#[rstest]
#[case::to_something_new(|world: &World| world.kcp.put("secrets", pull_secret("two")))]
#[case::by_its_deletion(|world: &World| world.kcp.delete("secrets", "pull"))]
#[tokio::test(start_paused = true)]
async fn however_it_is_mended_everybody_is_signalled_once(#[case] mend: fn(&World)) {
    let world = unusable(&["a", "b"]).await;
    world.change("two.example");
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    mend(&world);
    world.until_signalled(&["a", "b"]).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_meanwhile_is_remembered() {
    let world = unusable(&["a"]).await;
    world.kcp.delete("clustertrustbundles", "roots");
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    let record = world.kcp.object("configmaps", RECORD).unwrap();
    assert_eq!(record["data"]["lastSeen.trustBundle"], "deleted");
    world.kcp.put("secrets", pull_secret("one"));
    world.until_signalled(&["a"]).await;
}

#[rstest]
#[case::before_the_change(true)]
#[case::after_the_change(false)]
#[tokio::test(start_paused = true)]
async fn whoever_leads_next_withholds_and_loses_nothing(#[case] changed_while_down: bool) {
    let mut world = unusable(&["a", "b"]).await;
    if changed_while_down {
        world.kill().await;
        world.change("two.example");
    } else {
        world.change("two.example");
        world.quiet().await;
        world.kill().await;
    }
    world.start().await;
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    assert_eq!(world.record(), due("a b"));
    world.kill().await;
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.until_signalled(&["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn signals_that_were_not_given_yet_are_withheld_and_those_that_stand_are_repeated() {
    let mut world = World::new(&["a", "b", "c", "d"]);
    world.settings.per_second = NonZeroU32::MIN;
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world
        .until("the first", |it| {
            !it.signals().is_empty() && !it.kcp.is_writing()
        })
        .await;
    world.kcp.put("secrets", of_another_type());
    world.quiet().await;
    let first = world.signalled();
    assert_eq!(first.len(), 1);
    // The manager takes it now, and copies what cannot be used.
    world.take(&first[0], "annotations");
    world.quiet().await;
    assert_eq!(world.signalled(), first);
    world.kcp.put("secrets", pull_secret("one"));
    let mut expected = [&["a", "b", "c", "d"].map(str::to_owned)[..], &first].concat();
    expected.sort();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    world.until_signalled(&expected).await;
    for name in ["a", "b", "c", "d"] {
        world.take(name, "annotations");
    }
    world.quiet().await;
    assert_eq!(world.signalled(), expected);
    assert!(world.record().is_empty());
}

/// Also where the source is mended, to what it was, before the next one leads.
#[tokio::test(start_paused = true)]
async fn what_stood_is_repeated_by_whoever_leads_next() {
    let mut world = World::new(&["a"]);
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.quiet().await;
    world.change("two.example");
    world.until_signalled(&["a"]).await;
    world.quiet().await;
    world.kcp.put("secrets", of_another_type());
    world.quiet().await;
    world.kill().await;
    world.take("a", "annotations");
    world.kcp.put("secrets", pull_secret("one"));
    world.start().await;
    world.until_signalled(&["a", "a"]).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_meanwhile_is_forgotten() {
    let world = unusable(&["a", "b"]).await;
    world.change("two.example");
    world.quiet().await;
    let direct = json!({"metadata": {"labels": {MODE: "direct"}}});
    world.kcp.merge("runtimes", "a", &direct);
    world.quiet().await;
    assert_eq!(world.record(), due("b"));
    world.kcp.put("secrets", pull_secret("one"));
    world.until_signalled(&["b"]).await;
    world.quiet().await;
    assert_eq!(world.signalled(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn why_signals_wait_is_said_once_and_not_any_more_afterwards() {
    let world = unusable(&["a"]).await;
    world.change("two.example");
    world.quiet().await;
    world.change("three.example");
    world.quiet().await;
    let (ready, report) = world.readiness.report();
    let line = report
        .lines()
        .find(|it| it.starts_with("signal: "))
        .unwrap();
    assert!(ready && line.contains("no Runtime is signaled"), "{report}");
    assert!(line.contains("pullSecret: type: expected"), "{report}");
    let events = world.kcp.lock().events.clone();
    let said = events.iter().filter(|it| *it == "SignalsSuspended").count();
    assert_eq!(said, 1, "{events:?}");
    world.kcp.put("secrets", pull_secret("one"));
    world.until_signalled(&["a"]).await;
    let (_, report) = world.readiness.report();
    assert!(report.contains("signal: ready\n"), "{report}");
}

/// Direct mode tells the manager of whom it hands back all the same, and the manager copies what there is.
#[tokio::test(start_paused = true)]
async fn who_is_handed_back_meanwhile_is_signalled_again() {
    let world = unusable(&[]).await;
    world.kcp.put("runtimes", runtime("a"));
    let resource = json!({"metadata": {"name": "a"}});
    world.kcp.put("runtimebootstrappers", resource);
    world.quiet().await;
    let told = json!({"metadata": {"annotations": {KEY: "true"}}});
    world.kcp.merge("runtimes", "a", &told);
    world.quiet().await;
    world.kcp.delete("runtimebootstrappers", "a");
    world.quiet().await;
    world.take("a", "annotations");
    world.quiet().await;
    assert!(world.signals().is_empty(), "{:?}", world.signals());
    world.kcp.put("secrets", pull_secret("one"));
    world.until_signalled(&["a"]).await;
}
