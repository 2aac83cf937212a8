//! TLS towards runtimes: one configuration per reconcile.
//!
//! Invariants: trust comes from the kubeconfig alone; no session is resumed, so that each connection verifies the
//! certificate of the server and shows that of the client.

use std::sync::Arc;

use http::HeaderValue;
use policy::sync::kubeconfig::Credentials;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::error::AccessError;

/// HTTP/2 as ALPN names it.
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// The TLS configuration for one runtime.
pub(super) fn client_config(
    provider: &Arc<CryptoProvider>,
    authority: Vec<CertificateDer<'static>>,
    credentials: Credentials,
) -> Result<Arc<ClientConfig>, AccessError> {
    let mut roots = RootCertStore::empty();
    for certificate in authority {
        roots.add(certificate).map_err(AccessError::Authority)?;
    }
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(AccessError::Provider)?
        .with_root_certificates(roots);
    let mut config = match credentials {
        Credentials::Token(_) => builder.with_no_client_auth(),
        Credentials::Certificate { chain, key } => builder
            .with_client_auth_cert(chain, key)
            .map_err(AccessError::Identity)?,
    };
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The header that carries a bearer token, if that is the credential. It is marked as sensitive: neither shown by
/// `Debug` nor kept in an HTTP/2 header table.
pub(super) fn authorization(credentials: &Credentials) -> Result<Option<HeaderValue>, AccessError> {
    let Credentials::Token(token) = credentials else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(AccessError::Token)?;
    value.set_sensitive(true);
    Ok(Some(value))
}
