//! The part against a control plane with the shipped Roles and runtimes over TLS. The tests play cert-manager.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::sync::Salt;
use prometheus_client::registry::Registry;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::metrics::Samples;
use testkit::pki::Authority;
use tokio::task::JoinHandle;

use super::*;
use crate::certificates::{IssuedGateway, gateway_channel};
use crate::clients::{ClientMetrics, ClientOptions};
use crate::fixture::{ControlPlane, ISTIO_NAMESPACE, Mode, NAMESPACE};
use crate::runtime_cluster::{RuntimeCluster, kubeconfig};

mod heartbeats;

const WEBHOOKS: &str = "validatingwebhookconfigurations skr-webhook";
const SECRET: &str = "secrets kyma-system/skr-webhook-tls";
const DEPLOYMENT: &str = "deployments kyma-system/skr-webhook";

/// A watcher is silent after three of them. A busy machine delays a heartbeat by less.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(400);

struct Env {
    kcp: ControlPlane,
    registry: Registry,
    metrics: RuntimeWatcherMetrics,
    authority: Authority,
    gateway: watch::Sender<Option<IssuedGateway>>,
    acknowledged: watch::Sender<Option<String>>,
    listener: SocketAddr,
    heartbeat_interval: Duration,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

fn manifests(address: &str) -> Vec<Value> {
    let labels = json!({"app": "skr-webhook"});
    vec![
        // As it is shipped: a field that the API server does not store.
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
        // As the controller `watchers` writes it.
        "status": {"state": "Ready"},
    })
}

fn kyma(name: &str, id: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": name, "labels": {"kyma-project.io/runtime-id": id},
            "annotations": {"skr-domain": format!("{name}.kyma.example")},
            // That of lifecycle-manager.
            "finalizers": ["operator.kyma-project.io/Kyma"],
        },
    })
}

/// An address of this test alone.
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
            running: None,
        }
    }

    /// A runtime of a Kyma with a certificate, and one Watcher.
    async fn installed() -> (Self, RuntimeCluster) {
        let mut env = Self::new();
        let cluster = env.install().await;
        (env, cluster)
    }

    /// Starts with a runtime of a Kyma with a certificate, and one Watcher.
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

    /// cert-manager issues the certificate of a Kyma: first the Secret, then the status.
    fn issue(&self, kyma: &str, authority: &Authority) {
        let leaf = authority.leaf_with(kyma, |it| it.use_authority_key_identifier_extension = true);
        let leaf = leaf.unwrap();
        let name = format!("{kyma}-webhook-tls");
        let revision = self.kcp.get("certificates", ISTIO_NAMESPACE, &name);
        let revision = revision.map_or(1, |it| it["status"]["revision"].as_u64().unwrap() + 1);
        self.kcp.store().put(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": ISTIO_NAMESPACE},
            "data": {"tls.crt": STANDARD.encode(&leaf.pem), "tls.key": STANDARD.encode(leaf.key.serialize_pem())},
        }));
        self.kcp.store().put(&json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": name, "namespace": ISTIO_NAMESPACE,
                "labels": {policy::certificates::PURPOSE_LABEL: policy::certificates::PURPOSE}},
            "spec": {}, "status": {"revision": revision},
        }));
    }

    fn issue_gateway(&self, authorities: &[&Authority]) {
        let bundle: String = authorities.iter().map(|it| it.pem()).collect();
        self.gateway
            .send_replace(Some(IssuedGateway::of(&bundle, Some("kcp.example"))));
    }

    fn start(&mut self) {
        let clients = ClientOptions {
            allow_loopback: true,
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
                resync: Duration::from_mins(10),
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
        let (_, kymas, watching) = self.kcp.kymas(&options.readiness);
        let running = run(
            options,
            kymas,
            self.gateway.subscribe(),
            self.acknowledged.clone(),
            token.clone(),
        );
        let watching = token.clone().run_until_cancelled_owned(watching);
        let task = tokio::spawn(async { tokio::join!(running, watching).0 });
        self.running = Some((token, task));
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

    /// Number of runtimes with that reason.
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

/// The rest of a migration is the plan's; here, the fields have to be read.
#[tokio::test]
async fn fields_of_the_lifecycle_manager_are_taken_over_and_removed() {
    let (env, cluster) = Env::installed().await;
    cluster.take();
    cluster.change(DEPLOYMENT, |live| {
        live["metadata"]["labels"]["public"] = json!("1");
        let entries = live["metadata"]["managedFields"].as_array_mut().unwrap();
        entries.push(json!({
            "manager": "lifecycle-manager", "operation": "Apply", "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:public": {}}}},
        }));
    });
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    env.kcp.merge("kymas", "one", &label);
    env.until("the label is removed", |_| {
        let live = cluster.find(DEPLOYMENT).unwrap();
        live["metadata"]["labels"].get("public").is_none()
    })
    .await;
    assert_eq!(
        cluster.take(),
        [format!("patch {DEPLOYMENT}"), format!("apply {DEPLOYMENT}")]
    );
}

