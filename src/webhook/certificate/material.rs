//! The content of a TLS Secret or of three files. A [`Pair`] can be served: its key belongs to its leaf. Key material has
//! no `Debug`.

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
pub(crate) struct Material {
    /// `tls.crt`: the leaf, then its intermediates, PEM.
    pub(crate) chain: Vec<u8>,
    /// `tls.key`: the leaf's key, PEM.
    pub(crate) key: Vec<u8>,
    /// `ca.crt`: the CAs that callers should trust, PEM. May be empty with certificate files.
    pub(crate) authorities: Vec<u8>,
}

/// From when to when a certificate is valid, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// The material cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum PairError {
    /// With files, possibly because they were read during a change.
    #[error("key does not match the certificate")]
    Mismatch,
    #[error("invalid certificate or key")]
    Unusable(#[source] TlsError),
    /// The TLS library accepts the leaf, but its dates and names cannot be read.
    #[error("malformed certificate")]
    Leaf,
}

/// A certificate that can be served.
pub(super) struct Pair {
    chain: Vec<CertificateDer<'static>>,
    validity: Validity,
    dns_names: Vec<String>,
    config: ServerConfig,
}

impl Validity {
    /// The dates of a certificate; `None` when it cannot be parsed.
    pub(super) fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let dates = certificate.validity();
        Some(Self {
            not_before: Timestamp::from_second(dates.not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(dates.not_after.timestamp()).ok()?,
        })
    }

    pub(super) fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// When two thirds of it are over.
    pub(super) fn renew_at(&self) -> Timestamp {
        let life = self.not_before.duration_until(self.not_after);
        let renew_at = self.not_after.checked_sub(life / 3);
        renew_at.unwrap_or(self.not_after)
    }
}

impl Pair {
    pub(super) fn read(material: &Material) -> Result<Self, PairError> {
        let identity =
            identity_from_pem(&material.chain, &material.key).map_err(PairError::Unusable)?;
        let chain = identity.chain.clone();
        let config = server_config(identity).map_err(|error| match error {
            TlsError::KeyMismatch => PairError::Mismatch,
            other => PairError::Unusable(other),
        })?;
        let leaf = chain.first().ok_or(PairError::Leaf)?;
        Ok(Self {
            validity: Validity::of(leaf).ok_or(PairError::Leaf)?,
            dns_names: dns_names(leaf).ok_or(PairError::Leaf)?,
            chain,
            config,
        })
    }

    /// The leaf's dates.
    pub(super) fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether the leaf has every one of the names. Wildcards are not considered: none is issued.
    pub(super) fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.dns_names.contains(name))
    }

    /// Whether an API server that trusts only `bundle` and asks for `name` accepts the certificate now.
    pub(super) fn verified_by(&self, bundle: &Bundle, name: &str, now: Timestamp) -> bool {
        self.verify(bundle, name, now).is_some()
    }

    fn verify(&self, bundle: &Bundle, name: &str, now: Timestamp) -> Option<()> {
        let (leaf, intermediates) = self.chain.split_first()?;
        let name = ServerName::try_from(name).ok()?;
        let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).ok()?);
        let provider = Arc::new(aws_lc_rs::default_provider());
        // An empty bundle gives no verifier, and verifies nothing.
        let anchors = Arc::new(bundle.valid(now).anchors());
        let verifier = WebPkiServerVerifier::builder_with_provider(anchors, provider);
        let verifier = verifier.build().ok()?;
        let now = UnixTime::since_unix_epoch(since_epoch);
        let result = verifier.verify_server_cert(leaf, intermediates, &name, &[], now);
        result.ok().map(drop)
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

fn dns_names(leaf: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.iter().flat_map(|it| &it.value.general_names);
    let dns_names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Some(dns_names.collect())
}

#[cfg(test)]
mod tests;
