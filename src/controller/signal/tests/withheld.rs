//! Tests of signals that are withheld while a source cannot be used, because KIM would copy it, and of their later delivery.

use std::num::NonZeroU32;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::env::*;

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

/// Returns an environment whose three sources are known, and whose pull Secret then becomes invalid.
async fn unusable(names: &[&str]) -> Env {
    let mut env = Env::new(names);
    env.kcp.put(pull_secret("one"));
    env.kcp.put(trust_bundle());
    env.start().await;
    env.quiet().await;
    env.kcp.put(of_another_type());
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    env
}

#[rstest]
#[case::a_secret_of_another_type(of_another_type(), |env: &Env| env.change("two.example"))]
#[case::no_pem(no_pem(), |env: &Env| env.change("two.example"))]
#[case::a_document_without_its_key(without_the_key(), |env: &Env| {
    env.kcp.put(pull_secret("two"));
})]
#[tokio::test(start_paused = true)]
async fn no_runtime_is_signalled_for_one_source_while_another_cannot_be_used(
    #[case] broken: Value,
    #[case] change: fn(&Env),
) {
    let mut env = Env::new(&["a", "b"]);
    let name = broken["metadata"]["name"].as_str().unwrap().to_owned();
    let mut usable = vec![
        config_map("one.example"),
        pull_secret("one"),
        trust_bundle(),
    ];
    for object in &usable {
        env.kcp.put(object.clone());
    }
    env.start().await;
    env.quiet().await;
    env.kcp.put(broken);
    env.quiet().await;
    change(&env);
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    assert_eq!(env.counts(), (2, 0));
    assert!(env.metric("signal_pending_runtimes", 2));
    // The source is corrected to its previous content, which is not a change.
    usable.retain(|object| object["metadata"]["name"] == name);
    env.kcp.put(usable.remove(0));
    env.until_signalled(&["a", "b"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a", "b"], "once");
}

#[rstest]
#[case::to_something_new(|env: &Env| env.kcp.put(pull_secret("two")))]
#[case::by_its_deletion(|env: &Env| env.kcp.delete("secrets", "pull"))]
#[tokio::test(start_paused = true)]
async fn however_it_is_repaired_all_runtimes_are_signalled_once(#[case] mend: fn(&Env)) {
    let env = unusable(&["a", "b"]).await;
    env.change("two.example");
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    mend(&env);
    env.until_signalled(&["a", "b"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_meanwhile_is_remembered() {
    let env = unusable(&["a"]).await;
    env.kcp.delete("clustertrustbundles", "roots");
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    let record = env.kcp.object("configmaps", STATE).unwrap();
    assert_eq!(record["data"]["lastSeen.trustBundle"], "deleted");
    env.kcp.put(pull_secret("one"));
    env.until_signalled(&["a"]).await;
}

#[rstest]
#[case::before_the_change(true)]
#[case::after_the_change(false)]
#[tokio::test(start_paused = true)]
async fn the_next_leader_withholds_and_loses_nothing(#[case] changed_while_down: bool) {
    let mut env = unusable(&["a", "b"]).await;
    if changed_while_down {
        env.kill().await;
        env.change("two.example");
    } else {
        env.change("two.example");
        env.quiet().await;
        env.kill().await;
    }
    env.start().await;
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    assert_eq!(env.counts(), (2, 0));
    env.kill().await;
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.until_signalled(&["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn signals_that_were_not_given_yet_are_withheld_and_those_that_stand_are_repeated() {
    let mut env = Env::new(&["a", "b", "c", "d"]);
    env.settings.per_second = NonZeroU32::MIN;
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until("the first", |it| {
        !it.signals().is_empty() && !it.is_writing()
    })
    .await;
    env.kcp.put(of_another_type());
    env.quiet().await;
    let first = env.signalled().remove(0);
    // The Runtime is marked, so that the next leader repeats the signal as well.
    assert_eq!(env.signals().len(), 2);
    assert_eq!(env.signaled_revision(&first).as_deref(), Some("stale"));
    // KIM acknowledges the signal now, and copies the invalid source.
    env.take(&first, "annotations");
    env.quiet().await;
    assert_eq!(env.signals().len(), 2);
    env.forget();
    env.kcp.put(pull_secret("one"));
    let expected = ["a", "b", "c", "d"];
    env.until_signalled(&expected).await;
    for name in ["a", "b", "c", "d"] {
        env.take(name, "annotations");
    }
    env.quiet().await;
    assert_eq!(env.signalled(), expected);
    assert_eq!(env.counts(), (0, 0));
}

/// KIM acknowledges before it copies: it may copy the invalid source to a Runtime that is not Ready, and to one whose
/// signal it has just acknowledged.
#[rstest]
#[case::that_is_not_ready(&json!({"status": {"state": "Pending"}}), Duration::from_mins(5))]
#[case::that_was_just_acknowledged(&json!({}), Duration::from_secs(5))]
#[tokio::test(start_paused = true)]
async fn a_runtime_that_kim_reconciles_meanwhile_is_signalled_again(
    #[case] state: &Value,
    #[case] since_acknowledgement: Duration,
) {
    let mut env = Env::new(&["a", "b"]);
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a", "b"]).await;
    env.take("b", "annotations");
    env.quiet().await;
    env.take("a", "annotations");
    env.kcp.merge("runtimes", "a", state);
    sleep(since_acknowledgement).await;
    env.kcp.put(of_another_type());
    env.quiet().await;
    let ready = json!({"status": {"state": "Ready"}});
    env.kcp.merge("runtimes", "a", &ready);
    env.quiet().await;
    assert_eq!(env.signaled_revision("a").as_deref(), Some("stale"));
    env.forget();
    env.kcp.put(pull_secret("one"));
    env.until_signalled(&["a"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["a"], "b has a copy of the usable source");
}

/// The source is corrected to its previous content before the next leader starts.
#[tokio::test(start_paused = true)]
async fn the_next_leader_repeats_what_stood() {
    let mut env = Env::new(&["a"]);
    env.kcp.put(pull_secret("one"));
    env.start().await;
    env.quiet().await;
    env.change("two.example");
    env.until_signalled(&["a"]).await;
    env.quiet().await;
    env.kcp.put(of_another_type());
    env.quiet().await;
    env.kill().await;
    env.take("a", "annotations");
    env.kcp.put(pull_secret("one"));
    env.forget();
    env.start().await;
    env.until_signalled(&["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_becomes_direct_meanwhile_is_not_counted() {
    let env = unusable(&["a", "b"]).await;
    env.change("two.example");
    env.quiet().await;
    let direct = json!({"metadata": {"labels": {MODE: "direct"}}});
    env.kcp.merge("runtimes", "a", &direct);
    env.quiet().await;
    assert_eq!(env.counts(), (1, 0));
    env.kcp.put(pull_secret("one"));
    env.until_signalled(&["b"]).await;
    env.quiet().await;
    assert_eq!(env.signalled(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn why_signals_wait_is_said_once_and_not_any_more_afterwards() {
    let env = unusable(&["a"]).await;
    env.change("two.example");
    env.quiet().await;
    env.change("three.example");
    env.quiet().await;
    let (ready, report) = env.readiness.report();
    let line = report
        .lines()
        .find(|it| it.starts_with("signal: "))
        .unwrap();
    assert!(ready && line.contains("no Runtime is signaled"), "{report}");
    assert!(line.contains("pullSecret: type: expected"), "{report}");
    let events = env.kcp.events();
    let said = events.iter().filter(|it| *it == "SignalsSuspended").count();
    assert_eq!(said, 1, "{events:?}");
    env.kcp.put(pull_secret("one"));
    env.until_signalled(&["a"]).await;
    let (_, report) = env.readiness.report();
    assert!(report.contains("signal: ready\n"), "{report}");
}

/// The controller `direct` signals KIM for an orphaned Runtime anyway, and KIM copies the invalid source.
#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_handed_back_meanwhile_is_signaled_again() {
    let env = unusable(&[]).await;
    env.kcp.put(runtime("a"));
    let resource = bootstrapper("a");
    env.kcp.put(resource);
    env.quiet().await;
    let told = json!({"metadata": {"annotations": {KEY: "true"}}});
    env.kcp.merge("runtimes", "a", &told);
    env.quiet().await;
    env.kcp.delete("runtimebootstrappers", "a");
    env.quiet().await;
    assert_eq!(env.signaled_revision("a").as_deref(), Some("stale"));
    env.forget();
    env.take("a", "annotations");
    env.quiet().await;
    assert!(env.signals().is_empty(), "{:?}", env.signals());
    env.kcp.put(pull_secret("one"));
    env.until_signalled(&["a"]).await;
}
