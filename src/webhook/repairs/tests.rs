//! Repairs against an API server, with the watches that feed them. The clock is paused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::bootstrapper::RestartCause;
use api::config::Document;
use api::names::{CONFIG_KEY, CONFIG_MAP, MARKER, REPAIR_RECORD};
use jiff::{SignedDuration, Timestamp};
use policy::admission::{Configuration, Settings};
use policy::repairs::RevisionTimes;
use prometheus_client::registry::Registry;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Rights};
use testkit::metrics::Samples;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::pod::{Basis, StoredPod};
use super::*;
use crate::snapshot::ActiveRevision;
use crate::watches::fixtures::watches_of;

/// The subresource, which the API server of the tests does not serve: the answer is 404.
const EVICTION: &str = " /api/v1/namespaces/shop/pods/web/eviction";
const MISSED: &str = r#"missed_pods{namespace="shop",reason="ImageRewritten"}"#;
const NOT_STARTED: &str = r#"trust_bundle_pods_not_started{node="node-1"}"#;
const BUNDLE_CHANGED: &str = r#"outdated_pods{namespace="shop",reason="TrustBundleChanged"}"#;

/// A cluster whose configuration covers Namespace `shop`, and the webhook's leader.
struct Environment {
    server: ApiServer,
    registry: Registry,
    metrics: RepairMetrics,
    probe: Arc<AtomicBool>,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Environment {
    async fn start(evict: EvictionSettings) -> Self {
        Self::start_on(ApiServer::new(), evict).await
    }

    async fn start_on(server: ApiServer, evict: EvictionSettings) -> Self {
        let text = include_str!("../../../deploy/webhook/rbac.yaml");
        let roles: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        server.behave(|it| it.rights = Rights::of_roles(&roles));
        server.namespace("shop");
        let mut registry = Registry::default();
        let mut env = Self {
            metrics: RepairMetrics::register(&mut registry),
            server,
            registry,
            probe: Arc::new(AtomicBool::new(true)),
            running: None,
        };
        env.put_document("mirror.example");
        env.put_secret("dTpw");
        env.put_bundle("one", &json!({}));
        env.lead(evict).await;
        env
    }

    /// Starts a leader with watches of its own.
    async fn lead(&mut self, evict: EvictionSettings) {
        let watches = watches_of(&self.server);
        let client = watches.client.clone();
        let probe = Arc::clone(&self.probe);
        let repairs = Repairs {
            client: client.clone(),
            snapshots: watches.snapshots.clone(),
            recorder: Recorder::new(client, watches.reporter.clone()),
            metrics: self.metrics.clone(),
            watches: WatchMetrics::default(),
            product_namespace: "kyma-system".to_owned(),
            evict,
            probe: Arc::new(move || {
                let is_ok = probe.load(Ordering::Relaxed);
                Box::pin(async move { is_ok.then_some(()).ok_or("no answer".to_owned()) })
            }),
        };
        let token = CancellationToken::new();
        let end = token.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = watches.run() => {}
                () = repairs.run(end) => {}
            }
        });
        self.running = Some((token, task));
        sleep(Duration::from_secs(5)).await;
    }

    async fn stop(&mut self) {
        let (token, task) = self.running.take().unwrap();
        token.cancel();
        task.await.unwrap();
    }

    fn put_document(&self, mirror: &str) {
        let document = json!({
            "availableFeatures": [
                "rt-cfg.kyma-project.io/alter-img-registry",
                "rt-cfg.kyma-project.io/add-cluster-trust-bundle",
            ],
            "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]},
            "overrides": {"old.example": mirror},
            "clusterTrustBundle": {
                "name": "roots", "certWritePath": "ca.crt",
                "volumeName": "rt-bundle", "volumeMountPath": "/etc/ssl/certs",
            },
        });
        self.server.put(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": "kyma-system", "managedFields": managed("f:data")},
            "data": {CONFIG_KEY: document.to_string()},
        }));
    }

    /// Lets the pull Secret into all Namespaces but one.
    fn select_namespaces(&self) {
        let place = ("kyma-system", CONFIG_MAP);
        self.server.edit("configmaps", place, |map| {
            let text = map["data"][CONFIG_KEY].as_str().unwrap();
            let mut document: Value = serde_json::from_str(text).unwrap();
            document["imagePullSecret"] = json!({"namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["other"]},
            ]}});
            map["data"][CONFIG_KEY] = json!(document.to_string());
        });
    }

    fn put_secret(&self, auth: &str) {
        use base64::Engine as _;
        let config = json!({"auths": {"mirror.example": {"auth": auth}}}).to_string();
        self.server.put(&json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": api::names::PULL_SECRET, "namespace": "kyma-system", "managedFields": managed("f:data"),
            },
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64::engine::general_purpose::STANDARD.encode(config)},
        }));
    }

    fn put_bundle(&self, content: &str, annotations: &Value) {
        self.server.put(&json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "roots", "annotations": annotations, "managedFields": managed("f:spec")},
            "spec": {"trustBundle": content},
        }));
    }

    /// A Pod of a ReplicaSet, as it is stored.
    fn put_pod(&self, name: &str, is_adapted: bool) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "shop",
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-1", "controller": true,
                }],
            },
            "spec": {"containers": [{"name": "c", "image": "old.example/web:1"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        if is_adapted {
            pod["metadata"]["annotations"] = json!({MARKER: "true"});
            pod["spec"] = json!({
                "containers": [{
                    "name": "c", "image": "mirror.example/web:1",
                    "volumeMounts": [{"name": "rt-bundle", "mountPath": "/etc/ssl/certs", "readOnly": true}],
                }],
                "volumes": [{"name": "rt-bundle", "projected": {"sources": [
                    {"clusterTrustBundle": {"name": "roots", "path": "ca.crt"}},
                ]}}],
            });
        }
        self.server.put(&pod);
    }

    /// Lets a Pod wait on a node for its volumes, as a kubelet leaves it.
    fn wait_for_volumes(&self, namespace: &str, name: &str) {
        self.server.edit("pods", (namespace, name), |pod| {
            pod["spec"]["nodeName"] = json!("node-1");
            pod["status"] = json!({
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "PodReadyToStartContainers", "status": "False"},
                ],
                "containerStatuses": [{
                    "name": "c", "image": "mirror.example/web:1", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "ContainerCreating"}},
                }],
            });
        });
    }

    fn value(&self, series: &str) -> Option<f64> {
        Samples::of(&self.registry).value(series)
    }

    async fn until(&self, series: &str, value: Option<f64>) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while self.value(series) != value {
            let now = self.value(series);
            assert!(
                Instant::now() < deadline,
                "{series} is {now:?}, expected {value:?}"
            );
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn evictions(&self) -> usize {
        self.server.count(EVICTION)
    }

    fn evictions_of(&self, pod: &str) -> usize {
        self.server.count(&EVICTION.replace("web", pod))
    }
}

