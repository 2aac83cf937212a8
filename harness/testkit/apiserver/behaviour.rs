//! How a cluster behaves towards its clients, apart from what it stores, and what may be wrong with requests on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::ApiServer;
use super::kinds::{BUILTIN, Kind};
use super::rights::Rights;

/// How a cluster behaves; it may change at any time and holds from the next request on.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// The kinds that are served.
    pub kinds: Arc<[&'static Kind]>,
    /// What clients may do.
    pub rights: Rights,
    /// The uid that `kube-system` shows instead of its own: another cluster at the same address.
    pub identity: Option<String>,
    /// Whether Pods of Deployments never become ready.
    pub stuck: bool,
    /// What a webhook that runs writes as `caBundle` into each webhook configuration with a Service.
    pub ca_bundle: Option<&'static str>,
    /// Whether a quota is used up: objects cannot be created in namespaces.
    pub quota_exceeded: bool,
    /// Whether dependents hold up deletions in the foreground, until the finalizer `foregroundDeletion` is removed.
    pub dependents: bool,
    /// An annotation that an admission plugin removes from every object that is replaced or patched.
    pub stripped: Option<&'static str>,
    /// An annotation that an admission plugin adds to every object that is created by a dry run, and its value.
    pub added: Option<(&'static str, String)>,
    /// A source of projected volumes that is dropped from Pods that are created, as where its feature gate is off.
    pub dropped_projection: Option<&'static str>,
    /// The largest number of objects in a page, whatever a client asks for.
    pub page: usize,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            kinds: BUILTIN.into(),
            rights: Rights::default(),
            identity: None,
            stuck: false,
            ca_bundle: None,
            quota_exceeded: false,
            dependents: false,
            stripped: None,
            added: None,
            dropped_projection: None,
            page: usize::MAX,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) pattern: String,
    /// How many requests it is still to meet.
    pub(super) left: usize,
    pub(super) effect: Effect,
    pub(super) hits: Arc<AtomicUsize>,
}

/// What [`FaultBuilder`] describes.
#[derive(Clone)]
pub(super) enum Effect {
    /// Its code, and `Retry-After` in seconds.
    Status(u16, Option<u64>),
    Silence,
    LostAnswer,
    Reset,
    Hold(watch::Receiver<bool>),
    Before(Arc<dyn Fn(&ApiServer) + Send + Sync>),
}

impl std::fmt::Debug for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Effect")
    }
}

/// A fault that is being described.
#[derive(Debug)]
pub struct FaultBuilder {
    pub(super) server: ApiServer,
    pub(super) pattern: String,
    pub(super) times: usize,
}

impl FaultBuilder {
    /// It happens this many times; without this, until it is stopped.
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
        self.with(Effect::Silence)
    }

    /// Requests are carried out and not answered.
    pub fn lose_answers(self) -> FaultHandle {
        self.with(Effect::LostAnswer)
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
        let (server, hits) = (self.server, Arc::<AtomicUsize>::default());
        server.state().faults.push(Fault {
            pattern: self.pattern,
            left: self.times,
            effect,
            hits: Arc::clone(&hits),
        });
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
