//! Leader election over a `coordination.k8s.io/v1` Lease, with fenced work.
//!
//! Invariants:
//! - Every write names the `resourceVersion` it is based on, so of two writers one loses.
//! - Somebody else's lease has expired only when *our* monotonic clock has seen no change of it
//!   for its whole duration. The times written in it are for humans: clocks differ.
//! - Our own work ends before anybody may think that our lease has expired: its token is
//!   cancelled and its task aborted at two thirds of the duration after the last renewal that
//!   was *sent* and succeeded.
//!
//! A process that the kernel stops for longer than a lease lasts cannot keep the last promise for
//! the first instant after it continues; writes must still be safe to repeat.
//!
//! Rights needed (a Role in the lease's namespace): `leases` in `coordination.k8s.io`: `create`,
//! and `get` and `update` for the lease's name (`create` cannot be limited to a name).
//!
//! Deliberately absent: waiting for work to end by itself when the lease is lost, and coordinated
//! leader election (`LeaseCandidate`).

use std::time::Duration;

use kube::Client;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use self::candidate::Candidate;
use self::term::Term;

mod candidate;
mod decide;
mod identity;
mod term;

pub use identity::{Identity, IdentityError};

/// Which lease, and who asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Where the lease is.
    pub namespace: String,
    /// What it is called.
    pub name: String,
    /// Who we are: unique among all that run at the same time. A Pod's name is right: a
    /// restarted container of the Pod takes up at once what its predecessor left.
    pub identity: Identity,
    /// How long it lasts.
    pub timing: LeaseTiming,
}

/// How long a lease lasts and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    duration: Duration,
    renew_every: Duration,
}

impl Default for LeaseTiming {
    /// 15 s and 5 s: a leader lives through an outage of about 3 s, and a dead one is replaced within
    /// 20 s.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_every: Duration::from_secs(5),
        }
    }
}

impl LeaseTiming {
    /// # Errors
    /// When the duration is not a whole number of seconds (the API knows no other), or leaves no
    /// time for a second attempt before the work would be fenced.
    pub fn new(duration: Duration, renew_every: Duration) -> Result<Self, LeaseError> {
        let timing = Self {
            duration,
            renew_every,
        };
        if duration.subsec_nanos() != 0 || i32::try_from(duration.as_secs()).is_err() {
            return Err(LeaseError::Duration(duration));
        }
        if renew_every.is_zero() || renew_every > timing.fence() / 2 {
            return Err(LeaseError::RenewEvery {
                renew_every,
                duration,
            });
        }
        Ok(timing)
    }

    /// How long after a renewal was sent the work may go on without another one. The last third
    /// is for what the work has under way at that moment.
    fn fence(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// How long one attempt may take: a single lost answer must leave time for another attempt
    /// before the fence.
    fn attempt(&self) -> Duration {
        self.renew_every / 2
    }
}

/// The timing makes no sense.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Not what a Lease can say.
    #[error("lease duration {0:?}: expected whole seconds")]
    Duration(Duration),
    /// Too seldom, or all the time.
    #[error(
        "renew interval {renew_every:?}: expected at most a third of the lease duration {duration:?}"
    )]
    RenewEvery {
        /// The period asked for.
        renew_every: Duration,
        /// How long the lease lasts.
        duration: Duration,
    },
}

/// `leader_election_master_status{name}`: 1 while this process is the leader, else 0. Clones share the gauges.
#[derive(Clone, Debug, Default)]
pub struct LeaseMetrics(Family<Labels, Gauge>);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
}

impl LeaseMetrics {
    /// Gauges that the registry shows.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Whether this process is the leader of the Lease (1) or not (0)";
        registry.register("leader_election_master_status", help, metrics.0.clone());
        metrics
    }

    /// Creates one series in each family, for the generated reference: see [`crate::metrics::create_series`].
    pub fn create_series(&self) {
        crate::metrics::create_series(&self.0);
    }

    fn set(&self, lease: &str, leads: bool) {
        let labels = Labels {
            name: lease.to_owned(),
        };
        self.0.get_or_create(&labels).set(i64::from(leads));
    }
}

/// Runs the work whenever and as long as this process holds the lease, until `shutdown`.
///
/// The work is started anew at each election, in a task of its own, with a token that is
/// cancelled when it must end:
/// - lease lost or not renewable: the task is aborted right after, without a grace period;
/// - shutdown: the work has until the fence to end, then it is aborted; the lease is released, so
///   that a successor need not wait for it to expire.
///
/// Tasks that the work spawns must end with its token. Work that returns (or panics) by itself
/// gives the lease up for one renewal period, so that another replica may try.
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
    let pause = options.timing.renew_every;
    let lease = options.name.clone();
    let mut candidate = Candidate::new(client, options);
    metrics.set(&lease, false);
    while let Some(fence) = candidate.campaign(&shutdown).await {
        metrics.set(&lease, true);
        tracing::info!(lease, "became leader");
        let term = Term::begin(fence, &mut work);
        let end = term
            .run(&mut candidate, &shutdown, || metrics.set(&lease, false))
            .await;
        tracing::info!(lease, reason = end.reason(), "lost leadership");
        if end.gives_others_a_turn() {
            shutdown
                .run_until_cancelled(tokio::time::sleep(pause))
                .await;
        }
    }
}

#[cfg(test)]
mod tests;
