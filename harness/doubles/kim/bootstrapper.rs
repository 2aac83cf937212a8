//! Objects that KIM copies to a runtime and installs there.

use anyhow::{Context as _, Result};
use api::kcp::{KCP_NAMESPACE, KIM_FIELD_MANAGER, VERSION_LABEL, WEBHOOK_DEPLOYMENT};
use api::names::{CONFIG_MAP, PULL_SECRET, SKR_NAMESPACE};
use serde_json::{Value, json};

use crate::Objects;
use crate::objects::reference;

/// Names of the objects that KIM copies and installs, as in its flags.
#[derive(Debug, Clone)]
pub struct Bootstrapper {
    /// ConfigMap on KCP with the manifests, under the key `manifests.yaml`.
    pub manifests: String,
    /// Pull Secret on KCP; `None` if KIM does not copy it.
    pub pull_secret: Option<String>,
    /// ClusterTrustBundle on KCP and on runtimes; `None` if KIM does not copy it.
    pub trust_bundle: Option<String>,
}

/// State of the installation on a runtime. Reasons are those of condition `RuntimeBootstrapperReady`.
pub(super) enum Installation {
    Configured,
    Pending(&'static str, String),
    Failed(&'static str, String),
}

impl Bootstrapper {
    /// Copies the sources, then installs or upgrades the webhook.
    pub(super) async fn reconcile(&self, kcp: &Objects, skr: &Objects) -> Installation {
        use Installation::{Configured, Failed, Pending};
        let text = |error: anyhow::Error| format!("{error:#}");
        if let Err(error) = self.configure(kcp, skr).await {
            return Pending("RuntimeBootstrapperConfigurationFailed", text(error));
        }
        let deployment = reference("apps/v1", "Deployment", SKR_NAMESPACE, WEBHOOK_DEPLOYMENT);
        let read = async { anyhow::Ok((self.manifests(kcp).await?, skr.find(&deployment).await?)) };
        let (manifests, live) = match read.await {
            Ok(read) => read,
            Err(error) => return Pending("RuntimeBootstrapperStatusUnknown", text(error)),
        };
        if live.is_null() {
            return match install(skr, &manifests).await {
                Ok(()) => Pending("RuntimeBootstrapperInstallationInProgress", String::new()),
                Err(error) => Pending("RuntimeBootstrapperInstallationFailed", text(error)),
            };
        }
        match status(&live) {
            Status::Ready => match is_current(&live, &manifests) {
                Ok(true) => Configured,
                Ok(false) => match install(skr, &manifests).await {
                    Ok(()) => Pending("RuntimeBootstrapperUpgradeInProgress", String::new()),
                    Err(error) => Pending("RuntimeBootstrapperUpgradeFailed", text(error)),
                },
                Err(error) => Pending("RuntimeBootstrapperStatusUnknown", text(error)),
            },
            Status::Progressing => {
                Pending("RuntimeBootstrapperInstallationInProgress", String::new())
            }
            Status::Failed => {
                let message = "the Deployment does not progress".to_owned();
                Failed("RuntimeBootstrapperInstallationFailed", message)
            }
        }
    }

    /// Reads all sources before it writes the first one. All sources that the settings name must exist.
    async fn configure(&self, kcp: &Objects, skr: &Objects) -> Result<()> {
        let mut pairs = vec![(
            reference("v1", "ConfigMap", KCP_NAMESPACE, CONFIG_MAP),
            reference("v1", "ConfigMap", SKR_NAMESPACE, CONFIG_MAP),
            &["data"][..],
        )];
        if let Some(name) = &self.pull_secret {
            pairs.push((
                reference("v1", "Secret", KCP_NAMESPACE, name),
                reference("v1", "Secret", SKR_NAMESPACE, PULL_SECRET),
                &["data", "type"],
            ));
        }
        if let Some(name) = &self.trust_bundle {
            let bundle = reference(TRUST_BUNDLES, "ClusterTrustBundle", "", name);
            pairs.push((bundle.clone(), bundle, &["spec"]));
        }
        let mut copies = Vec::new();
        for (source, mut copy, fields) in pairs {
            let found = kcp.find(&source).await?;
            let name = &source["metadata"]["name"];
            anyhow::ensure!(!found.is_null(), "{} {name} does not exist", source["kind"]);
            for field in fields {
                copy[field] = found[field].clone();
            }
            copies.push((copy, fields[0]));
        }
        for (copy, compared) in copies {
            if skr.find(&copy).await?[compared] != copy[compared] {
                skr.apply(KIM_FIELD_MANAGER, &copy).await?;
            }
        }
        Ok(())
    }

    /// Returns the text of the manifests. Without the key `manifests.yaml` in the ConfigMap the text is empty, as in the public
    /// KIM.
    async fn manifests(&self, kcp: &Objects) -> Result<String> {
        let name = &self.manifests;
        let found = kcp
            .find(&reference("v1", "ConfigMap", KCP_NAMESPACE, name))
            .await?;
        anyhow::ensure!(!found.is_null(), "ConfigMap {name:?} does not exist");
        let text = found["data"]["manifests.yaml"].as_str();
        Ok(text.unwrap_or_default().to_owned())
    }
}

/// Whether a Deployment has the version of the first Deployment of the manifests.
fn is_current(live: &Value, manifests: &str) -> Result<bool> {
    let version = |it: &Value| it["metadata"]["labels"][VERSION_LABEL].clone();
    for manifest in documents(manifests) {
        let manifest = manifest?;
        if manifest["kind"] == "Deployment" {
            return Ok(version(&manifest) == version(live));
        }
    }
    Ok(false)
}

/// Returns the objects that KIM installs on a runtime: the public manifests, with an image that contains this product's binary
/// as `/manager`.
pub fn public_webhook(image: &str) -> Result<Vec<Value>> {
    let text = include_str!("webhook.yaml").replace("image: IMAGE", &format!("image: {image}"));
    documents(&text).collect()
}

/// Returns the YAML documents of manifests. Like the public KIM, it splits the text at every `---`, even within a value.
fn documents(text: &str) -> impl Iterator<Item = Result<Value>> {
    let pieces = text.split("---").map(|piece| {
        let document: Option<Value> = serde_saphyr::from_str(piece).context("not YAML")?;
        Ok(document.filter(|it| it["kind"].is_string()))
    });
    pieces.filter_map(Result::transpose)
}

/// Creates objects that do not exist, with the default field manager, and applies the others. The first error ends the
/// installation; objects that were written before stay.
async fn install(skr: &Objects, manifests: &str) -> Result<()> {
    for manifest in documents(manifests) {
        let mut manifest = manifest?;
        let live = skr.find(&manifest).await?;
        if live.is_null() {
            skr.create(&manifest).await?;
        } else {
            manifest["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            skr.apply(KIM_FIELD_MANAGER, &manifest).await?;
        }
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Status {
    Ready,
    Progressing,
    Failed,
}

/// Returns the status of a Deployment as the public KIM does, which ignores the observed generation and updated replicas.
fn status(deployment: &Value) -> Status {
    let conditions = deployment["status"]["conditions"].as_array();
    let is_true = |kind: &str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == kind && it["status"] == "True")
    };
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let ready = deployment["status"]["readyReplicas"].as_u64().unwrap_or(0);
    if ready >= wanted && is_true("Available") {
        Status::Ready
    } else if is_true("Progressing") || deployment["status"] == json!({}) || conditions.is_none() {
        Status::Progressing
    } else {
        Status::Failed
    }
}

const TRUST_BUNDLES: &str = "certificates.k8s.io/v1beta1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_cut_at_every_three_dashes_as_the_public_manager_cuts_them() {
        let found = documents("kind: A\n---\n# a comment\n---\nkind: B\nmetadata: {name: b}\n");
        let kinds: Vec<Value> = found.map(|it| it.unwrap()["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B"]);
        let broken = "kind: A\ndata: {ca: \"-----BEGIN CERTIFICATE-----\"}\n";
        assert!(documents(broken).any(|it| it.is_err()));
    }

    #[test]
    fn public_manifests_have_what_the_manifests_of_the_controller_do_not_name() {
        let manifests = public_webhook("localhost/webhook:1").unwrap();
        let of = |kind: &str| manifests.iter().find(|it| it["kind"] == kind).unwrap();
        let pod = &of("Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "localhost/webhook:1");
        assert_eq!(pod["containers"][0]["command"], json!(["/manager"]));
        assert_eq!(pod["volumes"][0]["name"], "rt-bootstrapper-config");
        let entry = &of("MutatingWebhookConfiguration")["webhooks"][0];
        assert_eq!(
            entry["objectSelector"]["matchExpressions"][0]["operator"],
            "NotIn"
        );
    }

    #[rstest::rstest]
    #[case::fresh(json!({}), Status::Progressing)]
    #[case::available(json!({"readyReplicas": 2, "conditions": [
        {"type": "Available", "status": "True"}]}), Status::Ready)]
    #[case::older_generation(json!({"observedGeneration": 1, "readyReplicas": 2, "updatedReplicas": 0, "conditions": [
        {"type": "Available", "status": "True"}]}), Status::Ready)]
    #[case::one_replica(json!({"readyReplicas": 1, "conditions": [
        {"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True"}]}), Status::Progressing)]
    #[case::deadline(json!({"readyReplicas": 1, "conditions": [
        {"type": "Available", "status": "False"}, {"type": "Progressing", "status": "False"}]}), Status::Failed)]
    fn a_deployment_is_judged_by_ready_replicas_and_conditions(
        #[case] status_of: Value,
        #[case] expected: Status,
    ) {
        let deployment = json!({
            "metadata": { "generation": 2 }, "spec": { "replicas": 2 }, "status": status_of,
        });
        assert_eq!(status(&deployment), expected);
    }
}
