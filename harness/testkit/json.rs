//! Objects of the Kubernetes API as JSON: accessors, and objects that many tests create.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

/// Returns a text; empty if the value is not a string.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the items of a list; none if the value is not a list.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the name of an object.
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// Returns the condition of this type in an object's status; null if it is absent.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let found = items(&object["status"]["conditions"]).find(|it| it["type"] == kind);
    found.unwrap_or(&Value::Null)
}

/// Returns a Namespace.
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Returns a ConfigMap.
pub fn config_map(namespace: &str, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace }, "data": data,
    })
}

/// Returns a pull Secret with a docker configuration. It uses `data` instead of `stringData`, so that the stored object can be
/// compared.
pub fn pull_secret(namespace: &str, name: &str, docker_config: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": { "name": name, "namespace": namespace },
        "data": { ".dockerconfigjson": BASE64.encode(docker_config.to_string()) },
    })
}

/// Returns a ClusterTrustBundle with certificates in PEM and an optional signer.
pub fn trust_bundle(name: &str, signer: Option<&str>, pem: &str) -> Value {
    let mut bundle = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": { "name": name }, "spec": { "trustBundle": pem },
    });
    if let Some(signer) = signer {
        bundle["spec"]["signerName"] = json!(signer);
    }
    bundle
}

/// Returns a kubeconfig with one cluster and one user of this name. It is JSON, which is valid YAML.
pub fn kubeconfig(name: &str, cluster: &Value, user: &Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "clusters": [{ "name": name, "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
    });
    config.to_string()
}
