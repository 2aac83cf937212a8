//! Tests of the complete synchronization with an API server.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Recorded;
use tokio::time::{Instant, sleep};

use super::environment::Environment;
use super::*;

fn running(prepare: impl FnOnce(&Environment)) -> Environment {
    let mut env = Environment::new();
    prepare(&env);
    env.start();
    env
}

#[tokio::test(start_paused = true)]
async fn a_new_namespace_that_asks_gets_its_copy_at_once() {
    let env = running(|_| {});
    sleep(Duration::from_mins(1)).await;
    let began = Instant::now();
    env.namespace("a", true);
    env.namespace("silent", false);
    env.until_value("a", Some(ONE)).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    let secret = env.secret("a", NAME).unwrap();
    assert_eq!(secret["type"], TYPE);
    assert_eq!(secret["data"], json!({".dockerconfigjson": ONE}));
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
    assert!(env.metric("pull_secret_copies 1"));
    assert!(env.metric("pull_secret_writes_total{action=\"apply\"} 1"));
    // Only the metadata of Pods of all namespaces is read.
    let pods = env.server.requests_of("list|watch pods");
    let by_metadata = |it: &Recorded| it.accept.contains("as=PartialObjectMetadata");
    assert!(!pods.is_empty() && pods.iter().all(by_metadata), "{pods:?}");
}

