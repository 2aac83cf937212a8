//! TLS to runtimes: one configuration per reconcile.
//!
//! Invariants: only the CA of the kubeconfig is trusted; sessions are not resumed, so that each connection verifies the
//! server's certificate and presents the client's; tokens and keys are zeroized when they are dropped, except in
//! buffers of the HTTP and TLS libraries.

use std::sync::Arc;

use super::kubeconfig::Credentials;
use bytes::Bytes;
use http::HeaderValue;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};
use zeroize::Zeroizing;

use super::error::AccessError;

/// Name of HTTP/2 in ALPN.
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// Returns the TLS configuration for one runtime.
pub(super) fn client_config(
    provider: &Arc<CryptoProvider>,
    authority: Vec<CertificateDer<'static>>,
    credentials: &Credentials,
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
        Credentials::Certificate { chain, key } => {
            let identity = identity(chain, key).map_err(AccessError::Identity)?;
            builder.with_client_cert_resolver(Arc::new(identity))
        }
    };
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Returns the certificate and key of the client. `with_client_auth_cert` of rustls would drop the key without zeroizing it.
fn identity(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<SingleCertAndKey, rustls::Error> {
    let key = aws_lc_rs::sign::any_supported_type(key)?;
    let identity = CertifiedKey::new(chain.to_vec(), key);
    match identity.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
            Ok(identity.into())
        }
        Err(error) => Err(error),
    }
}

/// Returns the header with the bearer token, if there is one. It is marked as sensitive: not shown by `Debug` and not
/// stored in an HTTP/2 header table.
pub(super) fn authorization(credentials: &Credentials) -> Result<Option<HeaderValue>, AccessError> {
    let Credentials::Token(token) = credentials else {
        return Ok(None);
    };
    let text = Zeroizing::new(["Bearer ", token].concat().into_bytes());
    let text = Bytes::from_owner(text);
    let mut value = HeaderValue::from_maybe_shared(text).map_err(AccessError::Token)?;
    value.set_sensitive(true);
    Ok(Some(value))
}
