//! A new CA and a leaf that it signs.
//!
//! Invariant: the CA signs one leaf and its key is dropped right after, so no key that could make another certificate
//! for our Service is stored anywhere. The price is a new CA at every rotation, which costs nothing here: the `caBundle`
//! has to be rotated without a gap in any case, and what is exercised every 60 days works on the day that it must.
//! For the same reason a CA lives exactly as long as its leaf: it is useless after it, and needed until then.
//!
//! Time, keys and names are arguments. Deliberately absent: whether to issue (see [`super::plan()`]), and storing.

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

/// How many earlier CAs a bundle carries at most. In the ordinary course there is one; more come from repairs in quick
/// succession. The bound also ends, after some rotations, the trust in a long-lived CA that was there before us.
pub(super) const CARRIED: usize = 3;

/// The keys of a new CA and its leaf, ECDSA P-256: every TLS client in a cluster has it, FIPS builds included.
pub struct Keys {
    authority: KeyPair,
    leaf: KeyPair,
}

/// What is to be issued.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// The leaf's DNS names.
    pub dns_names: &'a [String],
    /// The present.
    pub now: Timestamp,
    /// How long from now leaf and CA are valid.
    pub lifetime: Duration,
    /// The CAs that replicas may still serve leaves of; expired ones are left out.
    pub carried: Bundle,
}

/// No certificate could be made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The system gave no key.
    #[error("failed to generate a key")]
    Key(#[source] rcgen::Error),
    /// A date is out of what certificates can say.
    #[error("validity of the certificate out of range")]
    Dates,
    /// The names or the key were refused.
    #[error("failed to create the certificate")]
    Certificate(#[source] rcgen::Error),
}

impl Keys {
    /// New ones.
    ///
    /// # Errors
    /// [`IssueError::Key`] when the system's randomness fails.
    pub fn generate() -> Result<Self, IssueError> {
        let key = || KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IssueError::Key);
        Ok(Self {
            authority: key()?,
            leaf: key()?,
        })
    }
}

/// Makes the pair. Serial numbers and the CA's name derive from the keys, so no two are alike: a verifier that holds two
/// CAs finds the right one by name.
///
/// # Errors
/// [`IssueError`] when a date or a name cannot be written into a certificate.
pub fn issue(order: &Order<'_>, keys: Keys) -> Result<Material, IssueError> {
    let Keys { authority, leaf } = keys;
    let authority = CertifiedIssuer::self_signed(authority_params(order, &authority)?, authority)
        .map_err(IssueError::Certificate)?;
    let certificate = leaf_params(order)?
        .signed_by(&leaf, &authority)
        .map_err(IssueError::Certificate)?;
    let carried = order.carried.unexpired(order.now).newest(CARRIED);
    let trusted = std::iter::once(authority.der()).chain(carried.certificates());
    Ok(Material {
        chain: Bundle::of([certificate.der().clone()])
            .to_pem()
            .into_bytes(),
        key: leaf.serialize_pem().into_bytes(),
        authorities: Bundle::of(trusted.cloned()).to_pem().into_bytes(),
    })
}

fn authority_params(order: &Order<'_>, key: &KeyPair) -> Result<CertificateParams, IssueError> {
    let mut params = dated(order, Vec::new())?;
    params.distinguished_name = named(&format!("rt-bootstrapper-webhook-ca {}", mark(key)));
    // It signs leaves and no further CA.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

fn leaf_params(order: &Order<'_>) -> Result<CertificateParams, IssueError> {
    let mut params = dated(order, order.dns_names.to_vec())?;
    params.distinguished_name = named("rt-bootstrapper-webhook");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn dated(order: &Order<'_>, names: Vec<String>) -> Result<CertificateParams, IssueError> {
    let seconds = u64::try_from(order.now.as_second()).map_err(|_| IssueError::Dates)?;
    let now = Duration::from_secs(seconds);
    let end = now.checked_add(order.lifetime).ok_or(IssueError::Dates)?;
    // Also keeps the addition below from overflowing: X.509 knows four digits of a year.
    if end.as_secs() > Timestamp::MAX.as_second().unsigned_abs() {
        return Err(IssueError::Dates);
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::new(names).map_err(IssueError::Certificate)?;
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + end;
    Ok(params)
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// 64 bits of the key's digest: enough to tell the few CAs of one bundle apart.
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
