//! TLS between the gateway and the listener, if nothing else protects the forwarded certificate.
//!
//! Invariant: each connection presents its certificate. Sessions are not resumed, because a resumed session presents no
//! certificate and would remain valid after the removal of a CA.

use std::error::Error as StdError;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::request::Parts;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serve::PeerCertificates;
use serve::pair::CertificatePair;

use crate::certificate::{ClientCertificate, TrustAnchorsError};

/// Reason why TLS cannot be configured with these certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayTlsError {
    /// The bundle that verifies the gateway is not usable.
    #[error("CA certificates of the gateway")]
    TrustAnchors(#[source] TrustAnchorsError),
    /// The TLS library does not support the configuration.
    #[error("failed to set up TLS")]
    Setup(#[source] rustls::Error),
}

/// Returns a configuration that presents `pair` and requires a client certificate of a CA in `gateway_bundle` (PEM). Pass
/// it to a [`serve::TlsHandle`], and create a new configuration at each rotation.
///
/// # Errors
/// The bundle is not usable.
pub fn gateway_tls(
    pair: &CertificatePair,
    gateway_bundle: &[u8],
) -> Result<ServerConfig, GatewayTlsError> {
    let verifier = gateway_verifier(gateway_bundle)
        .map_err(|error| GatewayTlsError::TrustAnchors(TrustAnchorsError(error)))?;
    let mut config = serve::config_builder()
        .map_err(GatewayTlsError::Setup)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(pair.resolver());
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn gateway_verifier(
    bundle: &[u8],
) -> Result<Arc<dyn ClientCertVerifier>, Box<dyn StdError + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?)
}

/// The gateway as the TLS peer of a request.
pub(crate) struct Gateway {
    /// One of the subject alternative names of the gateway.
    name: String,
    /// Certificate of the gateway in the last request, so that it is parsed once and not for each request.
    certificate: ArcSwapOption<CertificateDer<'static>>,
}

impl Gateway {
    pub(crate) fn new(name: String) -> Self {
        let certificate = ArcSwapOption::empty();
        Self { name, certificate }
    }

    /// Returns whether the peer of a request is the gateway. The handshake has verified its chain.
    pub(crate) fn has_sent(&self, head: &Parts) -> bool {
        let peer = head.extensions.get::<PeerCertificates>();
        let Some(leaf) = peer.and_then(|PeerCertificates(chain)| chain.first()) else {
            return false;
        };
        if self.certificate.load().as_deref() == Some(leaf) {
            return true;
        }
        let peer = ClientCertificate::read(leaf.clone());
        let is_gateway = peer.is_ok_and(|it| it.is_named(&self.name));
        if is_gateway {
            self.certificate.store(Some(Arc::new(leaf.clone())));
        }
        is_gateway
    }
}
