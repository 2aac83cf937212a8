//! The product in the cluster, installed as a user would: what `manifests webhook` prints is applied.
//!
//! Invariant: nothing of the printed objects is changed but one variable: the landscape's name, which its owner sets.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::process::Command;

use super::effects::LANDSCAPE;
use super::landscape::{Landscape, PATIENCE, PRODUCT_NAMESPACE};
use crate::cluster::Cluster;
use crate::docker;
use crate::images::{self, ImageTar, Role};
use crate::progress::Progress;
use crate::until::until;

/// What `manifests webhook` printed.
#[derive(Debug)]
pub struct Product {
    objects: Vec<Value>,
}

impl Product {
    /// Builds the image, loads it into the node, asks the binary for its manifests.
    ///
    /// # Errors
    /// When one of that fails.
    pub async fn build(progress: &Progress, cluster: &Cluster) -> anyhow::Result<Self> {
        let image = images::product(progress, Role::Webhook).await?;
        progress
            .show("load the product's image", cluster.load_image(&image))
            .await?;
        let text = manifests(&image).await?;
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        objects.retain(|object| !object.is_null());
        let mut product = Self { objects };
        product.set_variable("LANDSCAPE", LANDSCAPE);
        Ok(product)
    }

    fn set_variable(&mut self, name: &str, value: &str) {
        let deployments = self
            .objects
            .iter_mut()
            .filter(|object| object["kind"] == "Deployment");
        for deployment in deployments {
            let env = &mut deployment["spec"]["template"]["spec"]["containers"][0]["env"];
            let variable = json!({ "name": name, "value": value });
            match env.as_array_mut() {
                Some(variables) => {
                    variables.retain(|known| known["name"] != name);
                    variables.push(variable);
                }
                None => *env = json!([variable]),
            }
        }
    }

    /// Applies everything, the Deployment without one variable.
    ///
    /// # Errors
    /// When the API server refuses an object.
    pub async fn apply_without(&self, cluster: &Cluster, variable: &str) -> anyhow::Result<()> {
        let mut objects = self.objects.clone();
        for object in &mut objects {
            let env = object.pointer_mut("/spec/template/spec/containers/0/env");
            if let Some(variables) = env.and_then(Value::as_array_mut) {
                variables.retain(|known| known["name"] != variable);
            }
        }
        for object in &objects {
            cluster.apply(&object.to_string()).await?;
        }
        Ok(())
    }

    pub(super) async fn apply(&self, cluster: &Cluster) -> anyhow::Result<()> {
        for object in &self.objects {
            cluster.apply(&object.to_string()).await?;
        }
        Ok(())
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

    fn replicas(&self) -> u64 {
        self.object("Deployment")
            .ok()
            .and_then(|object| object["spec"]["replicas"].as_u64())
            .unwrap_or(1)
    }
}

/// What the image itself prints: there need be no binary on this machine.
async fn manifests(image: &ImageTar) -> anyhow::Result<String> {
    let docker = |args: &[&str]| {
        let mut command = Command::new(docker::program());
        command.args(args).kill_on_drop(true);
        command
    };
    let archive = image.path.to_string_lossy();
    run(docker(&["load", "--quiet", "--input", &archive])).await?;
    let name = image.reference.as_str();
    let mut print = docker(&[
        "run",
        "--rm",
        "--network=none",
        "--entrypoint=/runtime-bootstrapper",
        name,
    ]);
    print.args(["manifests", "webhook", "--image", name]);
    run(print).await
}

async fn run(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().await?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

impl Landscape {
    /// What is installed.
    #[must_use]
    pub fn product(&self) -> &Product {
        &self.product
    }

    /// The path of the product's Deployment in the API.
    #[must_use]
    pub fn deployment_path() -> String {
        format!("/apis/apps/v1/namespaces/{PRODUCT_NAMESPACE}/deployments/{DEPLOYMENT}")
    }

    /// Waits until every replica is of the newest shape and available, and no other answers any more.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn rolled_out(&self) -> anyhow::Result<()> {
        let dialogue = self.dialogue();
        let path = Self::deployment_path();
        let wanted = self.product.replicas();
        until("the product is rolled out", PATIENCE, || async {
            let deployment = dialogue.get(&path).await?;
            let count = |name: &str| {
                deployment
                    .at(&format!("/status/{name}"))
                    .as_u64()
                    .unwrap_or(0)
            };
            let observed = deployment.at("/status/observedGeneration")
                == deployment.at("/metadata/generation");
            let counts = ["replicas", "updatedReplicas", "availableReplicas"].map(count);
            ensure!(observed && counts == [wanted; 3], "{counts:?} of {wanted}");
            let processes = self.processes().await?;
            ensure!(
                processes as u64 == wanted,
                "{processes} processes of {wanted}"
            );
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }
}

const DEPLOYMENT: &str = "rt-bootstrapper-controller-manager";
