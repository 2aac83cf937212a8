//! Stored Pods of hostile clients: the leader judges the other Pods, and the memory of the process stays limited. The test
//! has a separate process, because it measures the peak memory of the process.
#![cfg(test)]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use component_base::client::{RequestMetrics, with_transport};
use component_base::readiness::Readiness;
use component_base::watch::WatchMetrics;
use futures::stream;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::runtime::events::{Recorder, Reporter};
use policy::admission::Settings;
use policy::repairs::EvictionSettings;
use prometheus_client::registry::Registry;
use serde_json::json;
use testkit::apiserver::ApiServer;
use testkit::metrics::Samples;
use testkit::until::until;
use tokio_util::sync::CancellationToken;
use tower::{Service as _, service_fn};
use webhook::repairs::{RepairMetrics, Repairs};
use webhook::snapshot::SnapshotStore;
use webhook::watches::{self, Watches};

/// Size of a hostile Pod, in bytes. The API server accepts up to three times as much.
const POD: usize = 1024 * 1024;

/// Number of Pods in one page of the product.
const PAGE: usize = 10;

/// Maximum growth of the resident memory, in KiB: the page in this test, three pages in the product (the body, the body in
/// one piece, its Pods), and the same amount of the previous case, which the allocator may keep.
const GROWTH_KIB: u64 = 8 * (PAGE * POD / 1024) as u64;

/// Time limit of all waits. A debug build reads a hostile page for seconds, and on a busy machine for much longer.
const PATIENCE: Duration = Duration::from_mins(5);

const MISSED: &str = r#"missed_pods{namespace="shop",reason="ImageRewritten"}"#;

const META: &str = r#""name":"a","namespace":"shop","creationTimestamp":"2096-01-02T00:00:00Z""#;

/// The repeated items, and their location.
const HOSTILE: [(&str, &str, &str); 5] = [
    (
        "options of the resolver",
        r#"{"metadata":{META},"spec":{"dnsConfig":{"options":[FILL]}}}"#,
        "{},",
    ),
    (
        "labels",
        r#"{"metadata":{META,"labels":{FILL}}}"#,
        r#""N":"","#,
    ),
    (
        "managed fields",
        r#"{"metadata":{META,"managedFields":[FILL]}}"#,
        "{},",
    ),
    (
        "variables",
        r#"{"metadata":{META},"spec":{"containers":[{"env":[FILL]}]}}"#,
        r#"{"name":"a"},"#,
    ),
    (
        "conditions",
        r#"{"metadata":{META},"status":{"conditions":[FILL]}}"#,
        "{},",
    ),
];

/// Returns a page of hostile Pods. The last Pod is a Pod that the webhook missed, with a time that the RFC 3339 parser rejects.
fn page(pod: &str, item: &str) -> Bytes {
    let items = 0..POD / item.len();
    let fill: String = items.map(|it| item.replace('N', &it.to_string())).collect();
    let hostile = pod.replace("FILL", fill.trim_end_matches(','));
    let hostile = hostile.replace("META", META);
    let missed = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "1", "creationTimestamp": "2096-01-02T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "time": "9999-12-31T23:59:59Z"}],
        },
        "spec": {"containers": [{"name": "c", "image": "old.example/web:1"}]},
    });
    let mut list = String::with_capacity(PAGE * (POD + 1024));
    list.push_str(
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#,
    );
    for _ in 1..PAGE {
        list.push_str(&hostile);
        list.push(',');
    }
    list.push_str(&missed.to_string());
    list.push_str("]}");
    list.into()
}

/// Returns the page in frames, as a connection delivers it.
fn frames(page: &Bytes) -> Body {
    let starts = (0..page.len()).step_by(16 * 1024);
    let frames = starts.map(|at| page.slice(at..page.len().min(at + 16 * 1024)));
    let frames: Vec<_> = frames.map(Ok::<_, Infallible>).collect();
    Body::from_stream(stream::iter(frames))
}

fn cluster() -> ApiServer {
    let server = ApiServer::new();
    server.namespace("shop");
    let document = json!({
        "availableFeatures": ["rt-cfg.kyma-project.io/alter-img-registry"],
        "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]},
        "overrides": {"old.example": "mirror.example"},
    });
    server.put(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "config", "namespace": "kyma-system"},
        "data": {api::names::CONFIG_KEY: document.to_string()},
    }));
    server
}

/// Returns a client of a cluster with this page of Pods.
fn client(page: Bytes) -> Client {
    let server = cluster();
    let requests = RequestMetrics::register(&mut Registry::default());
    let service = server.service();
    let transport = service_fn(move |request: Request<kube::client::Body>| {
        let (mut service, page) = (service.clone(), page.clone());
        async move {
            let query = request.uri().query().unwrap_or_default();
            let body = match request.uri().path() {
                "/api/v1/pods" if query.contains("watch=true") => {
                    Body::from_stream(stream::pending::<Result<Bytes, Infallible>>())
                }
                "/api/v1/pods" => frames(&page),
                _ => return service.call(request).await,
            };
            Ok(Response::new(
                body.map_err(std::io::Error::other).boxed_unsync(),
            ))
        }
    });
    with_transport(transport, "default", PATIENCE, &requests)
}

/// Returns the number of missed Pods as soon as there are any, or 0 after [`PATIENCE`].
async fn judge(page: Bytes) -> f64 {
    let client = client(page);
    let mut registry = Registry::default();
    let reporter = Reporter {
        controller: "rt-bootstrapper".to_owned(),
        instance: None,
    };
    let watches = Watches {
        client: client.clone(),
        namespace: "kyma-system".to_owned(),
        config_map: "config".to_owned(),
        settings: Settings {
            landscape: None,
            pull_secret: "registry-credentials".to_owned(),
        },
        reporter: reporter.clone(),
        snapshots: SnapshotStore::default(),
        readiness: Readiness::default(),
        metrics: watches::WatchMetrics::default(),
    };
    let repairs = Repairs {
        client: client.clone(),
        snapshots: watches.snapshots.clone(),
        recorder: Recorder::new(client, reporter),
        metrics: RepairMetrics::register(&mut registry),
        watches: WatchMetrics::default(),
        product_namespace: "kyma-system".to_owned(),
        evict: EvictionSettings::default(),
        probe: Arc::new(|| Box::pin(async { Ok(()) })),
    };
    let count = until("a missed Pod", PATIENCE, async || {
        Samples::of(&registry).value(MISSED)
    });
    tokio::select! {
        () = Box::pin(watches.run()) => 0.0,
        () = Box::pin(repairs.run(CancellationToken::new())) => 0.0,
        missed = count => missed.unwrap_or_default(),
    }
}

fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let peak = peak.unwrap().trim().trim_end_matches(" kB");
    peak.parse().unwrap()
}

#[tokio::test]
async fn memory_is_bounded_and_the_others_are_judged_whatever_stored_pods_consist_of() {
    let before = peak_memory_kib();
    for (what, pod, item) in HOSTILE {
        let missed = judge(page(pod, item)).await;
        let growth = peak_memory_kib() - before;
        assert!(missed >= 1.0, "{what}: the missed Pod is not found");
        assert!(growth <= GROWTH_KIB, "{what}: {growth} KiB");
    }
}
