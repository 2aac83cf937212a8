//! A set of CA certificates, as in a `caBundle` and in `ca.crt`.
//!
//! Parsing never fails, and ignores sections that are not certificates. The written format has one certificate per section
//! and nothing else, so that the strict parser of an API server accepts it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pem::{EncodeConfig, LineEnding, Pem};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serve::pair::{CertificatePair, Validity};

/// CA certificates in order; the current CA is first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bundle(Vec<Authority>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    der: CertificateDer<'static>,
    validity: Validity,
}

impl Bundle {
    /// Parses the certificates in `pem`, up to the first broken section.
    pub(crate) fn read(pem: &[u8]) -> Self {
        // The parser does not specify whether it continues after an error, so the first error ends the list.
        let certificates = CertificateDer::pem_slice_iter(pem).map_while(Result::ok);
        Self::of(certificates)
    }

    /// Creates a bundle of these certificates, without unreadable certificates and duplicates.
    pub(crate) fn of(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        let mut bundle = Self::default();
        for der in certificates {
            if let Ok(validity) = Validity::of(&der)
                && bundle.0.iter().all(|known| known.der != der)
            {
                bundle.0.push(Authority { der, validity });
            }
        }
        bundle
    }

    /// Returns whether the bundle contains no CA.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.0.iter().map(|authority| &authority.der)
    }

    /// Returns the CAs that have not expired. The verifier of Go, and therefore an API server, checks the validity of a
    /// root; rustls does not.
    pub(crate) fn unexpired(&self, now: SystemTime) -> Self {
        self.filtered(|authority| authority.validity.not_after > now)
    }

    /// Returns the CAs that an API server would trust now.
    pub(crate) fn valid(&self, now: SystemTime) -> Self {
        self.filtered(|authority| authority.validity.check(now).is_ok())
    }

    /// Returns the earliest expiry of a CA.
    pub(crate) fn first_expiry(&self) -> Option<SystemTime> {
        self.0.iter().map(|it| it.validity.not_after).min()
    }

    /// Returns the first `count` CAs: the current CA, and its predecessors. The order does not follow from the validity:
    /// the CA of an organization may be older than the CA that it replaced.
    pub(crate) fn first(&self, count: usize) -> Self {
        Self(self.0.iter().take(count).cloned().collect())
    }

    /// Returns the CAs that are not in another bundle.
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.filtered(|authority| !other.0.contains(authority))
    }

    /// Returns the CAs of this bundle, followed by those of another bundle.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self::of(self.certificates().chain(other.certificates()).cloned())
    }

    /// Returns the CAs that verify a certificate alone.
    pub(crate) fn verifying(&self, pair: &CertificatePair, name: &str, now: SystemTime) -> Self {
        self.filtered(|authority| Self(vec![authority.clone()]).verifies(pair, name, now))
    }

    /// Returns whether an API server that trusts only these CAs and connects to `name` accepts the certificate now.
    pub(crate) fn verifies(&self, pair: &CertificatePair, name: &str, now: SystemTime) -> bool {
        let verify = || {
            let (leaf, intermediates) = pair.chain().split_first()?;
            let name = ServerName::try_from(name).ok()?;
            let time = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).ok()?);
            let mut anchors = RootCertStore::empty();
            anchors.add_parsable_certificates(self.valid(now).certificates().cloned());
            let provider = Arc::new(aws_lc_rs::default_provider());
            // An empty bundle results in no verifier, and verifies no certificate.
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(anchors), provider);
            let verifier = verifier.build().ok()?;
            let result = verifier.verify_server_cert(leaf, intermediates, &name, &[], time);
            result.ok()
        };
        verify().is_some()
    }

    pub(crate) fn to_pem(&self) -> String {
        let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
        let section = |der: &CertificateDer<'_>| Pem::new("CERTIFICATE", der.as_ref());
        let sections = self.certificates().map(section);
        sections.map(|it| pem::encode_config(&it, config)).collect()
    }

    fn filtered(&self, keep: impl Fn(&Authority) -> bool) -> Self {
        let kept = self.0.iter().filter(|authority| keep(authority));
        Self(kept.cloned().collect())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod verify_tests;