/// A client that writes labels and annotations all the time must not hide missed Pods of a Namespace that the document covers.
#[rstest]
#[tokio::test(start_paused = true)]
async fn a_label_that_decides_nothing_hides_no_missed_pod(#[values(false, true)] selector: bool) {
    let env = Environment::start(EvictionSettings::default()).await;
    if selector {
        env.select_namespaces();
        sleep(Duration::from_secs(10)).await;
    }
    env.put_pod("web", false);
    sleep(Duration::from_secs(10)).await;
    env.server.edit("namespaces", ("", "shop"), |namespace| {
        namespace["metadata"]["labels"] = json!({"team": "a"});
        namespace["metadata"]["managedFields"] = json!([{
            "manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:team": {}}}},
        }]);
    });
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(MISSED), Some(1.0));
}

/// It has no marker, and proves all the same that new Pods come out adapted.
#[rstest]
#[case::by_the_policy("mirror.example/web:1", true, true)]
#[case::without_a_policy("mirror.example/web:1", false, false)]
#[case::not_adapted("old.example/web:1", true, false)]
#[case::nothing_to_adapt("other.example/web:1", true, false)]
fn a_pod_that_the_policy_adapted_is_adapted(
    #[case] image: &str,
    #[case] fallback_policy: bool,
    #[case] expected: bool,
) {
    let document = json!({
        "overrides": {"old.example": "mirror.example"},
        "availableFeatures": ["rt-cfg.kyma-project.io/alter-img-registry"],
        "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/all"]},
    });
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let document = Document::parse(&document.to_string()).unwrap();
    let configuration = Configuration::new(&document, &settings).unwrap();
    let active = ActiveRevision {
        configuration: Some(Arc::new(configuration)),
        ..ActiveRevision::default()
    };
    let created = "2026-01-01T00:00:00Z";
    let basis = Basis {
        active: &active,
        revision: RevisionTimes {
            document: created.parse().unwrap(),
            registries: None,
            credentials: None,
            bundle_exists: None,
            bundle_content: None,
        },
        fallback_policy,
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "1", "creationTimestamp": created},
        "spec": {"containers": [{"name": "c", "image": image}]},
    });
    let pod: StoredPod = serde_json::from_value(pod).unwrap();
    let judged = pod.judge(None, &basis).unwrap();
    assert_eq!(judged.tracked.adapted, expected);
}

