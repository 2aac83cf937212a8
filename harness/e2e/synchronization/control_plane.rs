//! KCP: sources, Runtimes with their kubeconfigs, RuntimeBootstrappers with their conditions.

use anyhow::Result;
use api::bootstrapper;
use api::kcp::{
    KCP_NAMESPACE, KIM_MANAGED_BY, KUBECONFIG_KEY, MANAGED_BY, MODE_LABEL, RUNTIME_GROUP,
    RUNTIME_ID, RUNTIME_KIND, RUNTIME_PLURAL, RUNTIME_VERSION, WAVE_LABEL, kubeconfig_secret,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::json::condition;

use super::source::Source;
use crate::definitions::{check, eventually, object};
use crate::scenario::ObjectRef;
use clusters::cluster::Cluster;
use testkit::client::{Client, MANAGER};

/// KCP from the perspective of the test. Objects that do not exist are null.
pub(crate) struct ControlPlane {
    pub(crate) cluster: Cluster,
    pub(crate) api: Client,
}

impl ControlPlane {
    pub(crate) async fn source(&self, source: Source) -> Result<Value> {
        self.api.find(&source.on_kcp()).await
    }

    /// Writes a source. A Secret of another type is replaced.
    pub(crate) async fn write(&self, source: Source, object: &Value) -> Result<()> {
        let path = source.on_kcp();
        let live = self.source(source).await?;
        if live["type"] != object["type"] {
            self.api.delete(&path).await?;
        }
        self.api.apply_at(MANAGER, &path, object).await.map(drop)
    }

    /// Writes new content to a source.
    pub(crate) async fn renew(&self, source: Source) -> Result<()> {
        self.write(source, &source.fresh()?).await
    }

    pub(crate) async fn runtime(&self, name: &str) -> Result<Value> {
        self.api.find(&runtime_path(name)).await
    }

    /// Writes a Runtime and its status, as KEB and KIM do, with the labels of mode and wave if they are given.
    pub(crate) async fn put_runtime(
        &self,
        runtime: &Runtime,
        mode: Option<&str>,
        wave: Option<u32>,
    ) -> Result<()> {
        let object = runtime.object(mode, wave);
        let path = runtime_path(&runtime.name);
        self.api.apply_at(MANAGER, &path, &object).await?;
        let status = json!({
            "apiVersion": object["apiVersion"], "kind": RUNTIME_KIND,
            "metadata": { "name": runtime.name },
            "status": { "state": "Ready", "provisioningCompleted": true },
        });
        let path = format!("{path}/status");
        self.api.apply_at(MANAGER, &path, &status).await.map(drop)
    }

    /// Writes the Secret with the kubeconfig of a Runtime, as KIM does.
    pub(crate) async fn put_kubeconfig(&self, runtime: &Runtime, text: &str) -> Result<()> {
        self.put_secret(runtime, KUBECONFIG_KEY, text).await
    }

    pub(crate) async fn put_secret(&self, runtime: &Runtime, key: &str, text: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": kubeconfig_secret(&runtime.id), "namespace": KCP_NAMESPACE,
                "labels": { (RUNTIME_ID): runtime.id, (MANAGED_BY): KIM_MANAGED_BY },
            },
            "data": { (key): BASE64.encode(text) },
        });
        self.api.apply(MANAGER, &object).await.map(drop)
    }

    pub(crate) async fn delete_kubeconfig(&self, runtime: &Runtime) -> Result<()> {
        self.api.delete(&secret_path(&runtime.id)).await
    }

    pub(crate) async fn bootstrapper(&self, name: &str) -> Result<Value> {
        self.api.find(&bootstrapper_path(name)).await
    }

    /// Waits until the RuntimeBootstrapper of a Runtime is Ready.
    pub(crate) async fn is_ready(&self, runtime: &Runtime) -> Result<()> {
        eventually(&format!("{} is Ready", runtime.name), async || {
            let object = self.bootstrapper(&runtime.name).await?;
            let ready = condition(&object, "Ready");
            check(ready["status"] == "True", &object["status"]["conditions"])
        })
        .await
    }

    /// Deletes a Runtime, its RuntimeBootstrapper and its kubeconfig. The Runtime is deleted first, so that the controller does
    /// not wait for its cluster.
    pub(crate) async fn remove(&self, runtime: &Runtime) -> Result<()> {
        object::remove(&self.api, &runtime.reference()).await?;
        self.api.delete(&bootstrapper_path(&runtime.name)).await?;
        self.delete_kubeconfig(runtime).await?;
        eventually("the Runtime is deleted", async || {
            let left = [
                self.runtime(&runtime.name).await?,
                self.bootstrapper(&runtime.name).await?,
            ];
            check(left.iter().all(Value::is_null), &left[1]["metadata"])
        })
        .await
    }
}

/// One Runtime.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    /// Name of the Runtime and of its RuntimeBootstrapper.
    pub(crate) name: String,
    /// Runtime ID; empty if the Runtime has none.
    pub(crate) id: String,
    /// Number of the Runtime's cluster, if it has one.
    pub(crate) cluster: Option<usize>,
}

impl Runtime {
    /// Returns a Runtime with a unique name that starts with `alias`.
    pub(crate) fn fresh(alias: &str, cluster: Option<usize>) -> Self {
        let chance = fastrand::u64(..) & 0xffff_ffff_ffff;
        Self {
            name: format!("{alias}-{chance:012x}"),
            id: format!("00000000-0000-4000-8000-{chance:012x}"),
            cluster,
        }
    }

    /// Returns the Runtime that keeps a cluster in mode direct in all scenarios.
    pub(crate) fn permanent(cluster: usize) -> Self {
        Self {
            name: format!("permanent-{cluster}"),
            id: format!("10000000-0000-4000-8000-{cluster:012}"),
            cluster: Some(cluster),
        }
    }

    /// Returns a reference to the object, with its name on the cluster.
    pub(crate) fn reference(&self) -> ObjectRef {
        ObjectRef::new(RUNTIME_KIND, Some(KCP_NAMESPACE), &self.name)
    }

    fn object(&self, mode: Option<&str>, wave: Option<u32>) -> Value {
        let mut labels = json!({ "kyma-project.io/provider": "AWS" });
        if !self.id.is_empty() {
            labels[RUNTIME_ID] = json!(self.id);
        }
        if let Some(mode) = mode {
            labels[MODE_LABEL] = json!(mode);
        }
        if let Some(wave) = wave {
            labels[WAVE_LABEL] = json!(wave.to_string());
        }
        json!({
            "apiVersion": format!("{RUNTIME_GROUP}/{RUNTIME_VERSION}"), "kind": RUNTIME_KIND,
            "metadata": { "name": self.name, "namespace": KCP_NAMESPACE, "labels": labels },
            "spec": { "shoot": { "name": self.name, "region": "eu-central-1" } },
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
