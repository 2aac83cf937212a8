//! Kubernetes objects of the gateway.

use std::net::SocketAddr;

use api::runtimes::KCP_NAMESPACE;
use serde_json::{Value, json};

use super::bootstrap::{ADMIN_PORT, CERTIFICATES, EVENTS_PORT, FOLDER, PORT, secrets, service};
use super::certificates::Certificates;
use super::{NAME, NAMESPACE, NODE_PORT};
use clusters::images::digest;

const SECRET: &str = "kcp-gateway-tls";

pub(super) fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

pub(super) fn secret(certificates: &Certificates) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": metadata(SECRET),
        "stringData": certificates.files(),
    })
}

/// ConfigMap, Service and Deployment.
pub(super) fn deployed(image: &str, configuration: &str) -> [Value; 3] {
    let mut files = serde_json::Map::new();
    files.insert("envoy.json".to_owned(), json!(configuration));
    for (name, secret) in secrets() {
        files.insert(name.to_owned(), json!(secret.to_string()));
    }
    let version = digest(json!(files).to_string().as_bytes());
    [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": metadata(NAME), "data": files,
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": metadata(NAME),
            "spec": {
                "type": "NodePort", "selector": { "app": NAME },
                "ports": [{ "name": "https", "port": 443, "targetPort": PORT, "nodePort": NODE_PORT }],
            },
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": metadata(NAME),
            "spec": {
                "selector": { "matchLabels": { "app": NAME } },
                "strategy": { "type": "Recreate" },
                "template": {
                    "metadata": {
                        "labels": { "app": NAME }, "annotations": { "harness/configuration": version },
                    },
                    "spec": pod(image),
                },
            },
        }),
    ]
}

fn pod(image: &str) -> Value {
    let mount = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    json!({
        "automountServiceAccountToken": false,
        // Scenarios stop it, and connections need not end in order.
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "envoy", "image": image, "imagePullPolicy": "Never",
            "args": [
                "--config-path", format!("{FOLDER}/envoy.json"),
                "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning",
            ],
            "ports": [{ "containerPort": PORT }, { "containerPort": ADMIN_PORT }],
            "readinessProbe": {
                "httpGet": { "path": "/ready", "port": ADMIN_PORT }, "periodSeconds": 1,
            },
            "securityContext": {
                "runAsNonRoot": true, "readOnlyRootFilesystem": true,
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            },
            "volumeMounts": [mount("configuration", FOLDER), mount("certificates", CERTIFICATES)],
        }],
        "volumes": [
            { "name": "configuration", "configMap": { "name": NAME } },
            { "name": "certificates", "secret": { "secretName": SECRET } },
        ],
    })
}

/// The Service of a manager's listener, which is outside of the cluster.
pub(super) fn events_service(manager: &str, address: SocketAddr) -> [Value; 2] {
    let name = service(manager);
    let metadata =
        |labels: Value| json!({ "name": name, "namespace": KCP_NAMESPACE, "labels": labels });
    [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": metadata(json!({})),
            "spec": { "ports": [{ "name": "http", "port": EVENTS_PORT }] },
        }),
        endpoints(
            &metadata(json!({ "kubernetes.io/service-name": name })),
            &address.ip().to_string(),
            ("http", address.port()),
        ),
    ]
}

/// An EndpointSlice without Pods.
pub(super) fn endpoints(metadata: &Value, address: &str, (name, port): (&str, u16)) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": metadata, "addressType": "IPv4",
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "name": name, "port": port, "protocol": "TCP" }],
    })
}

fn metadata(name: &str) -> Value {
    json!({ "name": name, "namespace": NAMESPACE, "labels": { "app": NAME } })
}