#[rstest]
#[case::replica_set("apps/v1", "ReplicaSet", Some(true), true)]
#[case::stateful_set("apps/v1", "StatefulSet", Some(true), true)]
#[case::daemon_set("apps/v1", "DaemonSet", Some(true), true)]
#[case::job("batch/v1", "Job", Some(true), false)]
#[case::kind_of_another_group("example.com/v1", "ReplicaSet", Some(true), false)]
#[case::owner_that_is_not_the_controller("apps/v1", "ReplicaSet", None, false)]
#[case::owner_that_denies_it("apps/v1", "ReplicaSet", Some(false), false)]
#[case::no_owner("", "", None, false)]
#[tokio::test(start_paused = true)]
async fn a_missed_pod_is_evicted_only_if_its_controller_replaces_it(
    #[case] api_version: &str,
    #[case] kind: &str,
    #[case] controller: Option<bool>,
    #[case] expected: bool,
) {
    let mut env = Environment::start(missed_only()).await;
    // No leader sees the Pod with another owner.
    env.stop().await;
    env.put_pod("web", false);
    env.server.edit("pods", ("shop", "web"), |pod| {
        pod["metadata"]["ownerReferences"] = match kind {
            "" => json!([]),
            _ => json!([{
                "apiVersion": api_version, "kind": kind, "name": "owner", "uid": "1", "controller": controller,
            }]),
        };
    });
    env.lead(missed_only()).await;
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.evictions() > 0, expected);
}

/// One field manager; the API server adds the time of the last write.
fn managed(field: &str) -> Value {
    json!([{
        "manager": "kim", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {(field): {}},
    }])
}

