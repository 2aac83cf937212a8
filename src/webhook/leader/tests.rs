//! Tests of the tasks with an API server, and with the watches that provide their input. The clock is paused.

use std::sync::Arc;

use api::names::{CONFIG_KEY, CONFIG_MAP, WEBHOOK_CONFIGURATION, WEBHOOK_ENTRY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use component_base::readiness::Readiness;
use component_base::watch::WatchMetrics;
use kube::runtime::events::Recorder;
use policy::repairs::EvictionSettings;
use rstest::rstest;
use serde_json::json;
use serve::TlsHandle;
use testkit::apiserver::ApiServer;
use testkit::logs::Logs;
use testkit::metrics::Samples;
use tracing::Level;

use super::*;
use crate::certificate::CertificateMetrics;
use crate::fallback_policy::{FallbackMetrics, FallbackSettings};
use crate::pull_secret_sync::{PullSecretMetrics, page_permit};
use crate::repairs::RepairMetrics;
use crate::watches::Watches;
use crate::watches::fixtures::watches_of;

/// A write of each task.
const WRITES: [(&str, &str); 4] = [
    (
        "pull_secret_sync",
        "apply secrets shop/registry-credentials",
    ),
    (
        "repairs",
        "apply secrets kyma-system/rt-bootstrapper-revisions",
    ),
    ("fallback_policy", "apply mutatingadmissionpolicies"),
    (
        "certificates",
        "apply secrets kyma-system/rt-bootstrapper-webhook-cert",
    ),
];

/// Returns an API server with the webhook configuration, a document, the pull Secret, and Namespace `shop`, which needs a copy.
fn cluster() -> ApiServer {
    let server = ApiServer::new();
    server.namespace("shop");
    server.put(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK_CONFIGURATION},
        "webhooks": [{
            "name": WEBHOOK_ENTRY, "clientConfig": {"caBundle": "", "url": "https://webhook.test"},
            "rules": [{"operations": ["CREATE"]}], "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    }));
    let document = json!({
        "availableFeatures": [
            "rt-cfg.kyma-project.io/alter-img-registry",
            "rt-cfg.kyma-project.io/add-img-pull-secret",
        ],
        "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]},
        "overrides": {"old.example": "mirror.example"},
    });
    server.put(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": "kyma-system"},
        "data": {CONFIG_KEY: document.to_string()},
    }));
    let credentials = json!({"auths": {"mirror.example": {"auth": "dTpw"}}}).to_string();
    server.put(&json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": api::names::PULL_SECRET, "namespace": "kyma-system"},
        "data": {".dockerconfigjson": STANDARD.encode(credentials)},
    }));
    server
}

/// Runs the tasks of a leader, with the watches of a replica, until the token is canceled.
async fn lead(server: ApiServer, metrics: LeaderMetrics, token: CancellationToken) {
    let watches = watches_of(&server);
    let Watches {
        client, snapshots, ..
    } = watches.clone();
    let (namespace, readiness) = ("kyma-system".to_owned(), Readiness::default());
    let recorder = Recorder::new(client.clone(), watches.reporter.clone());
    let certificates = Certificates::new(
        client.clone(),
        &namespace,
        WEBHOOK_CONFIGURATION,
        None,
        CertificateMetrics::default(),
    );
    let policy = FallbackPolicy::new(
        client.clone(),
        snapshots.clone(),
        (readiness.clone(), WatchMetrics::default()),
        FallbackMetrics::default(),
        FallbackSettings {
            enabled: true,
            namespace: namespace.clone(),
            webhook_configuration: WEBHOOK_CONFIGURATION.to_owned(),
        },
    );
    let tasks = LeaderTasks {
        pull_secrets: PullSecretSync {
            client: client.clone(),
            snapshots: snapshots.clone(),
            recorder: recorder.clone(),
            metrics: PullSecretMetrics::default(),
            watches: WatchMetrics::default(),
            product_namespace: namespace.clone(),
            page: page_permit(),
        },
        repairs: Repairs {
            client,
            snapshots,
            recorder,
            metrics: RepairMetrics::default(),
            watches: WatchMetrics::default(),
            product_namespace: namespace,
            evict: EvictionSettings::default(),
            probe: Arc::new(|| Box::pin(async { Ok(()) })),
        },
        policy: policy.clone(),
        certificates: certificates.clone(),
        metrics,
    };
    tokio::select! {
        () = watches.run() => {}
        () = certificates.run(TlsHandle::empty(), &readiness) => {}
        () = policy.watch() => {}
        () = tasks.run(token) => {}
    }
}

fn has_succeeded(server: &ApiServer, write: &str) -> bool {
    let writes = server.requests_of(write);
    writes.iter().any(|it| matches!(it.status, Some(200 | 201)))
}

/// Otherwise one task that panics at each start would stop all others, or would be missing until the next leader.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_task_that_panics_is_started_again_and_the_others_continue(
    #[values(0, 1, 2, 3)] number: usize,
) {
    let logs = Logs::of(Level::ERROR);
    let (task, write) = WRITES[number];
    let server = cluster();
    let fault = server.fault(write).before(|_| panic!("part of the test"));
    let mut registry = Registry::default();
    let metrics = LeaderMetrics::register(&mut registry);
    let token = CancellationToken::new();
    let running = tokio::spawn(lead(server.clone(), metrics, token.clone()));
    sleep(Duration::from_mins(10)).await;
    let panics = fault.hits();
    assert!((5..=20).contains(&panics), "{panics} in ten minutes");
    for (other, write) in WRITES {
        let is_other = other != task;
        assert_eq!(has_succeeded(&server, write), is_other, "{other}");
        let series = format!("leader_task_panics_total{{task=\"{other}\"}}");
        let counted = Samples::of(&registry).count(&series);
        let expected = if is_other { 0 } else { panics };
        assert_eq!(usize::try_from(counted), Ok(expected), "{other}");
    }
    let lines = logs.lines();
    let is_named = |line: &String| line.contains(task);
    assert!(
        lines.len() == panics && lines.iter().all(is_named),
        "{lines:?}"
    );
    fault.stop();
    sleep(Duration::from_mins(6)).await;
    assert!(has_succeeded(&server, write));
    token.cancel();
    running.await.unwrap();
}
