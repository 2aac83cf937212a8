//! Test of the memory that the controller `direct` uses for an idle runtime. It runs in its own process, because
//! other tests would distort the result.
#![cfg(test)]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::WebhookSettings;
use component_base::client::RequestMetrics;
use component_base::readiness::Readiness;
use controller::clients::{ClientMetrics, ClientOptions, RuntimeClients};
use controller::direct::{
    DirectMetrics, DirectOptions, DirectSettings, Installations, Render, run,
};
use controller::inventory;
use controller::sources::SourceMetrics;
use kube::runtime::events::Reporter;
use policy::sync::Salt;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, kinds};
use testkit::until::until;
use tokio_util::sync::CancellationToken;

/// Number of runtimes that one controller has to support.
const RUNTIMES: usize = 5_000;

/// Returns the objects of one runtime on KCP: its Runtime, the Secret with its kubeconfig and its `RuntimeBootstrapper`.
fn objects(index: usize) -> [Value; 3] {
    let name = format!("5b1d9a3e-0000-4000-8000-{index:012}");
    let labels = json!({"kyma-project.io/runtime-id": name});
    [
        json!({
            "apiVersion": "infrastructuremanager.kyma-project.io/v1", "kind": "Runtime",
            "metadata": {"name": name, "namespace": "kcp-system", "labels": labels},
            "status": {"state": "Ready"},
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("kubeconfig-{name}"), "namespace": "kcp-system", "labels": labels,
            },
        }),
        json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
            "metadata": {
                "name": name, "namespace": "kcp-system", "uid": name,
                "finalizers": ["rt-bootstrapper.kyma-project.io/finalizer"],
                "labels": {"app.kubernetes.io/managed-by": "rt-bootstrapper-controller"},
                "managedFields": [{
                    "manager": "rt-bootstrapper-controller", "operation": "Apply", "subresource": "status",
                    "apiVersion": "operator.kyma-project.io/v1alpha1", "fieldsV1": {"f:status": {}},
                }],
            },
            "spec": {},
            "status": status(&name),
        }),
    ]
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

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn what_is_kept_of_an_idle_runtime_is_small() {
    let server = ApiServer::with_kinds([&kinds::RUNTIMES, &kinds::BOOTSTRAPPERS, &kinds::ROLLOUTS]);
    (0..RUNTIMES)
        .flat_map(objects)
        .for_each(|it| server.put(&it));
    let mut registry = Registry::default();
    let requests = RequestMetrics::register(&mut registry);
    let timeout = Duration::from_secs(15);
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
    // Without sources no runtime is reconciled, so the remaining memory is the stored state of each runtime.
    let (_sources, published) = tokio::sync::watch::channel(None);
    let options = DirectOptions {
        client: component_base::client::with_transport(
            server.service(),
            "kcp-system",
            timeout,
            &requests,
        ),
        settings,
        sources: published,
        salt: Salt::new("kcp"),
        fleet: RuntimeClients::new(
            ClientOptions::default(),
            ClientMetrics::register(&mut registry),
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
    let runtimes = inventory::runtimes(&options.client, "kcp-system", &options.readiness);
    let running = tokio::spawn(run(options, runtimes, token.clone()));
    // The controller watches Runtimes, kubeconfig Secrets, `RuntimeBootstrapper`s and rollouts.
    until("four watches", Duration::from_mins(5), || async {
        server.count("watch") >= 4
    })
    .await
    .unwrap();
    let each = resident().saturating_sub(before) / RUNTIMES;
    println!("kept of a runtime: {each} bytes");
    assert!(each < 10 << 10, "{each}");
    token.cancel();
    running.await.unwrap();
}
