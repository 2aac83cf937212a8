//! A source that is deleted revokes the credentials: its copies are removed, even if they are in use.

use std::time::Duration;

use kube::api::ObjectMeta;
use rstest::rstest;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::environment::Environment;
use super::*;
use crate::snapshot::{ObservedObject, Requirements};

/// Longer than the time that an absence may take without being a deletion, and much shorter than all other timers.
const SOON: Duration = Duration::from_secs(15);

/// Returns two namespaces with a copy and one with a Secret of another client.
async fn copied() -> Environment {
    let mut env = Environment::new();
    for name in ["a", "b", "shop"] {
        env.namespace(name, true);
    }
    env.put(&foreign("shop"));
    let naming = json!({"spec": {"imagePullSecrets": [{"name": NAME}]}});
    env.running_pod("a", "p", &naming);
    env.start();
    env.until_value("a", Some(ONE)).await;
    env.until_value("b", Some(ONE)).await;
    env
}

fn delete_source(env: &Environment) {
    let absent = PullSecretSource::absent(NAME);
    env.snapshots.set_pull_secret(absent);
}

async fn until_revoked(env: &Environment) {
    let began = Instant::now();
    env.until_value("a", None).await;
    env.until_value("b", None).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn deleted_source_takes_its_copies_along_and_leaves_foreign_secrets() {
    let env = copied().await;
    delete_source(&env);
    until_revoked(&env).await;
    env.quiet().await;
    assert_eq!(env.value("shop").as_deref(), Some(TWO));
    let mut writes = env.writes();
    writes.sort();
    assert_eq!(writes, ["apply a", "apply b", "delete a", "delete b"]);
    assert!(env.metric("pull_secret_copies 0"));
}

#[tokio::test(start_paused = true)]
async fn source_that_is_created_again_within_seconds_keeps_its_copies() {
    let env = copied().await;
    delete_source(&env);
    sleep(Duration::from_secs(5)).await;
    env.snapshots.set_pull_secret(source(ONE));
    env.quiet().await;
    let mut writes = env.writes();
    writes.sort();
    assert_eq!(writes, ["apply a", "apply b"]);
}

#[tokio::test(start_paused = true)]
async fn source_that_is_created_again_later_is_copied_again() {
    let env = copied().await;
    delete_source(&env);
    until_revoked(&env).await;
    env.delete_secret("shop", NAME);
    env.quiet().await;
    env.snapshots.set_pull_secret(source(TWO));
    env.until_value("a", Some(TWO)).await;
    env.until_value("b", Some(TWO)).await;
}

/// The controller records this in the document before it deletes the Secret.
#[tokio::test(start_paused = true)]
async fn version_without_a_pull_secret_takes_the_copies_along() {
    let env = copied().await;
    env.snapshots
        .set_revision(with_feature(), requires("none"), None);
    until_revoked(&env).await;
}

/// Copies are not deleted if it is unknown whether the source exists.
#[rstest]
#[case::not_seen_yet(PullSecretSource::default())]
#[case::unusable(PullSecretSource::none(ObservedObject::of(&serde_json::from_value(json!({"name": NAME})).unwrap())))]
#[tokio::test(start_paused = true)]
async fn source_of_which_nothing_is_known_keeps_its_copies(#[case] unknown: PullSecretSource) {
    let env = copied().await;
    env.snapshots.set_pull_secret(unknown);
    env.quiet().await;
    let mut writes = env.writes();
    writes.sort();
    assert_eq!(writes, ["apply a", "apply b"]);
}

/// By then the pause until the next list of the Pods has increased to minutes.
#[tokio::test(start_paused = true)]
async fn copy_that_is_kept_for_a_pod_is_removed_when_the_source_is_deleted() {
    let env = copied().await;
    env.snapshots.set_configuration(configuration("", ""));
    env.until_value("b", None).await;
    sleep(Duration::from_hours(3)).await;
    assert_eq!(env.value("a").as_deref(), Some(ONE));
    delete_source(&env);
    until_revoked(&env).await;
}

/// A new leader finds copies and no source.
#[tokio::test(start_paused = true)]
async fn source_that_was_deleted_under_no_leader_takes_its_copies_along() {
    let mut env = Environment::new();
    env.namespace("a", true);
    env.namespace("b", false);
    env.put(&copy("a", ONE));
    env.put(&copy("b", ONE));
    delete_source(&env);
    env.start();
    until_revoked(&env).await;
}

fn requires(hash: &str) -> Requirements {
    let requires = json!({"annotations": {api::kcp::REQUIRES_PULL_SECRET: hash}});
    Requirements::read(&serde_json::from_value(requires).unwrap())
}

/// Returns a leader without a configuration, a copy in namespace `a`, and no copy in namespace `b`.
fn unconfigured(pull_secret: PullSecretSource) -> Environment {
    let mut env = Environment::unconfigured();
    env.namespace("a", true);
    env.namespace("b", true);
    env.put(&copy("a", ONE));
    env.put(&foreign("b"));
    let naming = json!({"spec": {"imagePullSecrets": [{"name": NAME}]}});
    env.running_pod("a", "p", &naming);
    env.snapshots.set_pull_secret(pull_secret);
    env.start();
    env
}

#[rstest]
#[case::config_map_not_found(
    Requirements::default(),
    ObservedObject::absent("rt-bootstrapper-config")
)]
#[case::invalid_document(Requirements::default(), ObservedObject::of(&ObjectMeta::default()))]
#[case::revision_without_pull_secret(requires("none"), ObservedObject::of(&ObjectMeta::default()))]
#[tokio::test(start_paused = true)]
async fn deleted_source_without_a_configuration_takes_its_copies_along(
    #[case] requirements: Requirements,
    #[case] document: ObservedObject,
) {
    let env = unconfigured(PullSecretSource::absent(NAME));
    env.snapshots.set_unusable_document(requirements, document);
    env.until_value("a", None).await;
    env.quiet().await;
    assert_eq!(env.writes(), ["delete a"]);
}

#[rstest]
#[case::config_map_not_observed(None)]
#[case::secret_required(Some(requires("hash")))]
#[tokio::test(start_paused = true)]
async fn deleted_source_that_may_be_required_keeps_its_copies(
    #[case] requirements: Option<Requirements>,
) {
    let env = unconfigured(PullSecretSource::absent(NAME));
    if let Some(requirements) = requirements {
        let document = ObservedObject::of(&ObjectMeta::default());
        env.snapshots.set_unusable_document(requirements, document);
    }
    env.quiet().await;
    assert!(env.writes().is_empty(), "{:?}", env.writes());
}

#[tokio::test(start_paused = true)]
async fn source_without_a_configuration_is_not_copied() {
    let secret = with(
        copy("kyma-system", TWO),
        "/metadata/namespace",
        json!("kyma-system"),
    );
    let source = PullSecretSource::read(&serde_json::from_value(secret).unwrap()).unwrap();
    let env = unconfigured(source);
    let document = ObservedObject::absent("rt-bootstrapper-config");
    env.snapshots
        .set_unusable_document(Requirements::default(), document);
    env.namespace("c", true);
    env.quiet().await;
    assert!(env.writes().is_empty(), "{:?}", env.writes());
    assert_eq!(env.value("a").as_deref(), Some(ONE));
}
