//! Tests admission, health, readiness and metrics on an async runtime with two workers, as on a node with two cores, with a
//! disk that does not respond.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use component_base::admin::{Admin, AdminOptions};
use component_base::metrics::{BuildInfo, Metrics};
use component_base::readiness::Readiness;
use rstest::rstest;
use serde_json::json;
use tokio::runtime;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::disk::{FakeDisk, Operation};
use super::fixture::{Fixture, LONG, Settings};
use super::stuck::{brief, freeze};
use crate::admission::{AdmissionService, DeliveryMode, RequestLog, Watchers, router};
use crate::fixture::certified;
use crate::heartbeat::ReviewActivity;
use crate::metrics::{State, WatcherMetrics};
use crate::outbox::FsyncPolicy;

fn review(number: u32) -> Request<Body> {
    let name = number.to_string();
    let body = json!({
        "request": {
            "uid": "u", "operation": "CREATE",
            "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}},
        },
    });
    let request = Request::post("/validate/a").body(Body::from(body.to_string()));
    request.unwrap()
}

/// Returns the response. A worker that waits for the disk would delay it by [`LONG`], or until the disk responds.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG / 4)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[rstest]
#[case::forced(FsyncPolicy::Always, Operation::Append)]
#[case::forced_and_frozen_in_a_sync(FsyncPolicy::Always, Operation::Sync)]
#[case::each_second(FsyncPolicy::EachBatch(Duration::from_secs(1)), Operation::Append)]
#[case::never_forced(FsyncPolicy::Never, Operation::Append)]
fn probes_are_answered_while_reviews_wait_for_a_frozen_disk(
    #[case] fsync: FsyncPolicy,
    #[case] operation: Operation,
) {
    let settings = Settings { fsync, ..brief() };
    let fixture = Fixture::with(FakeDisk::default(), settings);
    let (_, secret) = certified();
    let build = BuildInfo {
        version: "0".into(),
        revision: "0".into(),
    };
    let mut metrics = Metrics::new("watcher", build);
    let service = AdmissionService {
        watchers: Watchers::default(),
        outbox: fixture.outbox.clone(),
        delivery_mode: DeliveryMode::Async,
        metrics: WatcherMetrics::register(metrics.registry()),
        reviews: ReviewActivity::default(),
        log: RequestLog::default(),
    };
    State {
        outbox: fixture.outbox.clone(),
        certificates: secret.load(),
    }
    .register(metrics.registry());
    let workers = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let _entered = workers.enter();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let addresses = AdminOptions {
        health: any,
        metrics: any,
    };
    let readiness = Readiness::default();
    readiness.check("certificate").ready();
    let admin = Admin::bind(addresses).unwrap();
    let (health, scraped) = (admin.addresses().health, admin.addresses().metrics);
    workers.spawn(admin.run(readiness, Arc::new(metrics), CancellationToken::new()));

    let frozen = freeze(&fixture.disk, operation);
    let reviews: Vec<_> = (0..8)
        .map(|number| workers.spawn(router(service.clone()).oneshot(review(number))))
        .collect();
    frozen.holds();
    let probes = [
        (health, "/healthz"),
        (health, "/readyz"),
        (scraped, "/metrics"),
    ];
    for (address, path) in probes {
        let response = get(address, path);
        assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
    }
    frozen.thaw();
    for review in reviews {
        let response = workers.block_on(review).unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}
