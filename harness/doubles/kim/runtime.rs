//! One reconcile of one Runtime.

use anyhow::{Context as _, Result};
use api::kcp::{
    FORCE_RECONCILE_KEY, KCP_NAMESPACE, KIM_MANAGED_BY, KUBECONFIG_KEY, MANAGED_BY, RUNTIME_GROUP,
    RUNTIME_ID, RUNTIME_VERSION, kubeconfig_secret,
};
use api::names::SKR_NAMESPACE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::StatusCode;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::{Map, Value, json};
use testkit::client::Rejected;
use testkit::json::items;
use testkit::locked;

use super::Kim;
use super::bootstrapper::Installation;
use crate::objects::{condition, reference, with_condition};
use crate::{KYMA_NAME, Objects, SKR_DOMAIN};

/// The Runtime of one reconcile.
pub(super) struct RuntimeReconcile<'a> {
    kim: &'a Kim,
    name: String,
    live: Value,
}

impl<'a> RuntimeReconcile<'a> {
    pub(super) fn new(kim: &'a Kim, runtime: &DynamicObject) -> Result<Self> {
        let mut live = serde_json::to_value(runtime)?;
        live["apiVersion"] = json!(format!("{RUNTIME_GROUP}/{RUNTIME_VERSION}"));
        let name = runtime.name_any();
        Ok(Self { kim, name, live })
    }

    pub(super) fn state(&self) -> &str {
        self.live["status"]["state"].as_str().unwrap_or_default()
    }

    /// Whether the key of the signal is in the field of the metadata that the settings name.
    pub(super) fn is_signaled(&self) -> bool {
        let field = self.kim.settings.signal;
        self.live["metadata"][field][FORCE_RECONCILE_KEY] == "true"
    }

    fn shoot(&self) -> Result<&str> {
        let name = self.live["spec"]["shoot"]["name"].as_str();
        name.context("the Runtime names no Shoot")
    }

    fn label(&self, key: &str) -> &str {
        let value = self.live["metadata"]["labels"][key].as_str();
        value.unwrap_or_default()
    }

    /// Creates the cluster and runs all steps until the Runtime is `Ready`. If a step is not finished, a later reconcile
    /// repeats the steps. With `must_patch`, KIM applies the generation of the Runtime to the cluster and removes the key of
    /// the signal.
    pub(super) async fn provision(&mut self, must_patch: bool) -> Result<Action> {
        let kim = self.kim;
        let runtime_id = self.label(RUNTIME_ID).to_owned();
        anyhow::ensure!(!runtime_id.is_empty(), "no label {RUNTIME_ID}");
        self.hold().await?;
        let missing = REQUIRED_LABELS.iter().find(|it| self.label(it).is_empty());
        if let Some(missing) = missing {
            let message = format!("label {missing} is missing");
            self.report(
                "Failed",
                ("Provisioned", "False"),
                "ConversionErr",
                &message,
            )
            .await?;
            return Ok(Action::await_change());
        }
        if self.state() != "Pending" {
            let kind = ("Provisioned", "Unknown");
            self.report("Pending", kind, "Pending", "Shoot is pending")
                .await?;
            // The removal of the signal needs the resource version after this write.
            self.live = kim.kcp.find(&self.live).await?;
        }
        let shoot = self.shoot()?.to_owned();
        let kubeconfig = kim.garden.provider.provision(&shoot).await?;
        if must_patch {
            let generation = self.live["metadata"]["generation"].as_i64().unwrap_or(0);
            locked(&kim.garden.applied).insert(self.name.clone(), generation);
            if self.is_signaled() && !self.remove_signal().await? {
                return Ok(Action::requeue(std::time::Duration::ZERO));
            }
        }
        self.pending("Provisioned", "ShootCreationCompleted")
            .await?;
        self.publish(&shoot, &runtime_id, &kubeconfig).await?;
        self.pending("KubeconfigReady", "GardenerClusterCRReady")
            .await?;
        let skr = Objects::of_kubeconfig(&kubeconfig).await?;
        let namespace = reference("v1", "Namespace", "", SKR_NAMESPACE);
        if skr.find(&namespace).await?.is_null() {
            skr.create(&namespace).await?;
        }
        self.pending("KymaSystemNSCreated", "KymaSystemNSReady")
            .await?;
        if let Some(bootstrapper) = &kim.settings.bootstrapper {
            let installation = bootstrapper.reconcile(&kim.kcp, &skr).await;
            if let Some(action) = self.installed(installation).await? {
                return Ok(action);
            }
        }
        self.pending("OidcAndConfigMapConfigured", "OidcAndConfigMapsConfigured")
            .await?;
        let last = ("Configured", "True");
        self.report("Ready", last, "AdministratorsConfigured", "")
            .await?;
        Ok(Action::await_change())
    }

