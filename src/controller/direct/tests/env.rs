//! A running controller with its control plane and runtimes, and actions of other clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use api::bootstrapper::WebhookSettings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::sync::ObjectNames;
use policy::sync::sources::Sources;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::ApiServer;
use testkit::metrics::{Sample, Samples};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::super::*;
pub(super) use super::content::{Content, salt};
use super::manifests::manifests;
pub(super) use super::manifests::{OLD_VERSION, VERSION_WITH_CONDITION};
use crate::clients::{ClientMetrics, ClientOptions};
pub(super) use crate::fixture::{ControlPlane, Mode, roots};
use crate::inventory;
use crate::runtime_cluster::RuntimeCluster;
pub(super) use crate::runtime_cluster::kubeconfig;

pub(super) const DEPLOYMENT: &str = "deployments kyma-system/rt-bootstrapper-controller-manager";
pub(super) const WEBHOOK: &str = "mutatingwebhookconfigurations rt-bootstrapper";
pub(super) const BUNDLE: &str = "clustertrustbundles roots";
pub(super) const DOCUMENT: &str = "configmaps kyma-system/rt-bootstrapper-config";

/// All writes of an installation. The webhook configuration is the last one.
pub(super) const INSTALL: [&str; 7] = [
    "create configmaps kyma-system/rt-bootstrapper-owner",
    "apply serviceaccounts kyma-system/rt-bootstrapper",
    "apply secrets kyma-system/registry-credentials",
    "apply clustertrustbundles roots",
    "apply configmaps kyma-system/rt-bootstrapper-config",
    "apply deployments kyma-system/rt-bootstrapper-controller-manager",
    "apply mutatingwebhookconfigurations rt-bootstrapper",
];

pub(super) struct Env {
    pub(super) kcp: ControlPlane,
    pub(super) settings: DirectSettings,
    /// Image of the webhook, unless a resource specifies another image.
    pub(super) image: String,
    /// Other settings of the webhook.
    pub(super) webhook: WebhookSettings,
    pub(super) content: Content,
    pub(super) readiness: Readiness,
    /// Timeout of a connection to a runtime. By default it is longer than any stall of a loaded machine.
    pub(super) connect_timeout: Duration,
    /// Time limit of a wait of a test.
    pub(super) patience: Duration,
    /// Runtimes whose requests keep the environment from being settled.
    connected: Mutex<Vec<ApiServer>>,
    sources: watch::Sender<Option<Arc<Sources>>>,
    registry: Registry,
    running: Option<Running>,
}

struct Running {
    token: CancellationToken,
    task: JoinHandle<()>,
}

/// Returns a Runtime. If `id` is empty, the Runtime has no label with a runtime ID.
pub(super) fn runtime(name: &str, id: &str, labels: &[(&str, &str)]) -> Value {
    let mut all: BTreeMap<&str, &str> = labels.iter().copied().collect();
    if !id.is_empty() {
        all.insert("kyma-project.io/runtime-id", id);
    }
    json!({
        "apiVersion": "infrastructuremanager.kyma-project.io/v1", "kind": "Runtime",
        "metadata": {"name": name, "labels": all}, "spec": {}, "status": {"state": "Ready"},
    })
}

pub(super) fn bootstrapper(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1alpha1", "kind": "RuntimeBootstrapper",
        "metadata": {"name": name}, "spec": spec,
    })
}

impl Env {
    /// Returns an environment with sources only. The controller is not started.
    pub(super) fn new() -> Self {
        Self::on(ControlPlane::new(Mode::Direct))
    }

    /// Returns an environment with this control plane, which returns at most two objects in a page.
    pub(super) fn on(kcp: ControlPlane) -> Self {
        kcp.behave(|it| it.page = 2);
        let mut settings = DirectSettings {
            namespace: kcp.namespace.to_owned(),
            debounce: Duration::from_millis(50),
            deletion_grace: Duration::from_millis(50),
            min_deletion_time: Duration::ZERO,
            backoff: Backoff {
                base: Duration::from_millis(40),
                cap: Duration::from_millis(400),
            },
            progress_backoff: Backoff {
                base: Duration::from_millis(10),
                cap: Duration::from_millis(40),
            },
            statuses_per_second: NonZeroU32::new(1_000).unwrap(),
            ..DirectSettings::default()
        };
        settings.names.trust_bundle = Some("roots".to_owned());
        // One step for all runtimes, without soak, so that tests of other behavior do not wait for a rollout.
        settings.rollouts.webhook.steps = vec![Step::Percent(100)];
        settings.rollouts.webhook.soak = Duration::ZERO;
        let mut content = Content {
            names: ObjectNames {
                pull_secret: Some("pull".to_owned()),
                trust_bundle: Some("roots".to_owned()),
                ..ObjectNames::on_kcp()
            },
            password: Some("one"),
            roots: Some(roots()),
            document: None,
        };
        content.registry("one.example");
        Self {
            kcp,
            settings,
            image: "registry.example/webhook:0.1.0".to_owned(),
            webhook: WebhookSettings::default(),
            sources: watch::Sender::new(Some(Arc::new(content.read()))),
            content,
            readiness: Readiness::default(),
            connect_timeout: Duration::from_mins(1),
            patience: Duration::from_secs(30),
            connected: Mutex::default(),
            registry: Registry::default(),
            running: None,
        }
    }

