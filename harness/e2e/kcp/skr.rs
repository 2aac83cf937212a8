//! A runtime's cluster, as its customer sees it.

use anyhow::{Context as _, ensure};
use api::names::{SKR_NAMESPACE, WEBHOOK_CERTIFICATE, WEBHOOK_CONFIGURATION, WEBHOOK_LEASE};
use api::runtimes::{
    CONTENT_HASH, OWNER_MARKER, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE, WEBHOOK_DEPLOYMENT,
};
use serde_json::{Value, json};

use super::PATIENCE;
use super::objects::{delete, found, named_config_map};
use super::source::Source;
use crate::admission::webhook::{Webhook, opted_in};
use crate::world::Dialogue;
use crate::world::effects::items;
use clusters::cluster::Cluster;
use testkit::until::until;

/// See the module.
pub(super) struct Skr {
    pub(super) cluster: Cluster,
    pub(super) dialogue: Dialogue,
    /// What leads there from another container.
    pub(super) kubeconfig: Value,
}

impl Skr {
    pub(super) async fn of(cluster: Cluster) -> anyhow::Result<Self> {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SKR_NAMESPACE },
        });
        cluster.apply(&namespace.to_string()).await?;
        Ok(Self {
            dialogue: Dialogue::with(cluster.kubeconfig()).await?,
            kubeconfig: cluster.direct_kubeconfig().await?,
            cluster,
        })
    }

    /// The copy of a source; null while there is none.
    pub(super) async fn copy(&self, source: Source) -> anyhow::Result<Value> {
        let found = found(&self.dialogue, &source.on_skr()).await?;
        Ok(found.unwrap_or_default())
    }

    /// Waits until the copy of a source says what an object of the control plane says.
    pub(super) async fn has(&self, source: Source, original: &Value) -> anyhow::Result<()> {
        let wanted = source.content(original);
        let what = format!("{} has the {source:?}", self.cluster.name());
        until(&what, PATIENCE, || async {
            let copy = self.copy(source).await?;
            ensure!(
                source.content(&copy) == wanted,
                "{}",
                if copy.is_null() {
                    "none"
                } else {
                    "another content"
                }
            );
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Waits until the configuration asks for the pull Secret and the trust bundle that are there.
    pub(super) async fn is_of_one_version(&self) -> anyhow::Result<()> {
        let parts = [
            (Source::PullSecret, REQUIRES_PULL_SECRET),
            (Source::TrustBundle, REQUIRES_TRUST_BUNDLE),
        ];
        until("the runtime is of one version", PATIENCE, || async {
            let document = self.copy(Source::Configuration).await?;
            for (source, key) in parts {
                let copy = self.copy(source).await?;
                let there = &copy["metadata"]["annotations"][CONTENT_HASH];
                let wanted = &document["metadata"]["annotations"][key];
                ensure!(wanted == there, "{source:?}: {there}, not {wanted}");
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Waits until the webhook has put its authority into its registration: that is a write, too.
    pub(super) async fn is_registered(&self) -> anyhow::Result<()> {
        until("the webhook is registered", PATIENCE, || async {
            let live = found(&self.dialogue, &webhook_path()).await?;
            let live = live.context("no registration")?;
            let trusted = items(&live["webhooks"])
                .all(|entry| entry["clientConfig"]["caBundle"].as_str() > Some(""));
            ensure!(trusted, "an entry without a caBundle");
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// How often each of our objects was written: any write changes this.
    pub(super) async fn writes(&self) -> anyhow::Result<Value> {
        let mut writes = serde_json::Map::new();
        let marker = named_config_map(SKR_NAMESPACE, OWNER_MARKER);
        let copies = Source::ALL.map(Source::on_skr);
        for path in copies.iter().chain([&marker]) {
            let object = found(&self.dialogue, path).await?.unwrap_or_default();
            let metadata = &object["metadata"];
            writes.insert(
                path.clone(),
                json!([metadata["uid"], metadata["resourceVersion"]]),
            );
        }
        // Their statuses and the authority are others' to write.
        for path in [deployment_path(), webhook_path()] {
            let object = found(&self.dialogue, &path).await?.unwrap_or_default();
            let metadata = &object["metadata"];
            writes.insert(path, json!([metadata["uid"], metadata["generation"]]));
        }
        Ok(Value::Object(writes))
    }

    /// Waits until every replica of the webhook decides by a content.
    pub(super) async fn decides_by(&self, source: Source, original: &Value) -> anyhow::Result<()> {
        let (image, expected) = source.probe(original)?;
        let draft = opted_in(source.feature(), &image);
        until("the webhook decides by it", PATIENCE, || async {
            let replicas = Webhook::new(self.dialogue.clone()).replicas().await?;
            ensure!(!replicas.is_empty(), "no replica");
            for replica in replicas {
                let response = replica.review("default", &draft).await?;
                ensure!(
                    response["patch"].to_string().contains(&expected),
                    "{response}"
                );
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Gives the webhook's Pods so many seconds to start; after that the Deployment says that it failed.
    pub(super) async fn gives(&self, seconds: u32) -> anyhow::Result<()> {
        let change = json!({ "spec": { "progressDeadlineSeconds": seconds } });
        let path = deployment_path();
        self.dialogue.patch(&path, &change).await.map(drop)
    }

    /// How often objects of a kind were applied by anyone with success, without change too: no object says that.
    pub(super) async fn applied(&self, resource: &str) -> anyhow::Result<u64> {
        let metrics = self.dialogue.get("/metrics").await?.object;
        let marks = [
            "verb=\"APPLY\"".to_owned(),
            "code=\"20".to_owned(),
            format!("resource=\"{resource}\""),
        ];
        let counts = metrics.as_str().context("no text")?.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && marks.iter().all(|mark| line.contains(mark.as_str()))
        });
        counts
            .map(|line| {
                let count = line.rsplit(' ').next().unwrap_or_default();
                count.parse::<u64>().with_context(|| line.to_owned())
            })
            .sum()
    }

    /// Removes every object of the product by hand, as after a rebuild: those of the manifests and those that controller
    /// and webhook wrote.
    pub(super) async fn clear(&self, manifests: &[Value]) -> anyhow::Result<()> {
        for object in manifests.iter().rev() {
            self.cluster.delete(&object.to_string()).await?;
        }
        let written = [
            ("v1", "Secret", WEBHOOK_CERTIFICATE),
            ("coordination.k8s.io/v1", "Lease", WEBHOOK_LEASE),
        ];
        for (version, kind, name) in written {
            let object = json!({
                "apiVersion": version, "kind": kind,
                "metadata": { "name": name, "namespace": SKR_NAMESPACE },
            });
            self.cluster.delete(&object.to_string()).await?;
        }
        let marker = named_config_map(SKR_NAMESPACE, OWNER_MARKER);
        for path in [webhook_path(), deployment_path(), marker] {
            delete(&self.dialogue, &path).await?;
        }
        for source in Source::ALL {
            delete(&self.dialogue, &source.on_skr()).await?;
        }
        Ok(())
    }
}

pub(super) fn deployment_path() -> String {
    format!("/apis/apps/v1/namespaces/{SKR_NAMESPACE}/deployments/{WEBHOOK_DEPLOYMENT}")
}

pub(super) fn webhook_path() -> String {
    format!(
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK_CONFIGURATION}"
    )
}
