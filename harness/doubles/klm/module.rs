//! Modules: the double applies their manifests on the runtime and checks whether their workloads are rolled out.

use anyhow::{Context as _, Result};
use api::kcp::{KCP_NAMESPACE, MANAGED_BY};
use api::names::SKR_NAMESPACE;
use serde_json::{Value, json};
use testkit::json::items;

use super::{Klm, MODULE_PREFIX};
use crate::Objects;
use crate::objects::reference;

impl Klm {
    /// Applies each module of the Kyma on the runtime, deletes modules that the Kyma no longer has, and returns
    /// `status.modules`.
    pub(super) async fn reconcile_modules(
        &self,
        skr: &Objects,
        kyma: &Value,
        remote: &Value,
    ) -> Result<Vec<Value>> {
        let names = |list: &Value| -> Vec<String> {
            let names = items(list).filter_map(|it| it["name"].as_str());
            names.map(str::to_owned).collect()
        };
        let wanted = names(&remote["spec"]["modules"]);
        for removed in names(&kyma["status"]["modules"]) {
            if !wanted.contains(&removed) {
                self.delete_module(skr, &removed).await?;
            }
        }
        let mut modules = Vec::new();
        for name in wanted {
            let state = match self.reconcile_module(skr, kyma, &name).await {
                Ok(state) => json!({ "state": state }),
                Err(error) => json!({ "state": "Error", "message": format!("{error:#}") }),
            };
            let channel = &remote["spec"]["channel"];
            let module = json!({
                "name": name, "channel": channel, "version": VERSION,
                "state": state["state"], "message": state["message"],
            });
            modules.push(module);
        }
        Ok(modules)
    }

    async fn reconcile_module(
        &self,
        skr: &Objects,
        kyma: &Value,
        name: &str,
    ) -> Result<&'static str> {
        let mut is_ready = true;
        let kyma = kyma["metadata"]["name"].as_str().unwrap_or_default();
        let manifest = format!("{kyma}-{name}");
        for object in self.manifest(name).await? {
            let live = skr.apply(APPLIER, &owned(object, &manifest)).await?;
            is_ready &= is_rolled_out(&live);
        }
        Ok(if is_ready { "Ready" } else { "Processing" })
    }

    /// Returns the objects of a module. The namespace of an object without one is `kyma-system`.
    async fn manifest(&self, name: &str) -> Result<Vec<Value>> {
        let name = format!("{MODULE_PREFIX}{name}");
        let found = self
            .kcp
            .find(&reference("v1", "ConfigMap", KCP_NAMESPACE, &name))
            .await?;
        let text = found["data"]["manifest.yaml"].as_str();
        let text = text.with_context(|| format!("ConfigMap {name} has no manifest.yaml"))?;
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
        objects.retain(|it| it["kind"].is_string());
        for object in &mut objects {
            let metadata = &mut object["metadata"];
            if metadata["namespace"].is_null() {
                metadata["namespace"] = json!(SKR_NAMESPACE);
            }
        }
        Ok(objects)
    }

    pub(super) async fn delete_modules(&self, skr: &Objects, kyma: &Value) -> Result<()> {
        let modules = items(&kyma["status"]["modules"]);
        for name in modules.filter_map(|it| it["name"].as_str()) {
            self.delete_module(skr, name).await?;
        }
        Ok(())
    }

    async fn delete_module(&self, skr: &Objects, name: &str) -> Result<()> {
        for object in self.manifest(name).await? {
            skr.delete(&object).await?;
        }
        Ok(())
    }
}

/// Adds the labels and the annotation that make an object of a module belong to a Manifest on KCP.
pub(super) fn owned(mut object: Value, manifest: &str) -> Value {
    let metadata = &mut object["metadata"];
    for (field, key, value) in [
        ("labels", MANAGED_BY, "kyma"),
        ("labels", "app.kubernetes.io/component", manifest),
        ("labels", "app.kubernetes.io/part-of", "Kyma"),
        (
            "annotations",
            OWNED_BY,
            &format!("{KCP_NAMESPACE}/{manifest}"),
        ),
    ] {
        metadata[field][key] = json!(value);
    }
    object
}

/// Whether a workload is rolled out; objects of other kinds always are.
fn is_rolled_out(object: &Value) -> bool {
    let (spec, status) = (&object["spec"], &object["status"]);
    let count = |field: &str| status[field].as_u64().unwrap_or(0);
    let is_observed = status["observedGeneration"] == object["metadata"]["generation"];
    let wanted = spec["replicas"].as_u64().unwrap_or(1);
    match object["kind"].as_str() {
        Some("Deployment" | "StatefulSet") => {
            is_observed && count("readyReplicas") >= wanted && count("updatedReplicas") >= wanted
        }
        Some("DaemonSet") => {
            let scheduled = count("desiredNumberScheduled");
            is_observed && scheduled > 0 && count("numberReady") >= scheduled
        }
        Some("Job") => count("succeeded") >= spec["completions"].as_u64().unwrap_or(1),
        _ => true,
    }
}

const OWNED_BY: &str = "operator.kyma-project.io/owned-by";
/// Field manager of module objects on runtimes.
const APPLIER: &str = "declarative.kyma-project.io/applier";
const VERSION: &str = "1.0.0";

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::not_observed(json!({"kind": "Deployment", "metadata": {"generation": 2},
        "status": {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 1}}), false)]
    #[case::one_of_two(json!({"kind": "StatefulSet", "metadata": {"generation": 1}, "spec": {"replicas": 2},
        "status": {"observedGeneration": 1, "readyReplicas": 1, "updatedReplicas": 2}}), false)]
    #[case::not_scheduled(json!({"kind": "DaemonSet", "metadata": {"generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 0, "numberReady": 0}}), false)]
    #[case::on_the_node(json!({"kind": "DaemonSet", "metadata": {"generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 1}}), true)]
    #[case::job_that_runs(json!({"kind": "Job", "spec": {"completions": 1}, "status": {"active": 1}}), false)]
    #[case::job_that_succeeded(json!({"kind": "Job", "spec": {}, "status": {"succeeded": 1}}), true)]
    #[case::other(json!({"kind": "ConfigMap"}), true)]
    fn a_workload_is_rolled_out(#[case] object: Value, #[case] expected: bool) {
        assert_eq!(is_rolled_out(&object), expected);
    }
}
