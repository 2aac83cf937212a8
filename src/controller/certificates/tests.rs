//! The controller against a control plane in process that has its permissions and no others. The tests play cert-manager.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::certificates::{KeyAlgorithm, bundle_sha256};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, kinds};
use testkit::metrics::Samples;
use testkit::pki::Authority;
use tokio::task::JoinHandle;

use super::*;
use crate::fixture::{ControlPlane, GATEWAY_CERTIFICATE as LEAF, ISTIO_NAMESPACE, Mode, NAMESPACE};

const CA: &str = "klm-watcher";
const GATEWAY: &str = "klm-istio-gateway";

struct Env {
    acknowledged: tokio::sync::watch::Sender<Option<String>>,
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

/// What cert-manager issues for the gateway.
fn leaf(authority: &Authority) -> Value {
    let leaf = authority.leaf_with("gateway", |it| {
        it.use_authority_key_identifier_extension = true;
    });
    let leaf = leaf.unwrap();
    secret(LEAF, &leaf.pem, &leaf.key.serialize_pem())
}

/// What cert-manager issues for the runtime of the Kyma `one`.
fn runtime_secret(authority: &Authority) -> Value {
    let mut secret = leaf(authority);
    secret["metadata"]["name"] = json!("one-webhook-tls");
    secret
}

/// Waits for a state that is reached without another action of the test.
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
            acknowledged: tokio::sync::watch::channel(None).0,
            settings: Settings {
                kyma_namespace: NAMESPACE.to_owned(),
                gateway_namespace: NAMESPACE.to_owned(),
                ca_secret: CA.to_owned(),
                gateway_secret: GATEWAY.to_owned(),
                gateway_certificate: LEAF.to_owned(),
                grace_period: Duration::from_hours(96),
                certificates: CertificateSettings {
                    namespace: ISTIO_NAMESPACE.to_owned(),
                    issuer: "klm-watcher-selfsigned".to_owned(),
                    algorithm: KeyAlgorithm::EcdsaP256,
                    duration: 5_184_000,
                    renew_before: 2_592_000,
                    skr_namespace: "kyma-system".to_owned(),
                },
            },
            running: None,
        }
    }

    fn started() -> Self {
        let mut env = Self::new();
        env.start();
        env
    }

    /// A gateway whose first certificate is issued.
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

    /// Objects in all namespaces.
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
            gateway_channel().0,
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

    fn certificate(&self, name: &str) -> Option<Value> {
        self.server().get("certificates", ISTIO_NAMESPACE, name)
    }

    fn secret(&self, name: &str) -> Option<Value> {
        self.server().get("secrets", ISTIO_NAMESPACE, name)
    }

    /// A value of the gateway's Secret, decoded.
    fn gateway(&self, key: &str) -> String {
        let secret = self.secret(GATEWAY).unwrap();
        let value = STANDARD
            .decode(secret["data"][key].as_str().unwrap())
            .unwrap();
        String::from_utf8(value).unwrap()
    }

    /// cert-manager has issued a Certificate at a time.
    fn issued(&self, name: &str, not_before: &str) {
        self.server().edit("certificates", (ISTIO_NAMESPACE, name), |it| {
            it["status"] = json!({
                "notBefore": not_before, "notAfter": "2099-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": not_before}],
            });
        });
    }

    /// Two reconciles begin one after the other, so the first has ended.
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
async fn each_kyma_gets_a_certificate_that_follows_it() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    let names = || env.certificate("one-webhook-tls").unwrap()["spec"]["dnsNames"][0].clone();
    assert_eq!(names(), "one.kyma.example");
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": "new.example"}}}),
    );
    until(|| names() == "new.example").await;
    // Another client edits or deletes it.
    env.server()
        .edit("certificates", (ISTIO_NAMESPACE, "one-webhook-tls"), |it| {
            it["spec"]["commonName"] = json!("other");
        });
    until(|| env.certificate("one-webhook-tls").unwrap()["spec"]["commonName"] == "id-one").await;
    env.server()
        .remove("certificates", ISTIO_NAMESPACE, "one-webhook-tls");
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.issued("one-webhook-tls", "2026-01-01T00:00:00Z");
    until(|| env.count(r#"runtime_certificates{state="Issued"}"#) == 1).await;
    assert!(env.count("runtime_certificate_earliest_expiration_timestamp_seconds") > 4_000_000_000);
}

#[tokio::test]
async fn a_deleted_kyma_leaves_no_certificate_and_no_secret() {
    let env = Env::started();
    for name in ["one", "two"] {
        env.kcp.put(kyma(name));
        let certificate = format!("{name}-webhook-tls");
        until(|| env.certificate(&certificate).is_some()).await;
        env.server().put(&secret(&certificate, "c", "k"));
    }
    env.kcp.delete("kymas", "one");
    until(|| env.secret("one-webhook-tls").is_none()).await;
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    assert!(env.certificate("two-webhook-tls").is_some());
    assert!(env.secret("two-webhook-tls").is_some());
}

/// A failure is repeated, so that no Secret is left behind.
#[tokio::test]
async fn a_deletion_that_fails_is_repeated() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&secret("one-webhook-tls", "c", "k"));
    let fault = env.kcp.fault("delete secrets").status(500);
    env.kcp.delete("kymas", "one");
    until(|| env.kcp.count("delete secrets") > 0).await;
    fault.stop();
    until(|| env.secret("one-webhook-tls").is_none()).await;
    until(|| env.certificate("one-webhook-tls").is_none()).await;
}

