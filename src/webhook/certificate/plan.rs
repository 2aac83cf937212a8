//! Whether the stored certificate stays.
//!
//! Invariant: a function of the Secret, the time and the names; every verdict against the Secret has a reason.
//! Deliberately absent: the `caBundle` (see [`super::keep`]) and what a replica serves (see [`super::gate`]).

use jiff::Timestamp;

use super::{Bundle, CertificateSettings, Pair, PairError, StoredSecret, TLS_TYPE};

/// What to do about the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It serves until then.
    Keep {
        /// When two thirds of its life are over.
        renew_at: Timestamp,
    },
    /// A new pair is needed.
    Reissue(Reason),
}

/// Why a new pair is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// There is no Secret.
    Missing,
    /// Not of type `kubernetes.io/tls`; the type cannot be changed.
    WrongType,
    /// No certificate or no key in it.
    Unreadable,
    /// The key belongs to another certificate.
    KeyMismatch,
    /// Its time is over.
    Expired,
    /// Its time has not come: a clock was wrong when it was made, or is now.
    NotYetValid,
    /// Two thirds of its life are over.
    NearExpiry,
    /// It lacks a name of ours.
    OtherNames,
    /// Its own `ca.crt` does not verify it, so no `caBundle` made from that would.
    Untrusted,
}

impl Reason {
    /// As a label of metrics and a word in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::WrongType => "wrong_type",
            Self::Unreadable => "unreadable",
            Self::KeyMismatch => "key_mismatch",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::NearExpiry => "near_expiry",
            Self::OtherNames => "other_names",
            Self::Untrusted => "untrusted",
        }
    }
}

/// Decides about the Secret. Who made it does not matter: one that serves is kept.
#[must_use]
pub fn plan(secret: Option<&StoredSecret>, now: Timestamp, settings: &CertificateSettings) -> Plan {
    match examine(secret, now, settings) {
        Ok(renew_at) => Plan::Keep { renew_at },
        Err(reason) => Plan::Reissue(reason),
    }
}

fn examine(
    secret: Option<&StoredSecret>,
    now: Timestamp,
    settings: &CertificateSettings,
) -> Result<Timestamp, Reason> {
    let secret = secret.ok_or(Reason::Missing)?;
    if secret.kind.as_deref() != Some(TLS_TYPE) {
        return Err(Reason::WrongType);
    }
    let pair = Pair::read(&secret.material).map_err(|error| match error {
        PairError::Mismatch => Reason::KeyMismatch,
        PairError::Unusable(_) | PairError::Leaf => Reason::Unreadable,
    })?;
    let validity = pair.validity();
    if now < validity.not_before {
        return Err(Reason::NotYetValid);
    }
    if validity.not_after < now {
        return Err(Reason::Expired);
    }
    if !pair.covers(&settings.dns_names) {
        return Err(Reason::OtherNames);
    }
    let authorities = Bundle::read(&secret.material.authorities);
    if !pair.verified_by(&authorities, settings.server_name(), now) {
        return Err(Reason::Untrusted);
    }
    let renew_at = validity.renew_at();
    if renew_at <= now {
        return Err(Reason::NearExpiry);
    }
    Ok(renew_at)
}

#[cfg(test)]
mod tests;
