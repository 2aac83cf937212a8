//! A client certificate as verifiers see it.
//!
//! Invariant: a [`ClientCertificate`] is well-formed X.509 without trailing bytes. That its chain, dates and usage hold
//! is promised where a verifier gets it, not by the type alone.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Longest runtime id, in bytes; theirs are UUIDs.
const RUNTIME_ID_BYTES: usize = 128;

/// Which runtime sent something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuntimeId(Arc<str>);

impl RuntimeId {
    /// Takes `text` as a runtime id: 1 to 128 bytes without control characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bounded = (1..=RUNTIME_ID_BYTES).contains(&text.len());
        (bounded && !text.chars().any(char::is_control)).then(|| Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuntimeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a client's certificate says about it.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    der: CertificateDer<'static>,
    common_name: Option<String>,
    alternative_names: Vec<String>,
    may_sign: bool,
    /// Seconds since 1970, of the first moment and the last.
    dates: (i64, i64),
}

/// The bytes are no certificate, or one that says a thing twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("certificate: not valid X.509")]
pub(crate) struct Malformed;

impl ClientCertificate {
    pub(crate) fn read(der: CertificateDer<'static>) -> Result<Self, Malformed> {
        let (behind, parsed) = parse_x509_certificate(&der).map_err(|_| Malformed)?;
        if !behind.is_empty() {
            return Err(Malformed);
        }
        let alternative_names = alternative_names(&parsed)?;
        let may_sign = parsed
            .key_usage()
            .map_err(|_| Malformed)?
            .is_none_or(|usage| usage.value.digital_signature());
        let common_name = common_name(&parsed);
        let validity = parsed.validity();
        let dates = (
            validity.not_before.timestamp(),
            validity.not_after.timestamp(),
        );
        Ok(Self {
            der,
            common_name,
            alternative_names,
            may_sign,
            dates,
        })
    }

    /// The subject's common name, if it has exactly one and it is not empty.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        self.common_name.as_deref()
    }

    /// The subject alternative names that are DNS names, URIs or IP addresses, as text.
    #[must_use]
    pub fn alternative_names(&self) -> &[String] {
        &self.alternative_names
    }

    /// The certificate itself.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// When it holds, in seconds since 1970.
    pub(crate) fn dates(&self) -> RangeInclusive<i64> {
        self.dates.0..=self.dates.1
    }

    /// Whether the key may sign a handshake: no key usage is given, or digital signatures are in it.
    pub(crate) fn may_sign(&self) -> bool {
        self.may_sign
    }
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<String> {
    let mut names = certificate.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?;
    (names.next().is_none() && !name.is_empty()).then(|| name.to_owned())
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Result<Vec<String>, Malformed> {
    let extension = certificate
        .subject_alternative_name()
        .map_err(|_| Malformed)?;
    let names = extension.map_or(&[][..], |extension| &extension.value.general_names);
    Ok(names.iter().filter_map(text).collect())
}

fn text(name: &GeneralName<'_>) -> Option<String> {
    match *name {
        GeneralName::DNSName(text) | GeneralName::URI(text) => Some(text.to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = || <[u8; 4]>::try_from(bytes).map(|it| Ipv4Addr::from(it).to_string());
            let v6 = || <[u8; 16]>::try_from(bytes).map(|it| Ipv6Addr::from(it).to_string());
            v4().or_else(|_| v6()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