    /// Returns an environment with converged runtimes of these names.
    pub(super) async fn converged(names: &[&str]) -> (Self, Vec<RuntimeCluster>) {
        let mut env = Self::new();
        let clusters = env.converge(names).await;
        (env, clusters)
    }

    /// Adds runtimes with these names, and waits until they have converged.
    pub(super) async fn converge(&mut self, names: &[&str]) -> Vec<RuntimeCluster> {
        let clusters = self.add_all(names).await;
        self.start();
        for (name, cluster) in names.iter().zip(&clusters) {
            self.until_ready(name).await;
            cluster.take();
        }
        self.settle().await;
        clusters
    }

    pub(super) async fn add_all(&self, names: &[&str]) -> Vec<RuntimeCluster> {
        let mut clusters = Vec::new();
        for name in names {
            clusters.push(self.add(name).await);
        }
        clusters
    }

    /// Adds a runtime with its Runtime, its kubeconfig and its resource.
    pub(super) async fn add(&self, name: &str) -> RuntimeCluster {
        let cluster = RuntimeCluster::new(&format!("cluster-{name}")).await;
        self.kcp.put(runtime(name, &format!("id-{name}"), &[]));
        self.connect(name, &cluster, "first");
        self.kcp.put(bootstrapper(name, &json!({})));
        cluster
    }

    /// Replaces the kubeconfig of the runtime with a kubeconfig for this cluster.
    pub(super) fn connect(&self, name: &str, cluster: &RuntimeCluster, token: &str) {
        let server = ApiServer::clone(cluster);
        self.connected.lock().unwrap().push(server);
        self.kubeconfig(name, &kubeconfig(&cluster.address(), token));
    }

