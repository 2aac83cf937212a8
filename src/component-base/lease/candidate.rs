//! The requests of a leader election.
//!
//! Invariant: one attempt sends at most one read and one write, and ends within half a renewal interval, independent of the
//! timeout of the client.
//!
//! A Lease with an earlier resource version than before shows that the API server was restored from a backup. The term
//! ends then: what the work has observed may not exist any more, and a watch from a later version gets no events.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::decide::{Action, Observed, claim, step};
use super::term::TermEnd;
use super::{ATTEMPT_TIMEOUT, FENCE, Identity, LeaseOptions, RENEW_INTERVAL};
use crate::backoff::{Backoff, spread};
use crate::telemetry::error_chain;

pub(super) struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: Identity,
    /// The Lease on which the next write is based; `None` if it must be read first.
    base: Option<Lease>,
    observed: Option<Observed>,
    /// The resource version that was observed last, if it is a number, which every known API server uses.
    version: Option<u64>,
    failing: bool,
}

/// The result of an attempt.
enum LeadershipState {
    /// This process is the leader. The work is safe until this time.
    Leader(Instant),
    /// Another process is the leader, at most for this time unless it renews or releases the Lease.
    Follower(Duration),
    /// The API server was restored from a backup.
    Restored,
    /// The write was based on an outdated Lease, or the API server returned no usable response.
    Unknown,
}

impl Candidate {
    pub(super) fn new(client: Client, options: LeaseOptions) -> Self {
        Self {
            leases: Api::namespaced(client, &options.namespace),
            name: options.name,
            identity: options.identity,
            base: None,
            observed: None,
            version: None,
            failing: false,
        }
    }

    /// Waits until this process is the leader. Returns the instant until which work is safe, or `None` at shutdown.
    pub(super) async fn campaign(&mut self, shutdown: &CancellationToken) -> Option<Instant> {
        let mut failures = 0;
        while !shutdown.is_cancelled() {
            // The shutdown does not cancel an attempt: its write may acquire the Lease, which must be released then.
            let pause = match self.attempt().await {
                LeadershipState::Leader(fence) => return Some(fence),
                LeadershipState::Follower(at_most) => {
                    failures = 0;
                    spread(RENEW_INTERVAL, fastrand::u64(..)).min(at_most)
                }
                LeadershipState::Unknown | LeadershipState::Restored => {
                    failures += 1;
                    retry_pause(failures, RENEW_INTERVAL)
                }
            };
            shutdown.run_until_cancelled(sleep(pause)).await;
        }
        None
    }

    /// Waits for the renewal interval and renews the Lease. Returns the next instant until which work is safe.
    pub(super) async fn renew(&mut self, fence: Instant) -> Result<Instant, TermEnd> {
        timeout_at(fence, async {
            let mut failures = 0;
            sleep(spread(RENEW_INTERVAL, fastrand::u64(..))).await;
            loop {
                match self.attempt().await {
                    LeadershipState::Leader(fence) => return Ok(fence),
                    LeadershipState::Follower(_) => return Err(TermEnd::Taken),
                    LeadershipState::Restored => return Err(TermEnd::Restored),
                    LeadershipState::Unknown => failures += 1,
                }
                // Short enough for several attempts before the fence.
                sleep(retry_pause(failures, RENEW_INTERVAL / 5)).await;
            }
        })
        .await
        .unwrap_or(Err(TermEnd::Unrenewed))
    }

    /// Releases the Lease, so that a successor acquires it at once. A failure is harmless, because the Lease expires.
    pub(super) async fn release(&mut self) {
        // A renewal that was canceled may have been written; then the first attempt returns a conflict.
        for _ in 0..2 {
            let error = match timeout(ATTEMPT_TIMEOUT, self.try_release()).await {
                Ok(Err(error)) if is_conflict(&error) => continue,
                Ok(Ok(())) => return,
                Ok(Err(error)) => error_chain(&error),
                Err(_) => "timeout".to_owned(),
            };
            tracing::warn!(lease = self.name, error, "failed to release lease");
            return;
        }
    }

