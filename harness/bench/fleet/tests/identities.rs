//! Who is let in where.

use http::StatusCode;
use kube::Client;
use rstest::rstest;
use serde_json::json;

use super::*;

#[rstest]
#[case(Credentials::Token)]
#[case(Credentials::Certificate)]
#[tokio::test]
async fn credentials_open_one_runtime_until_it_rotates(#[case] credentials: Credentials) {
    let options = FleetOptions {
        runtimes: 2,
        credentials,
        ..FleetOptions::default()
    };
    let fleet = Fleet::start(options).await.unwrap();
    let own = client(&fleet, 0).await;
    assert_eq!(status(&own, get("/version")).await, StatusCode::OK);

    // The credentials of the one at the address of the other.
    let mut stray = config(&fleet.kubeconfig(0).unwrap()).await;
    stray.tls_server_name = Some(identity::server_name(&runtime_id(1)));
    let stray = Client::try_from(stray).unwrap();
    assert_eq!(
        status(&stray, get("/version")).await,
        StatusCode::UNAUTHORIZED
    );

    let own = client(&fleet, 0).await;
    fleet.rotate(&Selection::Numbers(vec![0]));
    assert_eq!(
        status(&own, get("/version")).await,
        StatusCode::UNAUTHORIZED
    );
    let renewed = client(&fleet, 0).await;
    assert_eq!(status(&renewed, get("/version")).await, StatusCode::OK);
    assert_eq!(fleet.totals().counts.unauthorized, 2);
}

#[tokio::test]
async fn every_runtime_is_a_cluster_of_its_own() {
    let fleet = fleet(2, Conditions::default()).await;
    let (one, two) = (client(&fleet, 0).await, client(&fleet, 1).await);
    let uid = async |client: &Client| {
        let request = get("/api/v1/namespaces/kube-system");
        call(client, request).await.unwrap().2["metadata"]["uid"].clone()
    };
    let first = uid(&one).await;
    assert!(first.is_string());
    assert_ne!(first, uid(&two).await);

    let swapped = Conditions {
        identity: Some(first.as_str().unwrap().to_owned()),
        ..Conditions::default()
    };
    fleet.set(&Selection::Numbers(vec![1]), swapped);
    assert_eq!(uid(&two).await, first);
    assert_eq!(
        status(&two, apply(SECRET, &secret("eA=="))).await,
        StatusCode::CREATED
    );
    assert_eq!(status(&one, get(SECRET)).await, StatusCode::NOT_FOUND);
    assert_eq!(fleet.totals().counts.foreign_writes, 1);
}

#[tokio::test]
async fn a_marker_that_names_another_runtime_is_a_write_that_went_astray() {
    let fleet = fleet(1, Conditions::default()).await;
    let client = client(&fleet, 0).await;
    let path = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-owner";
    for (id, foreign) in [(runtime_id(0), 0), (runtime_id(1), 1)] {
        let marker = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "rt-bootstrapper-owner"},
            "data": {"runtimeID": id},
        });
        assert!(status(&client, apply(path, &marker)).await.is_success());
        assert_eq!(fleet.totals().counts.foreign_writes, foreign);
    }
}
