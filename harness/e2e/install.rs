//! The product in a cluster, installed as a user would: what `manifests webhook` prints is applied.
//!
//! Invariant: nothing of the printed objects is changed but flags that are taken away, which is what `manifests` prints
//! without them. Three moments are three functions, each later than the one before: [`Product::apply`] returns when the
//! objects are stored, [`Product::rolled_out`] when all replicas are available, [`intercepts`] when the API server really
//! sends Pods to them and they come back as expected.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::Client;
use crate::landscape::differences;
use crate::rollout::Workload;
use clusters::cluster::Cluster;
use testkit::until::until;

/// What `manifests webhook` printed.
#[derive(Debug, Clone)]
pub struct Product {
    objects: Vec<Value>,
}

impl Product {
    /// What the product's binary prints for an image, with further flags of `manifests webhook`.
    ///
    /// # Errors
    /// When it cannot be run, does not end well, or prints no manifests.
    pub async fn printed_by(binary: &Path, image: &str, flags: &[&str]) -> anyhow::Result<Self> {
        let arguments = [&["manifests", "webhook", "--image", image], flags].concat();
        let objects = printed(binary, &arguments).await?;
        Ok(Self { objects })
    }

    /// The same, with a flag of the webhook not given.
    #[must_use]
    pub fn without_flag(mut self, name: &str) -> Self {
        let flag = format!("--{name}=");
        for container in self.containers() {
            if let Some(arguments) = container["args"].as_array_mut() {
                arguments.retain(|it| !it.as_str().unwrap_or_default().starts_with(&flag));
            }
        }
        self
    }

    fn containers(&mut self) -> impl Iterator<Item = &mut Value> {
        self.objects
            .iter_mut()
            .filter(|object| object["kind"] == "Deployment")
            .filter_map(|object| object.pointer_mut("/spec/template/spec/containers/0"))
    }

    /// Applies everything.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn apply(&self, cluster: &Cluster) -> anyhow::Result<()> {
        for object in &self.objects {
            cluster.apply(&object.to_string()).await?;
        }
        Ok(())
    }

    /// Waits until its Deployment is rolled out.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn rolled_out(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let workload = Workload {
            client: Client::new(cluster.client()),
            namespace: api::names::SKR_NAMESPACE,
            name: api::runtimes::WEBHOOK_DEPLOYMENT,
        };
        workload.is_rolled_out().await
    }

    /// The printed object of a kind.
    ///
    /// # Errors
    /// When there is none.
    pub fn object(&self, kind: &str) -> anyhow::Result<&Value> {
        self.objects
            .iter()
            .find(|object| object["kind"] == kind)
            .with_context(|| format!("no {kind} was printed"))
    }
}

/// The objects that the product's binary prints.
///
/// # Errors
/// When it cannot be run, does not end well, or prints no manifests.
pub(crate) async fn printed(binary: &Path, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
    let output = Command::new(binary).args(arguments).output().await;
    let output = output.with_context(|| format!("run {}", binary.display()))?;
    ensure!(
        output.status.success(),
        "{arguments:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?;
    // A document of comments only.
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// Waits until a Pod of `template` that would be created in `namespace` comes out as expected.
///
/// # Errors
/// With the differences that were left when the time was over.
pub async fn intercepts(
    cluster: &Cluster,
    namespace: &str,
    template: &Value,
    expected: &Value,
) -> anyhow::Result<()> {
    let mut pod = template.clone();
    pod["metadata"]["generateName"] = json!("would-be-");
    let pod: Pod = serde_json::from_value(pod).context("no Pod template")?;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until("a Pod would come out as expected", PATIENCE, || async {
        let pod = serde_json::to_value(pods.create(&dry_run, &pod).await?)?;
        let differences = differences(expected, &pod);
        ensure!(differences.is_empty(), "{}", differences.join("; "));
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// Takes the webhook's registration away, so that Pods pass it by; the replicas stay.
///
/// # Errors
/// When the API server refuses.
pub async fn unregister(cluster: &Cluster) -> anyhow::Result<()> {
    let registrations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let name = api::names::WEBHOOK_CONFIGURATION;
    match registrations.delete(name, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error).with_context(|| format!("delete {name}")),
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_taken_away_and_others_stay() {
        let product = Product {
            objects: vec![json!({
                "kind": "Deployment",
                "spec": {"template": {"spec": {"containers": [
                    {"name": "manager", "args": ["--webhook-bind-address=:1", "--landscape=old", "--landscapes=x"]},
                ]}}},
            })],
        };
        let left = product.without_flag("landscape");
        let container = &left.objects[0]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(
            container["args"],
            json!(["--webhook-bind-address=:1", "--landscapes=x"])
        );
    }
}
