//! Tests of repairs with an API server, and with the watches that provide their input. The clock is paused.

mod env;
mod evictions;
mod judge;
mod opt_in;
mod record;
mod restarts;
mod unstarted;

use std::time::Duration;

use api::bootstrapper::RestartCause;
use jiff::{SignedDuration, Timestamp};
use policy::repairs::EvictionSettings;
use rstest::rstest;
use serde_json::json;
use testkit::apiserver::ApiServer;
use testkit::logs::Logs;
use tokio::time::sleep;
use tracing::Level;

use self::env::*;

const MISSED: &str = r#"missed_pods{namespace="shop",reason="ImageRewritten"}"#;
const BUNDLE_CHANGED: &str = r#"outdated_pods{namespace="shop",reason="TrustBundleChanged"}"#;

const CREATED: &str = "2026-01-01T00:00:00Z";

#[tokio::test(start_paused = true)]
async fn a_missed_pod_is_counted_reported_once_and_forgotten_when_it_is_gone() {
    let env = Environment::start(EvictionSettings::default()).await;
    env.put_pod("web", false);
    env.put_pod("adapted", true);
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    let events = env.server.requests_of("create|patch events");
    let namespaces: Vec<&str> = events
        .iter()
        .map(|it| it.asked.namespace.as_str())
        .collect();
    assert_eq!(namespaces, ["shop"]);
    assert_eq!(env.evictions(), 0, "off by default");
    env.server.remove("pods", "shop", "web");
    env.until(MISSED, None).await;
    assert_eq!(env.value("missed_pods_found_total"), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_created_without_a_leader_are_found_and_older_ones_are_not() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    for number in 0..1000 {
        env.put_pod(&format!("web-{number}"), false);
    }
    env.lead(EvictionSettings::default()).await;
    env.until(MISSED, Some(1000.0)).await;
    // All Pods are older than this document. The leader knows that they were missed, and the next leader does not.
    sleep(Duration::from_secs(30)).await;
    env.put_document("other.example");
    sleep(Duration::from_secs(30)).await;
    let changed = r#"outdated_pods{namespace="shop",reason="ConfigurationChanged"}"#;
    assert_eq!(
        (env.value(MISSED), env.value(changed)),
        (Some(1000.0), None)
    );
    env.stop().await;
    env.lead(EvictionSettings::default()).await;
    env.until(changed, Some(1000.0)).await;
    assert_eq!(env.value(MISSED), None);
    // A leader that ends removes its series.
    env.stop().await;
    assert_eq!(env.value(changed), None);
}

#[rstest]
#[case::the_pull_secret("list secrets kyma-system/")]
#[case::the_namespaces("list namespaces")]
#[tokio::test(start_paused = true)]
async fn nothing_is_judged_before_everything_was_observed(#[case] request: &str) {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    env.put_pod("web", false);
    let fault = env.server.fault(request).status(500);
    env.lead(EvictionSettings::default()).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(env.value(MISSED), None);
    fault.stop();
    env.until(MISSED, Some(1.0)).await;
}

/// Without this, the Pod would end the repairs of each leader in turn.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_judgment_panics_is_reported_once_and_the_others_are_judged() {
    const UNJUDGED: &str = "unjudged_pods";
    let logs = Logs::of(Level::ERROR);
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    env.judge = |pod, namespace, basis| {
        assert!(!pod.key().name.starts_with("poison"), "secret content");
        pod.judge(namespace, basis)
    };
    for name in ["poison", "web"] {
        env.put_pod(name, false);
    }
    env.lead(EvictionSettings::default()).await;
    env.until(MISSED, Some(1.0)).await;
    assert_eq!(env.value(UNJUDGED), Some(1.0));
    // By the watch, by another list of all Pods, and by that of a changed Namespace.
    for name in ["poison", "poison-2", "api"] {
        env.put_pod(name, false);
    }
    env.until(MISSED, Some(2.0)).await;
    env.put_document("mirror.example/hub");
    sleep(Duration::from_secs(30)).await;
    env.server.edit("namespaces", ("", "shop"), |namespace| {
        namespace["metadata"]["annotations"] = json!({"rt-cfg.kyma-project.io/all": "true"});
    });
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(UNJUDGED), Some(2.0));
    let lines = logs.lines();
    let names = [r#"namespace="shop" pod="poison""#, r#"pod="poison-2""#];
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, name) in lines.iter().zip(names) {
        assert!(line.contains(name) && !line.contains("secret"), "{line}");
    }
    env.server.remove("pods", "shop", "poison");
    env.until(UNJUDGED, Some(1.0)).await;
    env.stop().await;
    assert_eq!(env.value(UNJUDGED), Some(0.0));
}

/// No time of the API server is compared with the clock of this process.
#[rstest]
#[case::ahead(SignedDuration::from_mins(10))]
#[case::behind(SignedDuration::from_mins(-10))]
#[tokio::test(start_paused = true)]
async fn pods_are_judged_alike_whatever_the_clock_of_the_api_server(#[case] ahead: SignedDuration) {
    let settings = EvictionSettings {
        missed: false,
        outdated: vec![RestartCause::TrustBundle],
    };
    let mut env = Environment::start_on(ApiServer::with_clock(ahead), settings.clone()).await;
    let created = env.server.get("namespaces", "", "shop").unwrap();
    let created = created["metadata"]["creationTimestamp"].as_str().unwrap();
    let difference = created.parse::<Timestamp>().unwrap() - Timestamp::now();
    let difference = difference.total(jiff::Unit::Minute).unwrap();
    assert!((difference - ahead.as_secs_f64() / 60.0).abs() < 1.0);

    sleep(Duration::from_secs(10)).await;
    env.put_pod("adapted", true);
    env.put_pod("missed", false);
    env.until(MISSED, Some(1.0)).await;
    // The next leader reads the start time of the revision.
    env.stop().await;
    env.lead(settings).await;
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), None);
    assert_eq!(env.evictions_of("adapted"), 0);

    env.put_bundle("two", &json!({}));
    env.until(BUNDLE_CHANGED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert!(env.evictions_of("adapted") > 0);
    assert_eq!(env.evictions_of("missed"), 0);
    // A new Pod has the new bundle.
    env.put_pod("new", true);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), Some(1.0));
    assert_eq!(env.value(MISSED), Some(1.0));
}
