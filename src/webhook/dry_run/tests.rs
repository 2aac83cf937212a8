use std::sync::Arc;

use api::config::Document;
use policy::admission::{Configuration, Settings};
use rstest::rstest;
use testkit::apiserver::ApiServer;

use super::*;

#[rstest]
#[case::kept(None, Ok(true))]
#[case::refused_as_invalid(Some(422), Ok(false))]
#[case::forbidden(Some(403), Err(403))]
#[case::broken(Some(500), Err(500))]
#[tokio::test]
async fn only_a_clear_answer_tells_whether_bundles_are_projected(
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

/// A store whose configuration sets a variable, or offers nothing.
fn snapshots(features: &Value) -> SnapshotStore {
    let document = json!({"overrides": {}, "availableFeatures": features});
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
    let fips = snapshots(&json!([api::Feature::FipsMode.key()]));
    let error = adapts(&server.client(), "kyma-system", &fips).await;
    let error = error.unwrap_err();
    assert!(error.contains("without asking"), "{error}");
    let fault = server.fault("create pods").status(403);
    let error = adapts(&server.client(), "kyma-system", &fips).await;
    assert!(error.unwrap_err().contains("dry run"));
    fault.stop();
    let asked = server.count("create pods");
    let nothing = snapshots(&json!([]));
    assert_eq!(
        adapts(&server.client(), "kyma-system", &nothing).await,
        Ok(())
    );
    assert_eq!(server.count("create pods"), asked, "nothing to prove");
}
