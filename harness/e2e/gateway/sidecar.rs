//! A sidecar of a manager behind the gateway: a second Envoy, configured as Istio configures it for a Pod of the mesh.
//!
//! The gateway connects to it with its certificate of the mesh. The sidecar requires this certificate, and appends the identity
//! of the gateway to `X-Forwarded-Client-Cert`. Then it forwards requests to the listener of the manager.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use api::kcp::KCP_NAMESPACE;
use serde_json::{Value, json};
use testkit::pki::rcgen::{Error, SanType};
use testkit::pki::{Authority, Leaf};

use super::{Certificates, NAMESPACE, external_service};
use crate::install::apply;
use crate::rollout::Workload;
use clusters::cluster::Cluster;
use testkit::client::Client;

/// Manager whose listener is behind a sidecar.
pub(crate) const MANAGER: &str = "sidecar-manager";
/// SPIFFE ID of the gateway in the mesh.
pub(crate) const GATEWAY_ID: &str =
    "spiffe://cluster.local/ns/istio-system/sa/istio-ingressgateway";
/// Secret with the certificate of the mesh, of the gateway and of the sidecar.
const SECRET: &str = "mesh-tls";

/// Creates the certificates of both, unless an earlier run created them. Envoy reads these files only at its start.
pub(super) async fn provide_certificates(cluster: &Cluster, client: &Client) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
    if client.find(&path).await?.is_object() {
        return Ok(());
    }
    let authority = Authority::new("mesh")?;
    let secret = |id: &str, namespace: &str| {
        let leaf = mesh_leaf(&authority, id)?;
        Ok::<_, Error>(Certificates::of(leaf, authority.pem()).secret(namespace, SECRET))
    };
    let own = format!("spiffe://cluster.local/ns/{KCP_NAMESPACE}/sa/{MANAGER}");
    // The Secret of the gateway is the last one, because its existence ends a further start.
    let secrets = [secret(&own, KCP_NAMESPACE)?, secret(GATEWAY_ID, NAMESPACE)?];
    apply(cluster, &secrets).await
}

/// Issues the certificate of a SPIFFE ID.
pub(crate) fn mesh_leaf(authority: &Authority, id: &str) -> Result<Leaf, Error> {
    let uri = SanType::URI(id.try_into()?);
    authority.leaf_with(id, |params| params.subject_alt_names = vec![uri])
}

/// Installs the sidecar for the listener at an address, and waits until it serves.
pub(super) async fn install(
    cluster: &Cluster,
    client: Client,
    image: &str,
    address: SocketAddr,
) -> Result<()> {
    let name = format!("{MANAGER}-listener");
    let service = external_service(KCP_NAMESPACE, &name, 8082, address);
    cluster.apply(&service).await?;
    let manifests = include_str!("sidecar.yaml").replace("IMAGE", image);
    cluster.apply(&manifests).await?;
    Workload::new(client, KCP_NAMESPACE, MANAGER)
        .is_rolled_out()
        .await
}

/// Adds TLS to the cluster of the manager in the configuration of the gateway.
pub(super) fn connect(clusters: &mut Value) -> Result<()> {
    let mut clusters = clusters.as_array_mut().into_iter().flatten();
    let cluster = clusters.find(|it| it["name"] == MANAGER);
    cluster.context("no cluster of the sidecar")?["transport_socket"] = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {
                "tls_certificates": [{
                    "certificate_chain": { "filename": "/etc/mesh/tls.crt" },
                    "private_key": { "filename": "/etc/mesh/tls.key" },
                }],
                "validation_context": { "trusted_ca": { "filename": "/etc/mesh/ca.crt" } },
            },
        },
    });
    Ok(())
}
