//! Tokens, certificates and keys of a kubeconfig.
//!
//! Invariant: a result is valid for a TLS library or a header; an error names the field, never its content. Not in
//! here: checks of signatures and dates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};
use zeroize::Zeroizing;

use super::KubeconfigError;

/// Maximum number of certificates: more than a CA rotation needs, and few enough to try each of them in a handshake.
const MAX_CERTIFICATES: usize = 32;

/// Maximum size of a token, in bytes. API servers accept one megabyte of headers; service account tokens have one or
/// two kilobytes.
const MAX_TOKEN: usize = 16 << 10;

/// Returns the CA certificates of `certificate-authority-data`. Leaf certificates are skipped: as an anchor, a leaf
/// would allow the owner of its key to issue certificates.
pub(super) fn authority(
    data: Option<&str>,
) -> Result<Vec<CertificateDer<'static>>, KubeconfigError> {
    let data = data
        .filter(|it| !it.is_empty())
        .ok_or(KubeconfigError::NoAuthority)?;
    let mut anchors = Vec::new();
    for der in certificates(data).ok_or(KubeconfigError::Authority)? {
        if may_issue(&der).ok_or(KubeconfigError::Authority)? {
            anchors.push(der);
        }
    }
    if anchors.is_empty() {
        return Err(KubeconfigError::LeafAuthority);
    }
    Ok(anchors)
}

/// Returns a token that is valid in a header. White space around it is removed.
pub(super) fn token(text: &str) -> Result<Zeroizing<String>, KubeconfigError> {
    let token = text.trim_ascii();
    let visible = !token.is_empty() && token.bytes().all(|it| it.is_ascii_graphic());
    if !visible || token.len() > MAX_TOKEN {
        return Err(KubeconfigError::Token);
    }
    Ok(token.to_owned().into())
}

/// Returns the certificates of `client-certificate-data`.
pub(super) fn client_chain(
    data: Option<&str>,
) -> Result<Vec<CertificateDer<'static>>, KubeconfigError> {
    let chain = data
        .and_then(certificates)
        .ok_or(KubeconfigError::ClientCertificate)?;
    if chain.iter().any(|it| may_issue(it).is_none()) {
        return Err(KubeconfigError::ClientCertificate);
    }
    Ok(chain)
}

/// Returns the key of `client-key-data`.
pub(super) fn client_key(
    data: Option<&str>,
) -> Result<Zeroizing<PrivateKeyDer<'static>>, KubeconfigError> {
    data.and_then(decode)
        .and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok())
        .map(Zeroizing::new)
        .ok_or(KubeconfigError::ClientKey)
}

/// Returns the certificates, at least one. Other PEM sections are skipped, as in other parsers.
fn certificates(data: &str) -> Option<Vec<CertificateDer<'static>>> {
    let pem = decode(data)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .take(MAX_CERTIFICATES + 1)
        .collect::<Result<_, _>>()
        .ok()?;
    (!found.is_empty() && found.len() <= MAX_CERTIFICATES).then_some(found)
}

/// Returns whether a certificate may be a trust anchor: it is a CA, of a version before 3, or self-signed. `None` if
/// it is not an X.509 certificate.
fn may_issue(der: &CertificateDer<'_>) -> Option<bool> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let says_so = match certificate.basic_constraints().ok()? {
        Some(constraints) => constraints.value.ca,
        None => certificate.version() != X509Version::V3,
    };
    let itself = certificate.subject().as_raw() == certificate.issuer().as_raw();
    Some(says_so || itself)
}

/// Decodes base64. White space is ignored, because Go ignores line breaks and folded YAML adds spaces.
fn decode(data: &str) -> Option<Zeroizing<Vec<u8>>> {
    // The capacity is reserved, since growing would leave copies in memory.
    let mut joined = Zeroizing::new(Vec::with_capacity(data.len()));
    joined.extend(data.bytes().filter(|it| !it.is_ascii_whitespace()));
    STANDARD.decode(&*joined).ok().map(Zeroizing::new)
}
