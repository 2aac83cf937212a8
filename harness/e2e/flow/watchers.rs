//! Dependencies of the controller of Watchers on KCP: cert-manager, the definitions of Istio, and the Watchers.

use anyhow::{Result, ensure};
use api::kcp::KCP_NAMESPACE;
use clusters::cluster::Cluster;
use clusters::images;
use clusters::setup::definitions;
use doubles::klm::{GATEWAY_NAMESPACE, GATEWAY_SECRET, MANAGER};
use serde_json::{Value, json};
use testkit::json::namespace;

use super::rotation::{CA, CA_CERTIFICATE};
use crate::definitions::eventually;
use crate::gateway::HOST;
use crate::install::{apply, printed};
use testkit::client::Client;

/// Label by which Watchers select the Istio Gateway.
const LABEL: &str = "operator.kyma-project.io/watcher-gateway";

/// Installs everything except the controller, without waiting for cert-manager.
pub(super) async fn install(kcp: &Cluster, watchers: &[conformance::Watcher]) -> Result<()> {
    let cert_manager = images::cert_manager().await?;
    kcp.load_image(&cert_manager).await?;
    kcp.apply(&definitions().await?).await?;
    let issuer = include_str!("../watching/cert-manager.yaml");
    let issuer = issuer.replace("IMAGE", &cert_manager.reference);
    kcp.apply(&issuer).await?;
    apply(kcp, &printed(&["crds", "--watchers"]).await?).await?;
    let mut objects = vec![namespace(GATEWAY_NAMESPACE)];
    objects.extend(watchers.iter().map(watcher));
    if watchers.is_empty() {
        objects.push(own_watcher());
    }
    apply(kcp, &objects).await
}

/// Creates the Certificate of the CA as the lifecycle-manager does: with the host of the gateway, which presents the CA itself.
pub(super) async fn provide_authority(kcp: &Client) -> Result<()> {
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": { "name": CA_CERTIFICATE, "namespace": GATEWAY_NAMESPACE },
        "spec": {
            "isCA": true, "commonName": "klm-watcher-selfsigned-ca", "dnsNames": [HOST],
            "secretName": CA, "issuerRef": { "name": "klm-watcher-root" },
        },
    });
    eventually("the CA is requested", async || {
        kcp.apply(MANAGER, &certificate).await.map(drop)
    })
    .await
}

/// Waits until the controller has written the Secret of the gateway.
pub(super) async fn has_gateway_secret(kcp: &Client) -> Result<()> {
    let path = format!("/api/v1/namespaces/{GATEWAY_NAMESPACE}/secrets/{GATEWAY_SECRET}");
    eventually("the gateway has a certificate", async || {
        ensure!(
            kcp.find(&path).await?.is_object(),
            "no Secret {GATEWAY_SECRET}"
        );
        Ok(())
    })
    .await
}

/// Returns a Watcher of a scenario file.
fn watcher(of: &conformance::Watcher) -> Value {
    let (manager, field) = (&of.manager, &of.field);
    let (labels, resource) = (&of.labels, &of.resource);
    let spec = json!({
        "manager": manager, "field": field, "labelsToWatch": labels, "resourceToWatch": resource,
    });
    with_service(&of.name, spec)
}

/// Returns the Watcher that lifecycle-manager installs.
fn own_watcher() -> Value {
    let spec = json!({
        "field": "spec",
        "labelsToWatch": { "operator.kyma-project.io/watched-by": "kyma" },
        "resourceToWatch": { "group": "operator.kyma-project.io", "version": "*", "resource": "kymas" },
    });
    let mut watcher = with_service("kymas", spec);
    watcher["metadata"]["labels"] = json!({ "operator.kyma-project.io/managed-by": MANAGER });
    watcher
}

/// Returns a Watcher whose events KLM receives.
fn with_service(name: &str, mut spec: Value) -> Value {
    spec["serviceInfo"] =
        json!({ "name": "lifecycle-manager-events", "namespace": KCP_NAMESPACE, "port": 8082 });
    spec["gateway"] = json!({ "selector": { "matchLabels": { (LABEL): "default" } } });
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": { "name": name, "namespace": KCP_NAMESPACE }, "spec": spec,
    })
}