    /// Reports the state of the webhook's installation. Returns the action for the reconcile, or `None` if the webhook is ready
    /// and the reconcile continues.
    async fn installed(&mut self, installation: Installation) -> Result<Option<Action>> {
        let (state, reason, message) = match installation {
            Installation::Configured => {
                let reason = "RuntimeBootstrapperConfigured";
                return self.pending(BOOTSTRAPPER, reason).await.map(|()| None);
            }
            Installation::Pending(reason, message) => ("Pending", reason, message),
            Installation::Failed(reason, message) => ("Failed", reason, message),
        };
        self.report(state, (BOOTSTRAPPER, "False"), reason, &message)
            .await?;
        if state == "Pending" {
            let delay = self.kim.settings.bootstrapper_requeue;
            return Ok(Some(Action::requeue(delay)));
        }
        Ok(Some(Action::await_change()))
    }

    /// Deletes the kubeconfig, then the cluster, then the finalizer.
    pub(super) async fn deprovision(&mut self) -> Result<Action> {
        if !self.is_held() {
            return Ok(Action::await_change());
        }
        let reason = "GardenerClusterCRDeleted";
        self.report("Terminating", ("Deprovisioned", "Unknown"), reason, "")
            .await?;
        let kim = self.kim;
        let runtime_id = self.label(RUNTIME_ID).to_owned();
        kim.kcp.delete(&gardener_cluster(&runtime_id)).await?;
        kim.kcp.delete(&secret(&runtime_id)).await?;
        let shoot = self.shoot()?.to_owned();
        kim.garden.provider.deprovision(&shoot).await?;
        locked(&kim.garden.applied).remove(&self.name);
        // The controller of the product may have removed its own finalizer meanwhile.
        self.live = kim.kcp.find(&self.live).await?;
        if self.live.is_null() {
            return Ok(Action::await_change());
        }
        let metadata = &self.live["metadata"];
        let all = items(&metadata["finalizers"]);
        let others: Vec<&Value> = all.filter(|it| **it != FINALIZER).collect();
        let version = &metadata["resourceVersion"];
        let change = json!({ "metadata": { "finalizers": others, "resourceVersion": version } });
        kim.kcp.merge(&self.live, &change).await.or_else(gone)?;
        Ok(Action::await_change())
    }

    fn is_held(&self) -> bool {
        items(&self.live["metadata"]["finalizers"]).any(|it| it == FINALIZER)
    }

    async fn hold(&mut self) -> Result<()> {
        if self.is_held() {
            return Ok(());
        }
        let mut finalizers = self.live["metadata"]["finalizers"].clone();
        match finalizers.as_array_mut() {
            Some(list) => list.push(json!(FINALIZER)),
            None => finalizers = json!([FINALIZER]),
        }
        let version = &self.live["metadata"]["resourceVersion"];
        let change =
            json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
        self.kim.kcp.merge(&self.live, &change).await?;
        self.live = self.kim.kcp.find(&self.live).await?;
        Ok(())
    }

    /// Removes the key of the signal, before KIM writes any other object. Returns false if the patch fails, for example because
    /// another client changed the Runtime.
    async fn remove_signal(&mut self) -> Result<bool> {
        let field = self.kim.settings.signal;
        let version = &self.live["metadata"]["resourceVersion"];
        // The public KIM updates the whole object, which fails if the resource version has changed.
        let change = json!({
            "metadata": { "resourceVersion": version, (field): { (FORCE_RECONCILE_KEY): null } },
        });
        let is_removed = self.kim.kcp.merge(&self.live, &change).await.is_ok();
        self.live = self.kim.kcp.find(&self.live).await?;
        Ok(is_removed)
    }

    /// Writes the GardenerCluster and the Secret of the kubeconfig. Existing objects stay as they are, except the kubeconfig in
    /// the Secret, which is replaced if it differs.
    async fn publish(&self, shoot: &str, runtime_id: &str, kubeconfig: &str) -> Result<()> {
        let kcp = &self.kim.kcp;
        let copied = self.live["metadata"]["labels"].as_object().cloned();
        let labels = copied_labels(copied.unwrap_or_default());
        let cluster = described_cluster(shoot, runtime_id, &labels);
        if kcp.find(&cluster).await?.is_null() {
            kcp.create(&cluster).await?;
            let ready = json!({ "status": { "state": "Ready" } });
            kcp.merge(&cluster, &ready).await?;
        }
        let secret = described_secret(kubeconfig, runtime_id, &labels);
        let found = kcp.find(&secret).await?;
        if found.is_null() {
            kcp.create(&secret).await?;
        } else if found["data"] != secret["data"] {
            let annotations = &secret["metadata"]["annotations"];
            let change =
                json!({ "data": secret["data"], "metadata": { "annotations": annotations } });
            kcp.merge(&found, &change).await?;
        }
        Ok(())
    }

    async fn pending(&mut self, condition: &str, reason: &str) -> Result<()> {
        self.report("Pending", (condition, "True"), reason, "")
            .await
    }

