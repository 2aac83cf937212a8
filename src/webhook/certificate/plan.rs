//! What the leader writes next. No IO and no clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serve::pair::PairError;

use super::issue::CARRIED;
use super::{
    Bundle, CertificateSettings, LiveEntry, Material, Observed, StoredCertificate, TLS_TYPE,
};

/// How long the CAs before a change of certificate files stay in the `caBundle`. A kubelet takes minutes to update the
/// files; a day also outlasts a node with problems.
const OVERLAP: Duration = Duration::from_hours(24);

/// The CAs before a change, as long as they stay in the `caBundle`.
#[derive(Debug, Default)]
struct Overlap {
    authorities: Bundle,
    /// `None` without CAs.
    until: Option<SystemTime>,
}

impl Overlap {
    /// At most [`CARRIED`] of these, from now on.
    fn begin(authorities: &Bundle, now: SystemTime) -> Self {
        let authorities = authorities.first(CARRIED);
        let until = (!authorities.is_empty()).then_some(now + OVERLAP);
        Self { authorities, until }
    }

    /// Removes them if their time is over.
    fn end(&mut self, now: SystemTime) {
        if self.until.is_some_and(|until| until <= now) {
            *self = Self::default();
        }
    }
}

/// A write.
#[derive(Clone)]
pub(super) enum Write {
    /// A new certificate into the Secret.
    Issue {
        reason: &'static str,
        /// The Secret that is overwritten.
        replaces: Option<Arc<StoredCertificate>>,
        /// CAs of leaves that replicas may still serve.
        carried: Bundle,
    },
    /// A `caBundle` into the webhook entry.
    Publish {
        bundle: String,
        /// The entry that is overwritten.
        entry: Arc<LiveEntry>,
    },
}

/// The next write, if any, and when to plan again without a change; `None` for never.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) write: Option<Write>,
    pub(super) again: Option<SystemTime>,
}

/// Plans with the Secret. Nothing is written before both objects are known: which CAs must be carried over is read from
/// them. The `caBundle` is made from what is stored, never from what this process has just made, so two leaders in a
/// row publish the same.
///
/// Another client may replace the Secret, as a restore of a backup does, and its `ca.crt` then lacks the CA of the certificate
/// that replicas serve until they have observed both objects. So that CA stays in the `caBundle` for a day.
#[derive(Default)]
pub(super) struct SecretPlanner {
    /// The last certificate that could be served.
    last: Option<Material>,
    /// CAs of certificates before it, also those that are not in the Secret.
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
                // A CA that expires makes the bundle shorter.
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
                    // Without CAs in the Secret (deleted or invalid) those that the API server trusts now: replicas still
                    // serve what the lost Secret held, and a webhook that is replaced serves its own certificate.
                    carried: if authorities.is_empty() {
                        trusted
                    } else {
                        bundle
                    },
                }),
            },
        }
    }

    /// Notes the CAs of the last certificate when another one is stored. A `ca.crt` that changes beside the same certificate
    /// says which CAs are trusted: the one of a leaked key is removed like that.
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

/// When the stored certificate is to be renewed: when two thirds of its life are over.
///
/// # Errors
/// Why it must be issued now, as the label `reason` of `certificates_issued_total`.
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
    // The name that API servers verify is enough: a certificate of another issuer, as of cert-manager before a migration, may
    // have fewer than ours, and would be replaced again and again.
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

/// Plans with certificate files: nothing is issued, and the CAs before the last change of the files stay in the
/// `caBundle` for a day.
///
/// Every replica mounts the files, and kubelets update them minutes apart: another replica may still serve a leaf of the
/// CA before. The files do not say which that is, so the CAs of the live `caBundle` at the change are carried. A new
/// leader takes its start for a change, so a change just before an election is not missed.
#[derive(Debug, Default)]
pub(super) struct FilesPlanner {
    files: Option<Bundle>,
    earlier: Overlap,
}

impl FilesPlanner {
    /// Without CAs that verify the leaf, the `caBundle` is left to another writer.
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
            // The clock of its issuer may be ahead of ours.
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

    /// The CAs of the files, then at most [`CARRIED`] unexpired ones of the live `caBundle` as it was when the files
    /// changed last.
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
