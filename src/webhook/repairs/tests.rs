//! Tests of repairs with an API server, and with the watches that provide their input. The clock is paused.

mod env;
mod opt_in;

use std::sync::atomic::Ordering;
use std::time::Duration;

use api::bootstrapper::RestartCause;
use api::config::Document;
use api::names::{CONFIG_KEY, CONFIG_MAP, REPAIR_RECORD};
use base64_simd::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use policy::admission::{Configuration, Settings, TrustBundlePresence};
use policy::repairs::{Deviation, RevisionTimes};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Rights};
use tokio::time::sleep;

use self::env::*;
use super::pod::{Basis, JudgedPod, StoredPod};
use super::record::Record;
use super::*;
use crate::snapshot::{ActiveRevision, ObservedObject, PullSecretSource};
use crate::watches::fixtures::watches_of;

const MISSED: &str = r#"missed_pods{namespace="shop",reason="ImageRewritten"}"#;
const NOT_STARTED: &str = r#"trust_bundle_pods_not_started{node="node-1"}"#;
const BUNDLE_CHANGED: &str = r#"outdated_pods{namespace="shop",reason="TrustBundleChanged"}"#;

const CREATED: &str = "2026-01-01T00:00:00Z";

/// The active revision of a document from `CREATED`, for a process with this landscape.
fn revision_of(landscape: Option<&str>) -> ActiveRevision {
    let settings = Settings {
        landscape: landscape.map(str::to_owned),
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let document = Document::parse(r#"{"overrides":{}}"#).unwrap();
    let configuration = Configuration::new(&document, &settings).unwrap();
    let metadata = ObjectMeta {
        creation_timestamp: Some(Time(CREATED.parse().unwrap())),
        ..ObjectMeta::default()
    };
    ActiveRevision {
        configuration: Some(Arc::new(configuration)),
        pull_secret: Arc::new(PullSecretSource::absent(api::names::PULL_SECRET)),
        document: ObservedObject::of(&metadata).with_content(b"{}"),
        ..ActiveRevision::default()
    }
}

/// Pods from before lack what the new flags add, and were not missed. Clocks of nodes may be wrong, so the API server's time counts.
#[tokio::test]
async fn pods_from_before_a_change_of_flags_are_those_from_before_a_change_of_the_document() {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    let client = watches_of(&server).client;
    let mut leaders = Vec::new();
    for landscape in [None, None, Some("eu"), Some("eu")] {
        let active = revision_of(landscape);
        let mut record = Record::default();
        record.read(&client, "kyma-system").await.unwrap();
        record.times(&active).unwrap();
        record.write(&client, "kyma-system").await;
        leaders.push(record.times(&active).unwrap().document);
    }
    let first: Timestamp = CREATED.parse().unwrap();
    let changed = leaders[2];
    assert_eq!(leaders, [first, first, changed, changed]);
    let record = server.get("secrets", "kyma-system", REPAIR_RECORD).unwrap();
    let metadata = &record["metadata"];
    let times = [
        &metadata["creationTimestamp"],
        &metadata["managedFields"][0]["time"],
    ];
    let [created, written] = times.map(|it| it.as_str().unwrap().parse::<Timestamp>().unwrap());
    assert!((created..=written).contains(&changed), "{changed}");
    // The API server's times have whole seconds.
    assert_eq!(changed.subsec_nanosecond(), 0);
}

/// Judges a stored Pod by a configuration that rewrites images of `old.example` and mounts a trust bundle, both since the time
/// `CREATED`. The webhook is in Namespace `kyma-system`.
fn judged(pod: &Value, product_namespace: &str, fallback_policy: bool) -> Option<JudgedPod> {
    let mut document = json!({
        "overrides": {"old.example": "mirror.example"},
        "availableFeatures": [
            "rt-cfg.kyma-project.io/alter-img-registry",
            "rt-cfg.kyma-project.io/add-cluster-trust-bundle",
        ],
        "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]},
    });
    // A Pod without the volume lacks it.
    if pod["spec"]["volumes"].is_array() {
        document["clusterTrustBundle"] = json!({
            "name": "roots", "certWritePath": "ca.crt",
            "volumeName": "rt-bundle", "volumeMountPath": "/etc/ssl/certs",
        });
    }
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let document = Document::parse(&document.to_string()).unwrap();
    let configuration = Configuration::new(&document, &settings).unwrap();
    let active = ActiveRevision {
        configuration: Some(Arc::new(configuration)),
        trust_bundle: TrustBundlePresence::Present,
        ..ActiveRevision::default()
    };
    let created = CREATED.parse().unwrap();
    let basis = Basis {
        active: &active,
        product_namespace,
        revision: RevisionTimes {
            document: created,
            registries: None,
            credentials: None,
            bundle_exists: Some(created),
            bundle_content: Some(created),
        },
        fallback_policy,
    };
    let pod: StoredPod = serde_json::from_str(&pod.to_string()).unwrap();
    pod.judge(None, &basis)
}

fn stored(image: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "1", "creationTimestamp": CREATED},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

/// It has no marker, and proves all the same that new Pods come out adapted.
#[rstest]
#[case::by_the_policy("mirror.example/web:1", true, true)]
#[case::without_a_policy("mirror.example/web:1", false, false)]
#[case::not_adapted("old.example/web:1", true, false)]
#[case::nothing_to_adapt("other.example/web:1", true, false)]
fn a_pod_that_the_policy_adapted_is_adapted(
    #[case] image: &str,
    #[case] fallback_policy: bool,
    #[case] expected: bool,
) {
    let judged = judged(&stored(image), "kyma-system", fallback_policy).unwrap();
    assert_eq!(judged.tracked.adapted, expected);
}

/// Clocks of API servers may differ. Without this, an eviction that changes nothing would be repeated.
#[test]
fn a_pod_with_all_changes_that_is_outdated_does_not_prove_that_evictions_help() {
    let mut pod = stored("mirror.example/web:1");
    pod["metadata"]["annotations"] = json!({api::names::MARKER: "true"});
    pod["spec"] = json!({
        "containers": [{
            "name": "c", "image": "mirror.example/web:1",
            "volumeMounts": [{"name": "rt-bundle", "mountPath": "/etc/ssl/certs", "readOnly": true}],
        }],
        "volumes": [{"name": "rt-bundle", "projected": {"sources": [
            {"clusterTrustBundle": {"name": "roots", "path": "ca.crt"}},
        ]}}],
    });
    let tracked = judged(&pod, "kyma-system", false).unwrap().tracked;
    let outdated = Deviation::Outdated(RestartCause::TrustBundle);
    assert_eq!(
        (tracked.deviation, tracked.adapted),
        (Some(outdated), false)
    );
}

/// The API server does not send them, wherever the webhook is installed.
#[rstest]
#[case::in_another_namespace("kyma-system", true)]
#[case::in_the_namespace_of_the_webhook("shop", false)]
fn the_pods_of_the_webhook_are_not_missed(#[case] product_namespace: &str, #[case] expected: bool) {
    let mut pod = stored("old.example/web:1");
    let (key, value) = api::names::OWN_LABEL;
    pod["metadata"]["labels"] = json!({key: value});
    assert_eq!(judged(&pod, product_namespace, false).is_some(), expected);
}

#[rstest]
#[case::replica_set("apps/v1", "ReplicaSet", Some(true), true)]
#[case::stateful_set("apps/v1", "StatefulSet", Some(true), true)]
#[case::daemon_set("apps/v1", "DaemonSet", Some(true), true)]
#[case::job("batch/v1", "Job", Some(true), false)]
#[case::kind_of_another_group("example.com/v1", "ReplicaSet", Some(true), false)]
#[case::owner_that_is_not_the_controller("apps/v1", "ReplicaSet", None, false)]
#[case::owner_that_denies_it("apps/v1", "ReplicaSet", Some(false), false)]
#[case::no_owner("", "", None, false)]
#[tokio::test(start_paused = true)]
async fn a_missed_pod_is_evicted_only_if_its_controller_replaces_it(
    #[case] api_version: &str,
    #[case] kind: &str,
    #[case] controller: Option<bool>,
    #[case] expected: bool,
) {
    let mut env = Environment::start(missed_only()).await;
    // The Pod has another owner while there is no leader.
    env.stop().await;
    env.put_pod("web", false);
    env.server.edit("pods", ("shop", "web"), |pod| {
        pod["metadata"]["ownerReferences"] = match kind {
            "" => json!([]),
            _ => json!([{
                "apiVersion": api_version, "kind": kind, "name": "owner", "uid": "1", "controller": controller,
            }]),
        };
    });
    env.lead(missed_only()).await;
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.evictions() > 0, expected);
}

fn missed_only() -> EvictionSettings {
    EvictionSettings {
        missed: true,
        outdated: Vec::new(),
    }
}

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
async fn a_pod_that_waits_for_its_trust_bundle_is_counted_and_reported_once_until_it_starts() {
    let env = Environment::start(EvictionSettings::default()).await;
    for (name, is_adapted) in [("web", true), ("without-volume", false)] {
        env.put_pod(name, is_adapted);
        env.wait_for_volumes("shop", name);
    }
    // A Pod in a Namespace that is not covered.
    let mut other = env.server.get("pods", "shop", "web").unwrap();
    other["metadata"] = json!({"name": "web", "namespace": "other"});
    env.server.put(&other);
    sleep(Duration::from_secs(110)).await;
    assert_eq!(env.value(NOT_STARTED), None, "a kubelet takes its time");
    env.until(NOT_STARTED, Some(1.0)).await;
    // Neither another list of all Pods nor a write of the Pod repeats the Event.
    env.put_document("mirror.example/hub");
    sleep(Duration::from_secs(30)).await;
    env.server.edit("pods", ("shop", "web"), |pod| {
        pod["metadata"]["labels"] = json!({"team": "a"});
    });
    sleep(Duration::from_mins(5)).await;
    assert_eq!(env.value(NOT_STARTED), Some(1.0));
    let events = env.server.requests_of("create|patch events").into_iter();
    let events = events.filter(|it| it.body["reason"] == "TrustBundleNotMounted");
    let events: Vec<Value> = events.map(|it| it.body).collect();
    let [event] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(event["regarding"]["namespace"], "shop");
    assert_eq!(event["regarding"]["name"], "web");
    let note = event["note"].as_str().unwrap();
    for part in ["node-1", "FailedMount", "ClusterTrustBundleProjection"] {
        assert!(note.contains(part), "{note}");
    }
    env.put_pod("web", true);
    env.until(NOT_STARTED, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_or_a_leader_that_ends_leaves_no_figure_of_a_node() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    for name in ["web", "api"] {
        env.put_pod(name, true);
        env.wait_for_volumes("shop", name);
    }
    sleep(Duration::from_secs(110)).await;
    env.until(NOT_STARTED, Some(2.0)).await;
    env.server.remove("pods", "shop", "api");
    env.until(NOT_STARTED, Some(1.0)).await;
    // Pods are not watched between two lists, which are ten seconds apart.
    for mirror in ["one.example", "two.example"] {
        env.put_document(mirror);
        sleep(Duration::from_secs(2)).await;
    }
    env.server.remove("pods", "shop", "web");
    env.until(NOT_STARTED, None).await;
    env.put_pod("web", true);
    env.wait_for_volumes("shop", "web");
    sleep(Duration::from_secs(110)).await;
    env.until(NOT_STARTED, Some(1.0)).await;
    env.stop().await;
    assert_eq!(env.value(NOT_STARTED), None);
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

#[tokio::test(start_paused = true)]
async fn a_pod_is_outdated_by_the_content_of_its_bundle_and_not_by_metadata() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    sleep(Duration::from_secs(10)).await;
    env.put_pod("web", true);
    sleep(Duration::from_secs(10)).await;
    // The API server also advances the time of the manager that owns the content.
    env.put_bundle("one", &json!({"note": "new"}));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), None);
    // The record shows another leader that the content is older.
    env.stop().await;
    assert!(
        env.server
            .get("secrets", "kyma-system", REPAIR_RECORD)
            .is_some()
    );
    env.lead(EvictionSettings::default()).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), None);
    env.put_bundle("two", &json!({"note": "new"}));
    env.until(BUNDLE_CHANGED, Some(1.0)).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_valid_document_is_stored_for_replicas_that_start() {
    let env = Environment::start(EvictionSettings::default()).await;
    let stored = || {
        let record = env.server.get("secrets", "kyma-system", REPAIR_RECORD)?;
        let text = record["data"]["last-valid-document"].as_str()?.to_owned();
        String::from_utf8(STANDARD.decode_to_vec(text).unwrap()).ok()
    };
    let is_stored = |text: &str| stored().is_some_and(|it| it.contains(text));
    sleep(Duration::from_secs(15)).await;
    assert!(is_stored("mirror.example"));
    env.put_document("other.example");
    // Before the next list of Pods.
    sleep(Duration::from_secs(1)).await;
    assert!(is_stored("other.example"));
    let name = ("kyma-system", CONFIG_MAP);
    env.server
        .edit("configmaps", name, |it| it["data"][CONFIG_KEY] = json!("{"));
    sleep(Duration::from_secs(30)).await;
    assert!(is_stored("other.example"), "an invalid document is not");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_its_record_pods_are_found_all_the_same() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    env.server
        .behave(|it| it.rights = Rights::with_verbs(&["list", "watch"]));
    env.lead(EvictionSettings::default()).await;
    env.put_pod("web", false);
    env.until(MISSED, Some(1.0)).await;
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

#[rstest]
#[case::forbidden(403, "forbidden", 1)]
#[case::budget(429, "budget_exhausted", 3)]
#[case::gone(404, "gone", 6)]
#[case::broken(500, "failed", 6)]
#[tokio::test(start_paused = true)]
async fn a_refused_eviction_is_never_an_error_loop(
    #[case] status: u16,
    #[case] result: &str,
    #[case] most: usize,
) {
    let env = Environment::start(missed_only()).await;
    env.server.fault(EVICTION).status(status);
    env.put_pod("web", false);
    let series = format!("pod_evictions_total{{result=\"{result}\"}}");
    env.until(&series, Some(1.0)).await;
    sleep(Duration::from_mins(3)).await;
    let evictions = env.evictions();
    assert!(evictions <= most, "{evictions} in three minutes");
    assert_eq!(env.value(MISSED), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_while_the_probe_fails() {
    let env = Environment::start(missed_only()).await;
    env.probe.store(false, Ordering::Relaxed);
    env.put_pod("web", false);
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(env.evictions(), 0);
    env.probe.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(env.evictions(), 1);
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
