//! KCP: sources, Runtimes with their kubeconfigs, RuntimeBootstrappers with their conditions.

use anyhow::{Context as _, ensure};
use api::bootstrapper;
use api::runtimes::{
    INFRASTRUCTURE_MANAGER, KCP_NAMESPACE, KUBECONFIG_KEY, MANAGED_BY, MODE, RUNTIME_GROUP,
    RUNTIME_ID, RUNTIME_KIND, RUNTIME_PLURAL, RUNTIME_VERSION, WAVE, kubeconfig_secret,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use serde_json::{Value, json};

use super::DEADLINE;
use super::source::Source;
use crate::client::Client;
use crate::scenario::ObjectRef;
use clusters::cluster::Cluster;
use testkit::until::until;

/// KCP as the test sees it.
pub(crate) struct ControlPlane {
    pub(crate) cluster: Cluster,
    pub(crate) api: Client,
}

impl ControlPlane {
    /// A source; null if it does not exist.
    pub(crate) async fn source(&self, source: Source) -> anyhow::Result<Value> {
        let found = self.api.find(&source.on_kcp()).await?;
        Ok(found.unwrap_or_default())
    }

    /// Writes a source; a Secret of another type is replaced.
    pub(crate) async fn write(&self, source: Source, object: &Value) -> anyhow::Result<()> {
        let path = source.on_kcp();
        let type_of = |object: &Value| object["type"].clone();
        let live = self.source(source).await?;
        if !live.is_null() && type_of(&live) != type_of(object) {
            self.api.delete(&path).await?;
        }
        self.api.apply(HARNESS, &path, object).await
    }

    /// Writes new content to a source.
    pub(crate) async fn renew(&self, source: Source) -> anyhow::Result<()> {
        self.write(source, &source.fresh()?).await
    }

    /// Deletes a source.
    pub(crate) async fn delete(&self, source: Source) -> anyhow::Result<()> {
        self.api.delete(&source.on_kcp()).await
    }

    /// A Runtime; null if it does not exist.
    pub(crate) async fn runtime(&self, name: &str) -> anyhow::Result<Value> {
        Ok(self
            .api
            .find(&runtime_path(name))
            .await?
            .unwrap_or_default())
    }

    /// Changes a Runtime by a merge patch.
    pub(crate) async fn patch_runtime(&self, name: &str, changes: &Value) -> anyhow::Result<()> {
        let path = runtime_path(name);
        self.api.patch(&path, changes).await.map(drop)
    }

    /// Writes a Runtime and its status, as KEB and KIM do.
    pub(crate) async fn put_runtime(&self, object: &Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let path = runtime_path(name);
        self.api.apply(HARNESS, &path, object).await?;
        let status = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": { "name": name },
            "status": { "state": "Ready", "provisioningCompleted": true },
        });
        self.api
            .apply(HARNESS, &format!("{path}/status"), &status)
            .await
    }

    /// Writes the Secret with the kubeconfig of a Runtime, as KIM does.
    pub(crate) async fn put_kubeconfig(&self, runtime: &Runtime, text: &str) -> anyhow::Result<()> {
        let object = runtime.kubeconfig_object(text);
        self.put_kubeconfig_object(runtime, &object).await
    }

    /// Writes the Secret as it is given.
    pub(crate) async fn put_kubeconfig_object(
        &self,
        runtime: &Runtime,
        object: &Value,
    ) -> anyhow::Result<()> {
        let path = secret_path(&runtime.id);
        self.api.apply(HARNESS, &path, object).await
    }

    /// Deletes the Secret with the kubeconfig of a Runtime.
    pub(crate) async fn delete_kubeconfig(&self, runtime: &Runtime) -> anyhow::Result<()> {
        self.api.delete(&secret_path(&runtime.id)).await
    }

    /// A RuntimeBootstrapper; null if it does not exist.
    pub(crate) async fn bootstrapper(&self, name: &str) -> anyhow::Result<Value> {
        Ok(self
            .api
            .find(&bootstrapper_path(name))
            .await?
            .unwrap_or_default())
    }

    /// Status, reason and message of a condition; empty if it does not exist.
    pub(crate) async fn condition(
        &self,
        name: &str,
        kind: &str,
    ) -> anyhow::Result<(String, String, String)> {
        let object = self.bootstrapper(name).await?;
        let conditions = object["status"]["conditions"].as_array();
        let condition = conditions
            .into_iter()
            .flatten()
            .find(|it| it["type"] == kind);
        let text = |key: &str| {
            let text = condition.and_then(|it| it[key].as_str());
            text.unwrap_or_default().to_owned()
        };
        Ok((text("status"), text("reason"), text("message")))
    }

    /// Waits until a condition has a status.
    pub(crate) async fn has_condition(
        &self,
        name: &str,
        (kind, status): (&str, &str),
    ) -> anyhow::Result<()> {
        let what = format!("{kind} of {name} is {status}");
        until(&what, DEADLINE, || async {
            let (live, reason, message) = self.condition(name, kind).await?;
            ensure!(live == status, "{live}: {reason}: {message}");
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Deletes a Runtime, its RuntimeBootstrapper and its kubeconfig. The Runtime is deleted first, so that the controller does
    /// not wait for its cluster.
    pub(crate) async fn remove(&self, runtime: &Runtime) -> anyhow::Result<()> {
        let paths = [
            runtime_path(&runtime.name),
            bootstrapper_path(&runtime.name),
        ];
        let without = json!({ "metadata": { "finalizers": null } });
        self.api
            .ask(Method::PATCH, &paths[0], Some(&without))
            .await?;
        for path in &paths {
            self.api.delete(path).await?;
        }
        self.delete_kubeconfig(runtime).await?;
        until("the Runtime is deleted", DEADLINE, || async {
            for path in &paths {
                ensure!(self.api.find(path).await?.is_none(), "{path}");
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }
}

/// One Runtime.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    /// Its name; that of its RuntimeBootstrapper is the same.
    pub(crate) name: String,
    /// The runtime ID; empty if it has none.
    pub(crate) id: String,
    /// The number of its cluster, if it has one.
    pub(crate) cluster: Option<usize>,
}

impl Runtime {
    /// A Runtime with a name that begins so and did not exist before.
    pub(crate) fn fresh(alias: &str, cluster: Option<usize>) -> Self {
        let chance = fastrand::u64(..) & 0xffff_ffff_ffff;
        Self {
            name: format!("{alias}-{chance:012x}"),
            id: format!("00000000-0000-4000-8000-{chance:012x}"),
            cluster,
        }
    }

    /// The Runtime that keeps a cluster in mode direct through all scenarios.
    pub(crate) fn permanent(cluster: usize) -> Self {
        Self {
            name: format!("permanent-{cluster}"),
            id: format!("10000000-0000-4000-8000-{cluster:012}"),
            cluster: Some(cluster),
        }
    }

    /// How steps name the object, by its name on the cluster.
    pub(crate) fn reference(&self) -> ObjectRef {
        ObjectRef::new(RUNTIME_KIND, Some(KCP_NAMESPACE), &self.name)
    }

    /// The object, with the labels of mode and wave if they are given.
    pub(crate) fn object(&self, mode: Option<&str>, wave: Option<u32>) -> Value {
        let mut labels = json!({ "kyma-project.io/provider": "AWS" });
        if !self.id.is_empty() {
            labels[RUNTIME_ID] = json!(self.id);
        }
        if let Some(mode) = mode {
            labels[MODE] = json!(mode);
        }
        if let Some(wave) = wave {
            labels[WAVE] = json!(wave.to_string());
        }
        json!({
            "apiVersion": format!("{RUNTIME_GROUP}/{RUNTIME_VERSION}"), "kind": RUNTIME_KIND,
            "metadata": { "name": self.name, "namespace": KCP_NAMESPACE, "labels": labels },
            "spec": { "shoot": { "name": self.name, "region": "eu-central-1" } },
        })
    }

    /// The Secret with a kubeconfig, with the name, key and labels that KIM writes.
    pub(crate) fn kubeconfig_object(&self, text: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": kubeconfig_secret(&self.id), "namespace": KCP_NAMESPACE,
                "labels": { (RUNTIME_ID): self.id, (MANAGED_BY): INFRASTRUCTURE_MANAGER },
            },
            "data": { (KUBECONFIG_KEY): BASE64.encode(text) },
        })
    }
}

pub(crate) fn named_config_map(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

pub(crate) fn runtime_path(name: &str) -> String {
    format!(
        "/apis/{RUNTIME_GROUP}/{RUNTIME_VERSION}/namespaces/{KCP_NAMESPACE}/{RUNTIME_PLURAL}/{name}"
    )
}

pub(crate) fn bootstrappers_path() -> String {
    use bootstrapper::{GROUP, PLURAL, VERSION};
    format!("/apis/{GROUP}/{VERSION}/namespaces/{KCP_NAMESPACE}/{PLURAL}")
}

fn bootstrapper_path(name: &str) -> String {
    format!("{}/{name}", bootstrappers_path())
}

fn secret_path(id: &str) -> String {
    let name = kubeconfig_secret(id);
    format!("/api/v1/namespaces/{KCP_NAMESPACE}/secrets/{name}")
}

/// Field manager of what scenarios apply.
const HARNESS: &str = "harness";
