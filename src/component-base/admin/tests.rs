use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use rstest::rstest;
use serve::Counter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use std::net::Ipv4Addr;

use super::*;
use crate::metrics::BuildInfo;

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(
        "test",
        BuildInfo {
            version: "1".to_owned(),
            revision: "r".to_owned(),
        },
    ))
}

async fn ask(router: Router, method: &str, path: &str) -> (StatusCode, String) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .body(axum::body::Body::empty())
        .unwrap();
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn health_says_ok_whatever_readiness_says() {
    let answer = ask(health_router(Readiness::default()), "GET", "/healthz").await;
    assert_eq!(answer, (StatusCode::OK, "ok\n".to_owned()));
}

#[tokio::test]
async fn readiness_follows_its_conditions_at_once() {
    let readiness = Readiness::default();
    let config = readiness.check("config");
    let router = health_router(readiness.clone());
    let ready = async || ask(router.clone(), "GET", "/readyz").await;

    let waiting = (
        StatusCode::SERVICE_UNAVAILABLE,
        "config: not ready: not reported yet\n".to_owned(),
    );
    assert_eq!(ready().await, waiting);
    config.ready();
    assert_eq!(
        ready().await,
        (StatusCode::OK, "config: ready\n".to_owned())
    );
    readiness.drain();
    assert_eq!(ready().await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn metrics_are_served_as_open_metrics() {
    let request = http::Request::builder()
        .uri("/metrics")
        .body(axum::body::Body::empty())
        .unwrap();
    let response = metrics_router(metrics()).oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], CONTENT_TYPE);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b"# EOF\n"));
}

#[rstest]
#[case::unknown("GET", "/", StatusCode::NOT_FOUND)]
#[case::other_listener("GET", "/metrics", StatusCode::NOT_FOUND)]
#[case::writing("POST", "/healthz", StatusCode::METHOD_NOT_ALLOWED)]
#[case::head("HEAD", "/healthz", StatusCode::OK)]
#[tokio::test]
async fn the_health_listener_answers_nothing_else(
    #[case] method: &str,
    #[case] path: &str,
    #[case] expected: StatusCode,
) {
    let (status, _) = ask(health_router(Readiness::default()), method, path).await;
    assert_eq!(status, expected);
}

fn loopback() -> AdminOptions {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    AdminOptions {
        health: any,
        metrics: any,
    }
}

async fn ask_over_tcp(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    // Returns only if the server closes the connection: one request per connection.
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn both_listeners_respond_until_the_shutdown() {
    let readiness = Readiness::default();
    let admin = Admin::bind(loopback()).unwrap();
    let health = admin.addresses().health;
    let scrape = admin.addresses().metrics;
    let end = CancellationToken::new();
    let running = tokio::spawn(admin.run(readiness.clone(), metrics(), end.clone()));

    readiness.drain();
    let answer = ask_over_tcp(health, "/healthz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let answer = ask_over_tcp(health, "/readyz").await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
        "{answer}"
    );
    let answer = ask_over_tcp(scrape, "/metrics").await.unwrap();
    assert!(answer.contains("test_build_info"), "{answer}");

    end.cancel();
    running.await.unwrap();
    assert!(ask_over_tcp(health, "/healthz").await.is_err());
}

/// The number of clients is a multiple of the connection limit.
#[tokio::test]
async fn silent_clients_keep_no_probe_out() {
    let admin = Admin::bind(loopback()).unwrap();
    let (health, [(_, statistics), _]) = (admin.addresses().health, admin.statistics());
    let end = CancellationToken::new();
    let running = tokio::spawn(admin.run(Readiness::default(), metrics(), end));
    let mut silent = Vec::new();
    for _ in 0..4 * CONNECTIONS {
        silent.push(TcpStream::connect(health).await.unwrap());
    }
    let asked = Instant::now();
    let answer = ask_over_tcp(health, "/healthz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    // If no silent client were evicted, the probe would wait until the first ones are closed.
    let elapsed = asked.elapsed();
    assert!(elapsed + Duration::from_secs(2) < RESPONSE, "{elapsed:?}");
    let evicted = statistics.get(Counter::Evicted);
    assert!(evicted >= 3 * CONNECTIONS as u64, "{evicted}");
    running.abort();
}

#[tokio::test]
async fn silent_clients_do_not_hold_up_the_end() {
    let admin = Admin::bind(loopback()).unwrap();
    let health = admin.addresses().health;
    let end = CancellationToken::new();
    let running = tokio::spawn(admin.run(Readiness::default(), metrics(), end.clone()));
    let _silent = TcpStream::connect(health).await.unwrap();
    ask_over_tcp(health, "/healthz").await.unwrap();

    let asked = Instant::now();
    end.cancel();
    running.await.unwrap();
    // A silent client would keep its connection for that time.
    assert!(asked.elapsed() < RESPONSE);
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let taken = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .unwrap();
    let options = AdminOptions {
        metrics: taken.local_addr().unwrap(),
        ..loopback()
    };
    let error = Admin::bind(options).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("failed to listen on {} for metrics", options.metrics)
    );
}
