//! The leader's part: the Secret is issued and renewed, the `caBundle` published.
//!
//! Invariants:
//! - every write names the `resourceVersion` that it is based on, where the object exists, so a leader that was paused
//!   and replaced overwrites nothing (*tried*: a stale version is a conflict, with server-side apply and force too);
//! - the webhook configuration and its entry are never created. The `caBundle` is written by a JSON Patch that tests
//!   `resourceVersion` and the entry's name: an entry that was moved or has vanished fails the test (422), an object
//!   that has vanished is not found (404), and the right to create one is not asked for;
//! - the `caBundle` is made from what is *stored*, never from what this process has just made, so two leaders in
//!   a row publish the same;
//! - a rotation writes the Secret first (with the old CAs in its `ca.crt`), then the `caBundle`; replicas wait for the
//!   second before they serve what is in the first.
//!
//! Gather is [`super::observe`], decide is `next`, apply is `Keeper::apply`.

mod apply;
mod decide;
mod overlap;
mod pace;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::apply::Written;
use self::decide::{Next, next, next_of_files};
use self::overlap::Overlap;
use self::pace::Pace;
use super::observe::{Cell, LiveEntry, Sighting, StoredSecret};
use super::{CertificateMetrics, CertificateSettings, LOOK_AGAIN, Material};

/// What writes need.
#[derive(Clone)]
pub struct Keeper {
    /// To the cluster of the webhook.
    pub client: Client,
    /// Which objects.
    pub settings: Arc<CertificateSettings>,
    /// Counts writes.
    pub metrics: CertificateMetrics,
}

/// Keeps Secret and `caBundle` as they should be, until `shutdown`. For the leader alone
/// (`chassis::lease::run_while_leading`); the two cells are those that [`super::watch_secret`] and
/// [`super::watch_entry`] write.
///
/// Rights beside those of the watches:
/// - `secrets` named `rt-bootstrapper-webhook-cert` in the product namespace: `create` (by server-side apply, so that
///   `resourceNames` limits it), `patch`, `delete` (a Secret of another type, or an immutable one, cannot be mended);
/// - `mutatingwebhookconfigurations` named `rt-bootstrapper-mutating-webhook-configuration`: `patch`, and deliberately
///   not `create`.
pub async fn keep_issued(
    keeper: Keeper,
    secret: Cell<StoredSecret>,
    entry: Cell<LiveEntry>,
    shutdown: CancellationToken,
) {
    let decide = |stored: &_, live: &_, now| next(stored, live, &keeper.settings, now);
    let learn = |stored| secret.set(Some(stored).into());
    let keep = keep(&keeper, (&secret, &entry), decide, learn);
    shutdown.run_until_cancelled(keep).await;
}

/// Publishes the `ca.crt` of certificate files as `caBundle`, until `shutdown`. For the leader alone. Without a
/// `ca.crt` that verifies the leaf, the `caBundle` is left to whoever else writes it.
///
/// When `ca.crt` changes, at most three unexpired CAs of the live `caBundle` stay in it for a day: the kubelets of other
/// replicas bring the files later, and until then those replicas serve the leaf before.
///
/// Rights: `mutatingwebhookconfigurations` as for [`keep_issued`]; none on Secrets.
pub async fn publish_authorities(
    keeper: Keeper,
    files: Cell<Material>,
    entry: Cell<LiveEntry>,
    shutdown: CancellationToken,
) {
    let mut overlap = Overlap::default();
    let decide =
        |files: &_, live: &_, now| next_of_files(files, live, &mut overlap, &keeper.settings, now);
    // No Secret is written in this mode.
    let keep = keep(&keeper, (&files, &entry), decide, drop);
    shutdown.run_until_cancelled(keep).await;
}

async fn keep<T>(
    keeper: &Keeper,
    (source, entry): (&Cell<T>, &Cell<LiveEntry>),
    mut decide: impl FnMut(&Sighting<T>, &Sighting<LiveEntry>, Timestamp) -> Next,
    learn: impl Fn(StoredSecret),
) {
    let (mut sources, mut entries) = (source.subscribe(), entry.subscribe());
    let mut pace = Pace::default();
    loop {
        let found = sources.borrow_and_update().clone();
        let live = entries.borrow_and_update().clone();
        let now = Timestamp::now();
        let Next { action, look_again } = decide(&found, &live, now);
        let Some(action) = action else {
            tokio::select! {
                _ = sources.changed() => {}
                _ = entries.changed() => {}
                () = sleep(until(look_again, now)) => {}
            }
            continue;
        };
        // The answer to a write is as good a sighting as an event, and earlier: without it, the Secret would look
        // missing until the watch has caught up, and be made a second time.
        let written = keeper
            .apply(action, now)
            .await
            .map(|written| match written {
                Written::Secret(stored) => learn(stored),
                Written::Entry(live) => entry.set(live.into()),
            });
        sleep(pace.after(&written, Instant::now())).await;
    }
}

fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_until(then))
        .unwrap_or_default()
        .min(LOOK_AGAIN)
}

#[cfg(test)]
mod tests;
