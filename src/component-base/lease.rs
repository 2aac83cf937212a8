//! Leader election over a `coordination.k8s.io/v1` Lease, with fenced work.
//!
//! Invariants:
//! - Each write contains the `resourceVersion` on which it is based, so that one of two concurrent writes fails.
//! - The Lease of another holder has expired only when the local monotonic clock has observed no change of it for its whole
//!   duration. The times in the Lease are informational, because clocks differ.
//! - Local work ends before another replica can regard the Lease as expired: its token is canceled and its task aborted at
//!   two thirds of the duration after the last successful renewal was *sent*.
//!
//! A process that the kernel suspends for longer than the duration of the Lease may violate the last invariant for a moment
//! after it resumes; writes must still be idempotent.
//!
//! Required permissions (a Role in the namespace of the Lease): `leases` in `coordination.k8s.io`: `create`, and `get` and
//! `update` for the name of the Lease (`create` cannot be limited to a name).
//!
//! Not in here: a grace period for work when the Lease is lost, and coordinated leader election (`LeaseCandidate`).

use std::time::Duration;

use kube::Client;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::candidate::Candidate;
use self::term::{TermEnd, run_term};
use crate::metrics::family;

mod candidate;
mod decide;
mod identity;
mod term;

pub use identity::{Identity, IdentityError};

/// Duration of a Lease. With these times a leader survives an outage of about 3 s, and a failed leader is replaced within
/// 20 s.
const DURATION: Duration = Duration::from_secs(15);

/// Interval of renewal.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);

/// Time after a renewal was sent in which the work may continue without another renewal. The last third of the duration is
/// for requests that are in progress then.
const FENCE: Duration = Duration::from_secs(10);

/// Time limit of an attempt. After a lost response there must be time for another attempt before the fence.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(2_500);

/// Options of a leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this process, unique among all concurrent processes. The name of the Pod is suitable: a restarted
    /// container of the Pod continues with the Lease at once.
    pub identity: Identity,
}

/// `leader_election_master_status{name}`: 1 while this process is the leader, else 0. Clones share the gauges.
#[derive(Clone, Debug, Default)]
pub struct LeaseMetrics(Family<[(&'static str, String); 1], Gauge>);

impl LeaseMetrics {
    /// Registers the gauges.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let help = "Whether this process is the leader of the Lease (1) or not (0)";
        Self(family(
            registry,
            "leader_election_master_status",
            help,
            ["name"],
        ))
    }

    fn set(&self, lease: &str, leads: bool) {
        let labels = [("name", lease.to_owned())];
        self.0.get_or_create(&labels).set(i64::from(leads));
    }
}

/// Runs the work while this process holds the Lease, until `shutdown`.
///
/// The work is started at each election, in its own task, with a token that is canceled when the work must end:
/// - the Lease is lost or cannot be renewed: the task is aborted at once, without a grace period;
/// - shutdown: the task is aborted if it has not ended at the fence; the Lease is released, so that a successor does not have
///   to wait until it expires.
///
/// Tasks that the work spawns must end with its token. If the work returns or panics, the Lease is released and not acquired
/// for one renewal interval, so that another replica can acquire it.
pub async fn run_while_leading<W, F>(
    client: Client,
    options: LeaseOptions,
    metrics: LeaseMetrics,
    shutdown: CancellationToken,
    mut work: W,
) where
    W: FnMut(CancellationToken) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let lease = options.name.clone();
    let mut candidate = Candidate::new(client, options);
    metrics.set(&lease, false);
    while let Some(fence) = candidate.campaign(&shutdown).await {
        metrics.set(&lease, true);
        tracing::info!(lease, "became leader");
        let on_end = || metrics.set(&lease, false);
        let end = run_term(&mut candidate, &shutdown, fence, &mut work, on_end).await;
        tracing::info!(lease, reason = end.reason(), "lost leadership");
        if let TermEnd::Work(_) = end {
            // Another replica may become the leader.
            shutdown.run_until_cancelled(sleep(RENEW_INTERVAL)).await;
        }
    }
}

#[cfg(test)]
mod tests;
