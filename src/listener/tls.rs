//! TLS between the gateway and the listener, where nothing else protects the forwarded certificate.
//!
//! Invariant: each connection shows its certificate; no session is resumed, since a resumed one is not asked again and would
//! outlive an authority that was taken away.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use serve::Identity;

use crate::authorities::{AuthoritiesError, chain_verifier};

/// Why the listener cannot speak TLS with this material.
#[derive(Debug, thiserror::Error)]
pub enum GatewayTlsError {
    /// The bundle by which the gateway is verified.
    #[error("CA certificates of the gateway")]
    Authorities(#[source] AuthoritiesError),
    /// The TLS library lacks something.
    #[error("failed to set up TLS")]
    Setup(#[source] serve::TlsError),
    /// The listener's own certificate or key.
    #[error("certificate or key of the listener")]
    Identity(#[source] rustls::Error),
}

/// A configuration that presents `identity` and demands a client certificate signed by an authority of `gateway_bundle`
/// (PEM). Hand it to a [`serve::TlsHandle`], and a fresh one at each rotation.
///
/// # Errors
/// The bundle, the certificate or the key cannot be used.
pub fn gateway_tls(
    identity: Identity,
    gateway_bundle: &[u8],
) -> Result<ServerConfig, GatewayTlsError> {
    let verifier = chain_verifier(gateway_bundle).map_err(GatewayTlsError::Authorities)?;
    let mut config = serve::config_builder()
        .map_err(GatewayTlsError::Setup)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain, identity.key)
        .map_err(GatewayTlsError::Identity)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
