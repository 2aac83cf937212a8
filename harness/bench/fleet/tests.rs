//! Each test has a fleet of its own, and the client of the product's client library.

use std::time::Instant;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as KubeConfig};
use rstest::rstest;

use super::*;

const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/registry-credentials";

async fn fleet(runtimes: usize, change: impl FnOnce(&mut Conditions)) -> Fleet {
    let options = FleetOptions {
        runtimes,
        conditions: Conditions::with(change),
        ..FleetOptions::default()
    };
    Fleet::start(options).await.unwrap()
}

async fn config(fleet: &Fleet, number: usize) -> KubeConfig {
    let member = fleet.members().unwrap().swap_remove(number);
    let kubeconfig = Kubeconfig::from_yaml(&member.kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    config
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

async fn status(client: &Client, request: Request<Body>) -> StatusCode {
    call(client, request).await.unwrap().0
}

#[rstest]
#[case::throttled(|it: &mut Conditions| (it.faults.throttled, it.faults.retry_after) = (1000, 7), 429)]
#[case::failing(|it: &mut Conditions| it.faults.failing = 1000, 500)]
#[case::conflicting(|it: &mut Conditions| it.faults.conflicting = 1000, 409)]
#[tokio::test]
async fn fault_is_the_response_to_a_write(
    #[case] change: fn(&mut Conditions),
    #[case] expected: u16,
) {
    let fleet = fleet(1, change).await;
    let client = client(&fleet, 0).await;
    let (status, headers, body) = call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    assert_eq!(status, expected);
    // Priority and fairness responds with text.
    let code = (expected != 429).then(|| json!(expected));
    assert_eq!(body["code"], code.unwrap_or_default());
    let retry_after = headers.get("retry-after").map(|it| it.to_str().unwrap());
    assert_eq!(retry_after, (expected == 429).then_some("7"));
    assert_eq!((fleet.counts().faults, fleet.counts().writes), (1, 0));
}

#[rstest]
#[case::stalled(|it: &mut Conditions| it.faults.stalled = 1000, false)]
#[case::silent(|it: &mut Conditions| it.reach = Reach::Silent, false)]
#[case::refusing(|it: &mut Conditions| it.reach = Reach::Refusing, true)]
#[case::reset(|it: &mut Conditions| it.faults.reset = 1000, true)]
#[case::expired(|it: &mut Conditions| it.expired = true, true)]
#[tokio::test]
async fn unreachable_runtime_does_not_delay_another(
    #[case] change: fn(&mut Conditions),
    #[case] fails: bool,
) {
    let fleet = fleet(2, |_| ()).await;
    fleet.set(0..1, &Conditions::with(change));
    let (bad, good) = (client(&fleet, 0).await, client(&fleet, 1).await);
    let response = tokio::time::timeout(Duration::from_millis(500), call(&bad, get("/version")));
    // Either an error at once, or no response until the client gives up.
    match response.await {
        Ok(response) => assert!(fails && response.is_err(), "{response:?}"),
        Err(_) => assert!(!fails, "no response"),
    }
    assert_eq!(status(&good, get("/version")).await, StatusCode::OK);
}

#[tokio::test]
async fn reset_comes_before_the_write_or_after_it() {
    let fleet = fleet(1, |it| it.faults.reset = 1000).await;
    for number in 0..16 {
        let client = client(&fleet, 0).await;
        call(&client, apply(SECRET, &secret(&format!("{number:04}"))))
            .await
            .unwrap_err();
    }
    let writes = fleet.counts().writes;
    assert!((1..16).contains(&writes), "{writes} of 16 were carried out");
}

#[tokio::test]
async fn latency_and_drip_take_their_time() {
    let latency = Duration::from_millis(40);
    let fleet = fleet(1, |it| it.latency = latency).await;
    let client = client(&fleet, 0).await;
    let timed = async |path: &str| {
        let begin = Instant::now();
        assert_eq!(status(&client, get(path)).await, StatusCode::OK);
        begin.elapsed()
    };
    let (first, second) = (timed("/version").await, timed("/version").await);
    assert!(first >= latency * 3, "{first:?}");
    assert!(second >= latency && second < first, "{second:?}");
    let slow = Conditions::with(|it| it.drip = Duration::from_millis(20));
    fleet.set(0..1, &slow);
    let dripped = timed("/api/v1").await;
    assert!(dripped >= Duration::from_millis(100), "{dripped:?}");
}

#[rstest]
#[case::tokens(false, false)]
#[case::certificates(true, false)]
#[case::certificates_of_own_authorities(true, true)]
#[tokio::test]
async fn credentials_open_one_runtime_until_they_are_rotated(
    #[case] client_certificates: bool,
    #[case] own_authorities: bool,
) {
    let options = FleetOptions {
        runtimes: 2,
        client_certificates,
        own_authorities,
        ..FleetOptions::default()
    };
    let fleet = Fleet::start(options).await.unwrap();
    let own = client(&fleet, 0).await;
    assert_eq!(status(&own, get("/version")).await, StatusCode::OK);

    // The credentials of one runtime at the address of the other.
    let (mut stray, other) = (config(&fleet, 0).await, config(&fleet, 1).await);
    (stray.cluster_url, stray.tls_server_name) = (other.cluster_url, other.tls_server_name);
    let stray = Client::try_from(stray).unwrap();
    let response = call(&stray, get("/version")).await;
    if own_authorities {
        response.expect_err("the certificate of another authority");
    } else {
        assert_eq!(response.unwrap().0, StatusCode::UNAUTHORIZED);
    }
    fleet.reset_counters();

    let own = client(&fleet, 0).await;
    fleet.rotate();
    assert_eq!(
        status(&own, get("/version")).await,
        StatusCode::UNAUTHORIZED
    );
    let renewed = client(&fleet, 0).await;
    assert_eq!(status(&renewed, get("/version")).await, StatusCode::OK);
    assert_eq!(fleet.counts().unauthorized, 1);
}

#[tokio::test]
async fn runtimes_are_clusters_of_their_own() {
    let fleet = fleet(2, |_| ()).await;
    let (one, two) = (client(&fleet, 0).await, client(&fleet, 1).await);
    let uid = async |client: &Client| {
        let request = get("/api/v1/namespaces/kube-system");
        call(client, request).await.unwrap().2["metadata"]["uid"].clone()
    };
    let first = uid(&one).await;
    assert!(first.is_string());
    assert_ne!(first, uid(&two).await);
    let swapped = Conditions::with(|it| it.identity = first.as_str().map(str::to_owned));
    fleet.set(1..2, &swapped);
    assert_eq!(uid(&two).await, first);
    assert_eq!(
        status(&two, apply(SECRET, &secret("eA=="))).await,
        StatusCode::CREATED
    );
    assert_eq!(status(&one, get(SECRET)).await, StatusCode::NOT_FOUND);
    assert_eq!(fleet.counts().foreign_writes, 1);
}

#[rstest]
#[case::own(0, 0)]
#[case::another(1, 1)]
#[tokio::test]
async fn owner_marker_of_another_runtime_is_a_foreign_write(
    #[case] owner: usize,
    #[case] foreign: u64,
) {
    let fleet = fleet(1, |_| ()).await;
    let path = "/api/v1/namespaces/kyma-system/configmaps/rt-bootstrapper-owner";
    let marker = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rt-bootstrapper-owner"}, "data": {"runtimeID": runtime_id(owner)},
    });
    let status = status(&client(&fleet, 0).await, apply(path, &marker)).await;
    assert!(status.is_success(), "{status}");
    assert_eq!(fleet.counts().foreign_writes, foreign);
}