fn missed_only() -> EvictionSettings {
    EvictionSettings {
        missed: true,
        outdated: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_missed_pod_is_counted_reported_once_and_forgotten_when_it_is_gone() {
    let env = Environment::start(EvictionSettings::default()).await;
    env.put_pod("web", false);
    env.put_pod("adapted", true);
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    let events = env.server.requests_of("create|patch events");
    let namespaces: Vec<&str> = events
        .iter()
        .map(|it| it.asked.namespace.as_str())
        .collect();
    assert_eq!(namespaces, ["shop"]);
    assert_eq!(env.evictions(), 0, "off by default");
    env.server.remove("pods", "shop", "web");
    env.until(MISSED, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_waits_for_its_trust_bundle_is_counted_and_reported_once_until_it_starts() {
    let env = Environment::start(EvictionSettings::default()).await;
    for (name, is_adapted) in [("web", true), ("without-volume", false)] {
        env.put_pod(name, is_adapted);
        env.wait_for_volumes("shop", name);
    }
    // Another Namespace is not covered.
    let mut other = env.server.get("pods", "shop", "web").unwrap();
    other["metadata"] = json!({"name": "web", "namespace": "other"});
    env.server.put(&other);
    sleep(Duration::from_secs(110)).await;
    assert_eq!(env.value(NOT_STARTED), None, "a kubelet takes its time");
    env.until(NOT_STARTED, Some(1.0)).await;
    // Neither another list of all Pods nor a write of the Pod repeats the Event.
    env.put_document("mirror.example/hub");
    sleep(Duration::from_secs(30)).await;
    env.server.edit("pods", ("shop", "web"), |pod| {
        pod["metadata"]["labels"] = json!({"team": "a"});
    });
    sleep(Duration::from_mins(5)).await;
    assert_eq!(env.value(NOT_STARTED), Some(1.0));
    let events = env.server.requests_of("create|patch events").into_iter();
    let events = events.filter(|it| it.body["reason"] == "TrustBundleNotMounted");
    let events: Vec<Value> = events.map(|it| it.body).collect();
    let [event] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(event["regarding"]["namespace"], "shop");
    assert_eq!(event["regarding"]["name"], "web");
    let note = event["note"].as_str().unwrap();
    for part in ["node-1", "FailedMount", "ClusterTrustBundleProjection"] {
        assert!(note.contains(part), "{note}");
    }
    env.put_pod("web", true);
    env.until(NOT_STARTED, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_or_a_leader_that_ends_leaves_no_figure_of_a_node() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    for name in ["web", "api"] {
        env.put_pod(name, true);
        env.wait_for_volumes("shop", name);
    }
    sleep(Duration::from_secs(110)).await;
    env.until(NOT_STARTED, Some(2.0)).await;
    env.server.remove("pods", "shop", "api");
    env.until(NOT_STARTED, Some(1.0)).await;
    // Pods are not watched between two lists, which are ten seconds apart.
    for mirror in ["one.example", "two.example"] {
        env.put_document(mirror);
        sleep(Duration::from_secs(2)).await;
    }
    env.server.remove("pods", "shop", "web");
    env.until(NOT_STARTED, None).await;
    env.put_pod("web", true);
    env.wait_for_volumes("shop", "web");
    sleep(Duration::from_secs(110)).await;
    env.until(NOT_STARTED, Some(1.0)).await;
    env.stop().await;
    assert_eq!(env.value(NOT_STARTED), None);
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_created_without_a_leader_are_found_and_older_ones_are_not() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    for number in 0..1000 {
        env.put_pod(&format!("web-{number}"), false);
    }
    env.lead(EvictionSettings::default()).await;
    env.until(MISSED, Some(1000.0)).await;
    // All of them are older than this document.
    sleep(Duration::from_secs(30)).await;
    env.put_document("other.example");
    env.until(MISSED, None).await;
    let changed = r#"outdated_pods{namespace="shop",reason="ConfigurationChanged"}"#;
    env.until(changed, Some(1000.0)).await;
    // A leader that ends leaves no figures.
    env.stop().await;
    assert_eq!(env.value(changed), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_outdated_by_the_content_of_its_bundle_and_not_by_metadata() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    sleep(Duration::from_secs(10)).await;
    env.put_pod("web", true);
    sleep(Duration::from_secs(10)).await;
    // The API server advances the time of the manager that owns the content too.
    env.put_bundle("one", &json!({"note": "new"}));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), None);
    // Another leader knows that the content is older.
    env.stop().await;
    assert!(
        env.server
            .get("secrets", "kyma-system", REPAIR_RECORD)
            .is_some()
    );
    env.lead(EvictionSettings::default()).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), None);
    env.put_bundle("two", &json!({"note": "new"}));
    env.until(BUNDLE_CHANGED, Some(1.0)).await;
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_its_record_pods_are_found_all_the_same() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    env.server
        .behave(|it| it.rights = Rights::with_verbs(&["list", "watch"]));
    env.lead(EvictionSettings::default()).await;
    env.put_pod("web", false);
    env.until(MISSED, Some(1.0)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_judged_before_everything_was_observed() {
    let mut env = Environment::start(EvictionSettings::default()).await;
    env.stop().await;
    env.put_pod("web", false);
    let secrets = env.server.fault("list secrets kyma-system/").status(500);
    env.lead(EvictionSettings::default()).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(env.value(MISSED), None);
    secrets.stop();
    env.until(MISSED, Some(1.0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_opts_in_covers_its_new_pods_only() {
    let env = Environment::start(EvictionSettings::default()).await;
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "other"},
            "spec": {"containers": [{"name": "c", "image": "old.example/web:1"}]},
        })
    };
    env.server.put(&pod("before"));
    sleep(Duration::from_secs(10)).await;
    env.server.edit("namespaces", ("", "other"), |namespace| {
        let key = "rt-cfg.kyma-project.io/alter-img-registry";
        namespace["metadata"]["annotations"] = json!({key: "true"});
        namespace["metadata"]["managedFields"] = json!([{
            "manager": "kubectl-annotate", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, format!("f:{key}"): {}}}},
        }]);
    });
    sleep(Duration::from_secs(10)).await;
    env.server.put(&pod("after"));
    let missed = r#"missed_pods{namespace="other",reason="ImageRewritten"}"#;
    env.until(missed, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(missed), Some(1.0));
}

