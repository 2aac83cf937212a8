//! Tests of the controller against a control plane with the released Roles, and runtimes over TLS. The tests do the work of cert-manager.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::OptionFuture;
use policy::sync::Salt;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::{Recorded, Rights};
use testkit::metrics::Samples;
use testkit::pki::Authority;
use tokio::task::JoinHandle;

use super::*;
use crate::certificates::{
    CERT_MANAGER_API_NOT_SERVED, CertificateMetrics, CertificateOptions,
    GATEWAY_CERTIFICATE_PENDING, GatewayStatus, IssuedGateway, gateway_channel,
};
use crate::clients::{ClientMetrics, ClientOptions};
use crate::fixture::{ControlPlane, ISTIO_NAMESPACE, Mode, NAMESPACE, certificate_settings};
use crate::runtime_cluster::{RuntimeCluster, kubeconfig};

mod certificates;
mod conditions;
mod heartbeats;
mod identity;
mod installation;
mod removal;
mod resync;

const WEBHOOKS: &str = "validatingwebhookconfigurations skr-webhook";
const SECRET: &str = "secrets kyma-system/skr-webhook-tls";
const DEPLOYMENT: &str = "deployments kyma-system/skr-webhook";

/// A watcher is silent after three intervals. The delay of a heartbeat on a machine under load is shorter.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(400);

struct Env {
    kcp: ControlPlane,
    registry: Registry,
    metrics: RuntimeWatcherMetrics,
    authority: Authority,
    gateway: watch::Sender<GatewayStatus>,
    acknowledged: watch::Sender<Option<String>>,
    listener: SocketAddr,
    heartbeat_interval: Duration,
    removal_delay: Duration,
    resync: Duration,
    call_timeout: Duration,
    /// Whether the controller of Certificates runs, too.
    has_certificates: bool,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

fn manifests(address: &str) -> Vec<Value> {
    let labels = json!({"app": "skr-webhook"});
    vec![
        // The released manifest contains a field that the API server does not store.
        serde_saphyr::from_str(include_str!("../../../deploy/watcher/priorityclass.yaml")).unwrap(),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "skr-webhook", "namespace": "kyma-system"}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "skr-webhook", "namespace": "kyma-system",
            "labels": {"app.kubernetes.io/version": "0.1.0"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": "server", "image": "watcher:1", "env": [{"name": "KCP_ADDR", "value": address}]},
            ]}}}}),
    ]
}

fn watcher(name: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "manager": format!("{name}-manager"),
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "field": "spec", "serviceInfo": {"name": "events", "namespace": "kcp-system", "port": 8082},
            "gateway": {"selector": {}},
        },
        // Status that the controller `watchers` writes.
        "status": {"state": "Ready"},
    })
}

fn kyma(name: &str, id: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": name, "labels": {"kyma-project.io/runtime-id": id},
            "annotations": {"skr-domain": format!("{name}.kyma.example")},
            // Finalizer of lifecycle-manager.
            "finalizers": ["operator.kyma-project.io/Kyma"],
        },
    })
}

/// Returns the permissions on a runtime that docs/controller.md lists for the controller.
fn documented_rights() -> Rights {
    let page = include_str!("../../../docs/controller.md");
    let (_, table) = page
        .split_once("The controller `watchers` uses the same account.")
        .unwrap();
    let rows = table.lines().filter_map(|it| it.strip_prefix("| "));
    let rules: Vec<Value> = rows
        .skip(1)
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let group = if cells[0] == "core" { "" } else { cells[0] };
            let verbs: Vec<&str> = cells[2].split(", ").collect();
            json!({"apiGroups": [group], "resources": [cells[1]], "verbs": verbs})
        })
        .collect();
    assert!(!rules.is_empty());
    Rights::of_roles([&json!({"kind": "ClusterRole", "rules": rules})])
}

/// Returns the deletions on a runtime since the last call.
fn deletions(cluster: &RuntimeCluster) -> Vec<String> {
    let mut writes = cluster.take();
    writes.retain(|it| it.starts_with("delete"));
    writes
}