#[tokio::test]
async fn the_runtime_of_a_kyma_gets_the_watcher_once() {
    let (mut env, cluster) = Env::installed().await;
    assert_eq!(
        cluster.take(),
        [
            "create configmaps kyma-system/rt-bootstrapper-owner",
            "apply priorityclasses skr-webhook-priority",
            "apply serviceaccounts kyma-system/skr-webhook",
            "apply secrets kyma-system/skr-webhook-tls",
            "apply deployments kyma-system/skr-webhook",
            "apply validatingwebhookconfigurations skr-webhook",
        ]
    );
    assert_eq!(entries(&cluster), [entry("klm")]);
    let webhooks = cluster.find(WEBHOOKS).unwrap();
    let bundle = webhooks["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert_eq!(bundle, STANDARD.encode(env.authority.pem()));
    let secret = cluster.find(SECRET).unwrap();
    let issued = env
        .kcp
        .get("secrets", ISTIO_NAMESPACE, "one-webhook-tls")
        .unwrap();
    assert_eq!(secret["data"]["ca.crt"], bundle);
    for key in ["tls.crt", "tls.key"] {
        assert_eq!(secret["data"][key], issued["data"][key]);
    }
    let env_of = "/spec/template/spec/containers/0/env/0/value";
    assert_eq!(
        cluster.find(DEPLOYMENT).unwrap().pointer(env_of).unwrap(),
        "kcp.example"
    );
    env.until("it is counted", |env| {
        env.condition("klm") == "True 1 of 1 runtimes"
    })
    .await;
    // Nothing differs for the next leader.
    env.stop().await;
    assert_eq!(env.runtimes("Installed"), 0);
    drop(env.kcp.take_requests());
    env.start();
    env.until("it is read again", |env| env.runtimes("Installed") == 1)
        .await;
    assert_eq!(cluster.take(), [""; 0]);
    env.kcp.put(watcher("later"));
    let counted = "True 1 of 1 runtimes";
    env.until("statuses are written", |env| {
        env.condition("later") == counted
    })
    .await;
    let writes = env.kcp.requests_of("patch watchers/status");
    assert!(writes.iter().all(|it| it.asked.name == "later"));
    assert_eq!(env.kcp.events(), [""; 0]);
}

#[tokio::test]
async fn a_change_of_a_watcher_is_applied_to_all_runtimes_at_once() {
    let (env, one) = Env::installed().await;
    let two = env.runtime("two").await;
    env.until("the second is installed", |env| {
        env.runtimes("Installed") == 2
    })
    .await;
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("both have it", |_| {
        entries(&one) == both && entries(&two) == both
    })
    .await;
    env.until("it is counted", |env| {
        env.condition("telemetry") == "True 2 of 2 runtimes"
    })
    .await;
    env.kcp.remove("watchers", NAMESPACE, "klm");
    let rest = [entry("telemetry")];
    env.until("both lose it", |_| {
        entries(&one) == rest && entries(&two) == rest
    })
    .await;
    for cluster in [&one, &two] {
        assert!(cluster.find(DEPLOYMENT).is_some());
    }
}

#[tokio::test]
async fn the_last_watcher_takes_everything_with_it() {
    let (env, cluster) = Env::installed().await;
    cluster.take();
    env.kcp.remove("watchers", NAMESPACE, "klm");
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
    let writes = cluster.take();
    assert_eq!(
        writes[..2],
        [format!("delete {WEBHOOKS}"), format!("delete {DEPLOYMENT}")]
    );
    env.until("it is no runtime with a watcher", |env| {
        env.runtimes("Installed") == 0
    })
    .await;
    env.kcp.put(watcher("klm"));
    env.until("it comes back", |_| entries(&cluster) == [entry("klm")])
        .await;
}

/// Of a Kyma that is being deleted, and of one that is gone at once.
#[rstest]
#[case::with_finalizer(true)]
#[case::gone(false)]
#[tokio::test]
async fn the_watcher_goes_with_the_kyma(#[case] has_finalizer: bool) {
    let (env, cluster) = Env::installed().await;
    if has_finalizer {
        env.kcp.delete("kymas", "one");
    } else {
        env.kcp.remove("kymas", NAMESPACE, "one");
    }
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
}

/// During a rotation both CAs are in the bundle; a certificate that the API server would not trust is not written.
#[tokio::test]
async fn a_new_ca_is_trusted_before_its_certificate_is_used() {
    let (env, cluster) = Env::installed().await;
    cluster.take();
    let before = cluster.find(SECRET).unwrap()["data"]["tls.crt"].clone();
    let new = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    env.issue("one", &new);
    env.until("it is refused", |env| {
        env.runtimes("CertificateOfUnknownCA") == 1
    })
    .await;
    assert_eq!(cluster.find(SECRET).unwrap()["data"]["tls.crt"], before);
    env.issue_gateway(&[&env.authority, &new]);
    let is_new = |_: &Env| cluster.find(SECRET).unwrap()["data"]["tls.crt"] != before;
    env.until("the certificate is written", is_new).await;
    let writes = cluster.take();
    let position = |object: &str| writes.iter().position(|it| it.ends_with(object)).unwrap();
    assert!(position(WEBHOOKS) < position(SECRET), "{writes:?}");
}

/// A rotation ends without a runtime that cannot be reached for longer than the grace period.
#[tokio::test]
async fn a_runtime_that_is_offline_during_a_rotation_gets_the_new_ca_first() {
    let (env, cluster) = Env::installed().await;
    let before = cluster.find(SECRET).unwrap()["data"]["tls.crt"].clone();
    let offline = cluster.outage(503);
    let new = Authority::new("klm-watcher-selfsigned-ca").unwrap();
    env.issue_gateway(&[&env.authority, &new]);
    env.until("it is reported", |env| env.runtimes("APIServerError") == 1)
        .await;
    env.issue("one", &new);
    env.issue_gateway(&[&new]);
    cluster.take();
    offline.stop();
    env.until("its certificate is written", |_| {
        cluster.find(SECRET).unwrap()["data"]["tls.crt"] != before
    })
    .await;
    let writes = cluster.take();
    let position = |object: &str| writes.iter().rposition(|it| it.ends_with(object)).unwrap();
    assert!(position(WEBHOOKS) < position(SECRET), "{writes:?}");
    let bundle = STANDARD.encode(new.pem());
    let webhooks = cluster.find(WEBHOOKS).unwrap();
    assert_eq!(webhooks["webhooks"][0]["clientConfig"]["caBundle"], bundle);
    assert_eq!(cluster.find(SECRET).unwrap()["data"]["ca.crt"], bundle);
}

#[rstest]
#[case::webhooks(WEBHOOKS)]
#[case::secret(SECRET)]
#[tokio::test]
async fn what_a_customer_deletes_comes_back_with_the_next_reconcile(#[case] object: &str) {
    let (env, cluster) = Env::installed().await;
    cluster.drop_object(object);
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": "other.example"}}}),
    );
    env.until("it is back", |_| cluster.find(object).is_some())
        .await;
}

