//! A copy that is no longer required stays while a Pod uses it.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::environment::Environment;
use super::*;

/// Maximum time between two checks of a namespace whose copy is in use.
const LONGEST_LOOK: Duration = Duration::from_mins(5);

fn marked() -> Value {
    json!({"metadata": {"annotations": {"rt-bootstrapper.kyma-project.io/defaulted": "true"}}})
}

fn naming() -> Value {
    json!({"spec": {"imagePullSecrets": [{"name": "own"}, {"name": NAME}]}})
}

/// Returns an environment with a namespace that opts in and has its copy.
async fn served(prepare: impl FnOnce(&Environment)) -> Environment {
    let mut env = Environment::new();
    env.namespace("a", true);
    prepare(&env);
    env.start();
    env.until_value("a", Some(ONE)).await;
    env
}

fn withdraw(env: &Environment) {
    env.snapshots.set_configuration(configuration("", ""));
}

#[rstest]
#[case::marked(marked())]
#[case::naming(naming())]
#[case::pending(json!({"status": {"phase": "Pending"}, "spec": {"imagePullSecrets": [{"name": NAME}]}}))]
#[case::not_readable(json!({"spec": {"imagePullSecrets": vec![json!({}); 10_001]}}))]
#[case::unknown(json!({"status": {"phase": "Unknown"}, "spec": {"imagePullSecrets": [{"name": NAME}]}}))]
#[tokio::test(start_paused = true)]
async fn a_copy_that_a_pod_uses_is_kept_until_the_pod_is_gone(#[case] pod: Value) {
    let env = served(|env| env.running_pod("a", "p", &pod)).await;
    withdraw(&env);
    sleep(Duration::from_hours(3)).await;
    assert_eq!(env.writes(), ["apply a"]);
    env.delete_pod("a", "p");
    env.until_value("a", None).await;
    assert_eq!(env.writes(), ["apply a", "delete a"]);
}

/// A page of hostile Pods has many megabytes, and the copies of many namespaces may be withdrawn at once.
#[tokio::test(start_paused = true)]
async fn pods_are_listed_one_page_at_a_time() {
    let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    let env = served(|env| names.iter().for_each(|it| env.namespace(it, true))).await;
    for name in &names {
        env.until_value(name, Some(ONE)).await;
    }
    let hold = env.server.fault("list pods").hold();
    withdraw(&env);
    // Ten seconds after the copies are not needed, and before the first list times out.
    sleep(Duration::from_secs(15)).await;
    assert_eq!(hold.hits(), 1);
    drop(hold);
    for name in &names {
        env.until_value(name, None).await;
    }
}

#[rstest]
#[case::succeeded("Succeeded")]
#[case::failed("Failed")]
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_finished_keeps_no_copy(#[case] phase: &str) {
    let mut pod = naming();
    json_patch::merge(&mut pod, &marked());
    json_patch::merge(&mut pod, &json!({"status": {"phase": phase}}));
    let env = served(|env| env.running_pod("a", "p", &pod)).await;
    withdraw(&env);
    env.until_value("a", None).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_finishes_frees_the_copy() {
    let env = served(|env| env.running_pod("a", "p", &naming())).await;
    withdraw(&env);
    env.quiet().await;
    assert_eq!(env.value("a").as_deref(), Some(ONE));
    let mut finished = naming();
    json_patch::merge(&mut finished, &json!({"status": {"phase": "Succeeded"}}));
    env.running_pod("a", "p", &finished);
    env.until_value("a", None).await;
}

#[rstest]
#[case::other_namespace("b", naming())]
#[case::other_secret("a", json!({"spec": {"imagePullSecrets": [{"name": "own"}, {}]}}))]
#[case::no_secret("a", json!({"metadata": {"annotations": {"team": "a"}}}))]
#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_use_the_copy_does_not_keep_it(
    #[case] namespace: &str,
    #[case] pod: Value,
) {
    let env = served(|env| env.running_pod(namespace, "p", &pod)).await;
    withdraw(&env);
    env.until_value("a", None).await;
}