/// Returns an address that no other test uses.
fn loopback() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    ([127, high | 0x80, low, next], 8082).into()
}

impl Env {
    fn new() -> Self {
        let mut registry = Registry::default();
        Self {
            kcp: ControlPlane::new(Mode::Watchers),
            metrics: RuntimeWatcherMetrics::register(&mut registry),
            registry,
            authority: Authority::new("klm-watcher-selfsigned-ca").unwrap(),
            gateway: gateway_channel().0,
            acknowledged: watch::channel(None).0,
            listener: loopback(),
            heartbeat_interval: HEARTBEAT_INTERVAL,
            removal_delay: Duration::ZERO,
            resync: Duration::from_mins(10),
            call_timeout: ClientOptions::default().call_timeout,
            has_certificates: false,
            running: None,
        }
    }

    /// Returns an environment with one Watcher, and with the runtime of a Kyma that has a certificate.
    async fn installed() -> (Self, RuntimeCluster) {
        let mut env = Self::new();
        let cluster = env.install().await;
        (env, cluster)
    }

    /// Starts with one Watcher, and with the runtime of a Kyma that has a certificate. Waits until the watcher is installed.
    async fn install(&mut self) -> RuntimeCluster {
        let cluster = self.runtime("one").await;
        self.kcp.put(watcher("klm"));
        self.issue_gateway(&[&self.authority]);
        self.start();
        self.until("it is installed", |env| env.runtimes("Installed") == 1)
            .await;
        cluster
    }

    async fn runtime(&self, name: &str) -> RuntimeCluster {
        let cluster = RuntimeCluster::new(&format!("uid-{name}")).await;
        cluster.behave(|it| it.rights = documented_rights());
        let id = format!("id-{name}");
        self.connect(&id, &cluster);
        self.issue(name, &self.authority);
        self.kcp.put(kyma(name, &id));
        cluster
    }

