//! Plans the next write of the leader. No I/O and no clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serve::pair::PairError;

use super::issue::CARRIED;
use super::{
    Bundle, CertificateSettings, LiveEntry, Material, Observed, StoredCertificate, TLS_TYPE,
};

/// Time for which the previous CAs stay in the `caBundle` after a change of certificate files. A kubelet takes minutes to
/// update the files. A day is also sufficient for a node with problems.
const OVERLAP: Duration = Duration::from_hours(24);

/// CAs from before a change, while they stay in the `caBundle`.
#[derive(Debug, Default)]
struct Overlap {
    authorities: Bundle,
    /// `None` if there are no CAs.
    until: Option<SystemTime>,
}

impl Overlap {
    /// Starts an overlap with at most [`CARRIED`] of these CAs.
    fn begin(authorities: &Bundle, now: SystemTime) -> Self {
        let authorities = authorities.first(CARRIED);
        let until = (!authorities.is_empty()).then_some(now + OVERLAP);
        Self { authorities, until }
    }

    /// Removes the CAs if their time has ended.
    fn end(&mut self, now: SystemTime) {
        if self.until.is_some_and(|until| until <= now) {
            *self = Self::default();
        }
    }
}

/// A planned write.
#[derive(Clone)]
pub(super) enum Write {
    /// Writes a new certificate to the Secret.
    Issue {
        reason: &'static str,
        /// The Secret that is overwritten.
        replaces: Option<Arc<StoredCertificate>>,
        /// CAs of leaves that replicas may still serve.
        carried: Bundle,
    },
    /// Writes a `caBundle` to the webhook entry.
    Publish {
        bundle: String,
        /// The entry that is overwritten.
        entry: Arc<LiveEntry>,
    },
}

/// The next write, if any, and the time of the next planning without a change; `None` means never.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) write: Option<Write>,
    pub(super) again: Option<SystemTime>,
}

/// Planner for the Secret. Nothing is written before both objects are known, because the CAs that must be carried over are
/// read from them. The `caBundle` is created from the stored state, and never from data that this process has just
/// generated, so two successive leaders publish the same `caBundle`.
///
/// Another client may replace the Secret, for example by restoring a backup. Its `ca.crt` then lacks the CA of the
/// certificate that replicas serve until they have observed both objects. Therefore that CA stays in the `caBundle` for a
/// day.
#[derive(Default)]
pub(super) struct SecretPlanner {
    /// The last usable certificate.
    last: Option<Material>,
    /// CAs of earlier certificates, including CAs that are not in the Secret.
    earlier: Overlap,
}

impl SecretPlanner {
    pub(super) fn plan(
        &mut self,
        secret: &Observed<StoredCertificate>,
        entry: &Observed<LiveEntry>,
        settings: &CertificateSettings,
        now: SystemTime,
    ) -> Plan {
        let stored = match (secret, entry) {
            (Observed::Unknown, _) | (_, Observed::Unknown) => return Plan::default(),
            (Observed::Absent, _) => None,
            (Observed::Present(stored), _) => Some(stored),
        };
        let authorities = stored.map_or_else(Bundle::default, |stored| {
            Bundle::read(&stored.material.authorities).unexpired(now)
        });
        let trusted = match entry {
            Observed::Present(live) => Bundle::read(&live.ca_bundle).unexpired(now),
            Observed::Unknown | Observed::Absent => Bundle::default(),
        };
        let renew_at = renew_at(stored.map(AsRef::as_ref), now, settings);
        if let Some(stored) = stored {
            let served = renew_at.is_ok().then_some(&stored.material);
            self.follow(&stored.material, served, &trusted, (settings, now));
        }
        let bundle = authorities.with(&self.earlier.authorities.unexpired(now));
        match renew_at {
            Ok(renew_at) => Plan {
                // An expired CA is removed from the bundle.
                again: [Some(renew_at), bundle.first_expiry(), self.earlier.until]
                    .into_iter()
                    .flatten()
                    .min(),
                write: match entry {
                    Observed::Present(live) => publish(&bundle, live),
                    Observed::Unknown | Observed::Absent => None,
                },
            },
            Err(reason) => Plan {
                again: None,
                write: Some(Write::Issue {
                    reason,
                    replaces: stored.cloned(),
                    // If the Secret contains no CAs (deleted or invalid), the currently trusted CAs are carried: replicas
                    // still serve the certificate of the lost Secret, and a webhook that is being replaced serves a
                    // different certificate.
                    carried: if authorities.is_empty() {
                        trusted
                    } else {
                        bundle
                    },
                }),
            },
        }
    }

