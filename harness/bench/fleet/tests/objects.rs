//! What is kept, counted and told of.

use http::StatusCode;
use serde_json::Value;

use super::*;

#[tokio::test]
async fn writes_are_counted_by_what_they_changed() {
    let fleet = fleet(2, Conditions::default()).await;
    let client = client(&fleet, 0).await;
    let version = async || {
        let (_, _, object) = call(&client, get(SECRET)).await.unwrap();
        object["metadata"]["resourceVersion"].clone()
    };
    let before = fleet.totals().now;
    call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    let first = version().await;
    call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    assert_eq!(version().await, first);
    let [entry, other] = &fleet.entries(&secret_place())[..] else {
        panic!("two runtimes");
    };
    assert_eq!((entry.changing_applies, entry.idle_applies), (1, 1));
    assert!(entry.changed > before && entry.content.is_some());
    assert_eq!(
        (other.content.as_ref(), other.changed),
        (None, Duration::ZERO)
    );

    call(&client, apply(SECRET, &secret("eQ=="))).await.unwrap();
    assert_ne!(version().await, first);
    assert_ne!(fleet.entries(&secret_place())[0].content, entry.content);
    let delete = Request::delete(SECRET).body(Body::empty()).unwrap();
    assert_eq!(status(&client, delete).await, StatusCode::OK);
    let gone = &fleet.entries(&secret_place())[0];
    assert_eq!((gone.content.as_ref(), gone.changing_applies), (None, 2));

    let totals = fleet.totals();
    let counts = totals.counts;
    assert_eq!((counts.applies, counts.edits, counts.gets), (3, 1, 3));
    assert_eq!((counts.writes, totals.most_idle_applies), (3, 1));
    fleet.reset_counters();
    assert_eq!(fleet.totals().counts, Counts::default());
}

#[tokio::test]
async fn trust_bundles_are_served_where_the_runtime_has_them() {
    let fleet = fleet(1, Conditions::default()).await;
    let client = client(&fleet, 0).await;
    let path = "/apis/certificates.k8s.io/v1beta1";
    let (_, _, body) = call(&client, get(path)).await.unwrap();
    assert_eq!(body["resources"][0]["name"], "clustertrustbundles");
    let without = Conditions {
        without_trust_bundles: true,
        ..Conditions::default()
    };
    fleet.set(&Selection::All, without);
    for path in [
        path,
        "/apis/certificates.k8s.io/v1beta1/clustertrustbundles/a",
    ] {
        assert_eq!(status(&client, get(path)).await, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_watch_tells_what_is_there_and_what_changes() {
    let fleet = fleet(1, Conditions::default()).await;
    let client = client(&fleet, 0).await;
    call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    let path = "/api/v1/namespaces/kyma-system/secrets?watch=true&fieldSelector=metadata.name%3Dregistry-credentials";
    let mut body = client.send(get(path)).await.unwrap().into_body();
    call(&client, apply(SECRET, &secret("eQ=="))).await.unwrap();
    let delete = Request::delete(SECRET).body(Body::empty()).unwrap();
    call(&client, delete).await.unwrap();
    let mut seen = String::new();
    while seen.lines().count() < 3 {
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap();
        let bytes = frame.unwrap().unwrap().into_data().unwrap();
        seen.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    let kinds: Vec<Value> = seen
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
}
