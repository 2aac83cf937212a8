//! The controller as a user would install it: what `manifests controller --direct` and `crds` print is applied.

use std::path::Path;

use anyhow::{Context as _, ensure};
use api::runtimes::KCP_NAMESPACE;
use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::PATIENCE;
use super::objects::{delete, found};
use super::plane::Plane;
use crate::rollout::replicas_at;
use crate::world::bundle;
use crate::world::effects::items;
use clusters::evidence::Evidence;
use testkit::until::until;

/// What is installed, and how.
pub(super) struct Controller {
    binary: std::path::PathBuf,
    image: String,
    webhook_image: String,
}

impl Controller {
    pub(super) fn new(binary: &Path, image: &str, webhook_image: &str) -> Self {
        Self {
            binary: binary.to_owned(),
            image: image.to_owned(),
            webhook_image: webhook_image.to_owned(),
        }
    }

    /// What the product's binary prints, as objects.
    pub(super) async fn printed(&self, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        let printed = Command::new(&self.binary)
            .args(arguments)
            .output()
            .await
            .with_context(|| format!("{} cannot be run", self.binary.display()))?;
        ensure!(
            printed.status.success(),
            "{arguments:?} ended with {}: {}",
            printed.status,
            String::from_utf8_lossy(&printed.stderr)
        );
        let text = String::from_utf8(printed.stdout)?;
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        objects.retain(|object| !object.is_null());
        Ok(objects)
    }

    /// The webhook's manifests, as today's manager would install them.
    pub(super) async fn webhook(&self) -> anyhow::Result<Vec<Value>> {
        self.printed(&["manifests", "webhook", "--image", &self.webhook_image])
            .await
    }

    /// Installs the custom resource and the controller with both modes, or brings it back to that.
    pub(super) async fn install(&self, plane: &Plane) -> anyhow::Result<()> {
        self.install_as(plane, &self.webhook_image, &[]).await
    }

    /// The same with another image for runtimes.
    pub(super) async fn install_webhook(&self, plane: &Plane, image: &str) -> anyhow::Result<()> {
        self.install_as(plane, image, &[]).await
    }

    /// The same with further flags of the controller.
    pub(super) async fn install_with(&self, plane: &Plane, flags: &[&str]) -> anyhow::Result<()> {
        self.install_as(plane, &self.webhook_image, flags).await
    }

    async fn install_as(&self, plane: &Plane, image: &str, flags: &[&str]) -> anyhow::Result<()> {
        let bundle = format!("--kcp-cluster-trust-bundle={}", bundle::NAME);
        let webhook = format!("--webhook-image={image}");
        let mut arguments = vec![
            "manifests",
            "controller",
            "--direct",
            "--image",
            &self.image,
        ];
        arguments.extend(["--", &bundle, &webhook]);
        arguments.extend(flags);
        let mut objects = self.printed(&["crds"]).await?;
        objects.extend(self.printed(&arguments).await?);
        apply(plane, &objects).await?;
        until("the controller is up", PATIENCE, || is_up(plane)).await?;
        Ok(())
    }

    /// Installs it with signals alone.
    pub(super) async fn install_signals(&self, plane: &Plane) -> anyhow::Result<()> {
        let bundle = format!("--kcp-cluster-trust-bundle={}", bundle::NAME);
        let arguments = [
            "manifests",
            "controller",
            "--image",
            &self.image,
            "--",
            &bundle,
        ];
        apply(plane, &self.printed(&arguments).await?).await?;
        for kind in ["rolebindings", "roles"] {
            let path = format!(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{KCP_NAMESPACE}/{kind}/{NAME}-direct"
            );
            delete(&plane.dialogue, &path).await?;
        }
        until("the controller is up", PATIENCE, || is_up(plane)).await?;
        Ok(())
    }

    /// Stops it, and waits until no process of it is left.
    pub(super) async fn stop(plane: &Plane) -> anyhow::Result<()> {
        scale(plane, 0).await?;
        until("the controller is down", PATIENCE, || async {
            let left = pods(plane).await?.len();
            ensure!(left == 0, "{left} Pods");
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Starts it again, and waits until one replica leads.
    pub(super) async fn resume(plane: &Plane) -> anyhow::Result<()> {
        scale(plane, REPLICAS).await?;
        until("the controller is up", PATIENCE, || is_up(plane)).await?;
        Ok(())
    }

    /// Kills every process of it, as a machine that fails does.
    pub(super) async fn kill(plane: &Plane) -> anyhow::Result<()> {
        let killed = plane.cluster.exec_on_node(&["sh", "-c", KILL]).await?;
        ensure!(
            killed.code == 0 && !killed.stdout.trim().is_empty(),
            "nothing was killed: {killed:?}"
        );
        Ok(())
    }

    /// Keeps logs of all replicas.
    pub(super) async fn keep(plane: &Plane, evidence: &Evidence) {
        for pod in pods(plane).await.unwrap_or_default() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{KCP_NAMESPACE}/pods/{name}/log");
            let log = plane.dialogue.get(&path).await;
            let text = log.map(|log| match log.object {
                Value::String(text) => text,
                other => other.to_string(),
            });
            evidence.keep_result(&format!("controller/{name}.log"), text);
        }
    }
}

async fn apply(plane: &Plane, objects: &[Value]) -> anyhow::Result<()> {
    for object in objects {
        plane.cluster.apply(&object.to_string()).await?;
    }
    Ok(())
}

async fn scale(plane: &Plane, replicas: u32) -> anyhow::Result<()> {
    let change = json!({ "spec": { "replicas": replicas } });
    plane.dialogue.patch(&deployment(), &change).await.map(drop)
}

/// It is rolled out, and one of its replicas leads.
async fn is_up(plane: &Plane) -> anyhow::Result<()> {
    replicas_at(&plane.dialogue, &deployment()).await?;
    let pods = pods(plane).await?;
    let names: Vec<&str> = pods
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    let lease = found(&plane.dialogue, &lease()).await?.unwrap_or_default();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    ensure!(names.contains(&holder), "`{holder}` leads, of {names:?}");
    Ok(())
}

async fn pods(plane: &Plane) -> anyhow::Result<Vec<Value>> {
    let path = format!(
        "/api/v1/namespaces/{KCP_NAMESPACE}/pods?labelSelector=app.kubernetes.io/name={NAME}"
    );
    let listed = plane.dialogue.ask(Method::GET, &path, None).await?.good()?;
    Ok(items(listed.at("/items")).cloned().collect())
}

fn deployment() -> String {
    format!("/apis/apps/v1/namespaces/{KCP_NAMESPACE}/deployments/{NAME}")
}

fn lease() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{KCP_NAMESPACE}/leases/{NAME}")
}

/// The account under which it runs.
pub(super) const ACCOUNT: &str = "system:serviceaccount:kcp-system:rt-bootstrapper-controller";
/// Where it remembers, in its namespace, what it signalled last.
pub(super) const RECORD: &str = "rt-bootstrapper-signal-state";
/// Where direct mode remembers what was ever rolled out.
pub(super) const DIRECT_RECORD: &str = "rt-bootstrapper-direct-state";
const NAME: &str = "rt-bootstrapper-controller";
const REPLICAS: u32 = 2;
/// By the command line, which Pods cannot hide from their node.
const KILL: &str = "for file in /proc/[0-9]*/cmdline; do \
     if tr '\\0' ' ' <$file 2>/dev/null | grep -q '^/runtime-bootstrapper controller'; then \
     pid=${file#/proc/}; pid=${pid%/cmdline}; kill -9 $pid && echo $pid; fi; done";
