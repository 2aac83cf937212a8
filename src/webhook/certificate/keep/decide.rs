//! What the leader does next.
//!
//! Invariant: pure; nothing to do when nothing differs; nothing is published unless it verifies what is stored.

use std::sync::Arc;

use jiff::Timestamp;

use super::overlap::Overlap;
use crate::certificate::{
    Bundle, CertificateSettings, LiveEntry, Material, Pair, Plan, Reason, Sighting, StoredSecret,
    plan,
};

/// A write.
#[derive(Clone)]
pub(super) enum Action {
    /// A new pair into the Secret.
    Issue {
        reason: Reason,
        /// What is there, which the write replaces.
        based_on: Option<Arc<StoredSecret>>,
        /// CAs that callers or replicas may still rely on.
        carried: Bundle,
    },
    /// The CAs of the stored pair into the webhook entry.
    Publish {
        bundle: String,
        /// The entry as it was seen.
        entry: Arc<LiveEntry>,
    },
}

/// The next write, if any, and when to look again without being told of a change.
pub(super) struct Next {
    pub(super) action: Option<Action>,
    pub(super) look_again: Timestamp,
}

/// Decides from what is known. Without knowledge of both objects nothing is done: which CAs must be carried over is
/// read from them.
pub(super) fn next(
    secret: &Sighting<StoredSecret>,
    entry: &Sighting<LiveEntry>,
    settings: &CertificateSettings,
    now: Timestamp,
) -> Next {
    let stored = match (secret, entry) {
        (Sighting::Unknown, _) | (_, Sighting::Unknown) => return Next::wait(Timestamp::MAX),
        (Sighting::Absent, _) => None,
        (Sighting::Present(stored), _) => Some(stored),
    };
    match (plan(stored.map(AsRef::as_ref), now, settings), stored) {
        (Plan::Keep { renew_at }, Some(stored)) => {
            let look_again =
                expiry_of(&stored.material, now).map_or(renew_at, |end| end.min(renew_at));
            let action = publication(&stored.material, entry, settings, now);
            Next { action, look_again }
        }
        // Nothing is never kept.
        (Plan::Keep { .. }, None) => Next::wait(Timestamp::MAX),
        (Plan::Reissue(reason), _) => Next {
            action: Some(Action::Issue {
                reason,
                based_on: stored.cloned(),
                carried: carried(stored.map(AsRef::as_ref), entry, now),
            }),
            look_again: now,
        },
    }
}

/// Decides about certificate files: nothing is issued, and earlier CAs are trusted for a day after a change.
pub(super) fn next_of_files(
    files: &Sighting<Material>,
    entry: &Sighting<LiveEntry>,
    overlap: &mut Overlap,
    settings: &CertificateSettings,
    now: Timestamp,
) -> Next {
    let (Sighting::Present(material), Sighting::Present(live)) = (files, entry) else {
        return Next::wait(Timestamp::MAX);
    };
    let Some(authorities) = own_authorities(material, settings, now) else {
        return Next::wait(Timestamp::MAX);
    };
    let bundle = overlap.with_earlier(&authorities, live, now);
    Next {
        action: write_of(&bundle, live),
        look_again: overlap.ends(),
    }
}

/// The write that makes the live `caBundle` trust this material; `None` when it does, when there is no entry, or when
/// the material's own CAs do not verify it.
fn publication(
    material: &Material,
    entry: &Sighting<LiveEntry>,
    settings: &CertificateSettings,
    now: Timestamp,
) -> Option<Action> {
    let Sighting::Present(live) = entry else {
        return None;
    };
    let authorities = own_authorities(material, settings, now)?;
    write_of(&authorities, live)
}

/// The unexpired CAs of the material; `None` if they do not verify its leaf.
fn own_authorities(
    material: &Material,
    settings: &CertificateSettings,
    now: Timestamp,
) -> Option<Bundle> {
    let authorities = Bundle::read(&material.authorities).unexpired(now);
    let pair = Pair::read(material).ok()?;
    pair.verified_by(&authorities, settings.server_name(), now)
        .then_some(authorities)
}

fn write_of(bundle: &Bundle, live: &Arc<LiveEntry>) -> Option<Action> {
    let bundle = bundle.to_pem();
    (bundle.as_bytes() != live.ca_bundle).then(|| Action::Publish {
        bundle,
        entry: Arc::clone(live),
    })
}

/// The CAs of the Secret. When it has none (deleted, or garbage), those that the API server trusts right now, whoever
/// made them: replicas go on serving what the lost Secret held, and a webhook that ours takes over from serves its own.
fn carried(stored: Option<&StoredSecret>, entry: &Sighting<LiveEntry>, now: Timestamp) -> Bundle {
    let of_secret = stored.map_or_else(Bundle::default, |stored| {
        Bundle::read(&stored.material.authorities).unexpired(now)
    });
    match entry {
        Sighting::Present(live) if of_secret.is_empty() => {
            Bundle::read(&live.ca_bundle).unexpired(now)
        }
        _ => of_secret,
    }
}

/// When the first of the CAs expires, which makes a shorter bundle.
fn expiry_of(material: &Material, now: Timestamp) -> Option<Timestamp> {
    Bundle::read(&material.authorities)
        .unexpired(now)
        .first_expiry()
}

impl Next {
    /// Nothing to do until a change, or until then.
    pub(super) fn wait(look_again: Timestamp) -> Self {
        Self {
            action: None,
            look_again,
        }
    }
}

#[cfg(test)]
mod tests;
