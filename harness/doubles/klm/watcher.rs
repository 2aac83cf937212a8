//! The watcher on the runtime: its certificate, its manifests, and whether a replica is ready.

use anyhow::{Context as _, Result, ensure};
use api::kcp::{KCP_NAMESPACE, RUNTIME_ID};
use api::names::SKR_NAMESPACE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::SanType;
use serde_json::{Value, json};
use testkit::pki::Authority;

use super::kyma::FIELD_MANAGER;
use super::{CA_NAME, CA_SECRET, Klm, WATCHER_MANIFESTS};
use crate::objects::{reference, secret_text};
use crate::{Objects, SKR_DOMAIN};

impl Klm {
    /// Applies the watcher with the certificate of this runtime. False until a replica is ready.
    pub(super) async fn reconcile_watcher(
        &self,
        skr: &Objects,
        kyma: &Value,
        name: &str,
    ) -> Result<bool> {
        let certificate = self.certificate(kyma, name).await?;
        let mut secret = reference("v1", "Secret", SKR_NAMESPACE, "skr-webhook-tls");
        secret["data"] = certificate["data"].clone();
        skr.apply(FIELD_MANAGER, &secret).await?;
        let bundle = &certificate["data"]["ca.crt"];
        let mut is_ready = false;
        for mut object in self.watcher_manifests().await? {
            let entries = object.get_mut("webhooks").and_then(Value::as_array_mut);
            for entry in entries.into_iter().flatten() {
                entry["clientConfig"]["caBundle"] = bundle.clone();
            }
            let live = skr.apply(FIELD_MANAGER, &object).await?;
            is_ready |=
                live["kind"] == "Deployment" && live["status"]["readyReplicas"].as_u64() > Some(0);
        }
        Ok(is_ready)
    }

    pub(super) async fn delete_watcher(&self, skr: &Objects) -> Result<()> {
        // The webhook configuration is the last one of the manifests; it must go first.
        for object in self.watcher_manifests().await?.iter().rev() {
            skr.delete(object).await?;
        }
        skr.delete(&reference("v1", "Secret", SKR_NAMESPACE, "skr-webhook-tls"))
            .await
    }

    async fn watcher_manifests(&self) -> Result<Vec<Value>> {
        let name = WATCHER_MANIFESTS;
        let found = self
            .kcp
            .find(&reference("v1", "ConfigMap", KCP_NAMESPACE, name))
            .await?;
        let text = found["data"]["manifest.yaml"].as_str();
        let text = text.with_context(|| format!("ConfigMap {name} has no manifest.yaml"))?;
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(text)?;
        objects.retain(|it| it["kind"].is_string());
        Ok(objects)
    }

    /// The Secret on KCP with the certificate of a runtime, made on first use. The public manager orders it from cert-manager.
    async fn certificate(&self, kyma: &Value, name: &str) -> Result<Value> {
        let mut secret = certificate(name);
        let found = self.kcp.find(&secret).await?;
        if !found.is_null() {
            return Ok(found);
        }
        let domain = kyma["metadata"]["annotations"][SKR_DOMAIN].as_str();
        let domain = domain.context("the Kyma has no annotation skr-domain")?;
        let runtime = kyma["metadata"]["labels"][RUNTIME_ID].as_str();
        let runtime = runtime.context("the Kyma has no runtime ID")?;
        let ca = reference("v1", "Secret", KCP_NAMESPACE, CA_SECRET);
        let ca = self.kcp.find(&ca).await?;
        ensure!(!ca.is_null(), "Secret {CA_SECRET} does not exist");
        let authority = Authority::of_key(CA_NAME, &secret_text(&ca, "ca.key")?)?;
        let names = [domain, SERVICE, SERVICE_DNS].map(|it| Ok(SanType::DnsName(it.try_into()?)));
        let names = names.into_iter().collect::<Result<_, rcgen::Error>>()?;
        let leaf = authority.leaf_with(runtime, |params| params.subject_alt_names = names)?;
        secret["data"] = json!({
            "ca.crt": ca["data"]["ca.crt"],
            "tls.crt": BASE64.encode(&leaf.pem),
            "tls.key": BASE64.encode(leaf.key_pem()),
        });
        self.kcp.create(&secret).await?;
        Ok(secret)
    }

    pub(super) async fn delete_certificate(&self, name: &str) -> Result<()> {
        self.kcp.delete(&certificate(name)).await
    }
}

fn certificate(name: &str) -> Value {
    reference(
        "v1",
        "Secret",
        KCP_NAMESPACE,
        &format!("{name}-webhook-tls"),
    )
}

const SERVICE: &str = "skr-webhook.kyma-system.svc";
const SERVICE_DNS: &str = "skr-webhook.kyma-system.svc.cluster.local";
