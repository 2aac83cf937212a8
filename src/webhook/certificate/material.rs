//! What a TLS Secret or three files hold, and what can be said of it.
//!
//! Invariant: a [`Pair`] can be served: its key belongs to its leaf. Deliberately absent: whether it should be (see
//! [`super::plan()`] for the leader, [`super::gate`] for a replica). Key material has no `Debug`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::ServerConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serve::{TlsError, identity_from_pem, server_config};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::Bundle;

/// Unchecked bytes, as stored.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// `tls.crt`: the leaf, then its intermediates, PEM.
    pub chain: Vec<u8>,
    /// `tls.key`: the leaf's key, PEM.
    pub key: Vec<u8>,
    /// `ca.crt`: the CAs that callers should trust, PEM. May be empty with certificate files.
    pub authorities: Vec<u8>,
}

/// From when to when a certificate is valid, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first instant.
    pub not_before: Timestamp,
    /// The last instant.
    pub not_after: Timestamp,
}

/// The bytes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The key belongs to another certificate; with files, possibly half-written ones.
    #[error("key does not match the certificate")]
    Mismatch,
    /// No certificate or key, or not ones that the TLS library takes.
    #[error("invalid certificate or key")]
    Unusable(#[source] TlsError),
    /// The TLS library takes the leaf, but its dates and names cannot be read.
    #[error("malformed certificate")]
    Leaf,
}

/// A certificate that can be served.
pub struct Pair {
    chain: Vec<CertificateDer<'static>>,
    validity: Validity,
    dns_names: BTreeSet<String>,
    config: ServerConfig,
}

impl Validity {
    /// The dates of a certificate; `None` when it is none.
    #[must_use]
    pub fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Self::of_parsed(&certificate)
    }

    fn of_parsed(certificate: &X509Certificate<'_>) -> Option<Self> {
        let dates = certificate.validity();
        Some(Self {
            not_before: Timestamp::from_second(dates.not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(dates.not_after.timestamp()).ok()?,
        })
    }

    /// Whether it is valid then.
    #[must_use]
    pub fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// When two thirds of it are over.
    #[must_use]
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_before.duration_until(self.not_after);
        self.not_after
            .checked_sub(life / 3)
            .unwrap_or(self.not_after)
    }
}

impl Pair {
    /// Reads and checks.
    ///
    /// # Errors
    /// [`PairError`] when it cannot be served.
    pub fn read(material: &Material) -> Result<Self, PairError> {
        let identity =
            identity_from_pem(&material.chain, &material.key).map_err(PairError::Unusable)?;
        let chain = identity.chain.clone();
        let config = server_config(identity).map_err(|error| match error {
            TlsError::KeyMismatch => PairError::Mismatch,
            other => PairError::Unusable(other),
        })?;
        let (validity, dns_names) = chain.first().and_then(facts).ok_or(PairError::Leaf)?;
        Ok(Self {
            chain,
            validity,
            dns_names,
            config,
        })
    }

    /// The leaf's dates.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether the leaf is valid for every one of the names. Wildcards are not looked into: ours has none.
    #[must_use]
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.dns_names.contains(name))
    }

    /// Whether an API server that trusts only `bundle` and asks for `name` would talk to us now.
    #[must_use]
    pub fn verified_by(&self, bundle: &Bundle, name: &str, now: Timestamp) -> bool {
        self.verify(bundle, name, now).is_some()
    }

    fn verify(&self, bundle: &Bundle, name: &str, now: Timestamp) -> Option<()> {
        let (leaf, intermediates) = self.chain.split_first()?;
        let name = ServerName::try_from(name).ok()?;
        let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).ok()?);
        let provider = Arc::new(aws_lc_rs::default_provider());
        // Without an anchor there is no verifier, which is the right answer for an empty bundle.
        let anchors = Arc::new(bundle.valid(now).anchors());
        let verifier = WebPkiServerVerifier::builder_with_provider(anchors, provider)
            .build()
            .ok()?;
        let now = UnixTime::since_unix_epoch(since_epoch);
        verifier
            .verify_server_cert(leaf, intermediates, &name, &[], now)
            .ok()
            .map(drop)
    }

    /// The leaf and its intermediates.
    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// What a server presents.
    pub(super) fn into_config(self) -> ServerConfig {
        self.config
    }
}

fn facts(leaf: &CertificateDer<'static>) -> Option<(Validity, BTreeSet<String>)> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let validity = Validity::of_parsed(&certificate)?;
    let names = certificate.subject_alternative_name().ok()?;
    let dns_names = names
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    Some((validity, dns_names))
}

#[cfg(test)]
mod tests;
