//! The control plane: its sources, its Runtimes, and what the controller says about them.

use anyhow::{Context as _, ensure};
use api::bootstrapper;
use api::runtimes::{
    KCP_NAMESPACE, RUNTIME_GROUP, RUNTIME_PLURAL, RUNTIME_VERSION, kubeconfig_secret,
};
use http::Method;
use serde_json::{Value, json};

use super::objects::{apply, delete, found};
use super::source::Source;
use super::{PATIENCE, Runtime};
use crate::world::{Answer, Dialogue};
use clusters::cluster::Cluster;
use testkit::until::until;

/// See the module.
pub(super) struct Plane {
    pub(super) cluster: Cluster,
    pub(super) dialogue: Dialogue,
}

impl Plane {
    /// A source as it is; null while there is none.
    pub(super) async fn source(&self, source: Source) -> anyhow::Result<Value> {
        let found = found(&self.dialogue, &source.on_kcp()).await?;
        Ok(found.unwrap_or_default())
    }

    /// Writes a source. What cannot be changed in place (a Secret's type) is replaced.
    pub(super) async fn write(&self, source: Source, object: &Value) -> anyhow::Result<()> {
        let path = source.on_kcp();
        let type_of = |object: &Value| object["type"].clone();
        let live = self.source(source).await?;
        if !live.is_null() && type_of(&live) != type_of(object) {
            delete(&self.dialogue, &path).await?;
        }
        apply(&self.dialogue, &path, object).await.map(drop)
    }

    /// A new content for a source.
    pub(super) async fn renew(&self, source: Source) -> anyhow::Result<()> {
        self.write(source, &source.fresh()?).await
    }

    /// Deletes a source.
    pub(super) async fn delete(&self, source: Source) -> anyhow::Result<()> {
        delete(&self.dialogue, &source.on_kcp()).await
    }

    /// A Runtime as it is.
    pub(super) async fn runtime(&self, name: &str) -> anyhow::Result<Value> {
        Ok(found(&self.dialogue, &runtime_path(name))
            .await?
            .unwrap_or_default())
    }

    /// Changes a Runtime by a merge patch.
    pub(super) async fn patch_runtime(&self, name: &str, changes: &Value) -> anyhow::Result<()> {
        let path = runtime_path(name);
        self.dialogue.patch(&path, changes).await.map(drop)
    }

    /// Writes a Runtime as KEB and KIM would have: the object, then its status.
    pub(super) async fn put_runtime(&self, object: &Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let path = runtime_path(name);
        apply(&self.dialogue, &path, object).await?;
        let status = json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": { "name": name },
            "status": { "state": "Ready", "provisioningCompleted": true },
        });
        apply(&self.dialogue, &format!("{path}/status"), &status)
            .await
            .map(drop)
    }

    /// Writes a runtime's kubeconfig as KIM would.
    pub(super) async fn put_kubeconfig(&self, runtime: &Runtime, text: &str) -> anyhow::Result<()> {
        let object = runtime.kubeconfig_object(text);
        self.put_kubeconfig_object(runtime, &object).await
    }

    /// The same with any Secret of that name.
    pub(super) async fn put_kubeconfig_object(
        &self,
        runtime: &Runtime,
        object: &Value,
    ) -> anyhow::Result<()> {
        let path = secret_path(&runtime.id);
        apply(&self.dialogue, &path, object).await.map(drop)
    }

    /// Takes a runtime's kubeconfig away.
    pub(super) async fn delete_kubeconfig(&self, runtime: &Runtime) -> anyhow::Result<()> {
        delete(&self.dialogue, &secret_path(&runtime.id)).await
    }

    /// Sends a RuntimeBootstrapper.
    pub(super) async fn create_bootstrapper(
        &self,
        name: &str,
        spec: &Value,
    ) -> anyhow::Result<Answer> {
        let object = json!({
            "apiVersion": format!("{}/{}", bootstrapper::GROUP, bootstrapper::VERSION),
            "kind": bootstrapper::KIND,
            "metadata": { "name": name, "namespace": KCP_NAMESPACE },
            "spec": spec,
        });
        let path = bootstrappers_path();
        self.dialogue.ask(Method::POST, &path, Some(&object)).await
    }

    /// A RuntimeBootstrapper as it is; null while there is none.
    pub(super) async fn bootstrapper(&self, name: &str) -> anyhow::Result<Value> {
        Ok(found(&self.dialogue, &bootstrapper_path(name))
            .await?
            .unwrap_or_default())
    }

    /// Changes a RuntimeBootstrapper by a merge patch.
    pub(super) async fn patch_bootstrapper(
        &self,
        name: &str,
        changes: &Value,
    ) -> anyhow::Result<()> {
        let path = bootstrapper_path(name);
        self.dialogue.patch(&path, changes).await.map(drop)
    }

    /// Asks for the deletion of a RuntimeBootstrapper.
    pub(super) async fn delete_bootstrapper(&self, name: &str) -> anyhow::Result<()> {
        delete(&self.dialogue, &bootstrapper_path(name)).await
    }

    /// A condition: status and reason, empty while nothing is said.
    pub(super) async fn condition(
        &self,
        name: &str,
        kind: &str,
    ) -> anyhow::Result<(String, String, String)> {
        let object = self.bootstrapper(name).await?;
        let conditions = object["status"]["conditions"].as_array();
        let said = conditions
            .into_iter()
            .flatten()
            .find(|it| it["type"] == kind);
        let text = |key: &str| {
            let text = said.and_then(|it| it[key].as_str());
            text.unwrap_or_default().to_owned()
        };
        Ok((text("status"), text("reason"), text("message")))
    }

    /// Waits until a condition is as expected, for one of these reasons.
    pub(super) async fn says(
        &self,
        name: &str,
        (kind, status): (&str, &str),
        reasons: &[&str],
    ) -> anyhow::Result<()> {
        let what = format!("{kind} of {name} is {status}");
        until(&what, PATIENCE, || async {
            let (live, reason, message) = self.condition(name, kind).await?;
            ensure!(
                live == status && (reasons.is_empty() || reasons.contains(&reason.as_str())),
                "{live}: {reason}: {message}"
            );
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Removes a Runtime and all that belongs to it: the Runtime first, so that the controller waits for no cluster.
    pub(super) async fn remove(&self, runtime: &Runtime) -> anyhow::Result<()> {
        let paths = [
            runtime_path(&runtime.name),
            bootstrapper_path(&runtime.name),
        ];
        let freed = json!({ "metadata": { "finalizers": null } });
        self.dialogue
            .ask(Method::PATCH, &paths[0], Some(&freed))
            .await?;
        for path in &paths {
            delete(&self.dialogue, path).await?;
        }
        self.delete_kubeconfig(runtime).await?;
        until("the Runtime is gone", PATIENCE, || async {
            for path in &paths {
                ensure!(found(&self.dialogue, path).await?.is_none(), "{path}");
            }
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }
}

pub(super) fn runtime_path(name: &str) -> String {
    format!(
        "/apis/{RUNTIME_GROUP}/{RUNTIME_VERSION}/namespaces/{KCP_NAMESPACE}/{RUNTIME_PLURAL}/{name}"
    )
}

pub(super) fn bootstrappers_path() -> String {
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