/// While no replica led. Certificates of others, and of Kymas in another namespace, are not deleted.
#[tokio::test]
async fn a_certificate_whose_kyma_is_gone_is_deleted_at_the_start() {
    let mut env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.stop().await;
    env.kcp.delete("kymas", "one");
    let mut foreign = env.certificate("one-webhook-tls").unwrap();
    foreign["metadata"] = json!({
        "name": "foreign-webhook-tls", "namespace": ISTIO_NAMESPACE,
        "labels": foreign["metadata"]["labels"],
    });
    env.server().put(&foreign);
    foreign["metadata"]["name"] = json!("elsewhere-webhook-tls");
    foreign["metadata"]["annotations"] =
        json!({"rt-bootstrapper.kyma-project.io/kyma-namespace": "other"});
    env.server().put(&foreign);
    env.start();
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    until(|| env.kcp.count("get certificates") >= 4).await;
    assert!(env.certificate("foreign-webhook-tls").is_some());
    assert!(env.certificate("elsewhere-webhook-tls").is_some());
}

#[tokio::test]
async fn a_kyma_without_a_domain_is_reported_once_and_delays_no_other() {
    let env = Env::started();
    let mut without = kyma("without");
    without["metadata"]["annotations"] = json!({});
    env.kcp.put(without);
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    until(|| env.kcp.events() == ["SKRDomainMissing"]).await;
    until(|| env.count(r#"runtime_certificates{state="SKRDomainMissing"}"#) == 1).await;
    env.kcp.merge(
        "kymas",
        "without",
        &json!({"metadata": {"labels": {"a": "b"}}}),
    );
    env.kcp.merge(
        "kymas",
        "without",
        &json!({"metadata": {"annotations": {"skr-domain": "w.example"}}}),
    );
    until(|| env.certificate("without-webhook-tls").is_some()).await;
    assert_eq!(env.kcp.events(), ["SKRDomainMissing"]);
}

/// Its condition `WatcherInstalled` says why there is no certificate.
#[tokio::test]
async fn a_runtime_bootstrapper_without_a_kyma_gets_a_certificate_once_it_has_a_domain() {
    let env = Env::started();
    let mut resource = crate::fixture::bootstrapper("one");
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource);
    until(|| env.count(r#"runtime_certificates{state="SKRDomainMissing"}"#) == 1).await;
    assert!(env.certificate("one-webhook-tls").is_none());
    env.kcp.merge(
        "runtimebootstrappers",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": "one.example"}}}),
    );
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    // The same certificate when the runtime gets its Kyma.
    let before = env.certificate("one-webhook-tls").unwrap();
    env.kcp.put(kyma("one"));
    env.kcp.delete("runtimebootstrappers", "one");
    env.kcp.put(kyma("two"));
    until(|| env.certificate("two-webhook-tls").is_some()).await;
    let after = env.certificate("one-webhook-tls").unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    // And none when it leaves a RuntimeBootstrapper without a domain.
    env.kcp.put(crate::fixture::bootstrapper("one"));
    let status = json!({"status": {"runtimeID": "id-one"}});
    env.kcp.merge("runtimebootstrappers", "one", &status);
    env.kcp.delete("kymas", "one");
    until(|| env.certificate("one-webhook-tls").is_none()).await;
    assert_eq!(env.kcp.events(), [""; 0]);
}

/// While the RuntimeBootstrappers are not known, a runtime without a Kyma looks like one that is gone.
#[tokio::test]
async fn a_restart_deletes_no_certificate_before_all_runtimes_are_known() {
    let mut env = Env::started();
    let mut resource = crate::fixture::bootstrapper("one");
    resource["metadata"]["annotations"] = json!({"skr-domain": "one.example"});
    resource["status"] = json!({"runtimeID": "id-one"});
    env.kcp.put(resource.clone());
    let names = ["one", "gone", "two"].map(|it| format!("{it}-webhook-tls"));
    let [kept, deleted, another] = &names;
    resource["metadata"]["name"] = json!("gone");
    resource["status"] = json!({"runtimeID": "id-gone"});
    env.kcp.put(resource);
    until(|| env.certificate(kept).is_some() && env.certificate(deleted).is_some()).await;
    let uid = env.certificate(kept).unwrap()["metadata"]["uid"].clone();
    env.stop().await;
    env.kcp.delete("runtimebootstrappers", "gone");
    let lists = env.kcp.fault("list|watch runtimebootstrappers").status(403);
    env.kcp.put(kyma("two"));
    env.start();
    until(|| env.certificate(another).is_some()).await;
    until(|| env.certificate(deleted).is_none()).await;
    assert_eq!(env.certificate(kept).unwrap()["metadata"]["uid"], uid);
    lists.stop();
    until(|| env.count(r#"runtime_certificates{state="Pending"}"#) == 2).await;
    assert_eq!(env.certificate(kept).unwrap()["metadata"]["uid"], uid);
}

/// A certificate that exists stays when the domain is removed: events still arrive.
#[tokio::test]
async fn a_removed_domain_deletes_nothing() {
    let env = Env::started();
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.kcp.merge(
        "kymas",
        "one",
        &json!({"metadata": {"annotations": {"skr-domain": null}}}),
    );
    until(|| env.kcp.events() == ["SKRDomainMissing"]).await;
    assert!(env.certificate("one-webhook-tls").is_some());
}

#[tokio::test(start_paused = true)]
async fn without_cert_manager_certificates_wait() {
    let mut env = Env::new();
    env.kcp.serve(&kinds::CERTIFICATES, false);
    env.kcp.put(kyma("one"));
    env.start();
    let state = r#"runtime_certificates{state="CertManagerAPINotServed"}"#;
    until(|| env.count(state) == 1).await;
    env.kcp.serve(&kinds::CERTIFICATES, true);
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    until(|| env.count(state) == 0).await;
}

#[tokio::test]
async fn the_gateway_gets_a_certificate_of_its_own_and_the_bundle() {
    let authority = authority();
    let env = Env::with_gateway(&authority).await;
    until(|| env.certificate(LEAF).is_some()).await;
    assert_eq!(
        env.certificate(LEAF).unwrap()["spec"]["dnsNames"],
        json!(["kcp.example"])
    );
    let issued = env.secret(LEAF).unwrap();
    let gateway = env.secret(GATEWAY).unwrap();
    for key in ["tls.crt", "tls.key"] {
        assert_eq!(gateway["data"][key], issued["data"][key]);
    }
    assert_ne!(env.gateway("tls.crt"), authority.pem());
    assert_eq!(
        env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count(),
        1
    );
    assert!(env.count("gateway_certificate_expiration_timestamp_seconds") > 4_000_000_000);
    // Others delete it, or put garbage in it.
    env.server().remove("secrets", ISTIO_NAMESPACE, GATEWAY);
    until(|| env.secret(GATEWAY).is_some()).await;
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["data"]["ca.crt"] = json!(STANDARD.encode("garbage"));
        });
    until(|| env.gateway("ca.crt").contains("BEGIN CERTIFICATE")).await;
}

/// Both CAs are trusted at once, certificates of runtimes are renewed, and the gateway keeps its certificate.
#[tokio::test]
async fn a_rotation_of_the_ca_overlaps() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&runtime_secret(&old));
    env.server().put(&runtime_secret(&old));
    env.issued("one-webhook-tls", "2026-01-01T00:00:00Z");
    until(|| env.count(r#"runtime_certificates{state="Issued"}"#) == 1).await;
    assert!(!env.is_renewing("one-webhook-tls"));
    let before = env.gateway("tls.crt");
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["metadata"]["annotations"]["caAddedToBundleAt"] = json!("2026-01-01T00:00:00Z");
        });
    env.server().put(&secret(CA, new.pem(), ""));
    env.server().put(&leaf(&new));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    assert_eq!(env.gateway("tls.crt"), before);
    let added =
        env.secret(GATEWAY).unwrap()["metadata"]["annotations"]["caAddedToBundleAt"].clone();
    assert_ne!(added, "2026-01-01T00:00:00Z");
    until(|| env.is_renewing("one-webhook-tls")).await;
    // What is issued in the same second is of the new CA, and is not renewed again.
    env.server().put(&runtime_secret(&new));
    env.issued("one-webhook-tls", "2026-01-01T00:00:00Z");
    env.reconcile_twice("one").await;
    assert!(!env.is_renewing("one-webhook-tls"));
    // The grace period is over.
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["metadata"]["annotations"]["caAddedToBundleAt"] = json!("2026-02-01T00:00:00Z");
        });
    until(|| env.gateway("tls.crt") != before).await;
    assert_eq!(
        env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count(),
        2
    );
}

