use std::sync::Arc;

use api::config::Document;
use policy::admission::{Configuration, Settings};
use rstest::rstest;
use testkit::apiserver::ApiServer;

use super::*;

#[rstest]
#[case::kept(None, Ok(true))]
#[case::invalid_without_a_cause(Some(422), Ok(true))]
#[case::forbidden(Some(403), Ok(true))]
#[case::refused_by_another_webhook(Some(400), Ok(true))]
#[case::timeout(Some(408), Err(408))]
#[case::too_many_requests(Some(429), Err(429))]
#[case::broken(Some(500), Err(500))]
#[tokio::test]
async fn only_a_definite_response_shows_whether_bundles_are_projected(
    #[case] status: Option<u16>,
    #[case] expected: Result<bool, u16>,
) {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    let fault = status.map(|status| server.fault("create pods").status(status));
    let projected = projects(&server.client(), "kyma-system", "roots").await;
    let projected = projected.map_err(|error| match error {
        kube::Error::Api(status) => status.code,
        error => panic!("{error}"),
    });
    assert_eq!(projected, expected);
    assert!(fault.is_none_or(|it| it.hits() == 1));
    assert!(
        server
            .get("pods", "kyma-system", "rt-bootstrapper-projection")
            .is_none()
    );
}

/// A ValidatingAdmissionPolicy without a configured reason also responds 422, and its cause has no field.
#[rstest]
#[case::the_source_is_invalid("spec.volumes[0].projected.sources[0]", false)]
#[case::a_policy_of_the_cluster("", true)]
#[case::another_field("spec.containers[0].image", true)]
#[tokio::test]
async fn only_an_invalid_volume_shows_that_bundles_are_not_projected(
    #[case] field: &str,
    #[case] expected: bool,
) {
    let server = ApiServer::new();
    let answer = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid", "message": "no",
        "details": {"name": "rt-bootstrapper-projection", "kind": "Pod", "causes": [
            {"reason": "FieldValueInvalid", "message": "no", "field": field},
        ]},
    });
    let fault = server.fault("create pods").answer(422, answer);
    let projected = projects(&server.client(), "kyma-system", "roots").await;
    assert_eq!(fault.hits(), 1);
    assert_eq!(projected.unwrap(), expected);
}

/// The injection of a service mesh would add a container, and its failure would be one of the dry run.
#[tokio::test]
async fn no_dry_run_is_a_pod_of_a_service_mesh() {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    let client = server.client();
    assert!(projects(&client, "kyma-system", "roots").await.unwrap());
    assert!(!evaluates(&client, "kyma-system", "r").await.unwrap());
    let fips = snapshots(&json!({}), &[api::Feature::FipsMode]);
    assert!(adapts(&client, "kyma-system", &fips).await.is_err());
    let sent = server.requests_of("create pods");
    assert_eq!(sent.len(), 3);
    for request in sent {
        let labels = &request.body["metadata"]["labels"];
        assert_eq!(labels["sidecar.istio.io/inject"], "false", "{labels}");
    }
}

/// Returns a store with a configuration.
fn snapshots(overrides: &Value, features: &[api::Feature]) -> SnapshotStore {
    let features: Vec<&str> = features.iter().map(|it| it.key()).collect();
    let document = json!({"overrides": overrides, "availableFeatures": features});
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let document = Document::parse(&document.to_string()).unwrap();
    let snapshots = SnapshotStore::default();
    let configuration = Configuration::new(&document, &settings).unwrap();
    snapshots.set_configuration(Arc::new(configuration));
    snapshots
}

/// The API server of the tests calls no webhook.
#[tokio::test]
async fn a_pod_that_should_have_changed_and_did_not_is_an_error() {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    let fips = snapshots(&json!({}), &[api::Feature::FipsMode]);
    let error = adapts(&server.client(), "kyma-system", &fips).await;
    let error = error.unwrap_err();
    assert!(error.contains("without asking"), "{error}");
    let fault = server.fault("create pods").status(403);
    let error = adapts(&server.client(), "kyma-system", &fips).await;
    assert!(error.unwrap_err().contains("dry run"));
    fault.stop();
    let asked = server.count("create pods");
    let nothing = snapshots(&json!({"old.example": "mirror.example"}), &[]);
    assert_eq!(
        adapts(&server.client(), "kyma-system", &nothing).await,
        Ok(())
    );
    assert_eq!(server.count("create pods"), asked, "nothing to prove");
}

/// Most documents override registries other than the registry of the image `none`.
#[rstest]
#[case::host(json!({"old.example": "mirror.example"}), true)]
#[case::docker_hub(json!({"docker.io": "mirror.example/hub"}), true)]
#[case::beside_an_unusable_one(json!({"a.example": "NOT:AN/IMAGE", "old.example:5000": "mirror.example"}), true)]
#[case::beside_a_key_of_no_image(json!({"https://a.example": "b.example", "old.example": "mirror.example"}), true)]
#[case::no_usable_one(json!({"a.example": "NOT:AN/IMAGE"}), false)]
#[tokio::test]
async fn a_document_that_only_rewrites_images_is_proved_too(
    #[case] overrides: Value,
    #[case] expected: bool,
) {
    let server = ApiServer::new();
    server.namespace("kyma-system");
    let snapshots = snapshots(&overrides, &[api::Feature::RegistryRewrite]);
    let result = adapts(&server.client(), "kyma-system", &snapshots).await;
    assert_eq!(result.is_err(), expected, "{result:?}");
    assert_eq!(server.count("create pods"), usize::from(expected));
}
