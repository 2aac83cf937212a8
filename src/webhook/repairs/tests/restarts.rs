//! Tests of restarts of outdated Pods (`--restart-pods-on-change`).

use std::time::Duration;

use api::bootstrapper::RestartCause;
use policy::repairs::EvictionSettings;
use rstest::rstest;
use serde_json::json;
use tokio::time::sleep;

use super::env::*;

/// The registry of the image in each version of the document. The override of a later version leads to the next one.
const REGISTRIES: [&str; 3] = ["mirror.example", "two.example", "three.example"];

/// The credentials in each version of the pull Secret.
const CREDENTIALS: [&str; 3] = ["dTpw", "dTpx", "dTpy"];

/// Starts a leader with a document whose features use all causes of restarts.
async fn start(settings: &EvictionSettings) -> Environment {
    let env = Environment::start(settings.clone()).await;
    env.edit_document(|document| {
        let available = document["availableFeatures"].as_array_mut().unwrap();
        available.push(json!("rt-cfg.kyma-project.io/add-img-pull-secret"));
    });
    sleep(Duration::from_secs(10)).await;
    env
}

/// Creates the Pod that has all changes of this version of the object that the cause names, and returns its name.
fn put_adapted(env: &Environment, cause: RestartCause, version: usize) -> String {
    let name = format!("web-{version}");
    let mut spec = adapted_spec();
    spec["imagePullSecrets"] = json!([{"name": api::names::PULL_SECRET}]);
    if cause == RestartCause::Configuration {
        spec["containers"][0]["image"] = json!(format!("{}/web:1", REGISTRIES[version]));
    }
    env.put_pod_of(&name, Some(spec));
    name
}

/// Writes this version of the object that the cause names.
fn change(env: &Environment, cause: RestartCause, version: usize) {
    match cause {
        RestartCause::TrustBundle => env.put_bundle(&format!("version {version}"), &json!({})),
        RestartCause::PullSecret => env.put_secret(CREDENTIALS[version]),
        RestartCause::Configuration => env.edit_document(|document| {
            document["overrides"][REGISTRIES[version - 1]] = json!(REGISTRIES[version]);
        }),
    }
}

fn outdated(cause: RestartCause) -> String {
    let reason = match cause {
        RestartCause::TrustBundle => "TrustBundleChanged",
        RestartCause::PullSecret => "PullSecretChanged",
        RestartCause::Configuration => "ConfigurationChanged",
    };
    format!(r#"outdated_pods{{namespace="shop",reason="{reason}"}}"#)
}

#[rstest]
#[case::trust_bundle(RestartCause::TrustBundle)]
#[case::pull_secret(RestartCause::PullSecret)]
#[case::configuration(RestartCause::Configuration)]
#[tokio::test(start_paused = true)]
async fn an_outdated_pod_is_evicted_once_for_each_version(#[case] cause: RestartCause) {
    let settings = EvictionSettings {
        missed: false,
        outdated: vec![cause],
    };
    let mut env = start(&settings).await;
    let series = outdated(cause);
    let mut pod = put_adapted(&env, cause, 0);
    sleep(Duration::from_secs(30)).await;
    for version in 1..=2 {
        assert_eq!((env.value(&series), env.evictions_of(&pod)), (None, 0));
        env.allow_eviction(&pod);
        change(&env, cause, version);
        env.until(&series, Some(1.0)).await;
        // Longer than the pause of an eviction that had no effect, because the Pod terminates slowly.
        sleep(Duration::from_mins(70)).await;
        assert_eq!(env.evictions_of(&pod), 1);
        env.server.remove("pods", "shop", &pod);
        pod = put_adapted(&env, cause, version);
        env.until(&series, None).await;
        sleep(Duration::from_secs(30)).await;
        // The next leader does not evict the successor either.
        env.stop().await;
        env.lead(settings.clone()).await;
        sleep(Duration::from_secs(30)).await;
    }
    assert_eq!((env.value(&series), env.evictions_of(&pod)), (None, 0));
}

#[rstest]
#[case::trust_bundle(RestartCause::TrustBundle)]
#[case::pull_secret(RestartCause::PullSecret)]
#[case::configuration(RestartCause::Configuration)]
#[tokio::test(start_paused = true)]
async fn an_outdated_pod_is_reported_and_not_evicted_for_a_cause_that_is_off(
    #[case] cause: RestartCause,
) {
    let others = RestartCause::ALL.into_iter().filter(|it| *it != cause);
    let settings = EvictionSettings {
        missed: true,
        outdated: others.collect(),
    };
    let env = start(&settings).await;
    let pod = put_adapted(&env, cause, 0);
    sleep(Duration::from_secs(30)).await;
    change(&env, cause, 1);
    env.until(&outdated(cause), Some(1.0)).await;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(env.value(&outdated(cause)), Some(1.0));
    assert_eq!(env.evictions_of(&pod), 0);
}