/// An earlier CA has issued it before the rotation, by a clock that is ten minutes ahead. Afterwards it is not read at each resync.
#[tokio::test]
async fn a_certificate_of_an_earlier_ca_is_renewed_whatever_the_clock_of_cert_manager() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    env.kcp.put(kyma("one"));
    until(|| env.certificate("one-webhook-tls").is_some()).await;
    env.server().put(&secret(CA, new.pem(), ""));
    env.server().put(&leaf(&new));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    env.server().put(&runtime_secret(&old));
    let ahead = Timestamp::now() + Duration::from_mins(10);
    env.issued("one-webhook-tls", &ahead.to_string());
    until(|| env.is_renewing("one-webhook-tls")).await;
    env.server().put(&runtime_secret(&new));
    let ahead = ahead + Duration::from_secs(1);
    env.issued("one-webhook-tls", &ahead.to_string());
    env.reconcile_twice("one").await;
    assert!(!env.is_renewing("one-webhook-tls"));
    let reads = || env.kcp.count("get secrets istio-system/one-webhook-tls");
    let before = reads();
    env.reconcile_twice("one").await;
    assert_eq!(reads(), before);
}

/// The end of the grace period is not waited for.
#[tokio::test]
async fn the_gateway_presents_a_certificate_of_a_new_ca_once_all_watchers_trust_it() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    let before = env.gateway("tls.crt");
    env.server().put(&secret(CA, new.pem(), ""));
    env.server().put(&leaf(&new));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    let reads = env.kcp.count("get secrets");
    env.acknowledged
        .send_replace(Some(bundle_sha256(old.pem().as_bytes())));
    until(|| env.kcp.count("get secrets") >= reads + 3).await;
    assert_eq!(env.gateway("tls.crt"), before);
    let bundle = env.gateway("ca.crt");
    env.acknowledged
        .send_replace(Some(bundle_sha256(bundle.as_bytes())));
    until(|| env.gateway("tls.crt") != before).await;
    assert_eq!(env.gateway("ca.crt"), bundle);
}

/// Otherwise the gateway would serve with a certificate of the earlier CA until that expires.
#[tokio::test]
async fn the_certificate_of_the_gateway_is_renewed_when_the_new_ca_is_trusted() {
    let (old, new) = (authority(), authority());
    let env = Env::with_gateway(&old).await;
    until(|| env.certificate(LEAF).is_some()).await;
    env.issued(LEAF, "2026-01-01T00:00:00Z");
    env.server().put(&secret(CA, new.pem(), ""));
    until(|| env.gateway("ca.crt").matches("BEGIN CERTIFICATE").count() == 2).await;
    assert!(!env.is_renewing(LEAF));
    env.server()
        .edit("secrets", (ISTIO_NAMESPACE, GATEWAY), |it| {
            it["metadata"]["annotations"]["caAddedToBundleAt"] = json!("2026-02-01T00:00:00Z");
        });
    until(|| env.is_renewing(LEAF)).await;
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

/// A private key that tests recognize is in no log line, Event or metric.
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
