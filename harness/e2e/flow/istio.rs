//! Istio on KCP: istiod, and Envoy as its ingress gateway. Envoy's configuration is only from istiod, which reads the Gateway,
//! the VirtualServices of the controller, and the Secret with the certificate.

use anyhow::Result;
use clusters::cluster::Cluster;
use clusters::images::Image;
use serde_json::json;
use testkit::pki::Authority;
use testkit::pki::rcgen::Error;

use crate::gateway::sidecar::{GATEWAY_ID, mesh_leaf};
use crate::gateway::{Certificates, NODE_PORT, handshake_errors, secret};
use crate::install::apply;
use crate::rollout::Workload;
use testkit::client::Client;

/// Namespace of istiod and the gateway: Istio's default.
const NAMESPACE: &str = "istio-system";
/// Secret with the certificate with which Envoy connects to istiod.
const XDS_SECRET: &str = "istio-ingressgateway-xds";
/// Port of Envoy's admin pages.
const ADMIN_PORT: u16 = 9901;

/// istiod and the gateway.
pub(super) struct Istio {
    istiod: Workload,
    gateway: Workload,
}

impl Istio {
    pub(super) fn new(kcp: &Client) -> Self {
        let workload = |name| Workload::new(kcp.clone(), NAMESPACE, name);
        Self {
            istiod: workload("istiod"),
            gateway: workload("istio-ingressgateway"),
        }
    }

    /// Installs istiod and the gateway, without waiting for their Pods.
    pub(super) async fn install(&self, kcp: &Cluster, istiod: &Image, envoy: &Image) -> Result<()> {
        for image in [istiod, envoy] {
            kcp.load_image(image).await?;
        }
        self.provide_certificates(kcp).await?;
        let manifests = include_str!("istio.yaml")
            .replace("ISTIOD", &istiod.reference)
            .replace("ENVOY", &envoy.reference)
            .replace("NODE_PORT", &NODE_PORT.to_string());
        kcp.apply(&manifests).await.map(drop)
    }

    /// Creates certificates of one CA, unless an earlier run created them. Both ends of a connection read their files only at
    /// their start.
    async fn provide_certificates(&self, kcp: &Cluster) -> Result<()> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{XDS_SECRET}");
        if self.gateway.client.find(&path).await?.is_object() {
            return Ok(());
        }
        let authority = Authority::new("mesh")?;
        let ca = json!({
            "ca-cert.pem": authority.pem(),
            "ca-key.pem": authority.certificate.key_pem(),
            "cert-chain.pem": authority.pem(),
            "root-cert.pem": authority.pem(),
        });
        let client = xds_client(&authority)?.secret(NAMESPACE, XDS_SECRET);
        apply(kcp, &[secret(NAMESPACE, "cacerts", &ca), client]).await
    }

    /// Waits until istiod is ready, and the gateway has its configuration.
    pub(super) async fn is_ready(&self) -> Result<()> {
        self.istiod.is_rolled_out().await?;
        self.gateway.is_rolled_out().await
    }

    /// Returns the number of TLS handshakes that the gateway rejected.
    pub(super) async fn handshake_errors(&self) -> Result<u64> {
        handshake_errors(&self.page("stats").await?)
    }

    /// Returns a page of Envoy's admin port.
    pub(super) async fn page(&self, page: &str) -> Result<String> {
        let pods = self.gateway.pod_names().await?;
        let pod = pods.first().map(String::as_str).unwrap_or_default();
        self.gateway.page(pod, ADMIN_PORT, page).await
    }
}

/// Returns the certificate of the gateway's ServiceAccount, with which istiod selects the Secrets for Envoy.
fn xds_client(authority: &Authority) -> Result<Certificates, Error> {
    Ok(Certificates::of(
        mesh_leaf(authority, GATEWAY_ID)?,
        authority.pem(),
    ))
}