#[tokio::test]
async fn one_runtime_that_does_not_answer_delays_no_other() {
    let (env, one) = Env::installed().await;
    let refused = one.outage(500);
    let two = env.runtime("two").await;
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("the other has it", |_| entries(&two) == both)
        .await;
    env.until("the first is reported", |env| {
        env.runtimes("APIServerError") == 1
    })
    .await;
    let counted = "False 1 of 2 runtimes; 1 APIServerError";
    env.until("it is counted", |env| env.condition("klm") == counted)
        .await;
    refused.stop();
    env.until("it is repaired", |_| entries(&one) == both).await;
    assert_eq!(env.kcp.events_of("APIServerError"), 1);
}

/// Nothing is written to any of these, and each is counted by its reason.
#[rstest]
#[case::another_runtime(|it: &Env, cluster: &RuntimeCluster| {
    cluster.put(&json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "rt-bootstrapper-owner", "namespace": "kyma-system"},
        "data": {"runtimeID": "id-other", "controlPlaneID": "x"}}));
    it.kcp.put(watcher("klm"));
}, "OwnershipConflict")]
#[case::namespace(|it: &Env, cluster: &RuntimeCluster| {
    cluster.remove("namespaces", "", "kyma-system");
    it.kcp.put(watcher("klm"));
}, "NamespaceNotFound")]
#[case::no_kubeconfig(|it: &Env, _: &RuntimeCluster| {
    it.kcp.remove("secrets", NAMESPACE, "kubeconfig-id-one");
    it.kcp.put(watcher("klm"));
}, "KubeconfigNotFound")]
#[case::no_certificate(|it: &Env, _: &RuntimeCluster| {
    it.kcp.remove("secrets", ISTIO_NAMESPACE, "one-webhook-tls");
    it.kcp.put(watcher("klm"));
}, "CertificatePending")]
#[case::garbage(|it: &Env, _: &RuntimeCluster| {
    it.kcp.edit("secrets", (ISTIO_NAMESPACE, "one-webhook-tls"), |secret| {
        secret["data"]["tls.crt"] = json!(STANDARD.encode("garbage"));
    });
    it.kcp.put(watcher("klm"));
}, "InvalidCertificate")]
#[case::no_runtime_id(|it: &Env, _: &RuntimeCluster| {
    it.kcp.merge("kymas", "one", &json!({"metadata": {"labels": null}}));
    it.kcp.put(watcher("klm"));
}, "RuntimeIDMissing")]
#[case::no_watcher(|_: &Env, _: &RuntimeCluster| {}, "Removed")]
#[tokio::test]
async fn nothing_is_written(#[case] prepare: fn(&Env, &RuntimeCluster), #[case] reason: &str) {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    prepare(&env, &cluster);
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("it is counted", |env| env.runtimes(reason) == 1)
        .await;
    assert_eq!(cluster.take(), [""; 0]);
}