    /// Records the CAs of the last certificate when another certificate is stored. If only `ca.crt` changes, and not the
    /// certificate, it specifies the trusted CAs. The CA of a leaked key is removed in this way.
    fn follow(
        &mut self,
        stored: &Material,
        served: Option<&Material>,
        trusted: &Bundle,
        (settings, now): (&CertificateSettings, SystemTime),
    ) {
        let last = self.last.as_ref();
        if let Some(last) = last.filter(|last| last.chain != stored.chain) {
            let pair = last.pair();
            let verifying = pair.map(|it| trusted.verifying(&it, settings.server_name(), now));
            let earlier = verifying.unwrap_or_default();
            self.earlier = Overlap::begin(&earlier.with(&self.earlier.authorities), now);
        } else if last.is_some_and(|last| last.authorities != stored.authorities) {
            self.earlier = Overlap::default();
        }
        self.earlier.end(now);
        if let Some(served) = served.filter(|it| Some(*it) != last) {
            self.last = Some(served.clone());
        }
    }
}

/// Returns when the stored certificate must be renewed: after two thirds of its validity.
///
/// # Errors
/// The reason why a certificate must be issued now, as the label `reason` of `certificates_issued_total`.
pub(super) fn renew_at(
    stored: Option<&StoredCertificate>,
    now: SystemTime,
    settings: &CertificateSettings,
) -> Result<SystemTime, &'static str> {
    let stored = stored.ok_or("missing")?;
    if stored.type_.as_deref() != Some(TLS_TYPE) {
        return Err("wrong_type");
    }
    let pair = stored.material.pair().map_err(|error| match error {
        PairError::KeyMismatch => "key_mismatch",
        _ => "unreadable",
    })?;
    let validity = pair.validity();
    validity.check(now).map_err(|error| match error {
        PairError::NotYetValid => "not_yet_valid",
        _ => "expired",
    })?;
    let life = validity.not_after.duration_since(validity.not_before);
    let renew_at = validity.not_after - life.unwrap_or_default() / 3;
    let authorities = Bundle::read(&stored.material.authorities);
    // Only the name that API servers verify is required. A certificate of another issuer, such as cert-manager before a
    // migration, may have fewer names, and would otherwise be replaced repeatedly.
    if !pair.covers(&[settings.server_name().to_owned()]) {
        Err("other_names")
    } else if !authorities.verifies(&pair, settings.server_name(), now) {
        Err("untrusted")
    } else if renew_at <= now {
        Err("near_expiry")
    } else {
        Ok(renew_at)
    }
}

/// Planner for certificate files: nothing is issued, and the CAs from before the last change of the files stay in the
/// `caBundle` for a day.
///
/// All replicas mount the files, and kubelets update the files at different times, minutes apart. Another replica may still
/// serve a leaf of the previous CA. The files do not contain that CA, so the CAs of the live `caBundle` at the time of the
/// change are carried. A new leader treats its start as a change, so that a change just before an election is not missed.
#[derive(Debug, Default)]
pub(super) struct FilesPlanner {
    files: Option<Bundle>,
    earlier: Overlap,
}

impl FilesPlanner {
    /// Plans the next write. Without CAs that verify the leaf, another client writes the `caBundle`.
    pub(super) fn plan(
        &mut self,
        files: &Observed<StoredCertificate>,
        entry: &Observed<LiveEntry>,
        settings: &CertificateSettings,
        now: SystemTime,
    ) -> Plan {
        let (Observed::Present(stored), Observed::Present(live)) = (files, entry) else {
            return Plan::default();
        };
        let authorities = Bundle::read(&stored.material.authorities).unexpired(now);
        let Ok(pair) = stored.material.pair() else {
            return Plan::default();
        };
        if !authorities.verifies(&pair, settings.server_name(), now) {
            // The clock of the issuer may be ahead.
            let begin = pair.validity().not_before;
            return Plan {
                write: None,
                again: Some(begin).filter(|it| *it > now),
            };
        }
        let bundle = self.with_earlier(&authorities, live, now);
        Plan {
            write: publish(&bundle, live),
            again: self.earlier.until,
        }
    }

    /// Returns the CAs of the files, followed by at most [`CARRIED`] unexpired CAs of the live `caBundle` at the last
    /// change of the files.
    pub(super) fn with_earlier(
        &mut self,
        files: &Bundle,
        live: &LiveEntry,
        now: SystemTime,
    ) -> Bundle {
        if self.files.as_ref() != Some(files) {
            let trusted = Bundle::read(&live.ca_bundle).unexpired(now);
            self.earlier = Overlap::begin(&trusted.without(files), now);
            self.files = Some(files.clone());
        }
        self.earlier.end(now);
        let carried = self.earlier.authorities.unexpired(now);
        files.with(&carried)
    }
}

fn publish(bundle: &Bundle, live: &Arc<LiveEntry>) -> Option<Write> {
    let bundle = bundle.to_pem();
    (bundle.as_bytes() != live.ca_bundle).then(|| Write::Publish {
        bundle,
        entry: Arc::clone(live),
    })
}

#[cfg(test)]
mod decide_tests;
#[cfg(test)]
mod overlap_tests;
#[cfg(test)]
mod tests;