/// The watch has not observed the Secret when the copy is written.
#[tokio::test(start_paused = true)]
async fn a_secret_that_another_client_creates_meanwhile_is_not_overwritten() {
    let env = running(|_| {});
    let faults = env.server.fault("apply secrets").times(1);
    let _fault = faults.before(|server| server.put(&foreign("a")));
    env.namespace("a", true);
    env.until("an Event tells of it", |it| it.events() == ["a"])
        .await;
    env.quiet().await;
    assert_eq!(env.value("a").as_deref(), Some(TWO));
    assert_eq!(env.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_where_nothing_differs() {
    let mut env = running(|env| {
        env.namespace("a", true);
        env.namespace("b", false);
        env.put(&copy("a", ONE));
    });
    env.until("the copy is counted", |it| {
        it.metric("pull_secret_copies 1")
    })
    .await;
    // Labels and annotations of other clients are ignored.
    let mut noted = copy("a", ONE);
    noted["metadata"]["annotations"] = json!({"team": "a"});
    env.put(&noted);
    // The same source and the same Namespace are observed again.
    env.snapshots.set_pull_secret(source(ONE));
    env.namespace("a", true);
    env.quiet().await;
    assert!(env.writes().is_empty(), "{:?}", env.writes());
    env.stop().await;
    assert!(env.metric("pull_secret_copies 0"));
}

#[tokio::test(start_paused = true)]
async fn the_public_managers_copy_is_adopted_by_one_write() {
    let env = running(|env| {
        env.namespace("a", true);
        env.put(&with(copy("a", TWO), "/metadata/labels", json!({})));
    });
    env.until_value("a", Some(ONE)).await;
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
}

#[rstest]
#[case::edited(copy("a", TWO), &["apply a"])]
#[case::label_taken_away(with(copy("a", ONE), "/metadata/labels", json!({})), &["apply a"])]
#[case::another_type(with(copy("a", ONE), "/type", json!("Opaque")), &["delete a", "apply a"])]
#[case::a_key_more(
    with(copy("a", ONE), "/data", json!({".dockerconfigjson": ONE, "more": TWO})),
    &["delete a", "apply a"]
)]
#[tokio::test(start_paused = true)]
async fn an_edited_copy_is_reset_at_once(#[case] edited: Value, #[case] writes: &[&str]) {
    let env = running(|env| {
        env.namespace("a", true);
        env.put(&copy("a", ONE));
    });
    env.until("the copy is counted", |it| {
        it.metric("pull_secret_copies 1")
    })
    .await;
    let began = Instant::now();
    env.put(&edited);
    env.until("reset", |it| it.writes().len() == writes.len())
        .await;
    assert!(began.elapsed() < Duration::from_millis(200));
    env.quiet().await;
    assert_eq!(env.writes(), writes);
    let secret = env.secret("a", NAME).unwrap();
    assert_eq!(secret["data"], json!({".dockerconfigjson": ONE}));
    assert_eq!(secret["type"], TYPE);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_copy_comes_back_at_once() {
    let env = running(|env| {
        env.namespace("a", true);
        env.put(&copy("a", ONE));
    });
    env.until("the copy is counted", |it| {
        it.metric("pull_secret_copies 1")
    })
    .await;
    let began = Instant::now();
    env.delete_secret("a", NAME);
    env.until_value("a", Some(ONE)).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn a_fight_costs_one_write_a_second() {
    let env = running(|env| env.namespace("a", true));
    let began = Instant::now();
    for round in 1..=10 {
        env.until_value("a", Some(ONE)).await;
        env.put(&copy("a", TWO));
        let writes = env.writes().len();
        assert_eq!(writes, round);
    }
    assert!(
        began.elapsed() >= Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_foreign_secret_is_left_alone_and_reported_once() {
    let env = running(|env| {
        env.namespace("a", true);
        env.namespace("not-opted-in", false);
        env.put(&foreign("a"));
        env.put(&foreign("not-opted-in"));
    });
    env.until("reported", |it| !it.events().is_empty()).await;
    env.put(&with(
        foreign("a"),
        "/metadata/labels",
        json!({"edited": "yes"}),
    ));
    env.snapshots.set_pull_secret(source(TWO));
    env.quiet().await;
    assert_eq!(env.events(), ["a"]);
    assert!(env.writes().is_empty());
    assert!(env.metric("pull_secret_conflicts 1"));
    assert!(env.metric("pull_secret_copies 0"));

    env.delete_secret("a", NAME);
    env.until_value("a", Some(TWO)).await;
    assert!(env.metric("pull_secret_conflicts 0"));

    // Another Secret of another client is reported again.
    env.delete_secret("not-opted-in", NAME);
    env.put(&with(foreign("a"), "/metadata/uid", json!("another")));
    env.until("reported again", |it| it.events().len() == 2)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_brings_the_copy_and_the_last_one_takes_it_away() {
    let env = running(|env| env.namespace("a", false));
    env.pod("a", "one");
    env.until_value("a", Some(ONE)).await;
    env.pod("a", "two");
    env.delete_pod("a", "one");
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);

    let began = Instant::now();
    env.delete_pod("a", "two");
    env.until_value("a", None).await;
    assert!(began.elapsed() >= Duration::from_secs(10));
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a", "delete a"]);
    assert!(env.metric("pull_secret_writes_total{action=\"remove\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_replaced_finds_the_copy() {
    let env = running(|env| {
        env.namespace("a", false);
        env.pod("a", "db-0");
    });
    env.until_value("a", Some(ONE)).await;
    for _ in 0..5 {
        env.delete_pod("a", "db-0");
        sleep(Duration::from_secs(7)).await;
        env.pod("a", "db-0");
        sleep(Duration::from_secs(7)).await;
    }
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_source_reaches_every_namespace_a_few_at_a_time() {
    let env = running(|env| {
        for index in 0..50 {
            let name = format!("n{index:02}");
            env.namespace(&name, true);
            env.put(&copy(&name, ONE));
        }
    });
    env.until("all are counted", |it| it.metric("pull_secret_copies 50"))
        .await;
    env.snapshots.set_pull_secret(source(TWO));
    env.until("all have it", |it| {
        (0..50).all(|index| it.value(&format!("n{index:02}")).as_deref() == Some(TWO))
    })
    .await;
    env.quiet().await;
    assert_eq!(env.writes().len(), 50);
    assert_eq!(env.server.most_at_once("apply|delete secrets"), 8);
}

#[rstest]
#[case::broken(500, "refused")]
#[case::forbidden(403, "forbidden")]
#[case::conflict(409, "changed")]
#[tokio::test(start_paused = true)]
async fn one_namespace_that_fails_stops_no_other_and_is_tried_again(
    #[case] code: u16,
    #[case] kind: &str,
) {
    let env = running(|env| {
        for name in ["a", "b", "c"] {
            env.namespace(name, true);
        }
        let name = "apply secrets a/registry-credentials";
        let _refused = env.server.fault(name).times(3).status(code);
    });
    let began = Instant::now();
    env.until_value("b", Some(ONE)).await;
    env.until_value("c", Some(ONE)).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    assert_eq!(env.value("a"), None);
    env.until_value("a", Some(ONE)).await;
    // At least half of 1 + 2 + 4 seconds.
    assert!(began.elapsed() >= Duration::from_millis(3500));
    env.quiet().await;
    let tries = env.writes().iter().filter(|it| *it == "apply a").count();
    assert_eq!(tries, 4);
    assert!(env.metric(&format!(
        "pull_secret_write_errors_total{{reason={kind:?}}} 3"
    )));
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_write_is_not_lost() {
    let env = running(|env| env.namespace("a", true));
    env.until("the write is in flight", |it| it.writes() == ["apply a"])
        .await;
    assert!(!env.metric("pull_secret_writes_total{action=\"apply\"} 1"));
    env.snapshots.set_pull_secret(source(TWO));
    env.until_value("a", Some(TWO)).await;
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a", "apply a"]);
}

#[tokio::test(start_paused = true)]
async fn changes_do_not_shorten_the_pause_after_a_failure() {
    let env = running(|env| {
        let _refused = env.server.fault("apply secrets").times(3).status(500);
        env.namespace("a", true);
    });
    let began = Instant::now();
    for round in 0.. {
        env.snapshots.set_pull_secret(source([ONE, TWO][round % 2]));
        sleep(Duration::from_millis(100)).await;
        if env.value("a").is_some() {
            break;
        }
    }
    assert!(began.elapsed() >= Duration::from_millis(3500));
    assert_eq!(env.writes().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_gone_is_forgotten() {
    let env = running(|env| env.namespace("a", true));
    env.until_value("a", Some(ONE)).await;
    sleep(Duration::from_secs(2)).await;
    env.server.remove("namespaces", "", "a");
    env.delete_secret("a", NAME);
    env.until("a write is refused", |it| it.writes().len() == 2)
        .await;
    env.snapshots.set_namespace("a", None);
    env.quiet().await;
    assert_eq!(env.writes().len(), 2);
    assert!(!env.metric("pull_secret_write_errors_total{reason=\"namespace_gone\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn copies_are_unchanged_without_a_source() {
    let env = running(|env| {
        env.namespace("a", true);
        env.namespace("b", true);
        env.put(&copy("a", ONE));
        env.snapshots.set_pull_secret(PullSecretSource::default());
    });
    env.quiet().await;
    assert_eq!(
        (env.value("a").as_deref(), env.value("b")),
        (Some(ONE), None)
    );
    env.snapshots.set_pull_secret(source(ONE));
    env.until_value("b", Some(ONE)).await;
    env.snapshots.set_pull_secret(PullSecretSource::default());
    env.quiet().await;
    assert_eq!(env.writes(), ["apply b"]);
}

#[tokio::test(start_paused = true)]
async fn a_feature_that_is_not_available_writes_nothing() {
    let env = running(|env| {
        env.snapshots.set_configuration(configuration("", ""));
        env.namespace("a", true);
        env.pod("a", "p");
    });
    env.quiet().await;
    assert!(env.writes().is_empty());
    env.snapshots.set_configuration(with_feature());
    env.until_value("a", Some(ONE)).await;
    env.snapshots.set_configuration(configuration("", ""));
    env.until_value("a", None).await;
}

#[tokio::test(start_paused = true)]
async fn the_source_and_what_terminates_are_no_targets() {
    let env = running(|env| {
        env.namespace("kyma-system", true);
        env.put(&copy("kyma-system", TWO));
        env.namespace("going", true);
        let mut going = namespace(true);
        going.terminating = true;
        env.snapshots.set_namespace("going", Some(going));
    });
    env.quiet().await;
    assert!(env.writes().is_empty());
    assert!(env.metric("pull_secret_copies 0"));
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_the_watch_was_broken_is_seen() {
    let env = running(|env| {
        for name in ["a", "b"] {
            env.namespace(name, true);
            env.put(&copy(name, ONE));
        }
        env.namespace("c", false);
        env.put(&copy("c", ONE));
        env.pod("c", "p");
    });
    env.until("all are counted", |it| it.metric("pull_secret_copies 3"))
        .await;
    env.delete_secret("a", NAME);
    env.put(&copy("b", TWO));
    env.delete_pod("c", "p");
    env.server.store().expire_watches();
    env.until_value("a", Some(ONE)).await;
    env.until_value("b", Some(ONE)).await;
    env.until_value("c", None).await;
    assert_eq!(env.writes().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_pods_namespaces_are_served_and_nothing_is_removed() {
    let env = running(|env| {
        let _forbidden = env.server.fault("list|watch pods").status(403);
        env.namespace("a", true);
        env.namespace("b", false);
        env.put(&copy("b", ONE));
    });
    env.until_value("a", Some(ONE)).await;
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_is_completed_on_shutdown() {
    let mut env = running(|env| {
        env.namespace("a", true);
        env.put(&with(copy("a", ONE), "/type", json!("Opaque")));
    });
    env.until("the removal has begun", |it| it.writes() == ["delete a"])
        .await;
    env.stop().await;
    assert_eq!(env.writes(), ["delete a", "apply a"]);
    assert_eq!(env.value("a").as_deref(), Some(ONE));
}