    /// Writes the state and one condition, unless the status already contains them.
    async fn report(
        &mut self,
        state: &str,
        kind: (&str, &str),
        reason: &str,
        message: &str,
    ) -> Result<()> {
        let earlier = &self.live["status"];
        let conditions = &earlier["conditions"];
        let one = condition(conditions, kind, reason, message);
        let conditions = with_condition(conditions, one);
        let completed = state == "Ready" || earlier["provisioningCompleted"] == true;
        let status = json!({
            "state": state, "conditions": conditions, "provisioningCompleted": completed,
        });
        if *earlier != status {
            let change = json!({ "status": status });
            self.kim
                .kcp
                .merge(&self.live, &change)
                .await
                .or_else(gone)?;
            self.live["status"] = status;
        }
        Ok(())
    }
}

/// Returns the labels of the GardenerCluster and the Secret: those of [`COPIED_LABELS`], and labels that name the owner.
fn copied_labels(mut labels: Map<String, Value>) -> Value {
    labels.retain(|key, _| COPIED_LABELS.contains(&key.as_str()));
    let mut labels = Value::Object(labels);
    labels[MANAGED_BY] = json!(KIM_MANAGED_BY);
    labels["operator.kyma-project.io/internal"] = json!("true");
    labels
}

fn described_cluster(shoot: &str, runtime_id: &str, labels: &Value) -> Value {
    let mut cluster = gardener_cluster(runtime_id);
    cluster["metadata"]["labels"] = labels.clone();
    let domain = json!({ (SKR_DOMAIN): format!("{shoot}.skr.landscape.test") });
    cluster["metadata"]["annotations"] = domain;
    let secret = json!({
        "name": kubeconfig_secret(runtime_id), "namespace": KCP_NAMESPACE, "key": KUBECONFIG_KEY,
    });
    cluster["spec"] = json!({ "shoot": { "name": shoot }, "kubeconfig": { "secret": secret } });
    cluster
}

fn described_secret(kubeconfig: &str, runtime_id: &str, labels: &Value) -> Value {
    let mut secret = secret(runtime_id);
    secret["type"] = json!("Opaque");
    secret["data"] = json!({ (KUBECONFIG_KEY): BASE64.encode(kubeconfig) });
    secret["metadata"]["labels"] = labels.clone();
    secret["metadata"]["labels"][CLUSTER_NAME] = json!(runtime_id);
    let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
    let synced = json!({ "operator.kyma-project.io/last-sync": now });
    secret["metadata"]["annotations"] = synced;
    secret
}

/// Ignores the error that a Runtime does not exist, because its status is no longer needed.
fn gone(error: anyhow::Error) -> Result<()> {
    match error.downcast_ref() {
        Some(Rejected(StatusCode::NOT_FOUND, _)) => Ok(()),
        _ => Err(error),
    }
}

fn gardener_cluster(runtime_id: &str) -> Value {
    let version = format!("{RUNTIME_GROUP}/{RUNTIME_VERSION}");
    reference(&version, "GardenerCluster", KCP_NAMESPACE, runtime_id)
}

fn secret(runtime_id: &str) -> Value {
    let name = kubeconfig_secret(runtime_id);
    reference("v1", "Secret", KCP_NAMESPACE, &name)
}

const FINALIZER: &str = "runtime-controller.infrastructure-manager.kyma-project.io/deletion-hook";
const BOOTSTRAPPER: &str = "RuntimeBootstrapperReady";
const CLUSTER_NAME: &str = "operator.kyma-project.io/cluster-name";
/// Labels that a Runtime must have. If one of them is absent or empty, KIM creates no cluster.
const REQUIRED_LABELS: [&str; 7] = [
    "kyma-project.io/instance-id",
    "kyma-project.io/broker-plan-id",
    "kyma-project.io/broker-plan-name",
    "kyma-project.io/global-account-id",
    "kyma-project.io/subaccount-id",
    "kyma-project.io/region",
    KYMA_NAME,
];
/// Labels that are copied from the Runtime to the GardenerCluster and the Secret.
const COPIED_LABELS: [&str; 10] = [
    RUNTIME_ID,
    "kyma-project.io/instance-id",
    "kyma-project.io/broker-plan-id",
    "kyma-project.io/broker-plan-name",
    "kyma-project.io/global-account-id",
    "kyma-project.io/subaccount-id",
    "kyma-project.io/platform-region",
    "kyma-project.io/region",
    "kyma-project.io/shoot-name",
    KYMA_NAME,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keb::Instance;

    /// The fixture contains the objects that the public KIM writes.
    #[test]
    fn published_objects_have_the_public_shape() {
        let instance = Instance::example();
        let runtime = instance.runtime();
        let labels = runtime["metadata"]["labels"].as_object().cloned().unwrap();
        let labels = copied_labels(labels);
        let id = &instance.runtime_id;
        let mut secret = described_secret("kind: Config", id, &labels);
        let synced = &mut secret["metadata"]["annotations"]["operator.kyma-project.io/last-sync"];
        assert!(
            synced
                .as_str()
                .is_some_and(|it| it.parse::<jiff::Timestamp>().is_ok())
        );
        *synced = json!("2026-01-01T00:00:00Z");
        let objects = [described_cluster(&instance.shoot, id, &labels), secret];
        let fixture: Vec<Value> =
            serde_saphyr::from_multiple(include_str!("fixture.yaml")).unwrap();
        assert_eq!(objects[..], fixture);
    }
}
