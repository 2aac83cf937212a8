//! The whole mirror against an API server.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::{Recorded, Rights};
use tokio::time::{Instant, sleep};

use super::world::World;
use super::*;

fn running(prepare: impl FnOnce(&World)) -> World {
    let mut world = World::new();
    prepare(&world);
    world.start();
    world
}

#[tokio::test(start_paused = true)]
async fn a_new_namespace_that_asks_gets_its_copy_at_once() {
    let world = running(|_| {});
    sleep(Duration::from_mins(1)).await;
    let began = Instant::now();
    world.namespace("a", true);
    world.namespace("silent", false);
    world.until_value("a", Some(ONE)).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    let secret = world.secret("a", NAME).unwrap();
    assert_eq!(secret["type"], TYPE);
    assert_eq!(secret["data"], json!({".dockerconfigjson": ONE}));
    world.quiet().await;
    assert_eq!(world.writes(), ["apply a"]);
    assert!(world.metric("pull_secret_copies 1"));
    assert!(world.metric("pull_secret_writes_total{action=\"apply\"} 1"));
    // Pods of all namespaces are read by their metadata alone.
    let pods = world.server.requests_of("list|watch pods");
    let by_metadata = |it: &Recorded| it.accept.contains("as=PartialObjectMetadata");
    assert!(!pods.is_empty() && pods.iter().all(by_metadata), "{pods:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_where_nothing_differs() {
    let mut world = running(|world| {
        world.namespace("a", true);
        world.namespace("b", false);
        world.put(&copy("a", ONE));
    });
    world
        .until("the copy is counted", |it| {
            it.metric("pull_secret_copies 1")
        })
        .await;
    // Labels and annotations of others are none of our business.
    let mut noted = copy("a", ONE);
    noted["metadata"]["annotations"] = json!({"team": "a"});
    world.put(&noted);
    // The same source read again, and the same Namespace.
    world.knowledge.set_pull_secret(source(ONE));
    world.namespace("a", true);
    world.quiet().await;
    assert!(world.writes().is_empty(), "{:?}", world.writes());
    world.stop().await;
    assert!(world.metric("pull_secret_copies 0"));
}

#[tokio::test(start_paused = true)]
async fn the_public_managers_copy_is_adopted_by_one_write() {
    let world = running(|world| {
        world.namespace("a", true);
        world.put(&with(copy("a", TWO), "/metadata/labels", json!({})));
    });
    world.until_value("a", Some(ONE)).await;
    world.quiet().await;
    assert_eq!(world.writes(), ["apply a"]);
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
    let world = running(|world| {
        world.namespace("a", true);
        world.put(&copy("a", ONE));
    });
    world
        .until("the copy is counted", |it| {
            it.metric("pull_secret_copies 1")
        })
        .await;
    let began = Instant::now();
    world.put(&edited);
    world
        .until("reset", |it| it.writes().len() == writes.len())
        .await;
    assert!(began.elapsed() < Duration::from_millis(200));
    world.quiet().await;
    assert_eq!(world.writes(), writes);
    let secret = world.secret("a", NAME).unwrap();
    assert_eq!(secret["data"], json!({".dockerconfigjson": ONE}));
    assert_eq!(secret["type"], TYPE);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_copy_comes_back_at_once() {
    let world = running(|world| {
        world.namespace("a", true);
        world.put(&copy("a", ONE));
    });
    world
        .until("the copy is counted", |it| {
            it.metric("pull_secret_copies 1")
        })
        .await;
    let began = Instant::now();
    world.delete_secret("a", NAME);
    world.until_value("a", Some(ONE)).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    world.quiet().await;
    assert_eq!(world.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn a_fight_costs_one_write_a_second() {
    let world = running(|world| world.namespace("a", true));
    let began = Instant::now();
    for round in 1..=10 {
        world.until_value("a", Some(ONE)).await;
        world.put(&copy("a", TWO));
        let writes = world.writes().len();
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
    let world = running(|world| {
        world.namespace("a", true);
        world.namespace("nobody-asks", false);
        world.put(&foreign("a"));
        world.put(&foreign("nobody-asks"));
    });
    world.until("reported", |it| !it.events().is_empty()).await;
    world.put(&with(
        foreign("a"),
        "/metadata/labels",
        json!({"edited": "yes"}),
    ));
    world.knowledge.set_pull_secret(source(TWO));
    world.quiet().await;
    assert_eq!(world.events(), ["a"]);
    assert!(world.writes().is_empty());
    assert!(world.metric("pull_secret_conflicts 1"));
    assert!(world.metric("pull_secret_copies 0"));

    world.delete_secret("a", NAME);
    world.until_value("a", Some(TWO)).await;
    assert!(world.metric("pull_secret_conflicts 0"));

    // Another stranger is news.
    world.delete_secret("nobody-asks", NAME);
    world.put(&with(foreign("a"), "/metadata/uid", json!("another")));
    world
        .until("reported again", |it| it.events().len() == 2)
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_brings_the_copy_and_the_last_one_takes_it_away() {
    let world = running(|world| world.namespace("a", false));
    world.pod("a", "one");
    world.until_value("a", Some(ONE)).await;
    world.pod("a", "two");
    world.delete_pod("a", "one");
    world.quiet().await;
    assert_eq!(world.writes(), ["apply a"]);

    let began = Instant::now();
    world.delete_pod("a", "two");
    world.until_value("a", None).await;
    assert!(began.elapsed() >= Duration::from_secs(10));
    world.quiet().await;
    assert_eq!(world.writes(), ["apply a", "delete a"]);
    assert!(world.metric("pull_secret_writes_total{action=\"remove\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_replaced_finds_the_copy() {
    let world = running(|world| {
        world.namespace("a", false);
        world.pod("a", "db-0");
    });
    world.until_value("a", Some(ONE)).await;
    for _ in 0..5 {
        world.delete_pod("a", "db-0");
        sleep(Duration::from_secs(7)).await;
        world.pod("a", "db-0");
        sleep(Duration::from_secs(7)).await;
    }
    world.quiet().await;
    assert_eq!(world.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_source_reaches_every_namespace_a_few_at_a_time() {
    let world = running(|world| {
        for index in 0..50 {
            let name = format!("n{index:02}");
            world.namespace(&name, true);
            world.put(&copy(&name, ONE));
        }
    });
    world
        .until("all are counted", |it| it.metric("pull_secret_copies 50"))
        .await;
    world.knowledge.set_pull_secret(source(TWO));
    world
        .until("all have it", |it| {
            (0..50).all(|index| it.value(&format!("n{index:02}")).as_deref() == Some(TWO))
        })
        .await;
    world.quiet().await;
    assert_eq!(world.writes().len(), 50);
    assert_eq!(world.server.most_at_once("apply|delete secrets"), 8);
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
    let world = running(|world| {
        for name in ["a", "b", "c"] {
            world.namespace(name, true);
        }
        let name = "apply secrets a/registry-credentials";
        let _refused = world.server.fault(name).times(3).status(code);
    });
    let began = Instant::now();
    world.until_value("b", Some(ONE)).await;
    world.until_value("c", Some(ONE)).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    assert_eq!(world.value("a"), None);
    world.until_value("a", Some(ONE)).await;
    // Half of 1 + 2 + 4 seconds at least.
    assert!(began.elapsed() >= Duration::from_millis(3500));
    world.quiet().await;
    let tries = world.writes().iter().filter(|it| *it == "apply a").count();
    assert_eq!(tries, 4);
    assert!(world.metric(&format!(
        "pull_secret_write_errors_total{{reason={kind:?}}} 3"
    )));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_gone_is_forgotten() {
    let world = running(|world| world.namespace("a", true));
    world.until_value("a", Some(ONE)).await;
    sleep(Duration::from_secs(2)).await;
    world.server.remove("namespaces", "", "a");
    world.delete_secret("a", NAME);
    world
        .until("a write is refused", |it| it.writes().len() == 2)
        .await;
    world.knowledge.set_namespace("a", None);
    world.quiet().await;
    assert_eq!(world.writes().len(), 2);
    assert!(!world.metric("pull_secret_write_errors_total{reason=\"namespace_gone\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn without_a_source_copies_stay_as_they_are() {
    let world = running(|world| {
        world.namespace("a", true);
        world.namespace("b", true);
        world.put(&copy("a", ONE));
        world.knowledge.set_pull_secret(PullSecretSource::default());
    });
    world.quiet().await;
    assert_eq!(
        (world.value("a").as_deref(), world.value("b")),
        (Some(ONE), None)
    );
    world.knowledge.set_pull_secret(source(ONE));
    world.until_value("b", Some(ONE)).await;
    world.knowledge.set_pull_secret(PullSecretSource::default());
    world.quiet().await;
    assert_eq!(world.writes(), ["apply b"]);
}

#[tokio::test(start_paused = true)]
async fn a_feature_that_is_not_available_writes_nothing() {
    let world = running(|world| {
        world.knowledge.set_configuration(configuration("", ""));
        world.namespace("a", true);
        world.pod("a", "p");
    });
    world.quiet().await;
    assert!(world.writes().is_empty());
    world.knowledge.set_configuration(with_feature());
    world.until_value("a", Some(ONE)).await;
    world.knowledge.set_configuration(configuration("", ""));
    world.until_value("a", None).await;
}

#[tokio::test(start_paused = true)]
async fn the_source_and_what_terminates_are_no_targets() {
    let world = running(|world| {
        world.namespace("kyma-system", true);
        world.put(&copy("kyma-system", TWO));
        world.namespace("going", true);
        let mut going = namespace(true);
        going.terminating = true;
        world.knowledge.set_namespace("going", Some(going));
    });
    world.quiet().await;
    assert!(world.writes().is_empty());
    assert!(world.metric("pull_secret_copies 0"));
}

#[tokio::test(start_paused = true)]
async fn what_changed_while_the_watch_was_broken_is_seen() {
    let world = running(|world| {
        for name in ["a", "b"] {
            world.namespace(name, true);
            world.put(&copy(name, ONE));
        }
        world.namespace("c", false);
        world.put(&copy("c", ONE));
        world.pod("c", "p");
    });
    world
        .until("all are counted", |it| it.metric("pull_secret_copies 3"))
        .await;
    world.delete_secret("a", NAME);
    world.put(&copy("b", TWO));
    world.delete_pod("c", "p");
    world.server.store().expire_watches();
    world.until_value("a", Some(ONE)).await;
    world.until_value("b", Some(ONE)).await;
    world.until_value("c", None).await;
    assert_eq!(world.writes().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_pods_namespaces_are_served_and_nothing_is_removed() {
    let world = running(|world| {
        let _forbidden = world.server.fault("list|watch pods").status(403);
        world.namespace("a", true);
        world.namespace("b", false);
        world.put(&copy("b", ONE));
    });
    world.until_value("a", Some(ONE)).await;
    world.quiet().await;
    assert_eq!(world.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn under_another_name_copies_are_made_anew_and_the_old_ones_stay() {
    let world = running(|world| {
        world.namespace("a", true);
        // Another name needs rights of its own (`--image-pull-secret-name`).
        world.server.behave(|it| it.rights = Rights::default());
    });
    world.until_value("a", Some(ONE)).await;
    let renamed = configuration(
        r#","imagePullSecret":{"name":"other"}"#,
        &format!("{FEATURE:?}"),
    );
    world.knowledge.set_configuration(renamed);
    world
        .until("a copy of the other name", |it| {
            it.secret("a", "other").is_some()
        })
        .await;
    world.delete_secret("a", "other");
    world
        .until("it is watched", |it| it.secret("a", "other").is_some())
        .await;
    assert_eq!(world.value("a").as_deref(), Some(ONE));
    assert!(world.metric("pull_secret_copies 1"));
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_is_completed_on_shutdown() {
    let mut world = running(|world| {
        world.namespace("a", true);
        world.put(&with(copy("a", ONE), "/type", json!("Opaque")));
    });
    world
        .until("the removal has begun", |it| it.writes() == ["delete a"])
        .await;
    world.stop().await;
    assert_eq!(world.writes(), ["delete a", "apply a"]);
    assert_eq!(world.value("a").as_deref(), Some(ONE));
}