#[tokio::test]
async fn a_new_runtime_is_contacted_once_its_certificate_is_issued() {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let secret = "one-webhook-tls";
    env.kcp.remove("secrets", ISTIO_NAMESPACE, secret);
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("it waits", |env| env.runtimes("CertificatePending") == 1)
        .await;
    assert_eq!(cluster.tokens(), [""; 0]);
    env.issue("one", &env.authority);
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
}

/// After a change of the leader, too.
#[tokio::test]
async fn an_installed_watcher_follows_the_watchers_without_a_certificate() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    let secret = "one-webhook-tls";
    env.kcp.remove("secrets", ISTIO_NAMESPACE, secret);
    env.kcp.put(watcher("telemetry"));
    env.start();
    env.until("it has both webhooks", |_| entries(&cluster).len() == 2)
        .await;
}

#[tokio::test]
async fn of_two_kymas_with_one_runtime_the_first_one_has_it() {
    let (env, cluster) = Env::installed().await;
    env.issue("two", &env.authority);
    env.kcp.put(kyma("two", "id-one"));
    env.until("it is reported", |env| {
        env.kcp.events_of("RuntimeIDConflict") == 1
    })
    .await;
    env.kcp.remove("kymas", NAMESPACE, "two");
    env.until("it is forgotten", |env| {
        env.runtimes("RuntimeIDConflict") == 0
    })
    .await;
    assert_eq!(entries(&cluster), [entry("klm")]);
}

/// While the gateway has no certificate nothing is changed, but a removal needs none.
#[tokio::test]
async fn without_the_gateway_nothing_changes() {
    let (mut env, cluster) = Env::installed().await;
    env.stop().await;
    cluster.take();
    env.gateway.send_replace(None);
    env.kcp.put(watcher("telemetry"));
    env.start();
    env.until("it waits", |env| {
        env.runtimes("GatewayCertificatePending") == 1
    })
    .await;
    assert_eq!(cluster.take(), [""; 0]);
    env.kcp.remove("watchers", NAMESPACE, "telemetry");
    env.kcp.remove("watchers", NAMESPACE, "klm");
    env.until("it is removed", |_| {
        cluster.inventory() == crate::runtime_cluster::BARE
    })
    .await;
}

