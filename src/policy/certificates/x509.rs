//! Relevant fields of an X.509 certificate.

use pem::{EncodeConfig, LineEnding, Pem};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::ParsedExtension;
use x509_parser::parse_x509_certificate;

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    der: CertificateDer<'static>,
    /// Start of the validity, in Unix seconds.
    pub not_before: i64,
    /// End of the validity, in Unix seconds.
    pub not_after: i64,
    /// The common name of the subject.
    pub common_name: Option<String>,
    subject: Vec<u8>,
    issuer: Vec<u8>,
    subject_key: Option<Vec<u8>>,
    authority_key: Option<Vec<u8>>,
}

/// Reason why a text is not a list of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum X509Error {
    /// A block is not PEM.
    #[error("not a list of certificates in PEM")]
    Pem,
    /// A certificate is not X.509.
    #[error("not an X.509 certificate")]
    Certificate,
    /// There is no certificate.
    #[error("no certificate")]
    Empty,
}

impl CertificateInfo {
    /// Reads all certificates of a text.
    ///
    /// # Errors
    /// [`X509Error`] if one of them is invalid, or the text contains no certificate.
    pub fn read_all(pem: &[u8]) -> Result<Vec<Self>, X509Error> {
        let all = CertificateDer::pem_slice_iter(pem);
        let read = all.map(|der| Self::read(der.map_err(|_| X509Error::Pem)?));
        let found: Vec<Self> = read.collect::<Result<_, _>>()?;
        if found.is_empty() {
            return Err(X509Error::Empty);
        }
        Ok(found)
    }

    /// Reads the first certificate of a text.
    ///
    /// # Errors
    /// See [`X509Error`].
    pub fn first(pem: &[u8]) -> Result<Self, X509Error> {
        let mut all = CertificateDer::pem_slice_iter(pem);
        let first = all.next().ok_or(X509Error::Empty)?;
        Self::read(first.map_err(|_| X509Error::Pem)?)
    }

    fn read(der: CertificateDer<'static>) -> Result<Self, X509Error> {
        let (rest, parsed) = parse_x509_certificate(&der).map_err(|_| X509Error::Certificate)?;
        if !rest.is_empty() {
            return Err(X509Error::Certificate);
        }
        let (mut subject_key, mut authority_key) = (None, None);
        for extension in parsed.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(key) => subject_key = Some(key.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(authority) => {
                    authority_key = authority.key_identifier.as_ref().map(|it| it.0.to_vec());
                }
                _ => {}
            }
        }
        let common_name = parsed.subject().iter_common_name().next();
        let validity = parsed.validity();
        Ok(Self {
            not_before: validity.not_before.timestamp(),
            not_after: validity.not_after.timestamp(),
            common_name: common_name.and_then(|it| it.as_str().ok().map(str::to_owned)),
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            subject_key,
            authority_key,
            der,
        })
    }

    /// Returns whether the certificate names `authority` as its issuer. The signature is not verified: the
    /// certificates come from Secrets of cert-manager, and the function only distinguishes several CAs with one name.
    #[must_use]
    pub fn is_issued_by(&self, authority: &Self) -> bool {
        let is_same_key = match (&self.authority_key, &authority.subject_key) {
            (Some(named), Some(key)) => named == key,
            _ => true,
        };
        self.issuer == authority.subject && is_same_key
    }

    /// Returns the SHA-256 of the certificate.
    #[must_use]
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.der).into()
    }

    /// Returns the certificate in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        let certificate = Pem::new("CERTIFICATE", self.der.to_vec());
        let unix = EncodeConfig::new().set_line_ending(LineEnding::LF);
        pem::encode_config(&certificate, unix)
    }
}
