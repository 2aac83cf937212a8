//! Tests of the stored times and of the stored document.

use std::sync::Arc;
use std::time::Duration;

use api::config::Document;
use api::names::{CONFIG_KEY, CONFIG_MAP, REPAIR_RECORD};
use base64_simd::STANDARD;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use policy::admission::{Configuration, Settings};
use policy::repairs::EvictionSettings;
use serde_json::json;
use testkit::apiserver::{ApiServer, Rights};
use tokio::time::sleep;

use super::super::record::Record;
use super::env::*;
use super::{BUNDLE_CHANGED, CREATED, MISSED};
use crate::snapshot::{ActiveRevision, ObservedObject, PullSecretSource};
use crate::watches::fixtures::watches_of;

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
