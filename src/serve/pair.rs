//! A certificate and its key from PEM: what can be served, and shown as a client certificate.
//!
//! The key belongs to the leaf, and the leaf's dates and names could be read. Whether the dates hold is asked separately.
//! Key material has no `Debug`, and no error repeats any content.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Why a certificate, its key, or both cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// A PEM section begins and does not end, or is not base64.
    #[error("incomplete, or not PEM")]
    Pem,
    /// There is no certificate.
    #[error("no certificate")]
    NoCertificate,
    /// The first certificate is not X.509.
    #[error("certificate is not valid X.509")]
    Malformed,
    /// The certificate has expired.
    #[error("certificate has expired")]
    Expired,
    /// The certificate is not valid yet.
    #[error("certificate is not valid yet")]
    NotYetValid,
    /// There is no key, or none in PKCS#8, PKCS#1 or SEC1.
    #[error("no private key")]
    NoKey,
    /// A PEM section of the key begins and does not end, or is not base64.
    #[error("incomplete, or not PEM")]
    KeyPem,
    /// The key belongs to another certificate.
    #[error("private key does not match the certificate")]
    KeyMismatch,
    /// The TLS library does not take the pair.
    #[error("certificate or key rejected by the TLS library")]
    Rejected(#[source] rustls::Error),
}

impl PairError {
    /// Whether the fault is in the key, rather than in the certificate.
    #[must_use]
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::KeyPem | Self::KeyMismatch)
    }
}

/// The first and the last second in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: SystemTime,
    /// The last second, which is part of its time.
    pub not_after: SystemTime,
}

impl Validity {
    /// The dates of a certificate.
    ///
    /// # Errors
    /// [`PairError::Malformed`].
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, PairError> {
        let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| PairError::Malformed)?;
        let dates = parsed.validity();
        Ok(Self {
            not_before: time(dates.not_before.timestamp()),
            not_after: time(dates.not_after.timestamp()),
        })
    }

    /// Whether it is valid at `now`.
    ///
    /// # Errors
    /// [`PairError::Expired`] and [`PairError::NotYetValid`].
    pub fn check(&self, now: SystemTime) -> Result<(), PairError> {
        if now >= self.not_after + Duration::from_secs(1) {
            return Err(PairError::Expired);
        }
        if now < self.not_before {
            return Err(PairError::NotYetValid);
        }
        Ok(())
    }
}

/// A certificate chain, leaf first, and the key of the leaf.
#[derive(Clone)]
pub struct CertificatePair {
    key: Arc<CertifiedKey>,
    validity: Validity,
    dns_names: Vec<String>,
}

impl CertificatePair {
    /// Reads what a `kubernetes.io/tls` Secret holds in `tls.crt` and `tls.key`. Other PEM sections are skipped, and the
    /// label of the key may be that of another format.
    ///
    /// # Errors
    /// All but those of [`Validity::check`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, PairError> {
        let chain = certificates_from_pem(certificate)?;
        let leaf = chain.first().ok_or(PairError::NoCertificate)?;
        let (validity, dns_names) = (Validity::of(leaf)?, dns_names(leaf)?);
        let key = private_key(key)?;
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        let key = key.map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                PairError::KeyMismatch
            }
            other => PairError::Rejected(other),
        })?;
        Ok(Self {
            key: Arc::new(key),
            validity,
            dns_names,
        })
    }

    /// The leaf and its intermediates.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    /// The dates of the leaf.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether the leaf has every one of the DNS names, wildcards not considered.
    #[must_use]
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.dns_names.contains(name))
    }

    /// The pair as rustls wants it, for servers and for clients.
    #[must_use]
    pub fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.key)))
    }
}

/// All certificates of a PEM file, in their order; other sections are skipped.
///
/// # Errors
/// [`PairError::Pem`].
pub fn certificates_from_pem(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PairError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>();
    certificates.map_err(|_| PairError::Pem)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PairError> {
    use SectionKind::{EcPrivateKey, PrivateKey, RsaPrivateKey};
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let (kind, der) = section.map_err(|_| PairError::KeyPem)?;
        if matches!(kind, PrivateKey | RsaPrivateKey | EcPrivateKey) {
            return PrivateKeyDer::try_from(der).map_err(|_| PairError::NoKey);
        }
    }
    Err(PairError::NoKey)
}

fn dns_names(leaf: &CertificateDer<'_>) -> Result<Vec<String>, PairError> {
    let (_, parsed) = parse_x509_certificate(leaf).map_err(|_| PairError::Malformed)?;
    let names = parsed.subject_alternative_name();
    let names = names.map_err(|_| PairError::Malformed)?;
    let names = names.iter().flat_map(|it| &it.value.general_names);
    let dns_names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Ok(dns_names.collect())
}

/// Dates before 1970 count as 1970.
fn time(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests;
