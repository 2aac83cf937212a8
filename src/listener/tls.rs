//! TLS between the gateway and the listener, where nothing else protects the forwarded certificate.
//!
//! Invariant: each connection shows its certificate; no session is resumed, since a resumed one is not asked again and would
//! outlive an authority that was taken away.

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

/// Why the listener cannot speak TLS with this material.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayTlsError {
    /// The bundle by which the gateway is verified.
    #[error("CA certificates of the gateway")]
    TrustAnchors(#[source] TrustAnchorsError),
    /// The TLS library lacks something.
    #[error("failed to set up TLS")]
    Setup(#[source] rustls::Error),
}

/// A configuration that presents `pair` and demands a client certificate signed by an authority of `gateway_bundle`
/// (PEM). Hand it to a [`serve::TlsHandle`], and a fresh one at each rotation.
///
/// # Errors
/// The bundle cannot be used.
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

/// The gateway, as the TLS peer of a request.
pub(crate) struct Gateway {
    /// One of its alternative names.
    name: String,
    /// Its certificate in the last request, so that it is parsed once and not for each request.
    certificate: ArcSwapOption<CertificateDer<'static>>,
}

impl Gateway {
    pub(crate) fn new(name: String) -> Self {
        let certificate = ArcSwapOption::empty();
        Self { name, certificate }
    }

    /// Whether the peer of a request is the gateway. Its chain was verified in the handshake.
    pub(crate) fn has_sent(&self, head: &Parts) -> bool {
        let peer = head.extensions.get::<PeerCertificates>();
        let Some(leaf) = peer.and_then(|PeerCertificates(chain)| chain.first()) else {
            return false;
        };
        if self.certificate.load().as_deref() == Some(leaf) {
            return true;
        }
        let peer = ClientCertificate::read(leaf.clone());
        let is_gateway = peer.is_ok_and(|it| it.alternative_names().contains(&self.name));
        if is_gateway {
            self.certificate.store(Some(Arc::new(leaf.clone())));
        }
        is_gateway
    }
}
