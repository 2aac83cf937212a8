//! A running controller `signal` with its control plane, and actions of other clients.

use policy::sync::ObjectNames;
use std::num::NonZeroU32;
use std::time::Duration;

use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::Recorded;
use testkit::metrics::Samples;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::*;
pub(super) use crate::fixture::*;
use crate::inventory;
use crate::sources::{self, SourceMetrics, SourceOptions};

pub(super) const KEY: &str = "operator.kyma-project.io/force-patch-reconciliation";
pub(super) const REVISION: &str = "rt-bootstrapper.kyma-project.io/signaled-revision";
pub(super) const STATE: &str = "rt-bootstrapper-signal-state";

/// Latency of a write.
const LATENCY: Duration = Duration::from_millis(20);

pub(super) struct Env {
    pub(super) kcp: ControlPlane,
    pub(super) readiness: Readiness,
    registry: Registry,
    metrics: SignalMetrics,
    source_metrics: SourceMetrics,
    pub(super) settings: SignalSettings,
    /// Configured name of the pull Secret.
    pub(super) pull_secret: String,
    running: Option<Running>,
}

struct Running {
    token: CancellationToken,
    signal: JoinHandle<()>,
    sources: JoinHandle<()>,
}

pub(super) fn runtime(name: &str) -> Value {
    json!({
        "apiVersion": "infrastructuremanager.kyma-project.io/v1", "kind": "Runtime",
        "metadata": {
            "name": name,
            "labels": {"kyma-project.io/runtime-id": name, "plan": "aws"},
            "annotations": {"note": "kept"},
            "finalizers": ["runtime-controller.infrastructure-manager.kyma-project.io/deletion-hook"],
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

impl Env {
    /// Returns an environment with sources and Runtimes with these names. The controller is not started.
    pub(super) fn new(names: &[&str]) -> Self {
        Self::on(ControlPlane::new(Mode::Signal), names)
    }

    /// Returns an environment with this control plane.
    pub(super) fn on(kcp: ControlPlane, names: &[&str]) -> Self {
        kcp.delay_writes(LATENCY);
        kcp.put(config_map("one.example"));
        for name in names {
            kcp.put(runtime(name));
        }
        let mut registry = Registry::default();
        let metrics = SignalMetrics::register(&mut registry);
        let source_metrics = SourceMetrics::register(&mut registry);
        Self {
            settings: SignalSettings {
                namespace: kcp.namespace.to_owned(),
                per_second: NonZeroU32::new(100).unwrap(),
                keys: SignalKeys::Only(Place::Annotation),
                ..SignalSettings::default()
            },
            kcp,
            readiness: Readiness::default(),
            registry,
            metrics,
            source_metrics,
            pull_secret: "pull".to_owned(),
            running: None,
        }
    }

    /// Returns an environment whose state is initialized and in which no Runtime was signaled.
    pub(super) async fn initialized(names: &[&str]) -> Self {
        let mut env = Self::new(names);
        env.start().await;
        env.quiet().await;
        assert!(env.signals().is_empty(), "{:?}", env.signals());
        env
    }

    pub(super) async fn start(&mut self) {
        self.start_with(self.kcp.client()).await;
    }

    async fn start_with(&mut self, client: Client) {
        let (published, watching) = sources::watch(SourceOptions {
            salt: sources::salt(&client, &self.readiness).await,
            client: client.clone(),
            names: ObjectNames {
                pull_secret: Some(self.pull_secret.clone()),
                trust_bundle: Some("roots".to_owned()),
                namespace: self.settings.namespace.clone(),
                ..ObjectNames::on_kcp()
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
        let namespace = &self.settings.namespace;
        let runtimes = inventory::runtimes(&options.client, namespace, &self.readiness);
        self.running = Some(Running {
            signal: tokio::spawn(run(options, runtimes, token.clone())),
            sources: tokio::spawn(watching),
            token,
        });
    }

    /// Stops the controller gracefully, as at a shutdown.
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

    /// Aborts the controller, as after the loss of the lease or a crash.
    pub(super) async fn kill(&mut self) {
        let Running {
            signal, sources, ..
        } = self.running.take().unwrap();
        signal.abort();
        sources.abort();
        assert!(signal.await.unwrap_err().is_cancelled());
    }

    pub(super) fn change(&self, registry: &str) {
        self.kcp.put(config_map(registry));
    }

    /// Returns all writes of Runtimes, as `name {patch}`.
    pub(super) fn signals(&self) -> Vec<String> {
        self.texts("runtimes")
    }

    /// Returns all writes of the state, as `name {object}`.
    pub(super) fn states(&self) -> Vec<String> {
        self.texts("configmaps")
    }

    fn texts(&self, plural: &str) -> Vec<String> {
        let text = |it: &Recorded| format!("{} {}", it.asked.name, it.body);
        self.kcp.writes_of(plural).iter().map(text).collect()
    }

    /// Returns all writes except Events.
    pub(super) fn writes(&self) -> Vec<String> {
        let mut writes = self.kcp.writes();
        writes.retain(|it| !it.starts_with("create events "));
        writes
    }

    /// Returns the names of the written Runtimes in alphabetical order, with one entry for each write.
    pub(super) fn signalled(&self) -> Vec<String> {
        let writes = self.kcp.writes_of("runtimes").into_iter();
        let mut names: Vec<String> = writes.map(|it| it.asked.name).collect();
        names.sort();
        names
    }

    /// Returns whether a write of a Runtime is in flight.
    pub(super) fn is_writing(&self) -> bool {
        let writes = self.kcp.writes_of("runtimes");
        writes.iter().any(|it| it.end.is_none())
    }

    /// Drops the recorded requests.
    pub(super) fn forget(&self) {
        drop(self.kcp.take_requests());
    }

    /// Returns whether the key is set on a Runtime, as label and as annotation.
    pub(super) fn keys(&self, name: &str) -> (bool, bool) {
        let runtime = self.kcp.object("runtimes", name).unwrap();
        let stands = |map: &str| runtime["metadata"][map][KEY] == "true";
        (stands("labels"), stands("annotations"))
    }

    /// Removes the key, as KIM does to acknowledge the signal.
    pub(super) fn take(&self, name: &str, map: &str) {
        self.kcp
            .merge("runtimes", name, &json!({"metadata": {map: {KEY: null}}}));
    }

    /// Returns the revision with which a Runtime was signaled.
    pub(super) fn signaled_revision(&self, name: &str) -> Option<String> {
        let runtime = self.kcp.object("runtimes", name).unwrap();
        let revision = runtime["metadata"]["annotations"][REVISION].as_str();
        revision.map(str::to_owned)
    }

    /// Returns the data of the state ConfigMap.
    pub(super) fn state(&self) -> Value {
        self.kcp.object("configmaps", STATE).unwrap()["data"].clone()
    }

    /// Returns the current revision.
    pub(super) fn revision(&self) -> String {
        self.state()["revision"].as_str().unwrap().to_owned()
    }

    /// Returns the status of the object `signal`.
    pub(super) fn status(&self) -> Value {
        let object = self.kcp.object("runtimebootstrapperrollouts", "signal");
        object.unwrap_or_default()["status"].clone()
    }

    /// Returns the numbers of Runtimes that wait for a signal, and for KIM, from the status of the object `signal`.
    pub(super) fn counts(&self) -> (u64, u64) {
        let runtimes = &self.status()["runtimes"];
        let count = |key: &str| runtimes[key].as_u64().unwrap();
        (count("waiting"), count("progressing"))
    }

    /// Returns status, reason and message of a condition of the object `signal`.
    pub(super) fn condition(&self, kind: &str) -> (String, String, String) {
        let status = self.status();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|it| it["type"] == kind);
        let text = |key: &str| found.map_or("", |it| it[key].as_str().unwrap()).to_owned();
        (text("status"), text("reason"), text("message"))
    }

    /// Returns whether the object `signal` reports that signals are stopped for this reason.
    pub(super) fn is_stopped(&self, reason: &str) -> bool {
        let (status, found, _) = self.condition("Stopped");
        status == "True" && found == reason
    }

    /// Pauses or resumes signals, as an operator.
    pub(super) fn pause(&self, paused: bool) {
        self.kcp.put(json!({
            "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapperRollout",
            "metadata": {"name": "signal"}, "spec": {"paused": paused}, "status": self.status(),
        }));
    }

    /// Returns the reasons of the created Events, without Events about a source that never existed.
    pub(super) fn events(&self) -> Vec<String> {
        let mut events = self.kcp.events();
        events.retain(|it| it != "SourceNotFound");
        events
    }

    pub(super) fn samples(&self) -> Samples {
        Samples::of(&self.registry)
    }

    /// Returns whether the only sample of the series has this value.
    pub(super) fn metric(&self, series: &str, value: u32) -> bool {
        self.samples().value(series) == Some(value.into())
    }

    /// Waits until the condition is true. The clock is paused, so the wait takes no time.
    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let limit = Duration::from_mins(30);
        let reached = testkit::until::until(what, limit, || async {
            let report = || format!("{:?}; {}", self.signals(), self.readiness.report().1);
            if holds(self) { Ok(()) } else { Err(report()) }
        });
        reached.await.unwrap();
    }

    /// Waits until these Runtimes were written, and each write is complete.
    pub(super) async fn until_signalled(&self, names: &[&str]) {
        let what = format!("{names:?} signalled");
        self.until(&what, |it| it.signalled() == names && !it.is_writing())
            .await;
    }

    /// Waits longer than every timer of the controller, so that all pending actions are complete.
    pub(super) async fn quiet(&self) {
        sleep(Duration::from_mins(15)).await;
    }
}
