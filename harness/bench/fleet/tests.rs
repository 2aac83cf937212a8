//! Tests of the fleet. Each test has its own fleet, and the client of the product's client library.

use std::time::Instant;

use clusters::control_plane::runtime_id;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};
use rstest::rstest;

use super::*;

const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/registry-credentials";

async fn fleet(runtimes: usize, conditions: Conditions) -> Fleet {
    Fleet::start(runtimes, false, &conditions).await.unwrap()
}

async fn config(fleet: &Fleet, number: usize) -> Config {
    let kubeconfig = &fleet.kubeconfigs().unwrap()[number];
    testkit::client_config(kubeconfig).await.unwrap()
}

async fn client(fleet: &Fleet, number: usize) -> Client {
    Client::try_from(config(fleet, number).await).unwrap()
}

type Answered = (StatusCode, HeaderMap, Value);

async fn call(client: &Client, request: Request<Body>) -> Result<Answered, kube::Error> {
    let (head, body) = client.send(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let value = serde_json::from_slice(&body).unwrap_or_default();
    Ok((head.status, head.headers, value))
}

async fn status(client: &Client, request: Request<Body>) -> StatusCode {
    call(client, request).await.unwrap().0
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn apply(path: &str, object: &Value) -> Request<Body> {
    let uri = format!("{path}?fieldManager=rt-bootstrapper-controller&force=true");
    let request = Request::patch(uri).header("content-type", "application/apply-patch+yaml");
    let body = object.to_string().into_bytes();
    request.body(body.into()).unwrap()
}

fn secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "registry-credentials", "namespace": "kyma-system"},
        "data": {"password": password},
    })
}

#[rstest]
#[case::throttled(Fault::Throttled(7), 429)]
#[case::failing(Fault::Failing, 500)]
#[case::conflicting(Fault::Conflicting, 409)]
#[tokio::test]
async fn fault_is_the_response_to_a_write(#[case] fault: Fault, #[case] expected: u16) {
    let fleet = fleet(1, Conditions::faulty(&[(fault, 1000)])).await;
    let client = client(&fleet, 0).await;
    let (status, headers, body) = call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    assert_eq!(status, expected);
    // The response of API Priority and Fairness is plain text.
    let code = (expected != 429).then(|| json!(expected));
    assert_eq!(body["code"], code.unwrap_or_default());
    let retry_after = headers.get("retry-after").map(|it| it.to_str().unwrap());
    assert_eq!(retry_after, (expected == 429).then_some("7"));
    assert_eq!((fleet.counts().faults, fleet.counts().writes), (1, 0));
}

#[rstest]
#[case::stalled(Conditions::faulty(&[(Fault::Stalled, 1000)]), false)]
#[case::silent(Conditions { silent: true, ..Conditions::default() }, false)]
#[case::reset(Conditions::faulty(&[(Fault::ResetBefore, 1000)]), true)]
#[case::expired(Conditions { expired: true, ..Conditions::default() }, true)]
#[tokio::test]
async fn unreachable_runtime_does_not_delay_another(
    #[case] conditions: Conditions,
    #[case] fails: bool,
) {
    let fleet = fleet(2, Conditions::default()).await;
    fleet.set(0..1, &conditions);
    let (bad, good) = (client(&fleet, 0).await, client(&fleet, 1).await);
    let response = tokio::time::timeout(Duration::from_secs(2), call(&bad, get("/version")));
    // Either an immediate error, or no response until the client's timeout.
    match response.await {
        Ok(response) => assert!(fails && response.is_err(), "{response:?}"),
        Err(_) => assert!(!fails, "no response"),
    }
    assert_eq!(status(&good, get("/version")).await, StatusCode::OK);
}

#[rstest]
#[case::before(Fault::ResetBefore, 0)]
#[case::after(Fault::ResetAfter, 1)]
#[tokio::test]
async fn reset_comes_before_the_write_or_after_it(#[case] fault: Fault, #[case] writes: u64) {
    let fleet = fleet(1, Conditions::faulty(&[(fault, 1000)])).await;
    let response = call(&client(&fleet, 0).await, apply(SECRET, &secret("eA=="))).await;
    response.unwrap_err();
    assert_eq!(fleet.counts().writes, writes);
}

#[tokio::test]
async fn latency_and_drip_take_their_time() {
    let latency = Duration::from_millis(40);
    let mut conditions = Conditions {
        latency,
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions.clone()).await;
    let client = client(&fleet, 0).await;
    let timed = async |path: &str| {
        let begin = Instant::now();
        assert_eq!(status(&client, get(path)).await, StatusCode::OK);
        begin.elapsed()
    };
    let (first, second) = (timed("/version").await, timed("/version").await);
    assert!(first >= latency * 3, "{first:?}");
    assert!(second >= latency, "{second:?}");
    assert_eq!(fleet.counts().handshakes, 1, "the connection is kept");
    conditions.drip = Duration::from_millis(20);
    fleet.set(0..1, &conditions);
    let dripped = timed("/api/v1").await;
    assert!(dripped >= Duration::from_millis(140), "{dripped:?}");
}