#[rstest]
#[case::forbidden(403, "forbidden", 1)]
#[case::budget(429, "budget_exhausted", 3)]
#[case::gone(404, "gone", 6)]
#[case::broken(500, "failed", 6)]
#[tokio::test(start_paused = true)]
async fn a_refused_eviction_is_never_an_error_loop(
    #[case] status: u16,
    #[case] result: &str,
    #[case] most: usize,
) {
    let env = Environment::start(missed_only()).await;
    env.server.fault(EVICTION).status(status);
    env.put_pod("web", false);
    let series = format!("pod_evictions_total{{result=\"{result}\"}}");
    env.until(&series, Some(1.0)).await;
    sleep(Duration::from_mins(3)).await;
    let evictions = env.evictions();
    assert!(evictions <= most, "{evictions} in three minutes");
    assert_eq!(env.value(MISSED), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_while_the_probe_fails() {
    let env = Environment::start(missed_only()).await;
    env.probe.store(false, Ordering::Relaxed);
    env.put_pod("web", false);
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(env.evictions(), 0);
    env.probe.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(env.evictions(), 1);
}

/// Nothing compares a time of the API server with the clock of this process.
#[rstest]
#[case::ahead(SignedDuration::from_mins(10))]
#[case::behind(SignedDuration::from_mins(-10))]
#[tokio::test(start_paused = true)]
async fn pods_are_judged_alike_whatever_the_clock_of_the_api_server(#[case] ahead: SignedDuration) {
    let settings = EvictionSettings {
        missed: false,
        outdated: vec![RestartCause::TrustBundle],
    };
    let mut env = Environment::start_on(ApiServer::with_clock(ahead), settings.clone()).await;
    let created = env.server.get("namespaces", "", "shop").unwrap();
    let created = created["metadata"]["creationTimestamp"].as_str().unwrap();
    let difference = created.parse::<Timestamp>().unwrap() - Timestamp::now();
    let difference = difference.total(jiff::Unit::Minute).unwrap();
    assert!((difference - ahead.as_secs_f64() / 60.0).abs() < 1.0);

    sleep(Duration::from_secs(10)).await;
    env.put_pod("adapted", true);
    env.put_pod("missed", false);
    env.until(MISSED, Some(1.0)).await;
    // The next leader reads since when the revision holds.
    env.stop().await;
    env.lead(settings).await;
    env.until(MISSED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), None);
    assert_eq!(env.evictions_of("adapted"), 0);

    env.put_bundle("two", &json!({}));
    env.until(BUNDLE_CHANGED, Some(1.0)).await;
    sleep(Duration::from_secs(30)).await;
    assert!(env.evictions_of("adapted") > 0);
    assert_eq!(env.evictions_of("missed"), 0);
    // One that is created now has the new bundle.
    env.put_pod("new", true);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(env.value(BUNDLE_CHANGED), Some(1.0));
    assert_eq!(env.value(MISSED), Some(1.0));
}
