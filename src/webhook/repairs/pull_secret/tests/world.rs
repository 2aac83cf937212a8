//! A running mirror, the API server that it talks to, and what it knows.

use std::time::Duration;

use kube::runtime::events::{Recorder, Reporter};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::server::Server;
use super::*;
use crate::knowledge::Knowledge;
use crate::repairs::pull_secret::{Mirror, MirrorMetrics};

pub(super) struct World {
    pub(super) server: Server,
    pub(super) knowledge: Knowledge,
    registry: Registry,
    metrics: MirrorMetrics,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl World {
    /// A configuration with the feature, a source, and no namespace; nothing runs yet.
    pub(super) fn new() -> Self {
        let knowledge = Knowledge::default();
        knowledge.set_configuration(with_feature());
        knowledge.set_pull_secret(source(ONE));
        let mut registry = Registry::default();
        let metrics = MirrorMetrics::register(&mut registry);
        Self {
            server: Server::new(),
            knowledge,
            registry,
            metrics,
            running: None,
        }
    }

    pub(super) fn start(&mut self) {
        let client = self.server.client();
        let reporter = Reporter {
            controller: "rt-bootstrapper".to_owned(),
            instance: Some("pod-1".to_owned()),
        };
        let mirror = Mirror::new(
            client.clone(),
            self.knowledge.clone(),
            Recorder::new(client, reporter),
            self.metrics.clone(),
            "kyma-system".to_owned(),
        );
        let token = CancellationToken::new();
        let task = tokio::spawn(mirror.run(token.clone()));
        self.running = Some((token, task));
    }

    pub(super) async fn stop(&mut self) {
        let (token, task) = self.running.take().unwrap();
        token.cancel();
        task.await.unwrap();
    }

    pub(super) fn namespace(&self, name: &str, asks: bool) {
        self.server.lock().namespaces.insert(name.to_owned());
        self.knowledge.set_namespace(name, Some(namespace(asks)));
    }

    pub(super) fn put(&self, secret: Value) {
        self.server.put("secrets", secret);
    }

    pub(super) fn pod(&self, namespace: &str, name: &str) {
        let annotations = json!({FEATURE: "true"});
        let metadata = json!({"name": name, "namespace": namespace, "annotations": annotations});
        let pod = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        self.server.put("pods", pod);
    }

    /// A running Pod that does not ask, with what `extra` says of it.
    pub(super) fn running_pod(&self, namespace: &str, name: &str, extra: &Value) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
            "status": {"phase": "Running"},
        });
        json_patch::merge(&mut pod, extra);
        self.server.put("pods", pod);
    }

    /// How many pages of the namespace's Pods were asked for.
    pub(super) fn pod_lists(&self, namespace: &str) -> usize {
        let inner = self.server.lock();
        inner.pod_lists.iter().filter(|it| *it == namespace).count()
    }

    /// The encoded value of a namespace's Secret.
    pub(super) fn value(&self, namespace: &str) -> Option<String> {
        let secret = self.server.secret(namespace, NAME)?;
        Some(secret["data"][".dockerconfigjson"].as_str()?.to_owned())
    }

    pub(super) fn writes(&self) -> Vec<String> {
        self.server.lock().writes.clone()
    }

    pub(super) fn metric(&self, line: &str) -> bool {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text.lines().any(|it| it == line)
    }

    /// Waits (the clock is paused: this takes no time) until the condition holds.
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

    /// Whatever was going to happen has happened: every timer of the mirror is far shorter than this.
    pub(super) async fn quiet(&self) {
        sleep(Duration::from_mins(10)).await;
    }
}
