//! Tests of the controller against an in-process control plane that grants only the permissions of the controller.
//! The tests do the work of cert-manager.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::certificates::bundle_sha256;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, kinds};
use testkit::metrics::Samples;
use testkit::pki::Authority;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::fixture::{
    CA_SECRET as CA, ControlPlane, GATEWAY_CERTIFICATE as LEAF, GATEWAY_SECRET as GATEWAY,
    ISTIO_NAMESPACE, Mode, certificate_settings,
};
use crate::kyma::WATCHER_FINALIZER;

mod gateway;
mod runtimes;

struct Env {
    acknowledged: watch::Sender<Option<String>>,
    issued: watch::Sender<GatewayStatus>,
    kcp: ControlPlane,
    registry: Registry,
    metrics: CertificateMetrics,
    settings: Settings,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

fn kyma(name: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": name, "labels": {"kyma-project.io/runtime-id": format!("id-{name}")},
            "annotations": {"skr-domain": format!("{name}.kyma.example")},
        },
        "spec": {"channel": "regular"},
    })
}

fn secret(name: &str, certificate: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": ISTIO_NAMESPACE},
        "data": {"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)},
    })
}

fn authority() -> Authority {
    Authority::new("klm-watcher-selfsigned-ca").unwrap()
}

/// Returns the Secret that cert-manager issues for the gateway.
fn leaf(authority: &Authority) -> Value {
    let leaf = authority.leaf_with("gateway", |it| {
        it.use_authority_key_identifier_extension = true;
    });
    let leaf = leaf.unwrap();
    secret(LEAF, &leaf.pem, &leaf.key.serialize_pem())
}

/// Returns the Secret that cert-manager issues for the runtime of the Kyma `one`.
fn runtime_secret(authority: &Authority) -> Value {
    let mut secret = leaf(authority);
    secret["metadata"]["name"] = json!("one-webhook-tls");
    secret
}

/// Waits for a state that the controller reaches without another action of the test.
async fn until(state: impl Fn() -> bool) {
    let limit = Duration::from_mins(2);
    let reached = testkit::until::until("the state", limit, || async { state() });
    reached.await.unwrap();
}

impl Env {
    fn new() -> Self {
        let mut registry = Registry::default();
        Self {
            kcp: ControlPlane::new(Mode::Watchers),
            metrics: CertificateMetrics::register(&mut registry),
            registry,
            acknowledged: watch::channel(None).0,
            issued: gateway_channel().0,
            settings: certificate_settings(),
            running: None,
        }
    }

    fn started() -> Self {
        let mut env = Self::new();
        env.start();
        env
    }

    /// Returns an environment with a gateway whose first certificate is issued.
    async fn with_gateway(authority: &Authority) -> Self {
        let mut env = Self::new();
        env.kcp.put(json!({
            "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway", "metadata": {"name": "klm-watcher"},
            "spec": {"servers": [
                {"hosts": ["kcp.example"], "tls": {"mode": "MUTUAL", "credentialName": GATEWAY}},
                {"hosts": ["other.example"], "tls": {"credentialName": "other"}},
            ]},
        }));
        env.server().put(&secret(CA, authority.pem(), ""));
        env.server().put(&leaf(authority));
        env.start();
        until(|| env.secret(GATEWAY).is_some()).await;
        env
    }

    /// Returns the API server, for access to objects in all namespaces.
    fn server(&self) -> &ApiServer {
        &self.kcp
    }

    fn start(&mut self) {
        let options = CertificateOptions {
            client: self.kcp.client(),
            settings: self.settings.clone(),
            readiness: Readiness::default(),
            reporter: Reporter {
                controller: "rt-bootstrapper-controller".to_owned(),
                instance: Some("pod-1".to_owned()),
            },
            metrics: self.metrics.clone(),
        };
        let token = CancellationToken::new();
        let (kymas, _, watching) = self.kcp.kymas(&options.readiness);
        let running = run(
            options,
            kymas,
            self.issued.clone(),
            self.acknowledged.subscribe(),
            token.clone(),
        );
        let watching = token.clone().run_until_cancelled_owned(watching);
        let running = tokio::spawn(async { tokio::join!(running, watching).0 });
        self.running = Some((token, running));
    }

    async fn stop(&mut self) {
        let (token, running) = self.running.take().unwrap();
        token.cancel();
        running.await.unwrap();
    }

