//! KCP: sources, Runtimes with their kubeconfigs, RuntimeBootstrappers with their conditions.

use anyhow::{Context as _, ensure};
use api::bootstrapper;
use api::runtimes::{
    KCP_NAMESPACE, RUNTIME_GROUP, RUNTIME_PLURAL, RUNTIME_VERSION, kubeconfig_secret,
};
use http::Method;
use serde_json::{Value, json};

use super::DEADLINE;
use super::objects::{apply, delete, get_opt};
use super::runtime::Runtime;
use super::source::Source;
use crate::client::Client;
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
        let found = get_opt(&self.api, &source.on_kcp()).await?;
        Ok(found.unwrap_or_default())
    }

    /// Writes a source; a Secret of another type is replaced.
    pub(crate) async fn write(&self, source: Source, object: &Value) -> anyhow::Result<()> {
        let path = source.on_kcp();
        let type_of = |object: &Value| object["type"].clone();
        let live = self.source(source).await?;
        if !live.is_null() && type_of(&live) != type_of(object) {
            delete(&self.api, &path).await?;
        }
        apply(&self.api, &path, object).await.map(drop)
    }

    /// Writes new content to a source.
    pub(crate) async fn renew(&self, source: Source) -> anyhow::Result<()> {
        self.write(source, &source.fresh()?).await
    }

    /// Deletes a source.
    pub(crate) async fn delete(&self, source: Source) -> anyhow::Result<()> {
        delete(&self.api, &source.on_kcp()).await
    }

    /// A Runtime; null if it does not exist.
    pub(crate) async fn runtime(&self, name: &str) -> anyhow::Result<Value> {
        Ok(get_opt(&self.api, &runtime_path(name))
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
        apply(&self.api, &path, object).await?;
        let status = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": { "name": name },
            "status": { "state": "Ready", "provisioningCompleted": true },
        });
        apply(&self.api, &format!("{path}/status"), &status)
            .await
            .map(drop)
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
        apply(&self.api, &path, object).await.map(drop)
    }

    /// Deletes the Secret with the kubeconfig of a Runtime.
    pub(crate) async fn delete_kubeconfig(&self, runtime: &Runtime) -> anyhow::Result<()> {
        delete(&self.api, &secret_path(&runtime.id)).await
    }

    /// A RuntimeBootstrapper; null if it does not exist.
    pub(crate) async fn bootstrapper(&self, name: &str) -> anyhow::Result<Value> {
        Ok(get_opt(&self.api, &bootstrapper_path(name))
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
            delete(&self.api, path).await?;
        }
        self.delete_kubeconfig(runtime).await?;
        until("the Runtime is deleted", DEADLINE, || async {
            for path in &paths {
                ensure!(get_opt(&self.api, path).await?.is_none(), "{path}");
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }
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
