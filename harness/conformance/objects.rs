//! The objects of a landscape: what a landscape owner writes on KCP, and what runtimes have.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::model::Landscape;

/// Namespace, ConfigMap, pull Secret and ClusterTrustBundle of a landscape in a namespace of a runtime or of KCP, with the
/// docker configuration that has the credentials and the certificates of the bundle, PEM.
///
/// # Errors
/// The docker configuration is not JSON.
pub fn objects(
    landscape: &Landscape,
    namespace: &str,
    docker_config: &str,
    pem: &str,
) -> Result<Vec<Value>> {
    let document = Value::Object(landscape.config.clone());
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": api::names::CONFIG_MAP, "namespace": namespace },
            "data": { (api::names::CONFIG_KEY): format!("{document:#}") },
        }),
    ];
    if let Some(secret) = &landscape.pull_secret {
        let docker_config: Value = serde_json::from_str(docker_config)?;
        let encoded = BASE64.encode(docker_config.to_string());
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret", "type": api::names::DOCKER_CONFIG_TYPE,
            "metadata": { "name": secret.name, "namespace": namespace },
            "data": { (api::names::DOCKER_CONFIG_KEY): encoded },
        }));
    }
    if let Some(trust) = &landscape.trust {
        let mut bundle = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": { "name": trust.name }, "spec": { "trustBundle": pem },
        });
        if let Some(signer) = &trust.signer {
            bundle["spec"]["signerName"] = json!(signer);
        }
        objects.push(bundle);
    }
    Ok(objects)
}

/// The hosts that a pull Secret has credentials for; nothing else of it is kept.
///
/// # Errors
/// The Secret is not of the type, or its content is not a docker configuration. The error has nothing of the content.
pub(crate) fn hosts(secret: &Value) -> Result<Vec<String>> {
    let invalid = || {
        anyhow::anyhow!(
            "expected type {} with a docker configuration",
            api::names::DOCKER_CONFIG_TYPE
        )
    };
    let encoded = secret["data"][api::names::DOCKER_CONFIG_KEY].as_str();
    let bytes = BASE64
        .decode(encoded.ok_or_else(invalid)?)
        .map_err(|_| invalid())?;
    let content: Value = serde_json::from_slice(&bytes).map_err(|_| invalid())?;
    let auths = content["auths"].as_object().ok_or_else(invalid)?;
    Ok(auths.keys().cloned().collect())
}
