//! The product in a cluster, installed as a user would: what `manifests webhook` prints is applied.
//!
//! Invariant: [`install`] returns when all replicas are available; [`intercepts`] when the API server really sends
//! Pods to them and they come back as expected, which is later. Deliberately absent: a change to any printed object.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::process::Command;

use super::differences;
use crate::cluster::Cluster;
use crate::until::until;

/// What the product's binary prints for an image.
///
/// # Errors
/// When it cannot be run or does not end well.
pub async fn manifests(binary: &Path, image: &str) -> anyhow::Result<String> {
    let printed = Command::new(binary)
        .args(["manifests", "webhook", "--image", image])
        .output()
        .await
        .with_context(|| format!("{} cannot be run", binary.display()))?;
    ensure!(
        printed.status.success(),
        "manifests webhook ended with {}: {}",
        printed.status,
        String::from_utf8_lossy(&printed.stderr)
    );
    String::from_utf8(printed.stdout).context("manifests webhook printed no text")
}

/// Applies the manifests and waits until every replica is of the newest shape and available.
///
/// # Errors
/// When the API server refuses an object, or the replicas do not become available in time.
pub async fn install(cluster: &Cluster, manifests: &str) -> anyhow::Result<()> {
    cluster.apply(manifests).await?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), api::names::SKR_NAMESPACE);
    until("the webhook's replicas are available", PATIENCE, || async {
        let found = deployments.list(&ListParams::default()).await?;
        ensure!(!found.items.is_empty(), "no Deployment was printed");
        found.items.iter().try_for_each(is_rolled_out)
    })
    .await?;
    Ok(())
}

fn is_rolled_out(deployment: &Deployment) -> anyhow::Result<()> {
    let wanted = deployment.spec.replicas;
    let status = deployment.status.as_ref().context("no status yet")?;
    let counts = [
        status.replicas,
        status.updated_replicas,
        status.available_replicas,
    ];
    ensure!(
        status.observed_generation == deployment.metadata.generation,
        "not looked at yet"
    );
    ensure!(counts == [wanted; 3], "{counts:?} of {wanted:?}");
    Ok(())
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
