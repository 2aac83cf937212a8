//! What a cluster needs to be part of a landscape: the three sources, as KIM would write them.
//!
//! Invariant: a pure function of the scenario and the place but for the authorities, which are made on first use.

use api::names;
use serde_json::{Value, json};

use super::{Landscape, placed};

/// Where a landscape is run.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Host and port of the private registry.
    pub registry: &'a str,
    /// What opens it: the content of a Secret of type `kubernetes.io/dockerconfigjson`.
    pub docker_config: &'a str,
}

/// Namespace, ConfigMap, pull Secret and ClusterTrustBundle, as a stream that can be applied.
///
/// # Errors
/// When an authority can be neither read nor made.
pub fn objects(landscape: &Landscape, place: Place<'_>) -> anyhow::Result<String> {
    let namespace = names::SKR_NAMESPACE;
    let document = placed(&landscape.config, place.registry);
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": names::CONFIG_MAP, "namespace": namespace },
            "data": { (names::CONFIG_KEY): format!("{document:#}") },
        }),
    ];
    if let Some(secret) = &landscape.pull_secret {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": secret.name, "namespace": namespace },
            "type": names::DOCKER_CONFIG_TYPE,
            "stringData": { (names::DOCKER_CONFIG_KEY): place.docker_config },
        }));
    }
    if let Some(trust) = &landscape.trust {
        let mut spec = json!({ "trustBundle": trust.pem()? });
        if let Some(signer) = &trust.signer {
            spec["signerName"] = json!(signer);
        }
        objects.push(json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": { "name": trust.name }, "spec": spec,
        }));
    }
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}