    fn connect(&self, id: &str, cluster: &RuntimeCluster) {
        let text = kubeconfig(&cluster.address(), "first");
        self.kcp.put(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("kubeconfig-{id}"), "labels": {"kyma-project.io/runtime-id": id}},
            "data": {"config": STANDARD.encode(text)},
        }));
    }

    /// cert-manager issues the certificate of a Kyma.
    fn issue(&self, kyma: &str, authority: &Authority) {
        self.issue_for(kyma, &format!("id-{kyma}"), authority);
    }

    /// cert-manager issues the certificate of a Kyma for a runtime ID: first the Secret, then the status.
    fn issue_for(&self, kyma: &str, id: &str, authority: &Authority) {
        let leaf = authority.leaf_with(id, |it| it.use_authority_key_identifier_extension = true);
        let leaf = leaf.unwrap();
        let name = format!("{kyma}-webhook-tls");
        self.kcp.store().put(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": ISTIO_NAMESPACE},
            "data": {"tls.crt": STANDARD.encode(&leaf.pem), "tls.key": STANDARD.encode(leaf.key.serialize_pem())},
        }));
        if let Some(live) = self.kcp.get("certificates", ISTIO_NAMESPACE, &name) {
            let revision = live["status"]["revision"].as_u64().unwrap() + 1;
            let place = (ISTIO_NAMESPACE, name.as_str());
            self.kcp.edit("certificates", place, |it| {
                it["status"]["revision"] = json!(revision);
            });
            return;
        }
        self.kcp.store().put(&json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": name, "namespace": ISTIO_NAMESPACE,
                "labels": {policy::certificates::PURPOSE_LABEL: policy::certificates::PURPOSE}},
            "spec": {}, "status": {"revision": 1},
        }));
    }

    fn set_gateway(&self, gateway: GatewayStatus) {
        drop(self.gateway.send_replace(gateway));
    }

    fn issue_gateway(&self, authorities: &[&Authority]) {
        let bundle: String = authorities.iter().map(|it| it.pem()).collect();
        self.set_gateway(Ok(IssuedGateway::of(&bundle, Some("kcp.example"))));
    }

    fn start(&mut self) {
        let clients = ClientOptions {
            allow_loopback: true,
            call_timeout: self.call_timeout,
            ..ClientOptions::default()
        };
        let options = RuntimeWatcherOptions {
            client: self.kcp.client(),
            settings: RuntimeWatcherSettings {
                namespace: NAMESPACE.to_owned(),
                certificate_namespace: ISTIO_NAMESPACE.to_owned(),
                skr_namespace: "kyma-system".to_owned(),
                address: None,
                render: Arc::new(|address| Ok(manifests(address))),
                review_timeout_seconds: 3,
                resync: self.resync,
                removal_delay: self.removal_delay,
                heartbeats: HeartbeatSettings {
                    address: self.listener,
                    interval: self.heartbeat_interval,
                },
            },
            salt: Salt::new("kcp"),
            fleet: RuntimeClients::new(clients, ClientMetrics::register(&mut Registry::default())),
            readiness: Readiness::default(),
            reporter: Reporter::from("test"),
            metrics: self.metrics.clone(),
        };
        let token = CancellationToken::new();
        let (of_certificates, kymas, watching) = self.kcp.kymas(&options.readiness);
        let certificates = self.run_certificates(of_certificates, token.clone());
        let running = run(
            options,
            kymas,
            self.gateway.subscribe(),
            self.acknowledged.clone(),
            token.clone(),
        );
        let watching = token.clone().run_until_cancelled_owned(watching);
        let task = tokio::spawn(async { tokio::join!(running, watching, certificates).0 });
        self.running = Some((token, task));
    }

    /// Runs the controller of Certificates. Its gateway is not the one of the test.
    fn run_certificates(
        &self,
        kymas: Kymas,
        token: CancellationToken,
    ) -> impl Future<Output = Option<()>> + Send + use<> {
        let options = CertificateOptions {
            client: self.kcp.client(),
            settings: certificate_settings(),
            readiness: Readiness::default(),
            reporter: Reporter::from("test"),
            metrics: CertificateMetrics::register(&mut Registry::default()),
        };
        let acknowledged = self.acknowledged.subscribe();
        let running =
            crate::certificates::run(options, kymas, gateway_channel().0, acknowledged, token);
        OptionFuture::from(self.has_certificates.then_some(running))
    }

    async fn stop(&mut self) {
        let (token, task) = self.running.take().unwrap();
        token.cancel();
        task.await.unwrap();
    }

    async fn until(&self, what: &str, state: impl Fn(&Self) -> bool) {
        let limit = Duration::from_mins(1);
        let reached = testkit::until::until(what, limit, || async { state(self) });
        reached.await.unwrap();
    }

    /// Returns the number of runtimes with this reason.
    fn runtimes(&self, reason: &str) -> u64 {
        let series = format!("runtime_watchers{{state=\"{reason}\"}}");
        Samples::of(&self.registry).count(&series)
    }

    fn condition(&self, watcher: &str) -> String {
        let watcher = self.kcp.object("watchers", watcher).unwrap();
        let conditions = watcher["status"]["conditions"].as_array();
        let condition = conditions
            .into_iter()
            .flatten()
            .find(|it| it["type"] == "RuntimesConfigured");
        condition.map_or(String::new(), |it| {
            let [status, message] = ["status", "message"].map(|key| it[key].as_str().unwrap());
            format!("{status} {message}")
        })
    }
}

/// Checks that a state remains for longer than the pause of a removal.
async fn stays(state: impl Fn() -> bool) {
    let span = BACKOFF.base + Duration::from_secs(1);
    let stays = testkit::until::holds("it stays", span, || async { state() });
    stays.await.unwrap();
}

fn entries(cluster: &RuntimeCluster) -> Vec<String> {
    let Some(webhooks) = cluster.find(WEBHOOKS) else {
        return Vec::new();
    };
    let entries = webhooks["webhooks"].as_array().unwrap().iter();
    entries
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect()
}

fn entry(watcher: &str) -> String {
    format!("kcp-system.{watcher}.operator.kyma-project.io")
}
