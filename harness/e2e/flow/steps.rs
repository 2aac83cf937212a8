//! The steps of the flow for one Runtime: their times, as stored by the API servers, and the Pod of a module.

use anyhow::{Context as _, Result, bail, ensure};
use api::kcp::{MODE_SIGNAL, WEBHOOK_DEPLOYMENT, kubeconfig_secret};
use api::names::{MARKER, SKR_NAMESPACE};
use doubles::keb::Instance;
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::json;

use super::klm::reconciles;
use super::{Flow, kyma_path};
use testkit::client::{Client, Write};

/// The steps in their order, as features name them, with their numbers in the documentation of the flow. A watch is only
/// visible by the first action of its owner.
pub const STEPS: [(u8, &str); 13] = [
    (1, "Runtime created"),
    (2, "cluster requested by KIM"),
    (3, "kubeconfig published"),
    (4, "webhook installed"),
    (4, "webhook available"),
    (5, "Runtime Ready"),
    (6, "Runtime found Ready by KEB"),
    (7, "Kyma created"),
    (8, "Kyma created on the runtime by KLM"),
    (9, "module applied"),
    (10, "Pod mutated"),
    (11, "Pod runs"),
    (12, "Kyma Ready"),
];

impl Flow {
    /// Returns the time of a step; an error if it has not happened.
    pub async fn time_of(&self, instance: &Instance, step: &str) -> Result<Timestamp> {
        let id = &instance.runtime_id;
        let shoot = self.shoots.find(&instance.shoot)?;
        let (skr, kcp) = (&shoot.api, &self.kcp.api);
        let on_kcp = |path: &str| format!("/apis/{path}/{id}");
        let runtime =
            on_kcp("infrastructuremanager.kyma-project.io/v1/namespaces/kcp-system/runtimes");
        let bootstrapper =
            on_kcp("operator.kyma-project.io/v1alpha1/namespaces/kcp-system/runtimebootstrappers");
        let secret = kubeconfig_secret(id);
        let secret = format!("/api/v1/namespaces/kcp-system/secrets/{secret}");
        let apps = format!("/apis/apps/v1/namespaces/{SKR_NAMESPACE}/deployments");
        let webhook = format!("{apps}/{WEBHOOK_DEPLOYMENT}");
        let module = format!("{apps}/pause-test1");
        let created = "/metadata/creationTimestamp";
        let is_signal = instance.mode == MODE_SIGNAL;
        let text = match step {
            "Runtime created" => at(kcp, &runtime, created).await?,
            "cluster requested by KIM" => json!(shoot.requested),
            "kubeconfig published" => at(kcp, &secret, created).await?,
            "webhook installed" => at(skr, &webhook, created).await?,
            "webhook available" => transition(skr, &webhook, "Available").await?,
            "Runtime Ready" if is_signal => transition(kcp, &runtime, "Configured").await?,
            "Runtime Ready" => transition(kcp, &bootstrapper, "Ready").await?,
            "Runtime found Ready by KEB" => json!(self.keb.found_ready(instance)),
            "Kyma created" => at(kcp, &kyma_path(id), created).await?,
            "Kyma created on the runtime by KLM" => at(skr, KYMA_ON_RUNTIME, created).await?,
            "module applied" => at(skr, &module, created).await?,
            "Pod mutated" => {
                let metadata = module_pod(skr).await?["metadata"].take();
                let is_mutated = metadata["annotations"][MARKER] == "true";
                ensure!(is_mutated, "the Pod is not mutated: {metadata}");
                metadata["creationTimestamp"].clone()
            }
            "Pod runs" => {
                let pod = module_pod(skr).await?;
                let ready = condition(&pod, "Ready");
                ready.context("the Pod has no condition Ready")?
            }
            "Kyma Ready" => transition(kcp, &kyma_path(id), "Modules").await?,
            other => bail!("unknown step of the flow: {other}"),
        };
        let text = text.as_str().with_context(|| format!("{step}: no time"))?;
        // API servers store times in whole seconds.
        let time: Timestamp = text.parse()?;
        Ok(Timestamp::from_second(time.as_second())?)
    }

    /// Returns the template of the module's Deployment on the runtime, and its Pod.
    pub async fn module(&self, instance: &Instance) -> Result<(Value, Value)> {
        let skr = &self.shoots.find(&instance.shoot)?.api;
        let path = format!("/apis/apps/v1/namespaces/{SKR_NAMESPACE}/deployments/pause-test1");
        let template = at(skr, &path, "/spec/template").await?;
        Ok((template, module_pod(skr).await?))
    }

    /// Changes the spec of the Kyma on the runtime.
    pub async fn edit_kyma(&self, instance: &Instance) -> Result<()> {
        let skr = &self.shoots.find(&instance.shoot)?.api;
        let patch = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": { "name": "default", "namespace": SKR_NAMESPACE },
            "spec": { "skipMaintenanceWindows": true },
        });
        let answer = skr.write(Write::Merge, &patch).await?.good()?;
        let is_changed = answer.object["spec"]["skipMaintenanceWindows"] == true;
        ensure!(is_changed, "the spec is not changed: {}", answer.object);
        Ok(())
    }

    /// Returns how often KLM has reconciled the Kyma of a Runtime, except for notifications without an event.
    pub async fn reconciles(&self, instance: &Instance) -> Result<u64> {
        let count = reconciles(&self.klm, &instance.runtime_id).await?;
        Ok(count.all.saturating_sub(count.without_event))
    }
}

async fn at(client: &Client, path: &str, pointer: &str) -> Result<Value> {
    Ok(client.get(path).await?.at(pointer).clone())
}

async fn transition(client: &Client, path: &str, kind: &str) -> Result<Value> {
    let object = client.get(path).await?.object;
    let found = condition(&object, kind);
    found.with_context(|| format!("condition {kind} is not True: {}", object["status"]))
}

/// Returns the time of the last transition of a condition that is True.
fn condition(object: &Value, kind: &str) -> Option<Value> {
    let found = json::condition(object, kind);
    (found["status"] == "True").then(|| found["lastTransitionTime"].clone())
}

async fn module_pod(skr: &Client) -> Result<Value> {
    let path = format!("/api/v1/namespaces/{SKR_NAMESPACE}/pods?labelSelector=app=pause-test1");
    let pod = skr.items(&path).await?.pop();
    pod.context("the module has no Pod")
}

const KYMA_ON_RUNTIME: &str =
    "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system/kymas/default";