#[rstest]
#[case::tokens(false)]
#[case::certificates_of_own_authorities(true)]
#[tokio::test]
async fn credentials_open_one_runtime_until_they_are_rotated(#[case] certificates: bool) {
    let conditions = Conditions::default();
    let fleet = Fleet::start(2, certificates, &conditions).await.unwrap();
    let (other, mut stray) = (config(&fleet, 1).await, config(&fleet, 0).await);
    let own = Client::try_from(stray.clone()).unwrap();
    assert_eq!(status(&own, get("/version")).await, StatusCode::OK);

    // The kubeconfig has the credentials of one runtime and the address of the other.
    (stray.cluster_url, stray.tls_server_name) = (other.cluster_url, other.tls_server_name);
    let stray = Client::try_from(stray).unwrap();
    let response = call(&stray, get("/version")).await;
    if certificates {
        response.expect_err("the certificate of another authority");
    } else {
        assert_eq!(response.unwrap().0, StatusCode::UNAUTHORIZED);
    }
    fleet.reset_counters();
    fleet.rotate();
    let revoked = status(&own, get("/version")).await;
    assert_eq!(revoked, StatusCode::UNAUTHORIZED);
    let renewed = client(&fleet, 0).await;
    assert_eq!(status(&renewed, get("/version")).await, StatusCode::OK);
    assert_eq!(fleet.counts().unauthorized, 1);
}

#[tokio::test]
async fn runtimes_are_clusters_of_their_own() {
    let fleet = fleet(2, Conditions::default()).await;
    let (one, two) = (client(&fleet, 0).await, client(&fleet, 1).await);
    let uid = async |client: &Client| {
        let request = get("/api/v1/namespaces/kube-system");
        let (_, _, namespace) = call(client, request).await.unwrap();
        namespace["metadata"]["uid"].as_str().map(str::to_owned)
    };
    let first = uid(&one).await;
    assert!(first.is_some());
    assert_ne!(first, uid(&two).await);
    let swapped = Conditions {
        identity: first.clone(),
        ..Conditions::default()
    };
    fleet.set(1..2, &swapped);
    assert_eq!(uid(&two).await, first);
    let written = status(&two, apply(SECRET, &secret("eA=="))).await;
    assert_eq!(written, StatusCode::CREATED);
    assert_eq!(status(&one, get(SECRET)).await, StatusCode::NOT_FOUND);
    assert_eq!(fleet.counts().foreign_writes, 1);
}

#[tokio::test]
async fn owner_marker_of_another_runtime_is_a_foreign_write() {
    let fleet = fleet(1, Conditions::default()).await;
    let client = client(&fleet, 0).await;
    let path = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-owner";
    for owner in [0, 1] {
        let marker = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-owner"},
            "data": {"runtimeID": runtime_id(owner)},
        });
        let status = status(&client, apply(path, &marker)).await;
        assert!(status.is_success(), "{status}");
        assert_eq!(fleet.counts().foreign_writes, owner as u64);
    }
}

#[tokio::test]
async fn writes_are_counted_and_arrivals_are_timed() {
    let fleet = fleet(2, Conditions::default()).await;
    let client = client(&fleet, 0).await;
    let place = testkit::apiserver::place("secrets", "kyma-system", "registry-credentials");
    let arrivals = |password, since| {
        let expected = Expected::new(place.clone(), secret(password));
        fleet.arrivals(&expected, since)
    };
    let counted = || {
        let Counts { reads, writes, .. } = fleet.counts();
        (reads, writes, fleet.most_redundant_applies())
    };
    let start = fleet.now();
    for _ in 0..2 {
        let status = status(&client, apply(SECRET, &secret("eA=="))).await;
        assert!(status.is_success(), "{status}");
    }
    assert_eq!(counted(), (0, 1, 1));
    let arrived = arrivals("eA==", start);
    assert!(arrived[0].is_some_and(|it| it > start && it < fleet.now()));
    assert_eq!(arrived[1], None);
    assert_eq!(arrivals("eA==", fleet.now())[0], None, "before that time");
    assert_eq!(arrivals("eQ==", start)[0], None, "other content");
    let delete = Request::delete(SECRET).body(Body::empty()).unwrap();
    assert_eq!(status(&client, delete).await, StatusCode::OK);
    assert_eq!(arrivals("eA==", start)[0], None, "deleted");
    fleet.reset_counters();
    assert_eq!(counted(), (0, 0, 0));
}

#[tokio::test]
async fn requests_in_flight_are_counted() {
    let conditions = Conditions {
        latency: Duration::from_millis(200),
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let client = client(&fleet, 0).await;
    let requests = [(); 3].map(|()| status(&client, get("/version")));
    let statuses = futures::future::join_all(requests).await;
    assert_eq!(statuses, [StatusCode::OK; 3]);
    let counts = fleet.counts();
    let counted = [counts.reads, counts.most_in_flight, counts.in_flight];
    assert_eq!(counted, [3, 3, 0]);
}
