//! The product in a cluster, installed as a user would: what `manifests webhook` prints is applied.
//!
//! [`install`] returns when all replicas are available, [`intercepts`] when the API server really sends Pods to them and they
//! come back as expected.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::client::{Client, Write};
use crate::definitions::observation::has_all;
use crate::rollout::Workload;
use crate::synchronization::webhook_path;
use clusters::cluster::Cluster;
use clusters::images;
use testkit::until::until;

/// What `manifests webhook` prints for an image, with further flags.
pub async fn webhook(image: &str, flags: &[&str]) -> Result<Vec<Value>> {
    printed(&[&["manifests", "webhook", "--image", image], flags].concat()).await
}

/// Applies the manifests of the webhook and waits until its Deployment is rolled out.
pub async fn install(cluster: &Cluster, manifests: &[Value]) -> Result<()> {
    apply(cluster, manifests).await?;
    rolled_out(cluster).await
}

/// Waits until the Deployment of the webhook is rolled out.
pub(crate) async fn rolled_out(cluster: &Cluster) -> Result<()> {
    let (client, name) = (
        Client::new(cluster.client()),
        api::runtimes::WEBHOOK_DEPLOYMENT,
    );
    let workload = Workload::new(client, api::names::SKR_NAMESPACE, name);
    workload.is_rolled_out().await
}

pub(crate) async fn apply(cluster: &Cluster, objects: &[Value]) -> Result<()> {
    for object in objects {
        cluster.apply(&object.to_string()).await?;
    }
    Ok(())
}

/// The objects that the product's binary prints.
pub(crate) async fn printed(arguments: &[&str]) -> Result<Vec<Value>> {
    let binary = images::built_binary(images::Profile::E2e);
    let output = Command::new(&binary).args(arguments).output().await;
    let output = output.with_context(|| format!("run {}", binary.display()))?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?;
    // A document of comments only.
    objects.retain(|object| !object.is_null());
    Ok(objects)
}

/// Waits until a Pod of `template` that would be created in `namespace` comes out as expected.
pub async fn intercepts(
    cluster: &Cluster,
    namespace: &str,
    template: &Value,
    expected: &Value,
) -> Result<()> {
    let client = Client::new(cluster.client());
    let mut pod = template.clone();
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("would-be");
    pod["metadata"]["namespace"] = json!(namespace);
    let is_expected = || async {
        let answer = client.write(Write::DryRun, &pod).await?.good()?;
        has_all(expected, &answer.object)
    };
    Ok(until("a Pod would come out as expected", PATIENCE, is_expected).await?)
}

/// Takes the webhook's registration away, so that Pods pass it by; the replicas stay.
pub async fn unregister(cluster: &Cluster) -> Result<()> {
    let client = Client::new(cluster.client());
    client.delete(&webhook_path()).await
}

const PATIENCE: Duration = Duration::from_mins(2);
