//! Another mutating webhook: it adds a container to each Pod of one Namespace, as a service mesh does.
//!
//! The API server calls it after the product's (by its name), on an address of this machine that the container of the
//! cluster reaches, with a certificate of its own authority.

use anyhow::Result;
use axum::body::Bytes;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use serve::pair::CertificatePair;
use serve::{Options, Server, TlsHandle, server_config};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixtures::this_machine;

/// Serves on a free port of this machine's address on the way to a cluster's node. Gives the registration for Pods that are
/// created in one Namespace, and the task that serves.
pub(crate) async fn serve(
    node: &str,
    namespace: &str,
    container: Value,
) -> Result<(Value, JoinHandle<()>)> {
    let host = this_machine(node)?;
    let made = rcgen::generate_simple_self_signed([host.to_string()])?;
    let (ca_pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let pair = CertificatePair::from_pem(ca_pem.as_bytes(), key.as_bytes())?;
    let options = Options::tls(TlsHandle::new(server_config(&pair)?));
    let server = Server::bind((host, 0).into(), options).await?;
    let url = format!("https://{}/", server.local_addr());
    let answer = post(move |body: Bytes| async move { add(&body, &container) });
    let router = axum::Router::new().route("/", answer);
    let task = tokio::spawn(async move {
        if let Err(error) = server.run(router, CancellationToken::new()).await {
            tracing::error!(%error, "the second webhook ended");
        }
    });
    let registration = json!({
        "webhooks": [{
            "name": "adds-a-container.harness.test",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": { "url": url, "caBundle": BASE64.encode(ca_pem) },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
        }],
    });
    Ok((registration, task))
}

fn add(body: &[u8], container: &Value) -> String {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    let patch = json!([{ "op": "add", "path": "/spec/containers/-", "value": container }]);
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true,
            "patchType": "JSONPatch", "patch": BASE64.encode(patch.to_string()),
        },
    })
    .to_string()
}
