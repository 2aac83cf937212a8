//! A running signal, the control plane that it talks to, and what somebody else does there.

use std::num::NonZeroU32;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::super::*;
use super::kcp::Kcp;
use crate::bootstrapper::sources::{self, SourceMetrics, SourceNames, SourceOptions};

pub(super) const KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";
pub(super) const RECORD: &str = "rt-bootstrapper-signal-state";

pub(super) struct World {
    pub(super) kcp: Kcp,
    pub(super) readiness: Readiness,
    registry: Registry,
    metrics: SignalMetrics,
    source_metrics: SourceMetrics,
    pub(super) settings: SignalSettings,
    /// What the pull Secret is called.
    pub(super) pull_secret: String,
    running: Option<Running>,
}

struct Running {
    token: CancellationToken,
    signal: JoinHandle<()>,
    sources: JoinHandle<()>,
}

/// A configuration document that sends pulls to that registry.
pub(super) fn config_map(registry: &str) -> Value {
    let document = json!({"overrides": {"docker.io": registry}}).to_string();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config"},
        "data": {"rt-bootstrapper-config.json": document},
    })
}

/// A Secret that opens a registry by that password.
pub(super) fn pull_secret(password: &str) -> Value {
    let config = json!({"auths": {"registry.example": {"username": "u", "password": password}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": STANDARD.encode(config.to_string())},
    })
}

/// A bundle that was never there before.
pub(super) fn trust_bundle() -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["root.example".to_owned()]).unwrap();
    let pem = parameters.self_signed(&key).unwrap().pem();
    json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": "roots"}, "spec": {"trustBundle": pem},
    })
}

pub(super) fn runtime(name: &str) -> Value {
    json!({
        "apiVersion": "infrastructuremanager.kyma-project.io/v1", "kind": "Runtime",
        "metadata": {
            "name": name,
            "labels": {"kyma-project.io/runtime-id": name, "plan": "aws"},
            "annotations": {"note": "kept"},
            "finalizers": ["runtime-controller.infrastructure-manager.kyma-project.io/deletion-hook"],
            "managedFields": [{"manager": "keb"}],
        },
        "spec": {"shoot": {"name": "s"}},
        "status": {"state": "Ready"},
    })
}

pub(super) fn labelled(name: &str, key: &str, value: &str) -> Value {
    let mut runtime = runtime(name);
    runtime["metadata"]["labels"][key] = json!(value);
    runtime
}

impl World {
    /// Sources and the Runtimes of these names; nothing runs yet.
    pub(super) fn new(names: &[&str]) -> Self {
        let kcp = Kcp::new();
        kcp.put("configmaps", config_map("one.example"));
        for name in names {
            kcp.put("runtimes", runtime(name));
        }
        let mut registry = Registry::default();
        let metrics = SignalMetrics::register(&mut registry);
        let source_metrics = SourceMetrics::register(&mut registry);
        Self {
            kcp,
            readiness: Readiness::default(),
            registry,
            metrics,
            source_metrics,
            settings: SignalSettings {
                per_second: NonZeroU32::new(100).unwrap(),
                keys: SignalKeys::Only(Place::Annotation),
                ..SignalSettings::default()
            },
            pull_secret: "pull".to_owned(),
            running: None,
        }
    }

    /// One that has begun its record and signalled nobody.
    pub(super) async fn recorded(names: &[&str]) -> Self {
        let mut world = Self::new(names);
        world.start().await;
        world.quiet().await;
        assert!(world.signals().is_empty(), "{:?}", world.signals());
        world
    }

    pub(super) async fn start(&mut self) {
        self.start_with(self.kcp.client()).await;
    }