    pub(super) fn kubeconfig(&self, name: &str, text: &str) {
        let id = format!("id-{name}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("kubeconfig-{id}"), "labels": {"kyma-project.io/runtime-id": id}},
            "data": {"config": STANDARD.encode(text)},
        });
        self.kcp.put(secret);
    }

    pub(super) fn start(&mut self) {
        let mut registry = Registry::default();
        self.readiness = Readiness::default();
        let fleet = ClientOptions {
            allow_loopback: true,
            connect_timeout: self.connect_timeout,
            call_timeout: Duration::from_mins(5),
            ..ClientOptions::default()
        };
        let options = DirectOptions {
            client: self.kcp.client(),
            settings: self.settings.clone(),
            sources: self.sources.subscribe(),
            salt: salt(),
            fleet: RuntimeClients::new(fleet, ClientMetrics::register(&mut registry)),
            installations: self.installations(),
            readiness: self.readiness.clone(),
            reporter: Reporter {
                controller: "rt-bootstrapper-controller".to_owned(),
                instance: Some("pod-1".to_owned()),
            },
            metrics: DirectMetrics::register(&mut registry),
            source_metrics: SourceMetrics::register(&mut registry),
        };
        self.registry = registry;
        let token = CancellationToken::new();
        let namespace = &self.settings.namespace;
        let runtimes = inventory::runtimes(&options.client, namespace, &self.readiness);
        let task = tokio::spawn(run(options, runtimes, token.clone()));
        self.running = Some(Running { token, task });
    }

    /// Returns the manifests that the controller installs.
    pub(super) fn installations(&self) -> Installations {
        Installations::new(Arc::new(manifests), self.webhook()).unwrap()
    }

    /// Returns the default settings of the controller.
    fn webhook(&self) -> WebhookSettings {
        WebhookSettings {
            image: Some(self.image.clone()),
            ..self.webhook.clone()
        }
    }

    /// Stops the controller gracefully: running reconciles end.
    pub(super) async fn stop(&mut self) {
        let Running { token, task } = self.running.take().unwrap();
        token.cancel();
        task.await.unwrap();
    }

    /// Aborts the controller, as after the loss of the lease.
    pub(super) async fn abort(&mut self) {
        let Running { task, .. } = self.running.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }

    /// Publishes the sources of `content`.
    pub(super) fn publish(&self) {
        self.publish_bent(|_| ());
    }

    /// Publishes the sources of `content` after a change by `bend`.
    pub(super) fn publish_bent(&self, bend: impl FnOnce(&mut Sources)) {
        let mut sources = self.content.read();
        bend(&mut sources);
        self.sources.send_replace(Some(Arc::new(sources)));
    }

    /// Restarts the controller with another interval of the resync. With a short interval, [`Self::settle`] may not
    /// return.
    pub(super) async fn resync_every(&mut self, interval: Duration) {
        self.stop().await;
        self.settings.resync = interval;
        self.start();
    }

    /// Triggers a reconcile of this runtime by a change of its resource.
    pub(super) fn touch(&self, name: &str) {
        let now = format!("{:?}", Instant::now());
        let touch = json!({"metadata": {"annotations": {"touched": now}}});
        self.kcp.merge("runtimebootstrappers", name, &touch);
    }

    /// Triggers a reconcile of this runtime by a change of its resource, and waits until it is complete.
    pub(super) async fn pass(&self, name: &str) {
        let before = self.passes();
        self.touch(name);
        self.until_passes(before + 1).await;
        self.settle().await;
    }

    /// Returns the number of reconciles.
    pub(super) fn passes(&self) -> u64 {
        Samples::of(&self.registry).count("reconcile_total")
    }

    /// Returns whether the only sample of the series has this value.
    pub(super) fn metric(&self, series: &str, value: u32) -> bool {
        Samples::of(&self.registry).value(series) == Some(value.into())
    }

    /// Returns the samples of a series.
    pub(super) fn samples(&self, series: &str) -> Vec<Sample> {
        Samples::of(&self.registry).matching(series).collect()
    }

    /// Returns the status of a resource.
    pub(super) fn status(&self, name: &str) -> Value {
        self.kcp
            .object("runtimebootstrappers", name)
            .map_or(Value::Null, |it| it["status"].clone())
    }

    /// Returns a condition as `Status Reason`.
    pub(super) fn condition(&self, name: &str, kind: &str) -> String {
        let status = self.status(name);
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == kind);
        found.map_or_else(String::new, |it| {
            let text = |key: &str| it[key].as_str().unwrap().to_owned();
            format!("{} {}", text("status"), text("reason"))
        })
    }

    pub(super) async fn until_passes(&self, count: u64) {
        let what = format!("{count} reconciles");
        self.until(&what, |it| it.passes() >= count).await;
    }

    /// Waits for this number of further reconciles: where the controller retries a runtime, [`Self::settle`] may not
    /// return.
    pub(super) async fn more_passes(&self, count: u64) {
        self.until_passes(self.passes() + count).await;
    }

    pub(super) async fn until_ready(&self, name: &str) {
        self.until_condition(name, "Ready", "True Ready").await;
    }

    pub(super) async fn until_installed(&self, name: &str) {
        self.until_condition(name, "Installed", "True Installed")
            .await;
    }

    pub(super) async fn until_condition(&self, name: &str, kind: &str, wanted: &str) {
        let what = format!("{name}: {kind} is {wanted}");
        self.until(&what, |it| it.condition(name, kind) == wanted)
            .await;
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let reached = testkit::until::until(what, self.patience, || async {
            let writes = || format!("{:#?}", self.kcp.writes());
            if holds(self) { Ok(()) } else { Err(writes()) }
        });
        reached.await.unwrap();
    }

    /// Waits until no reconcile ended and no request was sent for much longer than any wait in these tests. Checks
    /// are counted, not time, because on a loaded machine time passes in which no task of this thread runs. More
    /// checks are necessary while a reconcile runs: a request may be blocked by the test, or it may be on its way.
    pub(super) async fn settle(&self) {
        let received = || -> usize {
            let connected = self.connected.lock().unwrap();
            connected.iter().map(ApiServer::received).sum()
        };
        let running = || Samples::of(&self.registry).count("active_workers") > 0;
        let state = || (self.passes(), self.kcp.received(), received());
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut unchanged) = (state(), 0);
        let deadline = Instant::now() + self.patience;
        while unchanged < if running() { 60 } else { 15 } {
            ticks.tick().await;
            let now = state();
            unchanged = if now == last { unchanged + 1 } else { 0 };
            last = now;
            assert!(Instant::now() < deadline, "it does not settle: {last:?}");
        }
    }
}
