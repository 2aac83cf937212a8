//! The objects of a landscape, on KCP and on runtimes.

use anyhow::{Context as _, Result};
use api::names::{CONFIG_KEY, CONFIG_MAP, DOCKER_CONFIG_KEY, DOCKER_CONFIG_TYPE};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use testkit::json;

use crate::model::Landscape;

/// Returns Namespace, ConfigMap, pull Secret and ClusterTrustBundle of a landscape, in a namespace of a runtime or of KCP.
/// `docker_config` contains the credentials, and `pem` the certificates of the bundle.
///
/// # Errors
///
/// The docker configuration is not JSON.
pub fn objects(
    landscape: &Landscape,
    namespace: &str,
    docker_config: &str,
    pem: &str,
) -> Result<Vec<Value>> {
    let document = format!("{:#}", Value::Object(landscape.config.clone()));
    let mut objects = vec![
        json::namespace(namespace),
        json::config_map(namespace, CONFIG_MAP, &json!({ (CONFIG_KEY): document })),
    ];
    if let Some(secret) = &landscape.pull_secret {
        let docker_config = serde_json::from_str(docker_config)?;
        objects.push(json::pull_secret(namespace, &secret.name, &docker_config));
    }
    if let Some(trust) = &landscape.trust {
        let signer = trust.signer.as_deref();
        objects.push(json::trust_bundle(&trust.name, signer, pem));
    }
    Ok(objects)
}

/// Returns the hosts for which a pull Secret has credentials, and no other data of it.
///
/// # Errors
///
/// The Secret has another type, or its data is not a docker configuration. The error contains no data of the Secret.
pub(crate) fn hosts(secret: &Value) -> Result<Vec<String>> {
    let content = || {
        let encoded = secret["data"][DOCKER_CONFIG_KEY].as_str()?;
        let content: Value = serde_json::from_slice(&BASE64.decode(encoded).ok()?).ok()?;
        Some(content["auths"].as_object()?.keys().cloned().collect())
    };
    content()
        .with_context(|| format!("expected type {DOCKER_CONFIG_TYPE} with a docker configuration"))
}
