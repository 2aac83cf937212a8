//! A certificate authority for watchers and the gateway, as cert-manager's self-signed CA issuer will be.
//!
//! Invariant: it lives as long as the run. Its certificates are those that the lifecycle manager orders: one pair for
//! both directions, the runtime id as common name.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

/// Signs certificates.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Whom a certificate is for, and when.
#[derive(Debug, Clone)]
pub struct Leaf<'a> {
    /// The common name.
    pub common_name: &'a str,
    /// The alternative names, DNS.
    pub names: &'a [&'a str],
    /// When it holds.
    pub validity: Validity,
}

/// When a certificate holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Since an hour ago, for a day.
    Now,
    /// Until a minute ago.
    Over,
    /// From tomorrow on.
    NotYet,
}

/// What its holder has: whom to trust, a certificate, its key; all PEM.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The authorities.
    pub trusted: String,
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// When its key cannot be made.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        Ok(Self {
            pem: params.self_signed(&key)?.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Its certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate and its key, whose holder trusts this authority alone.
    ///
    /// # Errors
    /// When a name is none.
    pub fn pair(&self, leaf: &Leaf<'_>) -> anyhow::Result<Pair> {
        let names: Vec<String> = leaf.names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, leaf.common_name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let span = leaf.validity.span();
        params.not_before = span.start.into();
        params.not_after = span.end.into();
        let key = KeyPair::generate()?;
        Ok(Pair {
            trusted: self.pem.clone(),
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Validity {
    fn span(self) -> Range<SystemTime> {
        let now = SystemTime::now();
        match self {
            Self::Now => now - HOUR..now + DAY,
            Self::Over => now - HOUR..now - HOUR / 60,
            Self::NotYet => now + DAY..now + DAY * 2,
        }
    }
}

impl Pair {
    /// The content of the Secret, by the names of its files.
    #[must_use]
    pub fn files(&self) -> Value {
        json!({ "ca.crt": self.trusted, "tls.crt": self.certificate, "tls.key": self.key })
    }

    /// In how many of its two parts it is another one: the certificate with its key, and whom to trust.
    pub(super) fn differences(&self, other: &Self) -> u64 {
        u64::from(self.certificate != other.certificate) + u64::from(self.trusted != other.trusted)
    }

    /// The same, trusting others as well.
    #[must_use]
    pub fn trusting(mut self, authorities: &[&Authority]) -> Self {
        self.trusted = authorities.iter().map(|it| it.pem()).collect();
        self
    }
}

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
