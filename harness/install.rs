//! The product in a cluster, installed as a user would: what `manifests webhook` prints is applied.
//!
//! Invariant: nothing of the printed objects is changed but variables of the Deployment, which are its installer's to
//! set. Three moments are three functions, each later than the one before: [`Product::apply`] returns when the objects
//! are stored, [`Product::rolled_out`] when all replicas are available, [`intercepts`] when the API server really sends
//! Pods to them and they come back as expected.

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

use crate::cluster::Cluster;
use crate::landscape::differences;
use crate::rollout;
use crate::until::until;

/// What `manifests webhook` printed.
#[derive(Debug, Clone)]
pub struct Product {
    objects: Vec<Value>,
}

impl Product {
    /// What the product's binary prints for an image.
    ///
    /// # Errors
    /// When it cannot be run, does not end well, or prints no manifests.
    pub async fn printed_by(binary: &Path, image: &str) -> anyhow::Result<Self> {
        Self::printed(binary, &["--image", image]).await
    }

    /// The same for an image of a private registry, which this Secret of the product's namespace opens.
    ///
    /// # Errors
    /// As above.
    pub async fn printed_with_pull_secret(
        binary: &Path,
        image: &str,
        secret: &str,
    ) -> anyhow::Result<Self> {
        Self::printed(binary, &["--image", image, "--pull-secret", secret]).await
    }

    async fn printed(binary: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        let printed = Command::new(binary)
            .args(["manifests", "webhook"])
            .args(arguments)
            .output()
            .await
            .with_context(|| format!("{} cannot be run", binary.display()))?;
        ensure!(
            printed.status.success(),
            "manifests webhook ended with {}: {}",
            printed.status,
            String::from_utf8_lossy(&printed.stderr)
        );
        let text =
            String::from_utf8(printed.stdout).context("manifests webhook printed no text")?;
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        // A document of comments only.
        objects.retain(|object| !object.is_null());
        Ok(Self { objects })
    }

    /// The same, with a variable of the Deployment set.
    #[must_use]
    pub fn with_variable(self, name: &str, value: &str) -> Self {
        let mut product = self.without_variable(name);
        let variable = json!({ "name": name, "value": value });
        for container in product.containers() {
            match container["env"].as_array_mut() {
                Some(variables) => variables.push(variable.clone()),
                None => container["env"] = json!([variable]),
            }
        }
        product
    }

    /// The same, with a variable of the Deployment not set.
    #[must_use]
    pub fn without_variable(mut self, name: &str) -> Self {
        for container in self.containers() {
            if let Some(variables) = container["env"].as_array_mut() {
                variables.retain(|known| known["name"] != name);
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

    /// Waits until every replica is of the newest shape and available, and no other answers any more.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn rolled_out(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let printed: Deployment = serde_json::from_value(self.object("Deployment")?.clone())?;
        let name = printed.metadata.name.context("a Deployment's name")?;
        let namespace = printed.metadata.namespace.unwrap_or_default();
        let labels = printed.spec.selector.match_labels.unwrap_or_default();
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let own = ListParams::default().labels(&labels.join(","));
        let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
        let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
        until("the product is rolled out", PATIENCE, || async {
            let wanted = rollout::replicas(&deployments.get(&name).await?)?;
            // Those that drain have left the counts, and still answer.
            let processes = pods.list_metadata(&own).await?.items.len();
            ensure!(
                i32::try_from(processes) == Ok(wanted),
                "{processes} processes of {wanted}"
            );
            anyhow::Ok(())
        })
        .await?;
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

    fn product(env: Option<&Value>) -> Product {
        let mut container = json!({ "name": "manager" });
        if let Some(env) = env {
            container["env"] = env.clone();
        }
        let service = json!({ "kind": "Service" });
        let deployment = json!({
            "kind": "Deployment",
            "spec": { "template": { "spec": { "containers": [container] } } },
        });
        Product {
            objects: vec![service, deployment],
        }
    }

    #[rstest::rstest]
    #[case::none_at_all(None)]
    #[case::another_value(Some(json!([{ "name": "LANDSCAPE", "value": "old" }])))]
    fn a_variable_is_set_once(#[case] env: Option<Value>) {
        let set = product(env.as_ref()).with_variable("LANDSCAPE", "new");
        let env =
            &set.object("Deployment").unwrap()["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(*env, json!([{ "name": "LANDSCAPE", "value": "new" }]));
        assert_eq!(set.objects[0], json!({ "kind": "Service" }));
    }

    #[test]
    fn a_variable_is_taken_away_and_others_stay() {
        let other = json!({ "name": "OTHER", "value": "x" });
        let env = json!([other, { "name": "LANDSCAPE", "value": "old" }]);
        let left = product(Some(&env)).without_variable("LANDSCAPE");
        let env =
            &left.object("Deployment").unwrap()["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!(*env, json!([other]));
    }
}