#[tokio::test]
async fn an_invalid_watcher_says_so_and_keeps_no_other_from_runtimes() {
    let (env, cluster) = Env::installed().await;
    let mut invalid = watcher("invalid");
    invalid["spec"]["labelsToWatch"] = json!({"a b": "c"});
    env.kcp.put(invalid);
    env.until("it is reported", |env| {
        env.condition("invalid").starts_with("False no runtime")
    })
    .await;
    env.kcp.put(watcher("telemetry"));
    let valid = [entry("klm"), entry("telemetry")];
    env.until("the valid ones are there", |_| entries(&cluster) == valid)
        .await;
}

/// The Watcher of a later version of the definition, which this version cannot read.
#[tokio::test]
async fn the_webhook_of_an_unreadable_watcher_stays() {
    let (env, cluster) = Env::installed().await;
    env.kcp
        .merge("watchers", "klm", &json!({"spec": {"field": "metadata"}}));
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("both are there", |_| entries(&cluster) == both)
        .await;
}

/// The removal of the earlier one does not end in its runtime.
#[tokio::test]
async fn a_kyma_that_is_created_again_has_its_watcher() {
    let (env, cluster) = Env::installed().await;
    let outage = cluster.outage(500);
    cluster.take();
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("the removal has begun", |_| {
        !cluster.requests_of("get namespaces").is_empty()
    })
    .await;
    env.kcp.put(kyma("one", "id-one"));
    outage.stop();
    env.kcp.put(watcher("telemetry"));
    let both = [entry("klm"), entry("telemetry")];
    env.until("it is installed", |env| {
        entries(&cluster) == both && env.runtimes("Installed") == 1
    })
    .await;
    // Longer than the pause of the removal.
    let span = BACKOFF.base + Duration::from_secs(1);
    let stays = testkit::until::holds("it stays", span, || async { entries(&cluster) == both });
    stays.await.unwrap();
}

/// A runtime that does not answer has the webhooks of earlier Watchers only.
#[tokio::test]
async fn a_runtime_counts_when_it_has_the_webhooks_of_all_watchers() {
    let (env, cluster) = Env::installed().await;
    env.until("it is counted", |env| {
        env.condition("klm") == "True 1 of 1 runtimes"
    })
    .await;
    let silence = cluster.fault("get namespaces").silence();
    env.kcp.put(watcher("telemetry"));
    env.until("it is reported", |env| {
        !env.condition("telemetry").is_empty()
    })
    .await;
    let counted = "False 0 of 1 runtimes; 1 Installing";
    assert_eq!(env.condition("telemetry"), counted);
    silence.stop();
}

#[tokio::test]
async fn the_runtime_of_a_relabelled_kyma_is_that_of_another() {
    let (env, cluster) = Env::installed().await;
    env.issue("two", &env.authority);
    env.kcp.put(kyma("two", "id-one"));
    env.until("it is reported", |env| {
        env.runtimes("RuntimeIDConflict") == 1
    })
    .await;
    env.kcp
        .merge("kymas", "one", &json!({"metadata": {"labels": null}}));
    env.until("the other has it", |env| {
        env.runtimes("RuntimeIDMissing") == 1 && env.runtimes("Installed") == 1
    })
    .await;
    assert_eq!(entries(&cluster), [entry("klm")]);
}

/// The kubeconfig leads to another cluster than before, or to one that was rebuilt.
#[rstest]
#[case::another(None, "ClusterUIDChanged")]
#[case::accepted(Some("uid-one"), "Installed")]
#[tokio::test]
async fn a_cluster_with_another_uid_is_to_be_accepted(
    #[case] accepted: Option<&str>,
    #[case] reason: &str,
) {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one", "clusterUID": "earlier"});
    env.kcp.put(resource);
    let annotation = json!({"rt-bootstrapper.kyma-project.io/accept-cluster-uid": accepted});
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": annotation}}),
    );
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    env.until("it is decided", |env| env.runtimes(reason) == 1)
        .await;
    assert_eq!(cluster.take().is_empty(), accepted.is_none());
}

/// KCP does not return what a reconcile needs: the runtime is not counted as installed.
#[tokio::test]
async fn a_failure_of_kcp_is_counted() {
    let mut env = Env::new();
    let _cluster = env.runtime("one").await;
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    let forbidden = env.kcp.fault("get secrets").status(403);
    env.start();
    env.until("it is counted", |env| env.runtimes("RequestFailed") == 1)
        .await;
    forbidden.stop();
    env.until("it is installed", |env| env.runtimes("Installed") == 1)
        .await;
}