#[tokio::test]
async fn writes_are_counted_and_arrivals_are_timed() {
    let fleet = fleet(2, |_| ()).await;
    let client = client(&fleet, 0).await;
    let place = testkit::apiserver::place("secrets", "kyma-system", "registry-credentials");
    let arrivals = |password, since| {
        let expected = Expected::new(place.clone(), secret(password));
        fleet.arrivals(&expected, since)
    };
    let start = fleet.now();
    for _ in 0..2 {
        let status = status(&client, apply(SECRET, &secret("eA=="))).await;
        assert!(status.is_success(), "{status}");
    }
    assert_eq!(
        (fleet.counts().writes, fleet.most_redundant_applies()),
        (1, 1)
    );
    let arrived = arrivals("eA==", start);
    assert!(arrived[0].is_some_and(|it| it > start && it < fleet.now()));
    assert_eq!(arrived[1], None);
    assert_eq!(arrivals("eA==", fleet.now())[0], None, "before that time");
    assert_eq!(arrivals("eQ==", start)[0], None, "other content");
    let delete = Request::delete(SECRET).body(Body::empty()).unwrap();
    assert_eq!(status(&client, delete).await, StatusCode::OK);
    assert_eq!(arrivals("eA==", start)[0], None, "deleted");
    fleet.reset_counters();
    assert_eq!(
        (fleet.counts(), fleet.most_redundant_applies()),
        (Counts::default(), 0)
    );
}

#[tokio::test]
async fn requests_in_flight_are_counted() {
    let fleet = fleet(1, |it| it.latency = Duration::from_millis(100)).await;
    let client = client(&fleet, 0).await;
    let paths = ["/version", "/apis", "/api/v1/namespaces/kube-system"];
    let statuses = paths.map(|path| status(&client, get(path)));
    let statuses = futures::future::join_all(statuses).await;
    assert_eq!(statuses, [StatusCode::OK; 3]);
    let counts = fleet.counts();
    let counted = [counts.reads, counts.most_in_flight, counts.in_flight];
    assert_eq!(counted, [3, 3, 0]);
}