    async fn try_release(&mut self) -> kube::Result<()> {
        let mut lease = match self.base.take() {
            Some(base) => base,
            None => match self.leases.get_opt(&self.name).await? {
                Some(found) => found,
                None => return Ok(()),
            },
        };
        let holder = &mut lease.spec.get_or_insert_default().holder_identity;
        if holder.as_deref() != Some(self.identity.as_str()) {
            return Ok(());
        }
        *holder = None;
        let parameters = PostParams::default();
        let released = self.leases.replace(&self.name, &parameters, &lease).await;
        released.map(drop)
    }

    async fn attempt(&mut self) -> LeadershipState {
        let answer = timeout(ATTEMPT_TIMEOUT, self.try_attempt()).await;
        let error = match answer {
            Ok(Ok(state)) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(lease = self.name, "lease renewal recovered");
                }
                return state;
            }
            Ok(Err(error)) => error_chain(&error),
            Err(_) => format!("no response within {ATTEMPT_TIMEOUT:?}"),
        };
        // It is unknown whether the failed write took effect.
        self.base = None;
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(lease = self.name, error, "failed to renew lease");
        }
        LeadershipState::Unknown
    }

    async fn try_attempt(&mut self) -> kube::Result<LeadershipState> {
        if self.base.is_none() {
            let found = self.leases.get_opt(&self.name).await?;
            if self.observe(found) {
                return Ok(LeadershipState::Restored);
            }
        }
        let me = self.identity.as_str();
        let action = step(self.observed.as_ref(), Instant::now(), me);
        // Taken before the write is sent. Other replicas count from the time at which they observe the write, which is later.
        let fence = Instant::now() + FENCE;
        let (leases, parameters) = (&self.leases, PostParams::default());
        let written = match action {
            Action::Wait(at_most) => {
                self.base = None;
                return Ok(LeadershipState::Follower(at_most));
            }
            Action::Create => leases.create(&parameters, &self.claimed()).await,
            Action::Renew | Action::Take => {
                let claimed = self.claimed();
                leases.replace(&self.name, &parameters, &claimed).await
            }
        };
        match written {
            Ok(lease) => Ok(if self.observe(Some(lease)) {
                LeadershipState::Restored
            } else {
                LeadershipState::Leader(fence)
            }),
            Err(error) if is_conflict(&error) => {
                self.base = None;
                Ok(LeadershipState::Unknown)
            }
            Err(error) => Err(error),
        }
    }

    fn claimed(&self) -> Lease {
        let mut lease = self.base.clone().unwrap_or_default();
        lease.metadata.name = Some(self.name.clone());
        let (me, now) = (self.identity.as_str(), jiff::Timestamp::now());
        lease.spec = Some(claim(lease.spec.as_ref(), me, now));
        lease
    }

    /// Returns whether the Lease has an earlier resource version than before.
    fn observe(&mut self, found: Option<Lease>) -> bool {
        let now = Instant::now();
        let before = self.observed.clone();
        self.observed = found.as_ref().map(|lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            Observed::again(self.observed.take(), spec, now)
        });
        let version = found.as_ref().and_then(ResourceExt::resource_version);
        let version: Option<u64> = version.and_then(|it| it.parse().ok());
        let is_restored = version.is_some() && version < self.version;
        self.version = version.or(self.version);
        self.base = found;
        let holder = self.observed.as_ref().and_then(Observed::holder);
        if holder != before.as_ref().and_then(Observed::holder) {
            tracing::info!(lease = self.name, holder, "new leader elected");
        }
        is_restored
    }
}

fn retry_pause(failures: u32, cap: Duration) -> Duration {
    let backoff = Backoff {
        base: RENEW_INTERVAL / 10,
        cap,
    };
    backoff.delay(failures.saturating_sub(1), fastrand::u64(..))
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