#[rstest]
#[case::feature_withdrawn(configuration("", ""))]
#[case::selector_without_a_match(configuration(
    r#","imagePullSecret":{"namespaceSelector":{"matchLabels":{"no":"match"}}}"#,
    &format!("{FEATURE:?}"),
))]
#[tokio::test(start_paused = true)]
async fn a_typing_error_that_is_corrected_soon_removes_nothing(
    #[case] mistyped: Arc<Configuration>,
) {
    let env = served(|_| {}).await;
    env.snapshots.set_configuration(mistyped);
    sleep(Duration::from_secs(9)).await;
    env.snapshots.set_configuration(with_feature());
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
    assert_eq!(env.pod_lists("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_asks_no_longer_keeps_the_copy_under_its_pods() {
    let env = served(|env| env.running_pod("a", "p", &naming())).await;
    env.namespace("a", false);
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
    // When the copy is required again, it is updated at once, independent of the time of the next check.
    sleep(Duration::from_hours(1)).await;
    env.namespace("a", true);
    sleep(Duration::from_millis(100)).await;
    env.snapshots.set_pull_secret(source(TWO));
    env.until_value("a", Some(TWO)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_listed_once_for_each_look_and_looks_grow_apart() {
    let env = served(|env| {
        env.running_pod("a", "p", &naming());
        env.namespace("b", true);
    })
    .await;
    env.until_value("b", Some(ONE)).await;
    assert_eq!(env.pod_lists("a"), 0, "nothing is to be removed");
    withdraw(&env);
    env.until_value("b", None).await;
    assert_eq!((env.pod_lists("a"), env.pod_lists("b")), (1, 1));
    // No kind of event causes another list.
    for index in 0..20 {
        env.running_pod("a", &format!("p{index}"), &naming());
        let mut noted = copy("a", ONE);
        noted["metadata"]["annotations"] = json!({"note": index.to_string()});
        env.put(&noted);
        withdraw(&env);
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(env.pod_lists("a"), 1);
    sleep(Duration::from_hours(2)).await;
    let before = env.pod_lists("a");
    sleep(2 * LONGEST_LOOK).await;
    let looks = env.pod_lists("a") - before;
    assert!((2..=4).contains(&looks), "{looks} looks");
    assert_eq!(env.pod_lists("b"), 1);
}

#[rstest]
#[case::forbidden(403)]
#[case::broken(500)]
#[case::continue_token_expired(410)]
#[tokio::test(start_paused = true)]
async fn a_copy_is_kept_and_the_list_is_repeated_if_pods_cannot_be_listed(#[case] code: u16) {
    let env = served(|_| {}).await;
    let _refused = env.server.fault("list pods a/").times(5).status(code);
    withdraw(&env);
    env.until("the list is refused five times", |it| {
        it.pod_lists("a") == 5
    })
    .await;
    assert_eq!(env.writes(), ["apply a"]);
    env.until_value("a", None).await;
    assert_eq!(env.pod_lists("a"), 6);
}

#[rstest]
#[case::used_by_the_last_pod(true, 3)]
#[case::unused(false, 3)]
#[tokio::test(start_paused = true)]
async fn pods_are_listed_page_by_page(#[case] used: bool, #[case] pages: usize) {
    let env = served(|env| {
        for index in 0..25 {
            env.running_pod("a", &format!("p{index:02}"), &json!({}));
        }
        if used {
            env.running_pod("a", "z", &naming());
        }
    })
    .await;
    withdraw(&env);
    env.until("all pages are read", |it| it.pod_lists("a") == pages)
        .await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(env.value("a").is_some(), used);
    assert_eq!(env.pod_lists("a"), pages);
    // The lists have a limited size, and exclude finished Pods.
    let lists = env.server.requests_of("list pods a/");
    let unfinished = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
    let bounded = |uri: &str| uri.contains(unfinished) && uri.contains("limit=10");
    assert!(lists.iter().all(|it| bounded(&it.uri)), "{lists:?}");
}
