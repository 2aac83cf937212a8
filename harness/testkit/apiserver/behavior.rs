//! Behavior of a cluster other than its stored objects, and faults of requests.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::ApiServer;
use super::kinds::{BUILTIN, Kind};
use super::rights::Rights;

/// Behavior of a cluster. Tests may change it at any time; a change applies from the next request on.
#[derive(Debug, Clone)]
pub struct Behavior {
    /// Kinds that are served.
    pub kinds: Arc<[&'static Kind]>,
    /// Permissions of clients.
    pub rights: Rights,
    /// UID of `kube-system` in responses, to simulate another cluster at the same address.
    pub identity: Option<String>,
    /// Whether Pods of Deployments never become ready.
    pub stuck: bool,
    /// Value that the webhook writes as `caBundle` into each webhook configuration with a Service.
    pub ca_bundle: Option<&'static str>,
    /// Whether a quota is exceeded: objects cannot be created in namespaces.
    pub quota_exceeded: bool,
    /// Whether dependents block foreground deletions until the finalizer `foregroundDeletion` is removed.
    pub dependents: bool,
    /// Annotation that an admission plugin removes from every object that is replaced or patched.
    pub stripped: Option<&'static str>,
    /// Annotation, and its value, that an admission plugin adds to every object of a dry-run create.
    pub added: Option<(&'static str, String)>,
    /// Source of projected volumes that is dropped from created Pods, as if its feature gate is off.
    pub dropped_projection: Option<&'static str>,
    /// Largest number of objects in a page, even if a client requests more.
    pub page: usize,
}

impl Default for Behavior {
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
    /// Number of requests that the fault can still affect.
    pub(super) left: usize,
    pub(super) effect: Effect,
    pub(super) hits: Arc<AtomicUsize>,
}

/// Effect of a fault; see the methods of [`FaultBuilder`].
#[derive(Clone)]
pub(super) enum Effect {
    /// Status code, and `Retry-After` in seconds.
    Status(u16, Option<u64>),
    Answer(u16, String),
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

/// Builder of a fault.
#[derive(Debug)]
pub struct FaultBuilder {
    pub(super) server: ApiServer,
    pub(super) pattern: String,
    pub(super) times: usize,
}

impl FaultBuilder {
    /// Sets how many requests the fault affects. The default is no limit.
    pub fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }

    /// Responds with this status and does not execute the requests.
    pub fn status(self, code: u16) -> FaultHandle {
        self.with(Effect::Status(code, None))
    }

    /// Responds with this status and `Retry-After` in seconds, and does not execute the requests.
    pub fn status_after(self, code: u16, retry_after: u64) -> FaultHandle {
        self.with(Effect::Status(code, Some(retry_after)))
    }

    /// Responds with this status and body and does not execute the requests.
    pub fn answer(self, code: u16, body: impl Display) -> FaultHandle {
        self.with(Effect::Answer(code, body.to_string()))
    }

    /// Neither executes requests nor responds.
    pub fn silence(self) -> FaultHandle {
        self.with(Effect::Silence)
    }

    /// Executes requests and does not respond.
    pub fn lose_answers(self) -> FaultHandle {
        self.with(Effect::LostAnswer)
    }

    /// Breaks the connection before the request is executed.
    pub fn reset(self) -> FaultHandle {
        self.with(Effect::Reset)
    }

    /// Calls a function before each request is executed. If the function panics, the client's task panics.
    pub fn before(self, run: impl Fn(&ApiServer) + Send + Sync + 'static) -> FaultHandle {
        self.with(Effect::Before(Arc::new(run)))
    }

    /// Blocks requests until the hold is dropped. Each request is blocked once.
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

/// An active fault; it stays active when the handle is dropped.
#[derive(Debug, Clone)]
pub struct FaultHandle {
    server: ApiServer,
    hits: Arc<AtomicUsize>,
}

impl FaultHandle {
    /// Returns the number of requests that the fault affected.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }

    /// Removes the fault.
    pub fn stop(&self) {
        self.server
            .state()
            .faults
            .retain(|it| !Arc::ptr_eq(&it.hits, &self.hits));
    }
}

/// Blocked requests, which continue when the hold is dropped.
#[derive(Debug)]
pub struct Hold {
    handle: FaultHandle,
    sender: watch::Sender<bool>,
}

impl Hold {
    /// Returns the number of requests that were blocked.
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
