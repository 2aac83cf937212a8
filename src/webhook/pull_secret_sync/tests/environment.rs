//! A running synchronization with its API server and its snapshots.

use std::time::Duration;

use component_base::watch::WatchMetrics;
use kube::runtime::events::Recorder;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Rights};
use testkit::metrics::Samples;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::pull_secret_sync::{PullSecretMetrics, PullSecretSync};
use crate::snapshot::SnapshotStore;
use crate::watches::Watches;
use crate::watches::fixtures::watches_of;

pub(super) struct Environment {
    pub(super) server: ApiServer,
    pub(super) snapshots: SnapshotStore,
    registry: Registry,
    metrics: PullSecretMetrics,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Environment {
    /// Returns a configuration with the feature, a source, and no namespace. The synchronization is not started.
    pub(super) fn new() -> Self {
        let env = Self::unconfigured();
        env.snapshots.set_configuration(with_feature());
        env.snapshots.set_pull_secret(source(ONE));
        env
    }

    /// Returns no configuration, no source and no namespace. The synchronization is not started.
    pub(super) fn unconfigured() -> Self {
        let mut registry = Registry::default();
        let metrics = PullSecretMetrics::register(&mut registry);
        Self {
            server: api_server(),
            snapshots: SnapshotStore::default(),
            registry,
            metrics,
            running: None,
        }
    }

    pub(super) fn start(&mut self) {
        let Watches {
            client, reporter, ..
        } = watches_of(&self.server);
        let sync = PullSecretSync {
            client: client.clone(),
            snapshots: self.snapshots.clone(),
            recorder: Recorder::new(client, reporter),
            metrics: self.metrics.clone(),
            watches: WatchMetrics::default(),
            product_namespace: "kyma-system".to_owned(),
            page: super::super::page_permit(),
        };
        let token = CancellationToken::new();
        let task = tokio::spawn(sync.run(token.clone()));
        self.running = Some((token, task));
    }

    pub(super) async fn stop(&mut self) {
        let (token, task) = self.running.take().unwrap();
        token.cancel();
        task.await.unwrap();
    }

    pub(super) fn namespace(&self, name: &str, asks: bool) {
        self.server.namespace(name);
        self.snapshots.set_namespace(name, Some(namespace(asks)));
    }

    pub(super) fn put(&self, object: &Value) {
        self.server.put(object);
    }

    pub(super) fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        self.server.get("secrets", namespace, name)
    }

    pub(super) fn delete_secret(&self, namespace: &str, name: &str) {
        self.server.remove("secrets", namespace, name);
    }

    pub(super) fn delete_pod(&self, namespace: &str, name: &str) {
        self.server.remove("pods", namespace, name);
    }

    /// Returns the namespaces in which an Event was created or repeated.
    pub(super) fn events(&self) -> Vec<String> {
        let events = self.server.requests_of("create|patch events").into_iter();
        events.map(|it| it.asked.namespace).collect()
    }

    pub(super) fn pod(&self, namespace: &str, name: &str) {
        let annotations = json!({FEATURE: "true"});
        let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        self.server.put(&pod);
    }

    /// Creates a running Pod that does not opt in, with the additional fields of `extra`.
    pub(super) fn running_pod(&self, namespace: &str, name: &str, extra: &Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
            "status": {"phase": "Running"},
        });
        json_patch::merge(&mut pod, extra);
        self.server.put(&pod);
    }

    /// Returns the number of requested pages of the Pods in the namespace.
    pub(super) fn pod_lists(&self, namespace: &str) -> usize {
        let pattern = format!("list pods {namespace}/");
        self.server.requests_of(&pattern).len()
    }

    /// Returns the encoded value of the Secret in a namespace.
    pub(super) fn value(&self, namespace: &str) -> Option<String> {
        let secret = self.secret(namespace, NAME)?;
        Some(secret["data"][".dockerconfigjson"].as_str()?.to_owned())
    }

    /// Returns the write requests, such as `apply a` and `delete a`, whether they succeeded or not.
    pub(super) fn writes(&self) -> Vec<String> {
        let secrets = self.server.requests_of("apply|delete secrets");
        let text = secrets
            .iter()
            .map(|it| format!("{} {}", it.asked.verb, it.asked.namespace));
        text.collect()
    }

    pub(super) fn samples(&self) -> Samples {
        Samples::of(&self.registry)
    }

    /// Returns whether a series has this value: `name{label="x"} 1`.
    pub(super) fn metric(&self, line: &str) -> bool {
        let (series, value) = line.rsplit_once(' ').unwrap();
        self.samples().value(series) == Some(value.parse().unwrap())
    }

    /// Waits until the condition is true. The clock is paused, so this takes no time.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(10);
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "never: {what}; {:?}",
                self.writes()
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) async fn until_value(&self, namespace: &str, value: Option<&str>) {
        let what = format!("{namespace} holds {value:?}");
        self.until(&what, |it| it.value(namespace).as_deref() == value)
            .await;
    }

    /// Waits until all timers have fired, which are much shorter than this time.
    pub(super) async fn quiet(&self) {
        sleep(Duration::from_mins(10)).await;
    }
}

/// Returns an API server with the permissions of deploy/webhook/rbac.yaml. A write takes 20 ms.
fn api_server() -> ApiServer {
    let server = ApiServer::new();
    let text = include_str!("../../../../deploy/webhook/rbac.yaml");
    let roles: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    server.behave(|it| it.rights = Rights::of_roles(&roles));
    server.delay_writes(Duration::from_millis(20));
    server
}
