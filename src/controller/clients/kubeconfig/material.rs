//! Tokens, certificates and keys out of their encodings.
//!
//! Invariant: what comes out can be used as it is by a TLS library or in a header; what goes wrong names the field,
//! never its content. Deliberately absent: signatures and dates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};
use zeroize::Zeroizing;

use super::KubeconfigError;

/// More than any authority in rotation has, and little enough to try each in a handshake.
const MAX_CERTIFICATES: usize = 32;

/// API servers read a megabyte of headers at most; service account tokens have one or two kilobytes.
const MAX_TOKEN: usize = 16 << 10;

/// The certificates that may issue, out of `certificate-authority-data`. A leaf among them is left out: as an anchor
/// it would let the holder of its key issue more.
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

/// A token that a header can carry; blanks around it are the file's, not the token's.
pub(super) fn token(text: &str) -> Result<Zeroizing<String>, KubeconfigError> {
    let token = text.trim_ascii();
    let visible = !token.is_empty() && token.bytes().all(|it| it.is_ascii_graphic());
    if !visible || token.len() > MAX_TOKEN {
        return Err(KubeconfigError::Token);
    }
    Ok(token.to_owned().into())
}

/// `client-certificate-data`.
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

/// `client-key-data`.
pub(super) fn client_key(
    data: Option<&str>,
) -> Result<Zeroizing<PrivateKeyDer<'static>>, KubeconfigError> {
    data.and_then(decode)
        .and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok())
        .map(Zeroizing::new)
        .ok_or(KubeconfigError::ClientKey)
}

/// At least one certificate; other PEM sections are skipped, as every reader does.
fn certificates(data: &str) -> Option<Vec<CertificateDer<'static>>> {
    let pem = decode(data)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .take(MAX_CERTIFICATES + 1)
        .collect::<Result<_, _>>()
        .ok()?;
    (!found.is_empty() && found.len() <= MAX_CERTIFICATES).then_some(found)
}

/// Whether others can hang on this certificate: it says so, is older than that statement, or vouches for itself
/// (then it can only stand for itself). `None`: it is no X.509 certificate.
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

/// Go ignores line breaks in base64; blanks come from folded YAML.
fn decode(data: &str) -> Option<Zeroizing<Vec<u8>>> {
    // With capacity for all of it: growing would leave copies behind.
    let mut joined = Zeroizing::new(Vec::with_capacity(data.len()));
    joined.extend(data.bytes().filter(|it| !it.is_ascii_whitespace()));
    STANDARD.decode(&*joined).ok().map(Zeroizing::new)
}
