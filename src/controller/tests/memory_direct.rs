//! What direct mode keeps of a runtime on which nothing happens. A process of its own: other tests would blur the figure.
#![cfg(test)]

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::bootstrapper::WebhookSettings;
use chassis::client::{Deadline, RequestMetrics};
use chassis::readiness::Readiness;
use controller::bootstrapper::direct::{
    DirectMetrics, DirectOptions, DirectSettings, Installations, Render, run,
};
use controller::bootstrapper::sources::SourceMetrics;
use controller::runtimes::{Fleet, FleetMetrics, FleetOptions};
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use kube::runtime::events::Reporter;
use policy::convergence::Salt;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// As many as one controller is to look after.
const RUNTIMES: usize = 5_000;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

fn object(plural: &str, index: usize) -> Value {
    let name = format!("5b1d9a3e-0000-4000-8000-{index:012}");
    let labels = json!({"kyma-project.io/runtime-id": name});
    let version = index.to_string();
    match plural {
        "runtimes" => json!({
            "metadata": {"name": name, "resourceVersion": version, "labels": labels},
            "status": {"state": "Ready"},
        }),
        "secrets" => json!({
            "metadata": {"name": format!("kubeconfig-{name}"), "resourceVersion": version, "labels": labels},
        }),
        _ => json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
            "metadata": {
                "name": name, "namespace": "kcp-system", "resourceVersion": version, "uid": name, "generation": 1,
                "finalizers": ["rt-bootstrapper.kyma-project.io/finalizer"],
                "labels": {"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"},
                "managedFields": [{"manager": "rt-bootstrapper-controller", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {},
            "status": status(&name),
        }),
    }
}

fn status(name: &str) -> Value {
    let kinds = [
        "Reachable",
        "IdentityVerified",
        "Installed",
        "ConfigurationSynchronized",
        "Ready",
    ];
    let conditions = kinds.map(|kind| {
        json!({
            "type": kind, "status": "True", "reason": "Synchronized", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    });
    let hash = "0123456789abcdef".repeat(4);
    json!({
        "observedGeneration": 1, "conditions": conditions, "runtimeID": name, "clusterUID": name,
        "configuration": {
            "pullSecretHash": hash, "trustBundleHash": hash, "configMapHash": hash, "revision": hash,
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        },
        "webhook": {"version": "0.1.0", "readyReplicas": 2, "replicas": 2, "manifestHash": hash},
    })
}

fn number(request: &Request<Body>, key: &str) -> Option<usize> {
    let pairs = request.uri().query()?.split('&');
    let mut pairs = pairs.filter_map(|it| it.split_once('='));
    pairs.find(|(name, _)| *name == key)?.1.parse().ok()
}

fn answer(request: &Request<Body>, complete: &AtomicUsize) -> Answer {
    if request
        .uri()
        .query()
        .is_some_and(|it| it.contains("watch=true"))
    {
        complete.fetch_add(1, Ordering::SeqCst);
        let nothing = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
        return Response::new(StreamBody::new(nothing.boxed()).boxed_unsync());
    }
    let plural = request.uri().path().rsplit('/').next().unwrap();
    let all = if plural == "configmaps" { 0 } else { RUNTIMES };
    let from = number(request, "continue").unwrap_or_default();
    let to = all.min(from + number(request, "limit").unwrap_or(all));
    let items: Vec<Value> = (from..to).map(|index| object(plural, index)).collect();
    let mut metadata = json!({"resourceVersion": "1"});
    if to < all {
        metadata["continue"] = json!(to.to_string());
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items});
    let body = Full::new(Bytes::from(list.to_string())).boxed_unsync();
    let builder = Response::builder().header("content-type", "application/json");
    builder.body(body).unwrap()
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn what_is_kept_of_an_idle_runtime_is_small() {
    let complete = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&complete);
    let service = tower::service_fn(move |request| {
        let answer = answer(&request, &told);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut registry = Registry::default();
    let requests = RequestMetrics::register(&mut registry);
    let deadline = Deadline::new(Duration::from_secs(15));
    let settings = DirectSettings {
        statuses_per_second: NonZeroU32::MIN,
        ..DirectSettings::default()
    };
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "webhook", "labels": {"app.kubernetes.io/version": "0.1.0"}},
    });
    let render: Render = Arc::new(move |_, _| Ok(vec![deployment.clone()]));
    let installations = Installations::new(render, WebhookSettings::default()).unwrap();
    // Without sources nobody has a pass, so what stays is what is known of everybody.
    let (_sources, published) = tokio::sync::watch::channel(None);
    let options = DirectOptions {
        client: chassis::client::over(service, "kcp-system", deadline, &requests),
        settings,
        sources: published,
        salt: Salt::new("kcp"),
        fleet: Fleet::new(
            FleetOptions::default(),
            FleetMetrics::register(&mut registry),
        ),
        installations,
        readiness: Readiness::default(),
        reporter: Reporter {
            controller: "rt-bootstrapper-controller".to_owned(),
            instance: None,
        },
        metrics: DirectMetrics::register(&mut registry),
        source_metrics: SourceMetrics::register(&mut registry),
    };
    let token = CancellationToken::new();
    let before = resident();
    let running = tokio::spawn(run(options, token.clone()));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    // Three lists, and the progress of the rollout.
    while complete.load(Ordering::SeqCst) < 4 {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the lists do not end"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let each = resident().saturating_sub(before) / RUNTIMES;
    println!("kept of a runtime: {each} bytes");
    assert!(each < 10 << 10, "{each}");
    token.cancel();
    running.await.unwrap();
}
