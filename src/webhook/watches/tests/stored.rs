//! The document that the leader stored, for a replica that starts with an invalid one.

use super::*;

/// Stores a record of a leader with this document.
fn put_record(server: &ApiServer, document: &str) {
    server.put(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "rt-bootstrapper-revisions", "namespace": "kyma-system"},
        "data": {"last-valid-document": base64_simd::STANDARD.encode_to_string(document)},
    }));
}

/// All replicas may be replaced while the document is invalid.
#[tokio::test]
async fn a_replica_that_starts_with_an_invalid_document_uses_the_stored_one() {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    put_record(&server, r#"{"overrides":{"a.io":"b.io"}}"#);
    let watches = watches_of(&server);
    let mut loader = ConfigurationLoader::new(&watches);
    let invalid = config_map(CONFIG_KEY, "{");
    loader.load(Some(&invalid)).await;
    let (ready, report) = watches.readiness.report();
    assert!(ready, "{report}");
    assert!(report.contains("the last valid one is active"), "{report}");
    assert_eq!(watches.metrics.last_reload_successful.get(), 0);
    let stored = watches.snapshots.configuration().unwrap();

    let valid = config_map(CONFIG_KEY, r#"{"overrides":{}}"#);
    loader.load(Some(&valid)).await;
    assert_ne!(watches.snapshots.configuration().unwrap(), stored);
}

/// The invalid document's Secret may come back, and its copies are in use.
#[tokio::test]
async fn a_stored_document_does_not_revoke_the_pull_secret() {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    put_record(&server, r#"{"overrides":{}}"#);
    let watches = watches_of(&server);
    let mut invalid = config_map(CONFIG_KEY, "{");
    let required = (REQUIRES_PULL_SECRET.to_owned(), "hash".to_owned());
    invalid.metadata.annotations = Some(BTreeMap::from([required]));
    ConfigurationLoader::new(&watches)
        .load(Some(&invalid))
        .await;
    set_pull_secret(&watches.snapshots, "registry-credentials", None);
    let active = watches.snapshots.active();
    assert!(active.configuration.is_some());
    assert!(!active.lacks_pull_secret());
}

#[tokio::test(start_paused = true)]
async fn a_stored_document_is_read_again_after_a_failure() {
    let server = ApiServer::new();
    server.put(&serde_json::to_value(config_map(CONFIG_KEY, "{")).unwrap());
    put_record(&server, r#"{"overrides":{}}"#);
    let fault = server.fault("get secrets kyma-system/rt-bootstrapper-revisions");
    let fault = fault.times(3).status(500);
    let watches = watches_of(&server);
    let configured = watches.snapshots.configured(Duration::from_mins(1));
    tokio::select! {
        () = crate::watches::configuration::watch(&watches) => unreachable!(),
        () = configured => {}
    }
    assert_eq!(fault.hits(), 3);
    assert!(watches.snapshots.configuration().is_some());
}

#[rstest]
#[case::deleted(None, r#"{"overrides":{}}"#)]
#[case::stored_one_is_invalid(Some("{"), "{")]
#[tokio::test]
async fn a_stored_document_is_not_used(#[case] document: Option<&str>, #[case] stored: &str) {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    put_record(&server, stored);
    let watches = watches_of(&server);
    let map = document.map(|it| config_map(CONFIG_KEY, it));
    let mut loader = ConfigurationLoader::new(&watches);
    loader.load(map.as_ref()).await;
    assert!(!watches.readiness.is_ready());
}
