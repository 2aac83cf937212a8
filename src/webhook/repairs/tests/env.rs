//! A cluster with Pods, and a leader that repairs them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::names::{CONFIG_KEY, CONFIG_MAP, MARKER};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Rights};
use testkit::metrics::Samples;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::super::*;
use crate::watches::fixtures::watches_of;

/// The path of the subresource, which the API server of the tests does not serve: the response is 404, except after
/// [`Environment::allow_eviction`].
pub(super) const EVICTION: &str = " /api/v1/namespaces/shop/pods/web/eviction";

/// Returns the specification of a Pod with all changes of the configuration.
pub(super) fn adapted_spec() -> Value {
    json!({
        "containers": [{
            "name": "c", "image": "mirror.example/web:1",
            "volumeMounts": [{"name": "rt-bundle", "mountPath": "/etc/ssl/certs", "readOnly": true}],
        }],
        "volumes": [{"name": "rt-bundle", "projected": {"sources": [
            {"clusterTrustBundle": {"name": "roots", "path": "ca.crt"}},
        ]}}],
    })
}

/// A cluster whose configuration covers Namespace `shop`, and the leader of the webhook.
pub(super) struct Environment {
    pub(super) server: ApiServer,
    registry: Registry,
    metrics: RepairMetrics,
    pub(super) probe: Arc<AtomicBool>,
    running: Option<(CancellationToken, JoinHandle<()>)>,
    /// Judges the Pods of the next leaders.
    pub(super) judge: Judge,
}

impl Environment {
    pub(super) async fn start(evict: EvictionSettings) -> Self {
        Self::start_on(ApiServer::new(), evict).await
    }

    pub(super) async fn start_on(server: ApiServer, evict: EvictionSettings) -> Self {
        let text = include_str!("../../../../deploy/webhook/rbac.yaml");
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
            judge: StoredPod::judge,
        };
        env.put_document("mirror.example");
        env.put_secret("dTpw");
        env.put_bundle("one", &json!({}));
        env.lead(evict).await;
        env
    }

    /// Starts a leader with new watches.
    pub(super) async fn lead(&mut self, evict: EvictionSettings) {
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
        let (judge, end) = (self.judge, token.clone());
        let task = tokio::spawn(async move {
            tokio::select! {
                () = watches.run() => {}
                () = repairs.run_with(judge, end) => {}
            }
        });
        self.running = Some((token, task));
        sleep(Duration::from_secs(5)).await;
    }

    pub(super) async fn stop(&mut self) {
        let (token, task) = self.running.take().unwrap();
        token.cancel();
        task.await.unwrap();
    }

    pub(super) fn put_document(&self, mirror: &str) {
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

    pub(super) fn edit_document(&self, change: impl FnOnce(&mut Value)) {
        let place = ("kyma-system", CONFIG_MAP);
        self.server.edit("configmaps", place, |map| {
            let text = map["data"][CONFIG_KEY].as_str().unwrap();
            let mut document: Value = serde_json::from_str(text).unwrap();
            change(&mut document);
            map["data"][CONFIG_KEY] = json!(document.to_string());
        });
    }

    /// Allows the pull Secret in all Namespaces except one.
    pub(super) fn select_namespaces(&self) {
        self.edit_document(|document| {
            document["imagePullSecret"] = json!({"namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["other"]},
            ]}});
        });
    }

    pub(super) fn put_secret(&self, auth: &str) {
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

    pub(super) fn put_bundle(&self, content: &str, annotations: &Value) {
        self.server.put(&json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "roots", "annotations": annotations, "managedFields": managed("f:spec")},
            "spec": {"trustBundle": content},
        }));
    }

    /// Creates a stored Pod of a ReplicaSet.
    pub(super) fn put_pod(&self, name: &str, is_adapted: bool) {
        self.put_pod_of(name, is_adapted.then(adapted_spec));
    }

    /// Creates a stored Pod of a ReplicaSet, which the webhook adapted if its specification is given.
    pub(super) fn put_pod_of(&self, name: &str, adapted: Option<Value>) {
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
        if let Some(spec) = adapted {
            pod["metadata"]["annotations"] = json!({MARKER: "true"});
            pod["spec"] = spec;
        }
        self.server.put(&pod);
    }

    /// Makes a Pod wait for its volumes on a node, as a kubelet reports it.
    pub(super) fn wait_for_volumes(&self, namespace: &str, name: &str) {
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

    pub(super) fn value(&self, series: &str) -> Option<f64> {
        Samples::of(&self.registry).value(series)
    }

    pub(super) async fn until(&self, series: &str, value: Option<f64>) {
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

    pub(super) fn evictions(&self) -> usize {
        self.server.count(EVICTION)
    }

    pub(super) fn evictions_of(&self, pod: &str) -> usize {
        self.server.count(&EVICTION.replace("web", pod))
    }

    /// Makes evictions of a Pod succeed. The Pod stays until the test removes it.
    pub(super) fn allow_eviction(&self, pod: &str) {
        let eviction = EVICTION.replace("web", pod);
        self.server.fault(&eviction).status(201);
    }
}

/// Returns one field manager. The API server adds the time of the last write.
pub(super) fn managed(field: &str) -> Value {
    json!([{
        "manager": "kim", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {(field): {}},
    }])
}