    async fn start_with(&mut self, client: Client) {
        let (published, watching) = sources::watch(SourceOptions {
            salt: sources::salt(&client, &self.readiness).await,
            client: client.clone(),
            names: SourceNames {
                pull_secret: Some(self.pull_secret.clone()),
                trust_bundle: Some("roots".to_owned()),
                namespace: self.settings.namespace.clone(),
                ..SourceNames::default()
            },
            readiness: self.readiness.clone(),
            metrics: self.source_metrics.clone(),
        });
        let options = SignalOptions {
            client,
            settings: self.settings.clone(),
            sources: published,
            readiness: self.readiness.clone(),
            reporter: Reporter {
                controller: "rt-bootstrapper-controller".to_owned(),
                instance: Some("pod-1".to_owned()),
            },
            metrics: self.metrics.clone(),
            source_metrics: self.source_metrics.clone(),
        };
        let token = CancellationToken::new();
        self.running = Some(Running {
            signal: tokio::spawn(run(options, token.clone())),
            sources: tokio::spawn(watching),
            token,
        });
    }

    /// As at a shutdown.
    pub(super) async fn stop(&mut self) {
        let Running {
            token,
            signal,
            sources,
        } = self.running.take().unwrap();
        token.cancel();
        signal.await.unwrap();
        sources.abort();
    }

    /// As at a lost lease, or a crash.
    pub(super) async fn kill(&mut self) {
        let Running {
            signal, sources, ..
        } = self.running.take().unwrap();
        signal.abort();
        sources.abort();
        assert!(signal.await.unwrap_err().is_cancelled());
    }

    pub(super) fn change(&self, registry: &str) {
        self.kcp.put("configmaps", config_map(registry));
    }

    /// All writes of Runtimes so far: `name {patch}`.
    pub(super) fn signals(&self) -> Vec<String> {
        self.kcp.writes("runtimes")
    }

    /// Names of the Runtimes that were written, in alphabetical order, as often as they were.
    pub(super) fn signalled(&self) -> Vec<String> {
        let name = |text: &String| text.split(' ').next().unwrap().to_owned();
        let mut names: Vec<String> = self.signals().iter().map(name).collect();
        names.sort();
        names
    }

    /// Forgets the writes so far.
    pub(super) fn forget(&self) {
        self.kcp.lock().writes.clear();
    }

    /// The key on a Runtime: label, annotation.
    pub(super) fn keys(&self, name: &str) -> (bool, bool) {
        let runtime = self.kcp.object("runtimes", name).unwrap();
        let stands = |map: &str| runtime["metadata"][map][KEY] == "true";
        (stands("labels"), stands("annotations"))
    }

    /// The manager takes the signal.
    pub(super) fn take(&self, name: &str, map: &str) {
        self.kcp
            .merge("runtimes", name, &json!({"metadata": {map: {KEY: null}}}));
    }

    /// What the record says of runtimes.
    pub(super) fn record(&self) -> Vec<(String, String)> {
        let record = self.kcp.object("configmaps", RECORD).unwrap();
        let data = record["data"].as_object().unwrap();
        let lists = data.iter().filter(|(key, _)| key.starts_with("signal."));
        lists
            .map(|(key, names)| (key.clone(), names.as_str().unwrap().to_owned()))
            .collect()
    }

    /// Reasons of the Events so far, without those about a source that was never there.
    pub(super) fn events(&self) -> Vec<String> {
        let mut events = self.kcp.lock().events.clone();
        events.retain(|it| it != "SourceNotFound");
        events
    }

    pub(super) fn metric(&self, line: &str) -> bool {
        self.metrics_text().lines().any(|it| it == line)
    }

    pub(super) fn metrics_text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Waits (the clock is paused: this takes no time) until the condition holds.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(30);
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "never: {what}; {:?}; {}",
                self.signals(),
                self.readiness.report().1
            );
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until these were written, and each write is done.
    pub(super) async fn until_signalled(&self, names: &[&str]) {
        let what = format!("{names:?} signalled");
        self.until(&what, |it| it.signalled() == names && !it.kcp.is_writing())
            .await;
    }

    /// Whatever was going to happen has happened: every timer of the signal is shorter than this.
    pub(super) async fn quiet(&self) {
        sleep(Duration::from_mins(15)).await;
    }
}
