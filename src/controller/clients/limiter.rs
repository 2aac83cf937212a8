//! A limit of concurrent reconciles.
//!
//! Invariants: permits are granted in the order of requests. Work that takes longer than `slow_after` moves to a
//! second set of permits of the same size: a reconcile of an unreachable runtime uses no CPU and only waits. When the
//! second set is exhausted, slow work keeps its permits, so that the total is at most twice the size.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{CallError, Remote};

/// The limits of the connections of one controller to runtimes.
pub(crate) struct ConnectionLimits {
    /// Limits handshakes: runtimes to which a connection is being opened, or which wait for `connections` with an
    /// open connection. A handshake is two of the five round trips of a reconcile and needs little memory.
    pub(crate) handshakes: RequestLimiter,
    /// Limits runtimes that are read and written, whose objects take memory.
    pub(crate) connections: RequestLimiter,
}

impl ConnectionLimits {
    /// Connects with a permit of `handshakes`. Returns a permit of `connections`.
    ///
    /// # Errors
    /// The runtime cannot be reached.
    pub(crate) async fn connect(
        &self,
        permit: Permit,
        remote: &Remote,
    ) -> Result<Permit, CallError> {
        let handshake = Box::pin(async {
            remote.connect().await?;
            Ok(self.connections.acquire().await)
        });
        self.handshakes.run(permit, handshake).await
    }
}

/// A limit with a second set of permits for slow work; see the module.
pub(crate) struct RequestLimiter {
    permits: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    slow_after: Duration,
    /// Number of waiting reconciles.
    waiting: Gauge,
}

/// Guard that counts a waiting reconcile until the guard is dropped.
struct Waiting<'a>(&'a Gauge);

impl<'a> Waiting<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A permit of a [`RequestLimiter`]. `None` means that its semaphore was closed, which does not happen.
pub(crate) type Permit = Option<OwnedSemaphorePermit>;

impl RequestLimiter {
    /// Creates a limiter of `size` permits. Work that takes longer than `slow_after` moves to the second set.
    /// `waiting` is the number of waiting reconciles.
    pub(crate) fn new(size: usize, slow_after: Duration, waiting: Gauge) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(size)),
            slow: Arc::new(Semaphore::new(size)),
            slow_after,
            waiting,
        }
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Permit {
        let _waiting = Waiting::new(&self.waiting);
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Runs work with a permit, and moves it to the second set when it is slow.
    pub(crate) async fn run<F: Future>(&self, permit: Permit, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        if let Ok(output) = tokio::time::timeout(self.slow_after, &mut work).await {
            return output;
        }
        let _kept = match self.slow.clone().try_acquire_owned() {
            Ok(slow) => {
                drop(permit);
                Some(slow)
            }
            Err(_) => permit,
        };
        work.await
    }
}