/// The other conditions are those of the controller `direct`.
#[tokio::test]
async fn the_runtime_bootstrapper_has_a_condition_while_there_is_a_watcher() {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let installed = json!({"type": "Installed", "status": "True", "reason": "Installed", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for (name, id) in [("one", "id-one"), ("other", "id-other")] {
        let mut resource = crate::fixture::bootstrapper(name);
        resource["status"] = json!({"runtimeID": id, "conditions": [installed]});
        env.kcp.put(resource);
    }
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    cluster.stop_rollouts();
    env.start();
    let conditions = |env: &Env, name: &str| -> Vec<String> {
        let resource = env.kcp.object("runtimebootstrappers", name).unwrap();
        let all = resource["status"]["conditions"].as_array().unwrap().iter();
        all.map(|it| {
            let [kind, status, reason] =
                ["type", "status", "reason"].map(|key| it[key].as_str().unwrap());
            format!("{kind} {status} {reason}")
        })
        .collect()
    };
    let ours = "Installed True Installed";
    env.until("it is being installed", |env| {
        conditions(env, "one") == [ours, "WatcherInstalled False Installing"]
    })
    .await;
    cluster.roll_out();
    env.until("it is installed", |env| {
        conditions(env, "one") == [ours, "WatcherInstalled True Installed"]
    })
    .await;
    env.kcp.remove("watchers", NAMESPACE, "klm");
    env.until("it is removed", |env| conditions(env, "one") == [ours])
        .await;
    assert_eq!(conditions(&env, "other"), [ours]);
}

#[tokio::test]
async fn a_runtime_without_a_kyma_is_that_of_its_runtime_bootstrapper() {
    let mut env = Env::new();
    let cluster = env.runtime("one").await;
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource);
    env.kcp.put(watcher("klm"));
    env.issue_gateway(&[&env.authority]);
    env.start();
    let reason = |env: &Env| {
        let resource = env.kcp.object("runtimebootstrappers", "one").unwrap();
        let conditions = resource["status"]["conditions"].as_array();
        let own = |it: &&Value| it["type"] == "WatcherInstalled";
        conditions.and_then(|it| Some(it.iter().find(own)?["reason"].clone()))
    };
    env.until("it is installed", |_| cluster.find(WEBHOOKS).is_some())
        .await;
    env.kcp.remove("kymas", NAMESPACE, "one");
    env.until("it says that the domain is missing", |env| {
        reason(env) == Some(json!("SKRDomainMissing"))
    })
    .await;
    assert!(cluster.find(WEBHOOKS).is_none() && cluster.find(SECRET).is_none());
    let domain = json!({"metadata": {"annotations": {"skr-domain": "one.kyma.example"}}});
    env.kcp.merge("runtimebootstrappers", "one", &domain);
    env.until("it is installed again", |_| {
        cluster.find(WEBHOOKS).is_some()
    })
    .await;
    assert_eq!(entries(&cluster), [entry("klm")]);
    env.kcp.remove("watchers", NAMESPACE, "klm");
    let no_domain = json!({"metadata": {"annotations": {"skr-domain": null}}});
    env.kcp.merge("runtimebootstrappers", "one", &no_domain);
    env.until("it is removed", |env| {
        cluster.find(WEBHOOKS).is_none() && reason(env).is_none()
    })
    .await;
    env.kcp.merge("runtimebootstrappers", "one", &domain);
    env.kcp.put(watcher("klm"));
    env.until("it is installed again", |_| {
        cluster.find(WEBHOOKS).is_some()
    })
    .await;
    env.kcp.remove("runtimebootstrappers", NAMESPACE, "one");
    env.until("it is removed", |_| cluster.find(WEBHOOKS).is_none())
        .await;
}

/// Events and statuses are among the requests.
#[tokio::test]
async fn no_key_is_written_to_kcp() {
    let (env, cluster) = Env::installed().await;
    let key = cluster.find(SECRET).unwrap()["data"]["tls.key"]
        .as_str()
        .unwrap()
        .to_owned();
    let writes = env.kcp.requests();
    let bodies = writes.iter().map(|it| it.body.to_string());
    assert!(bodies.filter(|it| it.contains(&key)).count() == 0);
}
