use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config as KubeConfig};
use rstest::rstest;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::control::FleetControl;
use super::*;
use crate::until::until;

const SECRET: &str = "/api/v1/namespaces/kyma-system/secrets/registry-credentials";
const PATIENCE: Duration = Duration::from_secs(10);

async fn fleet(runtimes: usize, conditions: Conditions) -> Fleet {
    let options = FleetOptions {
        runtimes,
        conditions,
        ..FleetOptions::default()
    };
    Fleet::start(options).await.unwrap()
}

async fn config(kubeconfig: &str) -> KubeConfig {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    config
}

async fn client(fleet: &Fleet, number: usize) -> Client {
    let kubeconfig = fleet.kubeconfig(number).unwrap();
    Client::try_from(config(&kubeconfig).await).unwrap()
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
    Request::patch(format!(
        "{path}?fieldManager=rt-bootstrapper-controller&force=true"
    ))
    .header("content-type", "application/apply-patch+yaml")
    .body(object.to_string().into_bytes().into())
    .unwrap()
}

fn secret(password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "registry-credentials", "namespace": "kyma-system"},
        "data": {"password": password},
    })
}

fn secret_place() -> Place {
    Place {
        resource: "secrets".to_owned(),
        namespace: "kyma-system".to_owned(),
        name: "registry-credentials".to_owned(),
    }
}

async fn status(client: &Client, request: Request<Body>) -> StatusCode {
    call(client, request).await.unwrap().0
}

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
            "data": {"runtimeId": id},
        });
        assert!(status(&client, apply(path, &marker)).await.is_success());
        assert_eq!(fleet.totals().counts.foreign_writes, foreign);
    }
}

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
async fn runtimes_that_hold_the_same_share_it() {
    let fleet = fleet(3, Conditions::default()).await;
    for number in 0..3 {
        let client = client(&fleet, number).await;
        call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    }
    let key = key(&secret_place()).unwrap();
    let state = |number: usize| {
        let inner = fleet.shared.runtimes[number].inner();
        inner.objects[&key].state.clone().unwrap()
    };
    assert!(Arc::ptr_eq(&state(0), &state(1)) && Arc::ptr_eq(&state(0), &state(2)));
}

#[rstest]
#[case::throttled(Faults { throttled: 1000, retry_after: 7, ..Faults::default() }, 429)]
#[case::failing(Faults { failing: 1000, ..Faults::default() }, 500)]
#[case::conflicting(Faults { conflicting: 1000, ..Faults::default() }, 409)]
#[tokio::test]
async fn faults_answer_in_place_of_the_runtime(#[case] faults: Faults, #[case] expected: u16) {
    let conditions = Conditions {
        faults,
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let client = client(&fleet, 0).await;
    let (status, headers, body) = call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (expected, &json!(expected))
    );
    let retry_after = headers.get("retry-after").map(|it| it.to_str().unwrap());
    assert_eq!(retry_after, (expected == 429).then_some("7"));
    let counts = fleet.totals().counts;
    assert_eq!((counts.spoiled, counts.writes), (1, 0));
}

#[rstest]
#[case::stalled(Conditions { faults: Faults { stalled: 1000, ..Faults::default() }, ..Conditions::default() }, false)]
#[case::silent(Conditions { reach: Reach::Silent, ..Conditions::default() }, false)]
#[case::refusing(Conditions { reach: Reach::Refusing, ..Conditions::default() }, true)]
#[case::reset(Conditions { faults: Faults { reset: 1000, ..Faults::default() }, ..Conditions::default() }, true)]
#[case::expired(Conditions { certificate: Certificate::Expired, ..Conditions::default() }, true)]
#[tokio::test]
async fn a_runtime_that_cannot_be_talked_to_delays_no_other(
    #[case] conditions: Conditions,
    #[case] fails: bool,
) {
    let fleet = fleet(2, Conditions::default()).await;
    fleet.set(&Selection::Numbers(vec![0]), conditions);
    let (bad, good) = (client(&fleet, 0).await, client(&fleet, 1).await);
    let answer =
        tokio::time::timeout(Duration::from_millis(200), call(&bad, get("/version"))).await;
    // Either an error at once, or nothing until the client gives up.
    assert_eq!(
        answer.as_ref().is_ok_and(Result::is_err),
        fails,
        "{answer:?}"
    );
    assert_eq!(answer.is_err(), !fails);
    assert_eq!(status(&good, get("/version")).await, StatusCode::OK);
}

#[tokio::test]
async fn a_reset_may_come_before_the_write_or_after_it() {
    let fleet = fleet(1, Conditions::default()).await;
    let faults = Faults {
        reset: 1000,
        ..Faults::default()
    };
    let conditions = Conditions {
        faults,
        ..Conditions::default()
    };
    fleet.set(&Selection::All, conditions);
    for number in 0..16 {
        let client = client(&fleet, 0).await;
        let object = secret(&format!("{number:04}"));
        call(&client, apply(SECRET, &object)).await.unwrap_err();
    }
    let writes = fleet.totals().counts.writes;
    assert!((1..16).contains(&writes), "{writes} of 16 were carried out");
}

