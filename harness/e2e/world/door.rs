//! The webhook's TLS port as a client outside of the cluster sees it.
//!
//! Invariant: one handshake a call, verified by the authorities that the API server would use: those of the live
//! `caBundle`. Deliberately absent: HTTP; reviews go through the API server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::landscape::{Landscape, PRODUCT_NAMESPACE};

/// What was agreed on.
#[derive(Debug)]
pub struct Handshake {
    /// The TLS version, such as `TLSv1_3`.
    pub version: String,
    /// The protocol, if one was chosen.
    pub protocol: Option<String>,
    /// The leaf certificate.
    pub certificate: Vec<u8>,
}

impl Landscape {
    /// Shakes hands with a replica of the webhook.
    ///
    /// # Errors
    /// When it is refused, or the certificate is not what the `caBundle` stands for.
    pub async fn shake_hands(
        &self,
        version: &'static SupportedProtocolVersion,
        protocols: &[&str],
    ) -> anyhow::Result<Handshake> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])?
            .with_root_certificates(self.authorities().await?)
            .with_no_client_auth();
        config.alpn_protocols = protocols
            .iter()
            .map(|protocol| protocol.as_bytes().to_vec())
            .collect();
        let stream = self.knock().await?;
        let name = ServerName::try_from(format!("{SERVICE}.{PRODUCT_NAMESPACE}.svc"))?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        let connection = stream.get_ref().1;
        let certificate = connection
            .peer_certificates()
            .and_then(<[_]>::first)
            .context("no certificate")?;
        Ok(Handshake {
            version: connection
                .protocol_version()
                .map(|version| format!("{version:?}"))
                .unwrap_or_default(),
            protocol: connection
                .alpn_protocol()
                .map(|name| String::from_utf8_lossy(name).into_owned()),
            certificate: certificate.to_vec(),
        })
    }

    /// A TCP connection to the TLS port of a replica.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn knock(&self) -> anyhow::Result<TcpStream> {
        // The product's own Service is for the inside only.
        let door = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "harness-door", "namespace": PRODUCT_NAMESPACE },
            "spec": { "type": "NodePort", "selector": { "control-plane": "controller-manager" },
                      "ports": [{ "port": 443, "targetPort": 9443 }] },
        });
        let stored = self.cluster().apply(&door.to_string()).await?;
        let port = stored[0].data["spec"]["ports"][0]["nodePort"]
            .as_u64()
            .context("no node port")?;
        let address = format!("{}:{port}", self.cluster().node_address().await?);
        let connect = TcpStream::connect(&address);
        tokio::time::timeout(CONNECT, connect)
            .await
            .context(address.clone())?
            .context(address)
    }

    async fn authorities(&self) -> anyhow::Result<RootCertStore> {
        let name = api::names::WEBHOOK_CONFIGURATION;
        let path =
            format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}");
        let object = self.dialogue().get(&path).await?;
        let bundle = object
            .at("/webhooks/0/clientConfig/caBundle")
            .as_str()
            .context("no caBundle")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&BASE64.decode(bundle)?) {
            roots.add(certificate?)?;
        }
        ensure!(!roots.is_empty(), "an empty caBundle");
        Ok(roots)
    }
}

const SERVICE: &str = "rt-bootstrapper-webhook-service";
const CONNECT: Duration = Duration::from_secs(5);
