//! The Secret of the gateway: the bundle of CAs that it trusts, and the certificate with which it serves.

use std::fmt;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::x509::{CertificateInfo, X509Error};

#[cfg(test)]
mod tests;

/// A certificate chain and its private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate, followed by its issuers.
    pub certificate: Vec<u8>,
    /// The private key.
    pub key: Zeroizing<Vec<u8>>,
}

/// `Debug` output without the key.
impl fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyPair")
    }
}

/// Input of [`gateway`].
#[derive(Clone, Copy, Debug)]
pub struct GatewayState<'a> {
    /// The certificate of the CA that currently issues certificates, in PEM.
    pub ca: &'a [u8],
    /// The certificate that cert-manager issued for the gateway.
    pub leaf: Option<&'a KeyPair>,
    /// The bundle in the live Secret, in PEM.
    pub live_bundle: Option<&'a [u8]>,
    /// The last bundle that this controller sent to runtimes, in PEM, and the time at which its newest CA was added. They are
    /// used if the live Secret was deleted or its bundle is invalid: runtimes have certificates of all these CAs.
    pub published: Option<(&'a [u8], i64)>,
    /// The certificate in the live Secret.
    pub live_pair: Option<&'a KeyPair>,
    /// The time at which the newest CA was added to the live bundle, in Unix seconds; `None` if it is unknown.
    pub ca_added: Option<i64>,
    /// Whether all reachable runtimes have reported that they trust the bundle.
    pub is_acknowledged: bool,
    /// Seconds after which runtimes count as trusting a new CA.
    pub grace_period: i64,
    /// The current time in Unix seconds.
    pub now: i64,
}

/// The desired Secret of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The CAs that clients and servers trust, with the newest CA first, in PEM.
    pub bundle: String,
    /// The certificate with which the gateway serves.
    pub pair: KeyPair,
    /// The time at which the newest CA was added to the bundle, in Unix seconds.
    pub ca_added: i64,
    /// The CA that currently issues certificates.
    pub ca: CertificateInfo,
    /// Whether cert-manager has to issue another certificate for the gateway, since runtimes trust the new CA.
    pub is_leaf_outdated: bool,
    /// The end of the grace period of the newest CA, if the gateway waits for it.
    pub waits_until: Option<i64>,
    /// End of the validity of the certificate with which the gateway serves, or of the CA if that is earlier.
    pub not_after: i64,
}

/// Reason why the Secret cannot be computed. The Secret is not changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// The certificate of the CA is invalid.
    #[error("certificate of the CA")]
    CA(#[source] X509Error),
    /// The certificate of the CA has expired.
    #[error("certificate of the CA: expired")]
    CAExpired,
    /// There is no certificate for the gateway.
    #[error("certificate of the gateway: not issued yet")]
    LeafPending,
    /// The certificate of the gateway is invalid.
    #[error("certificate of the gateway")]
    Leaf(#[source] X509Error),
}

/// Computes the desired Secret of the gateway.
///
/// # Errors
/// [`GatewayError`] if CA or certificate are missing or invalid.
pub fn gateway(state: &GatewayState<'_>) -> Result<Gateway, GatewayError> {
    let ca = CertificateInfo::first(state.ca).map_err(GatewayError::CA)?;
    if ca.not_after <= state.now {
        return Err(GatewayError::CAExpired);
    }
    // A bundle that cannot be read is replaced: the gateway cannot use it either.
    let read = |bundle| CertificateInfo::read_all(bundle).ok();
    let (live, ca_added) = match (state.live_bundle.and_then(read), state.published) {
        (None, Some((bundle, added))) => (read(bundle), Some(added)),
        (live, _) => (live, state.ca_added),
    };
    let live = live.unwrap_or_default();
    let is_known = live.contains(&ca);
    let is_first = live.is_empty();
    let ca_added = ca_added.filter(|it| is_known && *it <= state.now);
    // Without an earlier bundle, every certificate that this CA has issued is trusted.
    let unknown = if is_first { ca.not_before } else { state.now };
    let ca_added = ca_added.unwrap_or(unknown);
    let mut bundle: Vec<&CertificateInfo> = Vec::new();
    for certificate in std::iter::once(&ca).chain(&live) {
        if certificate.not_after > state.now && !bundle.contains(&certificate) {
            bundle.push(certificate);
        }
    }
    if is_known {
        // The order in which the CAs were added.
        bundle.sort_by_key(|it| live.iter().position(|known| known == *it));
    }
    let trusted_at = ca_added.saturating_add(state.grace_period);
    // If no earlier CA exists, no runtime has another bundle.
    let is_trusted = is_first || (is_known && (state.is_acknowledged || state.now >= trusted_at));
    let (pair, info, is_outdated) = pair(state, &ca, &live, is_trusted)?;
    Ok(Gateway {
        bundle: bundle.iter().map(|it| it.pem()).collect(),
        pair,
        ca_added,
        is_leaf_outdated: is_outdated && is_trusted,
        waits_until: (!is_trusted).then_some(trusted_at),
        not_after: info.not_after.min(ca.not_after),
        ca: ca.clone(),
    })
}

/// Returns the SHA-256 of a bundle of CAs in hexadecimal digits, as watchers report it.
#[must_use]
pub fn bundle_sha256(bundle: &[u8]) -> String {
    hex::encode(Sha256::digest(bundle))
}

/// Returns the certificate with which the gateway serves, and whether cert-manager should issue another one, because none of
/// the newest CA exists. A certificate that has expired, or that none of the known CAs issued, replaces no valid one. Until
/// the newest CA is trusted, a certificate of another CA than the CA of the live certificate is not used. Its issuer may
/// be an earlier CA that is not trusted either.
fn pair(
    state: &GatewayState<'_>,
    ca: &CertificateInfo,
    live_bundle: &[CertificateInfo],
    is_trusted: bool,
) -> Result<(KeyPair, CertificateInfo, bool), GatewayError> {
    let live = state.live_pair.and_then(|pair| {
        let info = CertificateInfo::first(&pair.certificate).ok()?;
        (info.not_after > state.now).then(|| (pair.clone(), info))
    });
    let leaf = state.leaf.ok_or(GatewayError::LeafPending);
    let issued = leaf.and_then(|pair| {
        let info = CertificateInfo::first(&pair.certificate).map_err(GatewayError::Leaf)?;
        Ok((pair.clone(), info))
    });
    match (issued, live) {
        (Ok((pair, info)), live) => {
            let is_of_ca = info.is_issued_by(ca);
            let is_of_another = |live: &CertificateInfo| {
                let mut issuers = live_bundle.iter().filter(|it| live.is_issued_by(it));
                issuers.next().is_some_and(|it| !info.is_issued_by(it))
            };
            let is_known = |it: &CertificateInfo| {
                it.is_issued_by(ca) || live_bundle.iter().any(|known| it.is_issued_by(known))
            };
            let is_usable = is_known(&info) && info.not_after > state.now;
            match live.filter(|(_, it)| !is_usable || is_known(it)) {
                Some((live, it)) if !is_usable => Ok((live, it, !is_of_ca)),
                Some((live, it)) if !is_trusted && (is_of_ca || is_of_another(&it)) => {
                    Ok((live, it, false))
                }
                _ => Ok((pair, info, !is_of_ca)),
            }
        }
        // The gateway keeps its current certificate until cert-manager has issued one.
        (Err(_), Some((live, info))) => Ok((live, info, false)),
        (Err(error), None) => Err(error),
    }
}
