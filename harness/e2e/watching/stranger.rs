//! Clients that are no watcher: what the gateway lets in, and what it makes of what they say of themselves.
//!
//! With TLS 1.3 a client learns only after its handshake that its certificate is refused, so one that shall be refused
//! sends nothing and listens: what it then hears is the gateway's alert.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use listener::XFCC_HEADER;
use reqwest::{Certificate, Client, Identity};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::objects::LIFECYCLE;
use super::stage::Stage;
use super::{DOMAIN, PATIENCE, RUNTIME};
use crate::gateway::{Authority, HOST, Leaf, NODE_PORT, Pair, Validity};

/// Who the stranger is, where its certificate is one of the fleet's.
pub(super) const STRANGER: &str = "b1b0a9f6-another-runtime";

impl Stage {
    /// Comes to the gateway as a client that it shall not let in, and gives what it says to that.
    pub(super) async fn refusal_of(&self, words: &str) -> anyhow::Result<String> {
        let fleet = self.authority()?;
        let foreign = Authority::new("an authority that nobody trusts")?;
        let pair = match words {
            "no certificate" => None,
            "a certificate of another authority" => Some(foreign.pair(&leaf(Validity::Now))?),
            "an expired certificate" => Some(fleet.pair(&leaf(Validity::Over))?),
            "a certificate of tomorrow" => Some(fleet.pair(&leaf(Validity::NotYet))?),
            "TLS 1.2 alone" => Some(fleet.pair(&leaf(Validity::Now))?),
            other => bail!("{other}: not in the vocabulary"),
        };
        let version = if words == "TLS 1.2 alone" {
            &TLS12
        } else {
            &TLS13
        };
        let config = config(fleet.pem(), pair.as_ref(), version)?;
        let heard = heard(self.entrance().await?, config);
        match tokio::time::timeout(PATIENCE, heard).await {
            Ok(Ok(_)) => bail!("it was let in"),
            Ok(Err(error)) => Ok(format!("{error:#}")),
            Err(_) => bail!("nothing was said"),
        }
    }

    /// Posts an event as another runtime, and claims to be this one.
    pub(super) async fn post_as_another(&self, event: &Value) -> anyhow::Result<u16> {
        let fleet = self.authority()?;
        let pair = fleet.pair(&leaf(Validity::Now))?;
        let identity = format!("{}{}", pair.certificate, pair.key);
        let client = Client::builder()
            .tls_certs_only([Certificate::from_pem(fleet.pem().as_bytes())?])
            .identity(Identity::from_pem(identity.as_bytes())?)
            .resolve(HOST, self.entrance().await?)
            .build()?;
        let url = format!("https://{HOST}:{NODE_PORT}/v2/{LIFECYCLE}/event");
        // As if a proxy in front of the gateway had seen the runtime's own certificate.
        let shown = escaped(&self.skr.certificate().await?);
        let claimed = format!("By=spiffe://x;Subject=\"CN={RUNTIME}\";Cert=\"{shown}\"");
        let request = client.post(url).header(&XFCC_HEADER, claimed);
        let answer = request.body(event.to_string()).send().await?;
        Ok(answer.status().as_u16())
    }

    /// The gateway as this machine reaches it.
    async fn entrance(&self) -> anyhow::Result<SocketAddr> {
        let address = self.kcp.node_address().await?.parse()?;
        Ok(SocketAddr::new(address, NODE_PORT))
    }
}

/// As Envoy writes a certificate into the header.
fn escaped(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    escaped.collect()
}

fn leaf(validity: Validity) -> Leaf<'static> {
    Leaf {
        common_name: STRANGER,
        names: &[DOMAIN],
        validity,
    }
}

fn config(
    ca_pem: &str,
    pair: Option<&Pair>,
    version: &'static rustls::SupportedProtocolVersion,
) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])?
        .with_root_certificates(roots);
    let Some(pair) = pair else {
        return Ok(builder.with_no_client_auth());
    };
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
    let config = builder.with_client_auth_cert(vec![certificate], key);
    config.context("the client's certificate")
}

/// What comes without a request: nothing, or an alert.
async fn heard(address: SocketAddr, config: ClientConfig) -> anyhow::Result<usize> {
    let tcp = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(ServerName::try_from(HOST)?, tcp).await?;
    Ok(stream.read(&mut [0]).await?)
}