    /// Returns a Certificate that this controller keeps. The controller of the watcher on runtimes removes its finalizer later.
    fn certificate(&self, name: &str) -> Option<Value> {
        let found = self.server().get("certificates", ISTIO_NAMESPACE, name);
        found.filter(|it| it["metadata"]["finalizers"] != json!([WATCHER_FINALIZER]))
    }

    fn is_terminating(&self, name: &str) -> bool {
        let certificate = self.certificate(name);
        certificate.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
    }

    fn secret(&self, name: &str) -> Option<Value> {
        self.server().get("secrets", ISTIO_NAMESPACE, name)
    }

    /// Returns a decoded value of the Secret of the gateway.
    fn gateway(&self, key: &str) -> String {
        let secret = self.secret(GATEWAY).unwrap();
        let value = STANDARD
            .decode(secret["data"][key].as_str().unwrap())
            .unwrap();
        String::from_utf8(value).unwrap()
    }

    /// Writes the status of a Certificate that cert-manager has issued at this time.
    fn issued(&self, name: &str, not_before: &str) {
        self.server().edit("certificates", (ISTIO_NAMESPACE, name), |it| {
            it["status"] = json!({
                "notBefore": not_before, "notAfter": "2099-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": not_before}],
            });
        });
    }

    /// Waits until two reconciles have started. They do not overlap, so the first one is complete.
    async fn reconcile_twice(&self, kyma: &str) {
        let reads = || {
            let certificate = format!("get certificates istio-system/{kyma}-webhook-tls");
            self.kcp.count(&certificate)
        };
        for _ in 0..2 {
            let before = reads();
            let label = json!({"metadata": {"labels": {"a": before.to_string()}}});
            self.kcp.merge("kymas", kyma, &label);
            until(|| reads() > before).await;
        }
    }

    fn is_renewing(&self, name: &str) -> bool {
        let certificate = self.certificate(name).unwrap_or_default();
        let conditions = certificate
            .pointer("/status/conditions")
            .and_then(Value::as_array);
        conditions.is_some_and(|all| {
            let ready = all.iter().any(|it| it["type"] == "Ready");
            ready
                && all
                    .iter()
                    .any(|it| it["type"] == "Issuing" && it["status"] == "True")
        })
    }

    /// Waits for the reason why no certificate of the gateway was issued; it is empty if one was issued.
    async fn until_pending(&self, expected: &str) {
        let limit = Duration::from_mins(2);
        let reason = || self.issued.borrow().as_ref().err().copied();
        let seen = async || {
            let reason = reason().unwrap_or_default();
            (reason == expected).then_some(()).ok_or(reason)
        };
        testkit::until::until(expected, limit, seen).await.unwrap();
    }

    fn count(&self, series: &str) -> u64 {
        Samples::of(&self.registry).count(series)
    }

    fn writes(&self) -> Vec<String> {
        let mut writes = self.kcp.writes();
        writes.retain(|it| !it.starts_with("create events "));
        writes
    }
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let authority = authority();
    let mut env = Env::with_gateway(&authority).await;
    for name in ["one", "two"] {
        env.kcp.put(kyma(name));
        let certificate = format!("{name}-webhook-tls");
        until(|| env.certificate(&certificate).is_some()).await;
        env.issued(&certificate, "2098-01-01T00:00:00Z");
    }
    until(|| env.count(r#"runtime_certificates{state="Issued"}"#) == 2).await;
    until(|| env.certificate(LEAF).is_some()).await;
    env.stop().await;
    assert_eq!(env.count("runtime_certificates"), 0);
    assert_eq!(
        env.count("gateway_certificate_expiration_timestamp_seconds"),
        0
    );
    let before = env.writes();
    env.start();
    until(|| env.count(r#"runtime_certificates{state="Issued"}"#) == 2).await;
    until(|| env.count("gateway_certificate_expiration_timestamp_seconds") > 0).await;
    env.stop().await;
    assert_eq!(env.writes(), before);
}

/// Checks that no log line, Event or metric contains the private key of the test.
#[tokio::test]
async fn keys_are_not_shown() {
    let authority = authority();
    let env = Env::with_gateway(&authority).await;
    let key = env.gateway("tls.key");
    let line = key.lines().nth(1).unwrap();
    assert!(!Samples::of(&env.registry).text().contains(line));
    for request in env.kcp.requests() {
        let is_secret = request.asked.is_of("* secrets");
        assert!(
            is_secret || !request.body.to_string().contains(line),
            "{}",
            request.asked
        );
    }
}
