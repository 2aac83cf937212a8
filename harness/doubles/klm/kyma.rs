//! One reconcile of one Kyma, in the order of the public manager.

use anyhow::{Context as _, Result, bail};
use api::kcp::{KCP_NAMESPACE, KUBECONFIG_KEY, MANAGED_BY};
use api::names::SKR_NAMESPACE;
use serde_json::{Value, json};
use testkit::json::{items, text};

use super::{Klm, kymas};
use crate::objects::{condition, reference, secret_text};
use crate::{KYMA_GROUP, KYMA_NAME, KYMA_VERSION, Objects, crds};

impl Klm {
    /// Reconciles a Kyma. Returns its state, or `None` if the Kyma does not exist or is being deleted.
    pub(super) async fn reconcile(&self, name: &str) -> Result<Option<String>> {
        let kyma = self.kcp.find(&kyma(KCP_NAMESPACE, name)).await?;
        if kyma.is_null() {
            return Ok(None);
        }
        if !kyma["metadata"]["deletionTimestamp"].is_null() {
            return self.delete(&kyma, name).await.map(|()| None);
        }
        if !items(&kyma["metadata"]["finalizers"]).any(|it| it == FINALIZER) {
            let labels = json!({ (MANAGED_BY): "lifecycle-manager" });
            let change = json!({ "metadata": { "finalizers": [FINALIZER], "labels": labels } });
            self.kcp.merge(&kyma, &change).await?;
        }
        if text(&kyma["status"]["state"]).is_empty() {
            let processing = json!({ "status": { "state": "Processing" } });
            self.kcp.merge(&kyma, &processing).await?;
            return Ok(Some("Processing".to_owned()));
        }
        let skr = runtime(&self.kcp, name).await?;
        let namespace = reference("v1", "Namespace", "", SKR_NAMESPACE);
        skr.apply(FIELD_MANAGER, &namespace).await?;
        let crd: Value = serde_saphyr::from_str(crds::KYMAS)?;
        skr.apply(FIELD_MANAGER, &crd).await?;
        let remote = Self::remote(&skr, &kyma).await?;
        let modules = self.reconcile_modules(&skr, &kyma, &remote).await?;
        let earlier = &kyma["status"]["conditions"];
        let (state, status) = status(earlier, &remote, &modules);
        self.kcp.merge(&kyma, &status).await?;
        skr.merge(&remote, &status).await?;
        Ok(Some(state.to_owned()))
    }

    /// Returns the Kyma on the runtime, and creates it if it does not exist. After the creation its spec is the relevant one.
    async fn remote(skr: &Objects, kyma: &Value) -> Result<Value> {
        let remote = described_remote(kyma);
        let found = skr.find(&remote).await?;
        if found.is_null() {
            skr.create(&remote).await?;
            return Ok(remote);
        }
        Ok(found)
    }

    /// Deletes the modules and the Kyma on the runtime, then removes the finalizers of the Kyma on KCP. An unreachable runtime
    /// does not prevent the removal.
    async fn delete(&self, kyma: &Value, name: &str) -> Result<()> {
        let finalizers = kyma["metadata"]["finalizers"].as_array();
        if !finalizers.is_some_and(|it| it.contains(&json!(FINALIZER))) {
            return Ok(());
        }
        if kyma["status"]["state"] != "Deleting" {
            let deleting = json!({ "status": { "state": "Deleting" } });
            self.kcp.merge(kyma, &deleting).await?;
        }
        let deleted = async {
            let skr = runtime(&self.kcp, name).await?;
            self.delete_modules(&skr, kyma).await?;
            skr.delete(&reference(&version(), "Kyma", SKR_NAMESPACE, "default"))
                .await
        };
        if let Err(error) = deleted.await {
            tracing::warn!(kyma = name, "what is left on the runtime: {error:#}");
        }
        let change = json!({ "metadata": { "finalizers": null } });
        self.kcp
            .merge(kyma, &change)
            .await
            .context("remove the finalizer")
    }
}

/// Returns a client of the runtime of a Kyma. Exactly one Secret must have the Kyma's name as a label.
pub(super) async fn runtime(kcp: &Objects, kyma: &str) -> Result<Objects> {
    let secrets = format!("/api/v1/namespaces/{KCP_NAMESPACE}/secrets");
    let labelled = format!("{secrets}?labelSelector={KYMA_NAME}%3D{kyma}");
    let found = kcp.items(&labelled).await?;
    let [secret] = &found[..] else {
        bail!("{} kubeconfig Secrets of {kyma}", found.len());
    };
    Objects::of_kubeconfig(&secret_text(secret, KUBECONFIG_KEY)?).await
}

