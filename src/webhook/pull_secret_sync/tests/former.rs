//! Copies with the default name or the name in the flag, after another name was configured.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::Rights;
use tokio::time::sleep;

use super::environment::Environment;
use super::*;

const OTHER: &str = "other";

fn renamed() -> Arc<Configuration> {
    let name = r#","imagePullSecret":{"name":"other"}"#;
    configuration(name, &format!("{FEATURE:?}"))
}

fn naming(name: &str) -> Value {
    json!({"spec": {"imagePullSecrets": [{"name": name}]}})
}

/// Returns the source with the default name as another client created it.
fn former_source() -> Value {
    foreign("kyma-system")
}

/// Returns a namespace that opts in and has a copy with the default name, whose source exists.
async fn copied(prepare: impl FnOnce(&Environment)) -> Environment {
    let mut env = Environment::new();
    env.server.namespace("kyma-system");
    env.put(&former_source());
    env.namespace("a", true);
    // The permission for another name requires `--image-pull-secret-name`.
    env.server.behave(|it| it.rights = Rights::default());
    prepare(&env);
    env.start();
    env.until_value("a", Some(ONE)).await;
    env
}

async fn rename(env: &Environment) {
    env.snapshots.set_configuration(renamed());
    env.until("a copy with the other name", |it| {
        it.secret("a", OTHER).is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn copy_that_no_pod_names_is_deleted_after_a_rename() {
    let env = copied(|env| {
        // This Pod was changed after the rename.
        let mut pod = naming(OTHER);
        let marker = json!({"rt-bootstrapper.kyma-project.io/defaulted": "true"});
        json_patch::merge(&mut pod, &json!({"metadata": {"annotations": marker}}));
        env.running_pod("a", "p", &pod);
        env.namespace("b", false);
        env.put(&foreign("b"));
    })
    .await;
    rename(&env).await;
    env.until_value("a", None).await;
    env.delete_secret("a", OTHER);
    env.until("it is watched", |it| it.secret("a", OTHER).is_some())
        .await;
    env.quiet().await;
    assert_eq!(env.value("b").as_deref(), Some(TWO));
    assert!(env.secret("kyma-system", NAME).is_some());
    assert!(env.metric("pull_secret_copies 1"));
    assert_eq!(env.writes(), ["apply a", "apply a", "delete a", "apply a"]);
}

#[tokio::test(start_paused = true)]
async fn copy_that_a_pod_names_is_kept_after_a_rename_until_the_pod_is_deleted() {
    let env = copied(|env| env.running_pod("a", "p", &naming(NAME))).await;
    rename(&env).await;
    sleep(Duration::from_hours(3)).await;
    assert_eq!(env.value("a").as_deref(), Some(ONE));
    env.delete_pod("a", "p");
    env.until_value("a", None).await;
    assert!(env.secret("a", OTHER).is_some());
}

#[tokio::test(start_paused = true)]
async fn copy_is_revoked_when_the_source_with_the_former_name_is_deleted() {
    let env = copied(|env| env.running_pod("a", "p", &naming(NAME))).await;
    rename(&env).await;
    env.quiet().await;
    assert_eq!(env.value("a").as_deref(), Some(ONE));
    env.delete_secret("kyma-system", NAME);
    env.until_value("a", None).await;
    assert!(env.secret("a", OTHER).is_some());
}

#[rstest]
#[case::deleted(PullSecretSource::absent(OTHER))]
#[case::not_observed(PullSecretSource::default())]
#[tokio::test(start_paused = true)]
async fn copy_is_kept_after_a_rename_while_the_configured_source_cannot_be_copied(
    #[case] configured: PullSecretSource,
) {
    let env = copied(|_| {}).await;
    env.snapshots.set_pull_secret(configured);
    env.snapshots.set_configuration(renamed());
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a"]);
}

#[tokio::test(start_paused = true)]
async fn copy_is_used_again_when_the_name_is_configured_again() {
    let env = copied(|_| {}).await;
    rename(&env).await;
    env.snapshots.set_configuration(with_feature());
    env.quiet().await;
    env.snapshots.set_pull_secret(source(TWO));
    env.until_value("a", Some(TWO)).await;
    env.quiet().await;
    assert_eq!(env.writes(), ["apply a", "apply a", "apply a"]);
}

/// Neither the permissions of the webhook nor a leader that has observed the former name are required.
#[rstest]
#[case::default_name(NAME, NAME, OTHER)]
#[case::name_in_flag(OTHER, OTHER, NAME)]
#[case::default_name_beside_a_flag("flag", NAME, OTHER)]
#[tokio::test(start_paused = true)]
async fn new_leader_deletes_copies_with_a_former_name(
    #[case] flag: &str,
    #[case] former: &str,
    #[case] configured: &str,
) {
    let mut env = Environment::new();
    let document = json!({
        "overrides": {}, "availableFeatures": [FEATURE], "imagePullSecret": {"name": configured},
    });
    let settings = Settings {
        landscape: None,
        pull_secret: flag.to_owned(),
    };
    let document = api::config::Document::parse(&document.to_string()).unwrap();
    let configuration = Configuration::new(&document, &settings).unwrap();
    env.snapshots.set_configuration(Arc::new(configuration));
    if former != NAME {
        env.server.behave(|it| it.rights = Rights::default());
    }
    env.namespace("a", false);
    env.put(&with(copy("a", ONE), "/metadata/name", json!(former)));
    env.start();
    env.until("the copy is deleted", |it| it.secret("a", former).is_none())
        .await;
    env.quiet().await;
    assert_eq!(env.writes(), ["delete a"]);
}
