//! A runtime cluster: copies of the sources, and the webhook.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use api::kcp::{
    CONTENT_HASH, CONTROLLER_FIELD_MANAGER, OWNER_CONFIG_MAP, REQUIRES_PULL_SECRET,
    REQUIRES_TRUST_BUNDLE, WEBHOOK_DEPLOYMENT,
};
use api::names::{
    REPAIR_RECORD, SKR_NAMESPACE, WEBHOOK_CERTIFICATE, WEBHOOK_CONFIGURATION, WEBHOOK_LEASE,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::control_plane::named_config_map;
use super::source::{Source, content};
use crate::admission::webhook::{Webhook, opted_in};
use crate::definitions::{check, eventually};
use clusters::cluster::Cluster;
use testkit::client::Client;
use testkit::json::{items, namespace};

pub(crate) struct RuntimeCluster {
    pub(crate) cluster: Cluster,
    pub(crate) api: Client,
    /// Kubeconfig with which another container reaches the cluster.
    pub(crate) kubeconfig: Value,
}

impl RuntimeCluster {
    pub(crate) async fn of(cluster: Cluster) -> Result<Self> {
        cluster.apply(&namespace(SKR_NAMESPACE).to_string()).await?;
        Ok(Self {
            api: Client::with(&cluster.kubeconfig).await?,
            kubeconfig: cluster.direct_kubeconfig().await?,
            cluster,
        })
    }

    /// Returns the copy of a source; null if it does not exist.
    pub(crate) async fn copy(&self, source: Source) -> Result<Value> {
        self.api.find(&source.on_skr()).await
    }

    /// Waits until the copy of a source has the content of an object of KCP.
    pub(crate) async fn has(&self, source: Source, original: &Value) -> Result<()> {
        let what = format!("{} has the {source:?}", self.cluster.name);
        eventually(&what, async || {
            let copy = self.copy(source).await?;
            check(content(&copy) == content(original), &copy["metadata"])
        })
        .await
    }

    /// Waits until the annotations of the ConfigMap name the copies of the pull Secret and the bundle.
    pub(crate) async fn has_one_revision(&self) -> Result<()> {
        let parts = [
            (Source::PullSecret, REQUIRES_PULL_SECRET),
            (Source::TrustBundle, REQUIRES_TRUST_BUNDLE),
        ];
        eventually("the copies are of one revision", async || {
            let document = self.copy(Source::Configuration).await?;
            for (source, key) in parts {
                let copy = self.copy(source).await?;
                let there = &copy["metadata"]["annotations"][CONTENT_HASH];
                let wanted = &document["metadata"]["annotations"][key];
                ensure!(wanted == there, "{source:?}: {there}, not {wanted}");
            }
            Ok(())
        })
        .await
    }

    /// Waits until the webhook has written the `caBundle` of its configuration.
    pub(crate) async fn is_registered(&self) -> Result<()> {
        eventually("the webhook is registered", async || {
            let live = self.api.get(&webhook_path()).await?;
            let trusted = items(live.at("/webhooks"))
                .all(|entry| entry["clientConfig"]["caBundle"].as_str() > Some(""));
            check(trusted, "an entry without a caBundle")
        })
        .await
    }

    /// Returns the fields that a write of the controller changes: UID and version of the sources and of its ConfigMap. For each
    /// other object they are the UID, and the fields and the time of the controller's apply, because other clients write
    /// status, `caBundle` and other fields.
    pub(crate) async fn writes(&self) -> Result<Value> {
        let marker = named_config_map(SKR_NAMESPACE, OWNER_CONFIG_MAP);
        let mut writes = json!({});
        for path in Source::ALL.map(Source::on_skr).into_iter().chain([marker]) {
            let metadata = self.api.find(&path).await?["metadata"].take();
            writes[path] = json!([metadata["uid"], metadata["resourceVersion"]]);
        }
        for kind in KINDS {
            let collection = self.api.collection(kind, Some(SKR_NAMESPACE)).await?;
            for object in self.api.items(&collection).await? {
                let metadata = &object["metadata"];
                let applied = items(&metadata["managedFields"]);
                let applied: Vec<_> = applied
                    .filter(|it| it["manager"] == CONTROLLER_FIELD_MANAGER)
                    .collect();
                if !applied.is_empty() {
                    let name = metadata["name"].as_str().unwrap_or_default();
                    writes[format!("{collection}/{name}")] = json!([metadata["uid"], applied]);
                }
            }
        }
        Ok(writes)
    }

    /// Waits until the runtime has a content and every replica of the webhook uses it. A patch names a ClusterTrustBundle without
    /// its content, so the leader must also have stored the digest of the content, which it does when the content is active.
    pub(crate) async fn uses(&self, source: Source, original: &Value) -> Result<()> {
        self.has(source, original).await?;
        let (feature, image, expected) = source.probe(original)?;
        let draft = opted_in(feature, &image);
        let client = self.api.clone();
        let webhook = Webhook { client };
        eventually("the webhook uses the content", async || {
            let replicas = webhook.replicas().await?;
            ensure!(!replicas.is_empty(), "no replica");
            for replica in replicas {
                let response = replica.review("default", &draft).await?;
                let patch = response["patch"].to_string();
                ensure!(patch.contains(&expected), "{response}");
            }
            if source == Source::TrustBundle {
                let pem = original["spec"]["trustBundle"].as_str();
                let expected = BASE64.encode(Sha256::digest(pem.context("no certificates")?));
                let stored = webhook.stored_trust_bundle().await?;
                ensure!(stored == expected, "the leader uses another bundle");
            }
            Ok(())
        })
        .await
    }

    /// Returns the number of successful server-side applies to each resource by all clients, including those without a change.
    /// Secrets are excluded, because the webhook also applies them.
    pub(crate) async fn applied(&self) -> Result<BTreeMap<&'static str, u64>> {
        let samples = self.api.metrics().await?;
        let mut counted = BTreeMap::new();
        for resource in ["clustertrustbundles", "configmaps"] {
            for code in ["200", "201"] {
                *counted.entry(resource).or_default() += samples.count_of_known(&format!(
                    "apiserver_request_total{{verb=\"APPLY\",code=\"{code}\",resource=\"{resource}\"}}"
                ))?;
            }
        }
        Ok(counted)
    }

    /// Returns the names and UIDs of the Pods of the webhook.
    pub(crate) async fn webhook_pods(&self) -> Result<Value> {
        let (client, mut uids) = (self.api.clone(), json!({}));
        for pod in (Webhook { client }).live_pods().await? {
            let metadata = &pod["metadata"];
            uids[metadata["name"].to_string()] = metadata["uid"].clone();
        }
        Ok(uids)
    }

    /// Returns the token of a ServiceAccount that may read all objects and write none.
    pub(crate) async fn read_only_token(&self) -> Result<Value> {
        self.cluster.apply(READER).await?;
        self.api.token(SKR_NAMESPACE, "default").await
    }

    /// Deletes every object of the product: those of the manifests, and those that controller and webhook wrote.
    pub(crate) async fn clear(&self, manifests: &[Value]) -> Result<()> {
        for object in manifests.iter().rev() {
            self.cluster.delete(&object.to_string()).await?;
        }
        let written = [
            ("v1", "Secret", WEBHOOK_CERTIFICATE),
            ("v1", "Secret", REPAIR_RECORD),
            ("coordination.k8s.io/v1", "Lease", WEBHOOK_LEASE),
        ];
        for (version, kind, name) in written {
            let object = json!({
                "apiVersion": version, "kind": kind,
                "metadata": { "name": name, "namespace": SKR_NAMESPACE },
            });
            self.cluster.delete(&object.to_string()).await?;
        }
        let marker = named_config_map(SKR_NAMESPACE, OWNER_CONFIG_MAP);
        for path in [webhook_path(), deployment_path(), marker] {
            self.api.delete(&path).await?;
        }
        for source in Source::ALL {
            self.api.delete(&source.on_skr()).await?;
        }
        Ok(())
    }
}

pub(crate) fn deployment_path() -> String {
    format!("/apis/apps/v1/namespaces/{SKR_NAMESPACE}/deployments/{WEBHOOK_DEPLOYMENT}")
}

pub(crate) fn webhook_path() -> String {
    format!(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK_CONFIGURATION}"
    )
}

/// The kinds of the manifests of the webhook.
const KINDS: [&str; 11] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "Deployment",
    "MutatingWebhookConfiguration",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PriorityClass",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
];

const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scenario-reader}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scenario-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scenario-reader}
subjects: [{kind: ServiceAccount, name: default, namespace: kyma-system}]
";