#[tokio::test]
async fn distance_and_drops_take_their_time() {
    let conditions = Conditions {
        latency: Duration::from_millis(40),
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let client = client(&fleet, 0).await;
    let timed = async |path: &str| {
        let begin = Instant::now();
        assert_eq!(status(&client, get(path)).await, StatusCode::OK);
        begin.elapsed()
    };
    let first = timed("/version").await;
    let second = timed("/version").await;
    assert!(first >= Duration::from_millis(120), "{first:?}");
    assert!(
        second >= Duration::from_millis(40) && second < first,
        "{second:?}"
    );
    let slow = Conditions {
        drip: Duration::from_millis(20),
        ..Conditions::default()
    };
    fleet.set(&Selection::All, slow);
    let dripped = timed("/api/v1").await;
    assert!(dripped >= Duration::from_millis(100), "{dripped:?}");
}

#[rstest]
#[case(Writes::Forbidden, 403, "cannot patch resource")]
#[case(Writes::NamespaceTerminating, 403, "being terminated")]
#[case(Writes::QuotaExceeded, 403, "exceeded quota")]
#[tokio::test]
async fn writes_may_be_refused(#[case] writes: Writes, #[case] code: u16, #[case] why: &str) {
    let fleet = fleet(1, Conditions::default()).await;
    let conditions = Conditions {
        writes,
        ..Conditions::default()
    };
    fleet.set(&Selection::All, conditions);
    let client = client(&fleet, 0).await;
    let (status, _, body) = call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    let message = body["message"].as_str().unwrap();
    assert!(status.as_u16() == code && message.contains(why), "{body}");
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

#[rstest]
#[case(Rollout::Immediate, Some(true))]
#[case(Rollout::Stuck, Some(false))]
#[case(Rollout::Takes(60_000), Some(false))]
#[case(Rollout::Takes(50), None)]
#[tokio::test]
async fn a_deployment_becomes_available_as_the_runtime_has_it(
    #[case] rollout: Rollout,
    #[case] at_once: Option<bool>,
) {
    let conditions = Conditions {
        rollout,
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let client = client(&fleet, 0).await;
    let path = "/apis/apps/v1/namespaces/kyma-system/deployments/web";
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}},
    });
    let (_, _, body) = call(&client, apply(path, &deployment)).await.unwrap();
    assert_eq!(
        body["status"]["observedGeneration"],
        body["metadata"]["generation"]
    );
    let available = |body: &Value| body["status"]["conditions"][0]["status"] == "True";
    if let Some(at_once) = at_once {
        assert_eq!(available(&body), at_once, "{body}");
    }
    if at_once.is_none() {
        until("the Deployment is available", PATIENCE, || async {
            available(&call(&client, get(path)).await.unwrap().2)
        })
        .await
        .unwrap();
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

/// One connection by HTTP/2, as the product's own client makes it.
async fn h2(fleet: &Fleet, paths: &[&str]) -> Vec<StatusCode> {
    let mut roots = rustls::RootCertStore::empty();
    let pem = fleet.shared.authority.pem.as_bytes();
    roots
        .add(CertificateDer::from_pem_slice(pem).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let tcp = tokio::net::TcpStream::connect(("127.0.0.1", fleet.port()))
        .await
        .unwrap();
    let name = identity::server_name(&runtime_id(0)).try_into().unwrap();
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, tcp)
        .await
        .unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    let token = identity::token(&fleet.shared.secret, &runtime_id(0), 0);
    let calls = paths.iter().map(|path| {
        let request = Request::get(format!("https://runtime{path}"))
            .header("authorization", format!("Bearer {token}"))
            .body(Full::<Bytes>::default())
            .unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap().status() }
    });
    futures::future::join_all(calls).await
}

#[tokio::test]
async fn one_connection_carries_several_requests_at_once() {
    let conditions = Conditions {
        latency: Duration::from_millis(50),
        ..Conditions::default()
    };
    let fleet = fleet(1, conditions).await;
    let statuses = h2(
        &fleet,
        &["/version", "/apis", "/api/v1/namespaces/kube-system"],
    )
    .await;
    assert_eq!(statuses, [StatusCode::OK; 3]);
    let totals = fleet.totals();
    assert_eq!((totals.counts.handshakes, totals.most_in_flight), (1, 3));
}

#[tokio::test]
async fn it_can_be_controlled_from_another_process() {
    let fleet = Arc::new(fleet(2, Conditions::default()).await);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let control = FleetControl::new(listener.local_addr().unwrap().port());
    tokio::spawn(super::control::serve(Arc::clone(&fleet), listener));

    assert_eq!(
        control.kubeconfig(1).await.unwrap(),
        fleet.kubeconfig(1).unwrap()
    );
    assert!(control.kubeconfig(2).await.is_err());
    let client = client(&fleet, 1).await;
    call(&client, apply(SECRET, &secret("eA=="))).await.unwrap();
    assert_eq!(
        control.entries(&secret_place()).await.unwrap(),
        fleet.entries(&secret_place())
    );
    let object = control.object(1, &secret_place()).await.unwrap();
    assert_eq!(object["data"]["password"], "eA==");
    assert_eq!(
        control.totals().await.unwrap().counts,
        fleet.totals().counts
    );

    let dead = Conditions {
        reach: Reach::Refusing,
        ..Conditions::default()
    };
    control
        .set(Selection::Numbers(vec![1]), dead)
        .await
        .unwrap();
    call(&client, get("/version")).await.unwrap_err();
    control
        .set(Selection::All, Conditions::default())
        .await
        .unwrap();
    control.rotate(&Selection::All).await.unwrap();
    assert_eq!(
        status(&client, get("/version")).await,
        StatusCode::UNAUTHORIZED
    );
    control.reset_counters().await.unwrap();
    assert_eq!(control.totals().await.unwrap().counts, Counts::default());
}