/// Returns the Kyma that is created on the runtime.
fn described_remote(kyma: &Value) -> Value {
    let mut remote = reference(&version(), "Kyma", SKR_NAMESPACE, "default");
    let metadata = &mut remote["metadata"];
    metadata["labels"] = json!({ (WATCHED_BY): "kyma", (MANAGED_BY): "kyma" });
    for key in COPIED_LABELS {
        let value = &kyma["metadata"]["labels"][key];
        if !value.is_null() {
            metadata["labels"][key] = value.clone();
        }
    }
    let name = kyma["metadata"]["name"].as_str().unwrap_or_default();
    metadata["annotations"] = json!({ (REMOTE_OWNED_BY): format!("{KCP_NAMESPACE}/{name}") });
    remote["spec"] = kyma["spec"].clone();
    remote
}

/// Returns the state and the status of a Kyma, which depend on its modules.
fn status(earlier: &Value, remote: &Value, modules: &[Value]) -> (&'static str, Value) {
    let is_ready = modules.iter().all(|it| it["state"] == "Ready");
    let state = if is_ready { "Ready" } else { "Processing" };
    let conditions = [
        ("CRDsSync", true),
        ("ModuleCatalog", true),
        ("Modules", is_ready),
    ];
    let conditions = conditions.map(|(kind, holds)| {
        let status = if holds { "True" } else { "False" };
        condition(earlier, (kind, status), "Ready", "")
    });
    let operation = format!("kyma is {}", state.to_lowercase());
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let status = json!({ "status": {
        "state": state, "activeChannel": remote["spec"]["channel"], "modules": modules,
        "conditions": conditions,
        "lastOperation": { "operation": operation, "lastUpdateTime": now },
    } });
    (state, status)
}

pub(super) fn kyma(namespace: &str, name: &str) -> Value {
    reference(&version(), &kymas().kind, namespace, name)
}

fn version() -> String {
    format!("{KYMA_GROUP}/{KYMA_VERSION}")
}

/// Label by which the Watcher of this manager selects Kymas on runtimes.
const WATCHED_BY: &str = "operator.kyma-project.io/watched-by";
/// Labels that are copied from the Kyma on KCP to the Kyma on the runtime.
const COPIED_LABELS: [&str; 3] = [
    "kyma-project.io/runtime-id",
    "kyma-project.io/global-account-id",
    "kyma-project.io/subaccount-id",
];
const REMOTE_OWNED_BY: &str = "deprecated-operator.kyma-project.io/owned-by";
const FINALIZER: &str = "operator.kyma-project.io/Kyma";
pub(super) const FIELD_MANAGER: &str = "lifecycle-manager";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keb::Instance;
    use crate::klm::module::owned;

    /// The fixture contains the objects that the public manager writes on a runtime.
    #[test]
    fn written_objects_have_the_public_shape() {
        let kyma = Instance::example().kyma();
        let remote = described_remote(&kyma);
        let modules = vec![json!({ "name": "istio", "state": "Ready" })];
        let (state, mut status) = status(&Value::Null, &remote, &modules);
        assert_eq!(state, "Ready");
        let conditions = status["status"]["conditions"].as_array_mut().unwrap();
        let times = conditions
            .iter_mut()
            .map(|it| &mut it["lastTransitionTime"]);
        for time in times.collect::<Vec<_>>() {
            assert!(time.as_str().is_some_and(is_time), "{time}");
            *time = json!(TIME);
        }
        let time = &mut status["status"]["lastOperation"]["lastUpdateTime"];
        assert!(time.as_str().is_some_and(is_time), "{time}");
        *time = json!(TIME);
        let mut kyma_on_runtime = remote;
        kyma_on_runtime["status"] = status["status"].clone();
        let module =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-a-module"} });
        let module = owned(module, "4d7c1c0e-8f0f-4d34-9d0a-1f6b1d6e8a55-istio");
        let fixture: Vec<Value> =
            serde_saphyr::from_multiple(include_str!("fixture.yaml")).unwrap();
        assert_eq!([kyma_on_runtime, module][..], fixture);
    }

    fn is_time(text: &str) -> bool {
        text.parse::<jiff::Timestamp>().is_ok()
    }

    const TIME: &str = "2026-01-01T00:00:00Z";
}
