//! From the request's header to the one certificate that the client presented to the gateway.
//!
//! Invariant: the certificate comes from exactly one header, one element, one `Cert` and one PEM block; a request with
//! a choice between two is refused, since somebody could have added one. Deliberately absent: whether the certificate
//! is to be believed (`authorities`).

use http::{HeaderMap, HeaderName};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::xfcc::{self, Element, GrammarError};

/// The header in which Envoy tells who its client was.
pub const XFCC_HEADER: HeaderName = HeaderName::from_static("x-forwarded-client-cert");

/// Longest header value that is read, in bytes; the public listener has the same bound.
pub const XFCC_BYTES: usize = 32 * 1024;

const PEM_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const PEM_END: &str = "-----END CERTIFICATE-----";

/// How many proxies write into the header before the listener reads it (option `trusted_hops`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedHops {
    /// 0: the gateway alone, with `forwardClientCertDetails: SANITIZE_SET`. The header has exactly one element.
    None,
    /// 1: the gateway, then the sidecar beside the listener, which appends the gateway's own identity. The
    /// header has exactly two elements, the client's first.
    One {
        /// The gateway's SPIFFE id, which must be the `URI` of the second element, such as
        /// `spiffe://cluster.local/ns/istio-system/sa/istio-ingressgateway`.
        gateway: String,
    },
}

/// Why the header names no client. The texts name no part of the input.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForwardedError {
    #[error("header X-Forwarded-Client-Cert is missing")]
    Missing,
    #[error("more than one header X-Forwarded-Client-Cert")]
    SeveralHeaders,
    #[error("header X-Forwarded-Client-Cert exceeds {XFCC_BYTES} bytes")]
    TooLong,
    #[error("header X-Forwarded-Client-Cert: not text")]
    NotText,
    #[error("header X-Forwarded-Client-Cert: malformed")]
    Grammar(#[source] GrammarError),
    #[error(
        "header X-Forwarded-Client-Cert: number of elements differs from the number of trusted hops"
    )]
    Elements,
    #[error("last hop is not the gateway")]
    NotTheGateway,
    #[error("element of the client has no certificate")]
    NoCertificate,
    #[error("element of the client has a duplicate key")]
    KeyTwice,
    #[error("certificate: not URL-encoded")]
    UrlEncoding,
    #[error("certificate: expected exactly one PEM block of type CERTIFICATE")]
    Pem,
    #[error("hash of the certificate differs from the header")]
    Hash,
}

/// A header's value and how it is read, as a hash: equal prints, equal outcomes of [`client_certificate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Print([u8; 32]);

impl Print {
    pub(crate) fn of(value: &str, hops: &TrustedHops) -> Self {
        let (number, gateway) = match hops {
            TrustedHops::None => (0, ""),
            TrustedHops::One { gateway } => (1, gateway.as_str()),
        };
        let mut hash = Sha256::new();
        hash.update([number]);
        // The gateway's name before the value: what a client can write must not run into it.
        hash.update(gateway.len().to_le_bytes());
        hash.update(gateway);
        hash.update(value);
        Self(hash.finalize().into())
    }
}

/// The certificate of the client, as the gateway forwards it in the header's value.
pub(crate) fn client_certificate(
    value: &str,
    hops: &TrustedHops,
) -> Result<CertificateDer<'static>, ForwardedError> {
    let elements = xfcc::parse(value).map_err(ForwardedError::Grammar)?;
    let client = client_element(&elements, hops)?;
    let encoded = once(client, "Cert")?
        .filter(|value| !value.is_empty())
        .ok_or(ForwardedError::NoCertificate)?;
    let certificate = only_certificate(&url_decode(encoded)?)?;
    if let Some(hash) = once(client, "Hash")?
        && !hash.eq_ignore_ascii_case(&hex(&Sha256::digest(&certificate)))
    {
        return Err(ForwardedError::Hash);
    }
    Ok(certificate)
}

/// The value of the only header of that name.
pub(crate) fn only_value(headers: &HeaderMap) -> Result<&str, ForwardedError> {
    let mut values = headers.get_all(XFCC_HEADER).iter();
    let value = values.next().ok_or(ForwardedError::Missing)?;
    if values.next().is_some() {
        return Err(ForwardedError::SeveralHeaders);
    }
    if value.len() > XFCC_BYTES {
        return Err(ForwardedError::TooLong);
    }
    std::str::from_utf8(value.as_bytes()).map_err(|_| ForwardedError::NotText)
}

fn client_element<'e, 'a>(
    elements: &'e [Element<'a>],
    hops: &TrustedHops,
) -> Result<&'e Element<'a>, ForwardedError> {
    match (hops, elements) {
        (TrustedHops::None, [client]) => Ok(client),
        (TrustedHops::One { gateway }, [client, sidecar]) => {
            let mut identities = sidecar.values("URI");
            if identities.next() == Some(gateway) && identities.next().is_none() {
                Ok(client)
            } else {
                Err(ForwardedError::NotTheGateway)
            }
        }
        _ => Err(ForwardedError::Elements),
    }
}

fn once<'e>(element: &'e Element<'_>, key: &'e str) -> Result<Option<&'e str>, ForwardedError> {
    let mut values = element.values(key);
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(ForwardedError::KeyTwice),
    }
}

/// Undoes URL encoding. `+` is a blank, as in the public listener: Envoy writes `%20` for a blank and `%2B` for a plus,
/// and form encoders write `+` and `%2B`, so both are read rightly.
fn url_decode(text: &str) -> Result<String, ForwardedError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let (high, low) = (nibble(bytes.next())?, nibble(bytes.next())?);
                high << 4 | low
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).map_err(|_| ForwardedError::UrlEncoding)
}

fn nibble(digit: Option<u8>) -> Result<u8, ForwardedError> {
    digit
        .and_then(|digit| char::from(digit).to_digit(16))
        .and_then(|value| u8::try_from(value).ok())
        .ok_or(ForwardedError::UrlEncoding)
}

/// PEM readers skip what they do not know, so the frame is checked first: one block, nothing around it.
fn only_certificate(pem: &str) -> Result<CertificateDer<'static>, ForwardedError> {
    let inner = pem
        .trim_ascii()
        .strip_prefix(PEM_BEGIN)
        .and_then(|rest| rest.strip_suffix(PEM_END))
        .ok_or(ForwardedError::Pem)?;
    if inner.contains('-') {
        return Err(ForwardedError::Pem);
    }
    CertificateDer::from_pem_slice(pem.trim_ascii().as_bytes()).map_err(|_| ForwardedError::Pem)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
