//! The watcher on a runtime, as the public manager applies it at each reconcile of a Kyma: all objects at once, with force.

use anyhow::{Context as _, Result};
use api::kcp::MANAGED_BY;
use api::names::SKR_NAMESPACE;
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::kyma::{FIELD_MANAGER, runtime};
use super::{GATEWAY_NAMESPACE, GATEWAY_SECRET};
use crate::objects::reference;
use crate::{KYMA_GROUP, KYMA_VERSION, Objects};

/// Applies the objects of the watcher on the runtime of a Kyma. `image` is the image of the watcher; `address` is the host and
/// port of the gateway, which the public manager reads from a flag and a Gateway.
pub async fn apply_watcher(kcp: &Objects, kyma: &str, image: &str, address: &str) -> Result<()> {
    let secret = |name: &str| reference("v1", "Secret", GATEWAY_NAMESPACE, name);
    let gateway = kcp.find(&secret(GATEWAY_SECRET)).await?;
    let client = kcp.find(&secret(&format!("{kyma}-webhook-tls"))).await?;
    let runtime = runtime(kcp, kyma).await?;
    let installed = Installed {
        image,
        address,
        watchers: watchers(kcp).await?,
        gateway,
        client,
    };
    let objects = installed.objects()?;
    let applied = objects.iter().map(|it| runtime.apply(FIELD_MANAGER, it));
    try_join_all(applied).await.map(drop)
}

/// Inputs of the objects.
struct Installed<'a> {
    image: &'a str,
    address: &'a str,
    watchers: Vec<Value>,
    /// Secret of the gateway; the watcher trusts its CAs.
    gateway: Value,
    /// Secret with the client certificate of the Kyma.
    client: Value,
}

impl Installed<'_> {
    fn objects(&self) -> Result<Vec<Value>> {
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(include_str!("watcher.yaml"))?;
        for object in &mut objects {
            let metadata = &mut object["metadata"];
            metadata["namespace"] = json!(SKR_NAMESPACE);
            metadata["labels"] = json!({ (MANAGED_BY): "kyma" });
            match object["kind"].as_str().unwrap_or_default() {
                "Deployment" => self.complete_deployment(object),
                "NetworkPolicy" if object["metadata"]["name"] == TO_KCP => {
                    let port = self
                        .address
                        .rsplit_once(':')
                        .context("an address without port")?;
                    object["spec"]["egress"][0]["ports"][0]["port"] = json!(port.1.parse::<u16>()?);
                }
                "Secret" => object["data"] = self.certificate()?,
                "ValidatingWebhookConfiguration" => {
                    let webhooks = self.watchers.iter().map(|it| self.webhook(it));
                    object["webhooks"] = json!(webhooks.collect::<Vec<_>>());
                }
                _ => {}
            }
        }
        Ok(objects)
    }

    fn complete_deployment(&self, deployment: &mut Value) {
        let template = &mut deployment["spec"]["template"];
        let version = &self.client["metadata"]["resourceVersion"];
        template["metadata"]["labels"][RESTART_LABEL] = version.clone();
        let container = &mut template["spec"]["containers"][0];
        container["image"] = json!(self.image);
        let address = json!({ "name": "KCP_ADDR", "value": self.address });
        if let Some(variables) = container["env"].as_array_mut() {
            variables.push(address);
        }
    }

    fn certificate(&self) -> Result<Value> {
        let of = |secret: &Value, key: &str| {
            let value = secret["data"][key].as_str().map(str::to_owned);
            value.with_context(|| format!("a Secret on KCP has no {key}"))
        };
        Ok(json!({
            "ca.crt": of(&self.gateway, "ca.crt")?,
            "tls.crt": of(&self.client, "tls.crt")?,
            "tls.key": of(&self.client, "tls.key")?,
        }))
    }

    /// Returns the webhook entry of a Watcher.
    fn webhook(&self, watcher: &Value) -> Value {
        let (metadata, spec) = (&watcher["metadata"], &watcher["spec"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let manager = match text(&spec["manager"]) {
            none if none.is_empty() => text(&metadata["labels"][MANAGED_BY]),
            named => named,
        };
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let resource = &spec["resourceToWatch"];
        let suffix = if spec["field"] == "status" {
            "/status"
        } else {
            ""
        };
        json!({
            "name": format!("{namespace}.{name}.{KYMA_GROUP}"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": self.gateway["data"]["ca.crt"],
                "service": {
                    "name": "skr-webhook", "namespace": SKR_NAMESPACE, "path": format!("/validate/{manager}"),
                },
            },
            "objectSelector": { "matchLabels": spec["labelsToWatch"] },
            "rules": [{
                "apiGroups": [resource["group"]], "apiVersions": [resource["version"]],
                "resources": [format!("{}{suffix}", text(&resource["resource"]))],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }],
            "sideEffects": "NoneOnDryRun", "failurePolicy": "Ignore", "timeoutSeconds": 15,
        })
    }
}

async fn watchers(kcp: &Objects) -> Result<Vec<Value>> {
    kcp.items(&format!("/apis/{KYMA_GROUP}/{KYMA_VERSION}/watchers"))
        .await
}

/// Name of the NetworkPolicy that permits connections to the gateway.
const TO_KCP: &str = "kyma-project.io--watcher-to-apiserver";
/// Label of the Pods that changes with the certificate, so that the Pods restart.
const RESTART_LABEL: &str = "operator.kyma-project.io/pod-restart-trigger";

#[cfg(test)]
mod tests {
    use super::*;

    /// The webhook entry of a Watcher is that of the public manager.
    #[test]
    fn a_watcher_is_a_webhook_that_ignores_failures() {
        let secret = |key: &str| json!({ "data": { (key): "YQ==" }, "metadata": { "resourceVersion": "7" } });
        let mut client = secret("tls.crt");
        client["data"]["tls.key"] = json!("Yg==");
        let installed = Installed {
            image: "registry.test/runtime-watcher:1",
            address: "kcp.test:443",
            watchers: vec![json!({
                "metadata": { "namespace": "kcp-system", "name": "kymas", "labels": { (MANAGED_BY): "some-manager" } },
                "spec": {
                    "field": "status", "labelsToWatch": { "a": "b" },
                    "resourceToWatch": { "group": KYMA_GROUP, "version": "*", "resource": "kymas" },
                },
            })],
            gateway: secret("ca.crt"),
            client,
        };
        let objects = installed.objects().unwrap();
        assert_eq!(objects.len(), 10);
        let webhook = &objects[9]["webhooks"][0];
        assert_eq!(webhook["name"], "kcp-system.kymas.operator.kyma-project.io");
        assert_eq!(
            webhook["clientConfig"]["service"]["path"],
            "/validate/some-manager"
        );
        assert_eq!(webhook["clientConfig"]["caBundle"], "YQ==");
        assert_eq!(webhook["rules"][0]["resources"], json!(["kymas/status"]));
        assert_eq!(webhook["failurePolicy"], "Ignore");
        let template = &objects[7]["spec"]["template"];
        assert_eq!(template["metadata"]["labels"][RESTART_LABEL], "7");
        let variables = template["spec"]["containers"][0]["env"].as_array().unwrap();
        assert_eq!(variables.last().unwrap()["value"], "kcp.test:443");
    }
}
