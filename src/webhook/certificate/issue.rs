//! A new CA and a leaf that it signs.
//!
//! The CA signs one leaf and its key is dropped right after, so no key that could make another certificate for the
//! Service is stored anywhere. The `caBundle` has to be rotated without a gap in any case, so a new CA at every rotation
//! costs nothing. A CA is valid exactly as long as its leaf.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use sha2::{Digest as _, Sha256};

use super::{Bundle, Material};

/// The API server's clock may be behind ours.
const BACKDATED: Duration = Duration::from_hours(1);

/// Number of earlier CAs that a bundle carries at most. Usually there is one; more come from repairs in quick succession.
/// The bound also ends, after some rotations, the trust in a long-lived CA of another issuer.
pub(super) const CARRIED: usize = 3;

/// A certificate could not be issued.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssueError {
    #[error("validity of the certificate out of range")]
    Dates,
    #[error("failed to create the certificate")]
    Certificate(#[from] rcgen::Error),
}

/// Generates a CA and a leaf, valid from `now` for `lifetime`. The unexpired CAs of `carried` stay in `ca.crt`.
///
/// Both keys are ECDSA P-256: every TLS client in a cluster has it, FIPS builds included. Serial numbers and the CA's
/// name derive from the keys, so no two are equal: a verifier with two CAs finds the right one by name.
pub(super) fn issue(
    dns_names: &[String],
    now: Timestamp,
    lifetime: Duration,
    carried: &Bundle,
) -> Result<Material, IssueError> {
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
    let (authority, leaf) = (key()?, key()?);
    let mut params = dated(Vec::new(), now, lifetime)?;
    params.distinguished_name = named(&format!("rt-bootstrapper-webhook-ca {}", mark(&authority)));
    // It signs leaves and no further CA.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, authority)?;

    let mut params = dated(dns_names.to_vec(), now, lifetime)?;
    params.distinguished_name = named("rt-bootstrapper-webhook");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&leaf, &authority)?;

    let carried = carried.unexpired(now).newest(CARRIED);
    let trusted = std::iter::once(authority.der()).chain(carried.certificates());
    let pem = |bundle: Bundle| bundle.to_pem().into_bytes();
    Ok(Material {
        chain: pem(Bundle::of([certificate.der().clone()])),
        key: leaf.serialize_pem().into_bytes(),
        authorities: pem(Bundle::of(trusted.cloned())),
    })
}

fn dated(
    names: Vec<String>,
    now: Timestamp,
    lifetime: Duration,
) -> Result<CertificateParams, IssueError> {
    let seconds = u64::try_from(now.as_second()).map_err(|_| IssueError::Dates)?;
    let now = Duration::from_secs(seconds);
    let end = now.checked_add(lifetime).ok_or(IssueError::Dates)?;
    // Also keeps the addition below from overflowing: X.509 has four digits of a year.
    if end.as_secs() > Timestamp::MAX.as_second().unsigned_abs() {
        return Err(IssueError::Dates);
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::new(names)?;
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + end;
    Ok(params)
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// 64 bits of the key's digest, which distinguish the few CAs of one bundle.
fn mark(key: &KeyPair) -> String {
    let digest = Sha256::digest(key.public_key_raw());
    digest.iter().take(8).fold(String::new(), |mut mark, byte| {
        // Writing to a String cannot fail.
        let _ = write!(mark, "{byte:02x}");
        mark
    })
}

#[cfg(test)]
mod tests;
