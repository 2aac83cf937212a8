//! A certificate and its key from PEM, as server or client certificate.
//!
//! The key belongs to the leaf, and the validity and the names of the leaf are readable. The validity is checked
//! separately. Key material has no `Debug`, and no error repeats any content.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Reason why a certificate, its key, or both are not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// A PEM section has no end, or is not base64.
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
    /// A PEM section of the key has no end, or is not base64.
    #[error("incomplete, or not PEM")]
    KeyPem,
    /// The key belongs to another certificate.
    #[error("private key does not match the certificate")]
    KeyMismatch,
    /// The TLS library rejects the pair.
    #[error("certificate or key rejected by the TLS library")]
    Rejected(#[source] rustls::Error),
}

impl PairError {
    /// Returns whether the problem is in the key, and not in the certificate.
    #[must_use]
    pub fn is_of_key(&self) -> bool {
        matches!(self, Self::NoKey | Self::KeyPem | Self::KeyMismatch)
    }
}

/// The first and the last second of the validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First second of the validity.
    pub not_before: SystemTime,
    /// Last second of the validity, inclusive.
    pub not_after: SystemTime,
}

impl Validity {
    /// Returns the validity of a certificate.
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

    /// Checks whether the certificate is valid at `now`.
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
    /// Parses `tls.crt` and `tls.key` of a `kubernetes.io/tls` Secret. Other PEM sections are skipped, and the label of the
    /// key may be of another format.
    ///
    /// # Errors
    /// All errors except those of [`Validity::check`].
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

    /// Returns the leaf and its intermediate certificates.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.key.cert
    }

    /// Returns the validity of the leaf.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Returns whether the leaf contains each of the DNS names. Wildcards are not considered.
    #[must_use]
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.dns_names.contains(name))
    }

    /// Returns the pair as a resolver of rustls, for servers and for clients.
    #[must_use]
    pub fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.key)))
    }
}

/// Returns all certificates of a PEM file, in order. Other sections are skipped.
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

/// Returns the time. Dates before 1970 count as 1970.
fn time(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[cfg(test)]
mod tests;
