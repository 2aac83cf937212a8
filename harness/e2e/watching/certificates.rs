//! Certificates of both sides, all of one CA, and clients of the gateway other than the watcher of the runtime.
//!
//! With TLS 1.3 the rejection of a client certificate is visible only after the client's handshake. A client that the gateway
//! must reject sends no request and reads, which returns the alert of the gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use listener::XFCC_HEADER;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Certificate, Client, Identity};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use testkit::pki::{Authority, client_config_of, expired, not_yet_valid};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::environment::Watching;
use super::{DOMAIN, RUNTIME};
use crate::definitions::{PATIENCE, random};
use crate::gateway::{Certificates, HOST, NODE_PORT, leaf};

/// Runtime ID of another runtime of the fleet.
pub(crate) const OTHER_RUNTIME: &str = "b1b0a9f6-another-runtime";

impl Watching {
    pub(crate) fn authority(&self) -> Arc<Authority> {
        Arc::clone(&testkit::locked(&self.authority))
    }

    /// Rotates the CA of both sides without an interruption: first both CAs are trusted, then the new one signs, then the old
    /// one is no longer trusted.
    pub(crate) async fn rotate(&self) -> Result<()> {
        let old = self.authority();
        let new = Arc::new(fresh_authority()?);
        let both = [old.as_ref(), new.as_ref()];
        self.distribute(&old, &both).await?;
        self.distribute(&new, &both).await?;
        *testkit::locked(&self.authority) = Arc::clone(&new);
        self.distribute(&new, &[&new]).await
    }

    /// Issues certificates of the current CA for both sides, which then trust no other CA.
    pub(crate) async fn restore_certificates(&self) -> Result<()> {
        let current = self.authority();
        self.distribute(&current, &[&current]).await
    }

    async fn distribute(&self, signer: &Authority, trusted: &[&Authority]) -> Result<()> {
        let bundle: String = trusted.iter().map(|it| it.pem()).collect();
        self.trusted.replace(bundle.as_bytes())?;
        self.trust(&bundle).await?;
        self.operator.update_mounts().await?;
        let certificates = gateway_certificates(signer, trusted)?;
        self.gateway.renew(&self.kcp, &certificates).await?;
        let certificates = watcher_certificates(signer, trusted)?;
        self.runtime.renew(&certificates).await
    }

    /// Connects to the gateway as a client that the gateway must reject, and returns the error.
    pub(crate) async fn rejection(&self, client: &str) -> Result<String> {
        let fleet = self.authority();
        let issue = |change: fn(&mut testkit::pki::rcgen::CertificateParams)| {
            leaf(&fleet, OTHER_RUNTIME, &[DOMAIN], change).map(Some)
        };
        let certificate = match client {
            "no certificate" => None,
            "a certificate of another CA" => {
                let other = Authority::new("CA of no fleet")?;
                Some(leaf(&other, OTHER_RUNTIME, &[DOMAIN], |_| ())?)
            }
            "an expired certificate" => issue(expired)?,
            "a certificate that is not valid yet" => issue(not_yet_valid)?,
            "TLS 1.2 only" => issue(|_| ())?,
            other => bail!("unknown client: {other}"),
        };
        let is_old = client == "TLS 1.2 only";
        let version = if is_old { &TLS12 } else { &TLS13 };
        let config = client_config_of(&[version], fleet.roots(), certificate.as_ref(), &[])?;
        let answer = answer(self.gateway_address().await?, config);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(_)) => bail!("the connection was accepted"),
            Ok(Err(error)) => Ok(format!("{error:#}")),
            Err(_) => bail!("no answer"),
        }
    }

    /// Posts an event with the certificate of another runtime, and with a header that contains the certificate of this runtime.
    pub(crate) async fn post_as_other(&self, manager: &str, event: String) -> Result<()> {
        let fleet = self.authority();
        let own = Certificates::issue(&fleet, OTHER_RUNTIME, &[DOMAIN], &[&fleet])?;
        let files = own.files();
        let key = files["tls.key"].as_str().unwrap_or_default();
        let identity = format!("{}{key}", own.certificate);
        let client = Client::builder()
            .tls_certs_only([Certificate::from_pem(fleet.pem().as_bytes())?])
            .identity(Identity::from_pem(identity.as_bytes())?)
            .resolve(HOST, self.gateway_address().await?)
            .timeout(PATIENCE)
            .build()?;
        let url = format!("https://{HOST}:{NODE_PORT}/v2/{manager}/event");
        // The header is that of a proxy before the gateway that received the certificate of the runtime.
        let claimed = self.runtime.certificate().await?;
        let claimed = utf8_percent_encode(&claimed, NON_ALPHANUMERIC);
        let header = format!("By=spiffe://x;Subject=\"CN={RUNTIME}\";Cert=\"{claimed}\"");
        let request = client.post(url).header(&XFCC_HEADER, header);
        request.body(event).send().await?.error_for_status()?;
        Ok(())
    }

    async fn gateway_address(&self) -> Result<SocketAddr> {
        let address = self.kcp.node_address().await?.parse()?;
        Ok(SocketAddr::new(address, NODE_PORT))
    }
}

/// Reads without sending a request. Returns the end of the connection, or an alert as an error.
async fn answer(address: SocketAddr, config: ClientConfig) -> Result<usize> {
    let tcp = TcpStream::connect(address).await.context("TCP")?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(ServerName::try_from(HOST)?, tcp).await?;
    Ok(stream.read(&mut [0]).await?)
}

pub(super) fn fresh_authority() -> Result<Authority> {
    Ok(Authority::new(&format!("watcher CA {}", random()))?)
}

pub(super) fn gateway_certificates(
    signer: &Authority,
    trusted: &[&Authority],
) -> Result<Certificates> {
    Ok(Certificates::issue(signer, HOST, &[HOST], trusted)?)
}

/// Issues one certificate for both purposes, as the lifecycle manager does: for the Service of the webhook, and for KCP.
pub(super) fn watcher_certificates(
    signer: &Authority,
    trusted: &[&Authority],
) -> Result<Certificates> {
    let names = [
        DOMAIN,
        "skr-webhook.kyma-system.svc",
        "skr-webhook.kyma-system.svc.cluster.local",
    ];
    Ok(Certificates::issue(signer, RUNTIME, &names, trusted)?)
}
