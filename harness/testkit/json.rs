//! Objects of the Kubernetes API as JSON: what is read of them, and those that many tests make.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

/// A text; empty where there is none.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none where there is no list.
pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// The condition of an object's status that has this type; null where there is none.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let found = items(&object["status"]["conditions"]).find(|it| it["type"] == kind);
    found.unwrap_or(&Value::Null)
}

/// A Namespace.
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// A ConfigMap.
pub fn config_map(namespace: &str, name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": namespace }, "data": data,
    })
}

/// A pull Secret with a docker configuration. In `data`, not `stringData`: what is stored can then be compared with it.
pub fn pull_secret(namespace: &str, name: &str, docker_config: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": { "name": name, "namespace": namespace },
        "data": { ".dockerconfigjson": BASE64.encode(docker_config.to_string()) },
    })
}

/// A ClusterTrustBundle of certificates, PEM, which may belong to a signer.
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

/// A kubeconfig with one cluster and one user of this name; JSON is YAML.
pub fn kubeconfig(name: &str, cluster: &Value, user: &Value) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "clusters": [{ "name": name, "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
    });
    config.to_string()
}
