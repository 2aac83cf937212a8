//! Issues a new CA and a leaf that it signs.
//!
//! The CA signs one leaf and its key is dropped immediately afterwards. Therefore no key that could issue another
//! certificate for the Service is stored anywhere. The `caBundle` must support a rotation without a gap in any case, so a
//! new CA at each rotation has no additional cost. A CA has the same validity as its leaf.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use sha2::{Digest as _, Sha256};

use super::{Bundle, LIFETIME, Material};

/// Time by which the start of the validity is before the issuance, because the clock of the API server may be behind.
const BACKDATED: Duration = Duration::from_hours(1);

/// Maximum number of earlier CAs in a bundle. Usually there is one. Repairs in quick succession add more, while replicas
/// still serve an earlier certificate. After some rotations the limit also ends the trust in a long-lived CA of another
/// issuer.
pub(super) const CARRIED: usize = 8;

/// Generates a CA and a leaf, valid from `now` for [`LIFETIME`]. The unexpired CAs of `carried` stay in `ca.crt`.
///
/// Both keys are ECDSA P-256, which each TLS client in a cluster supports, including FIPS builds. Serial numbers and the
/// name of the CA are derived from the keys (64 bits of the digest), so that they are unique. A verifier with two CAs finds
/// the correct CA by its name.
pub(super) fn issue(
    dns_names: &[String],
    now: SystemTime,
    carried: &Bundle,
) -> Result<Material, rcgen::Error> {
    let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
    let (authority, leaf) = (key()?, key()?);
    let digest = Sha256::digest(authority.public_key_raw());
    let name = format!("rt-bootstrapper-webhook-ca {digest:.16x}");
    let mut params = template(&name, &[], now)?;
    // The CA signs leaves and no further CA.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, authority)?;

    let mut params = template("rt-bootstrapper-webhook", dns_names, now)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&leaf, &authority)?;

    let carried = carried.unexpired(now).first(CARRIED);
    let trusted = std::iter::once(authority.der()).chain(carried.certificates());
    let pem = |bundle: Bundle| bundle.to_pem().into_bytes();
    Ok(Material {
        chain: pem(Bundle::of([certificate.der().clone()])),
        key: leaf.serialize_pem().into_bytes().into(),
        authorities: pem(Bundle::of(trusted.cloned())),
    })
}

fn template(
    common_name: &str,
    dns_names: &[String],
    now: SystemTime,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(dns_names)?;
    let subject = &mut params.distinguished_name;
    subject.push(DnType::CommonName, common_name);
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + LIFETIME).into();
    Ok(params)
}

#[cfg(test)]
mod tests;
