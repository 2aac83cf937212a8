//! A set of CA certificates, as a `caBundle` and `ca.crt` hold it.
//!
//! Reading never fails; what is not a certificate is not in the bundle. What is written has one certificate a section and
//! nothing else, which an API server's strict reader accepts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::material::Validity;

/// RFC 7468 §2: lines of 64 characters.
const LINE: usize = 64;

/// CA certificates in order, the one in use first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle(Vec<Authority>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    der: CertificateDer<'static>,
    validity: Validity,
}

impl Bundle {
    /// What is a certificate in `pem`, up to the first broken section.
    pub(crate) fn read(pem: &[u8]) -> Self {
        // The reader does not say whether it gets past an error, so the first one ends it.
        let certificates = CertificateDer::pem_slice_iter(pem).map_while(Result::ok);
        Self::of(certificates)
    }

    /// A bundle of these certificates, without those that cannot be read and without repetitions.
    pub(crate) fn of(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        let mut bundle = Self::default();
        for der in certificates {
            if let Some(validity) = Validity::of(&der)
                && bundle.0.iter().all(|known| known.der != der)
            {
                bundle.0.push(Authority { der, validity });
            }
        }
        bundle
    }

    /// Whether it verifies no certificate.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.0.iter().map(|authority| &authority.der)
    }

    /// Without those that expired. Go's verifier, and so an API server, looks at a root's dates; rustls does not.
    pub(crate) fn unexpired(&self, now: Timestamp) -> Self {
        self.filtered(|authority| authority.validity.not_after > now)
    }

    /// Those that an API server would trust now.
    pub(crate) fn valid(&self, now: Timestamp) -> Self {
        self.filtered(|authority| authority.validity.contains(now))
    }

    /// When the first of them expires.
    pub(crate) fn first_expiry(&self) -> Option<Timestamp> {
        self.0
            .iter()
            .map(|authority| authority.validity.not_after)
            .min()
    }

    /// The `count` of them that were made last, newest first.
    pub(crate) fn newest(&self, count: usize) -> Self {
        let mut authorities = self.0.clone();
        authorities.sort_by_key(|authority| std::cmp::Reverse(authority.validity.not_before));
        authorities.truncate(count);
        Self(authorities)
    }

    /// Without those of another bundle.
    pub(crate) fn without(&self, other: &Self) -> Self {
        self.filtered(|authority| !other.0.contains(authority))
    }

    /// As trust anchors. Their dates are not looked at any more: see [`Bundle::valid`].
    pub(crate) fn anchors(&self) -> RootCertStore {
        let mut anchors = RootCertStore::empty();
        anchors.add_parsable_certificates(self.certificates().cloned());
        anchors
    }

    pub(crate) fn to_pem(&self) -> String {
        self.certificates().map(|der| section(der)).collect()
    }

    fn filtered(&self, keep: impl Fn(&Authority) -> bool) -> Self {
        let kept = self.0.iter().filter(|authority| keep(authority));
        Self(kept.cloned().collect())
    }
}

fn section(der: &[u8]) -> String {
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(LINE) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

#[cfg(test)]
mod tests;
