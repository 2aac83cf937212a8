//! What may be wrong with a request on its way to the server and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::ApiServer;

#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) pattern: String,
    /// How many requests it is still to meet.
    pub(super) left: usize,
    pub(super) effect: Effect,
    pub(super) hits: Arc<AtomicUsize>,
}

#[derive(Clone)]
pub(super) enum Effect {
    /// The request is answered so and not carried out.
    Status(u16, Option<u64>),
    /// It is carried out and never answered, or neither.
    Silence { carried_out: bool },
    /// The connection breaks, and it is not carried out.
    Reset,
    /// It waits.
    Hold(watch::Receiver<bool>),
    /// Something happens first.
    Before(Arc<dyn Fn(&ApiServer) + Send + Sync>),
}

impl std::fmt::Debug for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(code, _) => write!(f, "status {code}"),
            Self::Silence { .. } => f.write_str("silence"),
            Self::Reset => f.write_str("reset"),
            Self::Hold(_) => f.write_str("hold"),
            Self::Before(_) => f.write_str("before"),
        }
    }
}

/// A fault that is being described.
#[derive(Debug)]
pub struct FaultBuilder {
    pub(super) server: ApiServer,
    pub(super) pattern: String,
    pub(super) times: usize,
}

#[expect(
    clippy::must_use_candidate,
    reason = "a fault is in place whether or not its handle is kept"
)]
impl FaultBuilder {
    /// It happens this many times; without this, until it is stopped.
    #[must_use]
    pub fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    /// Requests are answered with this status and not carried out.
    pub fn status(self, code: u16) -> FaultHandle {
        self.with(Effect::Status(code, None))
    }

    /// The same with `Retry-After`, in seconds.
    pub fn status_after(self, code: u16, retry_after: u64) -> FaultHandle {
        self.with(Effect::Status(code, Some(retry_after)))
    }

    /// Requests are neither carried out nor answered.
    pub fn silence(self) -> FaultHandle {
        self.with(Effect::Silence { carried_out: false })
    }

    /// Requests are carried out and not answered.
    pub fn lose_answers(self) -> FaultHandle {
        self.with(Effect::Silence { carried_out: true })
    }

    /// The connection breaks before requests are carried out.
    pub fn reset(self) -> FaultHandle {
        self.with(Effect::Reset)
    }

    /// Something happens before each request is carried out; it may panic, which the client's task then does.
    pub fn before(self, run: impl Fn(&ApiServer) + Send + Sync + 'static) -> FaultHandle {
        self.with(Effect::Before(Arc::new(run)))
    }

    /// Requests wait until the hold is dropped. Each request waits once.
    #[must_use]
    pub fn hold(self) -> Hold {
        let (sender, receiver) = watch::channel(true);
        Hold {
            handle: self.with(Effect::Hold(receiver)),
            sender,
        }
    }

    fn with(self, effect: Effect) -> FaultHandle {
        let Self {
            server,
            pattern,
            times,
        } = self;
        let hits = Arc::<AtomicUsize>::default();
        let fault = Fault {
            pattern,
            left: times,
            effect,
            hits: Arc::clone(&hits),
        };
        server.state().faults.push(fault);
        FaultHandle { server, hits }
    }
}

/// A fault that is in place; it stays when the handle is dropped.
#[derive(Debug, Clone)]
pub struct FaultHandle {
    server: ApiServer,
    hits: Arc<AtomicUsize>,
}

impl FaultHandle {
    /// How many requests it has met.
    #[must_use]
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub fn stop(&self) {
        self.server
            .state()
            .faults
            .retain(|it| !Arc::ptr_eq(&it.hits, &self.hits));
    }
}

/// Requests that wait; dropping it lets them go on.
#[derive(Debug)]
pub struct Hold {
    handle: FaultHandle,
    sender: watch::Sender<bool>,
}

impl Hold {
    /// How many requests have been held.
    #[must_use]
    pub fn hits(&self) -> usize {
        self.handle.hits()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.handle.stop();
        self.sender.send_replace(false);
    }
}
