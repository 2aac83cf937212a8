//! A mutating webhook other than the product's, on a free port of this machine: for example a service mesh that changes the
//! same Pods, or another implementation of the registry rewrite.

use std::collections::BTreeMap;

use anyhow::Result;
use axum::body::Bytes;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use serve::pair::CertificatePair;
use serve::{Options, Server, TlsHandle, server_config};
use testkit::client::Client;
use testkit::json::{items, text};
use testkit::pki::Authority;
use testkit::pki::rcgen::SanType;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::install::this_machine;

/// Serves a webhook with a certificate of its own CA. Its response is the JSON patch that `decide` returns for the request of a
/// review. Returns the `clientConfig` for the registration, and the task of the server.
pub(crate) async fn serve<D: Future<Output = Value> + Send>(
    node: &str,
    decide: impl Fn(Value) -> D + Clone + Send + Sync + 'static,
) -> Result<(Value, JoinHandle<()>)> {
    let host = this_machine(node)?;
    let ca = Authority::new("other webhook")?;
    let leaf = ca.leaf_with("other webhook", |it| {
        it.subject_alt_names = vec![SanType::IpAddress(host)];
    })?;
    let pair = CertificatePair::from_pem(leaf.pem.as_bytes(), leaf.key_pem().as_bytes())?;
    let options = Options::tls(TlsHandle::new(server_config(&pair)?));
    let server = Server::bind((host, 0).into(), options).await?;
    let url = format!("https://{}/", server.local_addr());
    let answer = post(move |body: Bytes| async move {
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        let uid = review["request"]["uid"].clone();
        let patch = decide(review["request"].clone()).await.to_string();
        let response = json!({
            "uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": BASE64.encode(patch),
        });
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }).to_string()
    });
    let router = axum::Router::new().route("/", answer);
    let task = tokio::spawn(async move {
        if let Err(error) = server.run(router, CancellationToken::new()).await {
            tracing::error!(%error, "the other webhook ended");
        }
    });
    let config = json!({ "url": url, "caBundle": BASE64.encode(ca.pem()) });
    Ok((config, task))
}

/// Returns the registration for Pods that are created in the Namespaces of a selector. Its name sorts after the product's, so
/// that it is called later.
pub(crate) fn registration(client_config: &Value, namespaces: &Value) -> Value {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
    });
    json!({
        "webhooks": [{
            "name": "another.harness.test",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": client_config, "rules": [rule], "namespaceSelector": namespaces,
        }],
    })
}

/// Returns the patch of another implementation of the registry rewrite, for a Pod that opts in itself or by its Namespace.
pub(crate) async fn rewrite(
    client: Client,
    overrides: BTreeMap<String, String>,
    request: Value,
) -> Value {
    let namespace = request["namespace"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{namespace}");
    let namespace = client.find(&path).await.unwrap_or_default();
    let pod = &request["object"];
    let opts_in = |object: &Value| {
        let annotations = &object["metadata"]["annotations"];
        OPT_IN.iter().any(|it| annotations[*it] == "true")
    };
    if !opts_in(pod) && !opts_in(&namespace) {
        return json!([]);
    }
    let mut operations = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in items(&pod["spec"][list]).enumerate() {
            if let Some((host, rest)) = text(&container["image"]).split_once('/')
                && let Some(to) = overrides.get(host)
            {
                let path = format!("/spec/{list}/{index}/image");
                let value = format!("{to}/{rest}");
                operations.push(json!({ "op": "replace", "path": path, "value": value }));
            }
        }
    }
    json!(operations)
}

/// The annotations of the contract, as in `docs/webhook.md`.
const OPT_IN: [&str; 2] = [
    "rt-cfg.kyma-project.io/alter-img-registry",
    "rt-cfg.kyma-project.io/all",
];
