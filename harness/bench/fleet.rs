//! Simulated API servers of thousands of runtimes in one process, for measurements and tests of a controller.
//!
//! Each runtime has a loopback address (127.1.0.0 and following, with one port), a server name, a certificate, and credentials
//! that no other runtime accepts. Its store is a [`testkit::apiserver`]. `harness/testkit/tests/fidelity.rs` compares its
//! responses to the controller's requests with those of a real API server. [`Conditions`] may change at any time. The fleet
//! needs Linux, because other systems have only one loopback address.

mod identity;
mod server;

pub(crate) use identity::{Conditions, Fault};

use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::names;
use clusters::control_plane::Sources;
use serde_json::{Value, json};
use testkit::Place;
use testkit::apiserver::store::{Common, Store};
use testkit::{locked, pki};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use identity::{Accepted, Identity};

/// A running fleet. It ends with its connections when the handle is dropped.
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    _ends: DropGuard,
}

struct Shared {
    port: u16,
    certificates: bool,
    runtimes: Vec<Runtime>,
    common: Arc<Common>,
    counts: Mutex<Counts>,
}

struct Runtime {
    identity: Identity,
    store: Arc<Store>,
    /// Number of requests so far, which determines the faults.
    requests: AtomicU64,
    state: Mutex<State>,
}

struct State {
    conditions: Arc<Conditions>,
    accepted: Accepted,
}

/// Counters of all runtimes since the last reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) handshakes: u64,
    /// Requests that cannot change an object: GET, discovery, reviews of permissions.
    pub(crate) reads: u64,
    /// Writes that changed an object.
    pub(crate) writes: u64,
    /// Writes to another cluster than the client expects, and owner markers with the ID of another runtime.
    pub(crate) foreign_writes: u64,
    pub(crate) faults: u64,
    /// Requests without valid credentials of the runtime.
    pub(crate) unauthorized: u64,
    /// Requests without a response yet, and their largest number.
    pub(crate) in_flight: u64,
    pub(crate) most_in_flight: u64,
}

pub(crate) struct Expected {
    pub(crate) place: Place,
    /// Digest of the content, as in `testkit::apiserver::store::Seen`.
    content: Option<[u8; 16]>,
}

impl Expected {
    /// Returns the pull Secret, the trust bundle and the configuration of these sources.
    pub(crate) fn of(sources: &Sources) -> [Self; 3] {
        let mut objects = sources.objects(names::SKR_NAMESPACE).into_iter();
        Sources::places().map(|place| Self::new(place, objects.next().unwrap_or_default()))
    }

    /// Returns the content of an object at another location.
    fn new(place: Place, mut object: Value) -> Self {
        object["metadata"] = json!({"name": place.name, "namespace": place.namespace});
        let store = Store::new(Arc::default(), 0, Arc::default());
        store.put(&object);
        let content = store.seen(&place).content;
        Self { place, content }
    }
}

impl Runtime {
    fn new(common: Arc<Common>, number: u32, identity: Identity, conditions: &Conditions) -> Self {
        let store = Store::new(common, number, Arc::new(conditions.behavior()));
        let metadata = json!({"name": names::SKR_NAMESPACE});
        store.put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        let state = State {
            conditions: Arc::new(conditions.clone()),
            accepted: Accepted::default(),
        };
        Self {
            identity,
            store: Arc::new(store),
            requests: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn conditions(&self) -> Arc<Conditions> {
        Arc::clone(&self.state().conditions)
    }
}

impl Shared {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        locked(&self.counts)
    }
}

impl Fleet {
    /// Starts the runtimes, which have Namespaces and no other objects. With `certificates` each has its own CA, and clients
    /// authenticate with its certificates. Otherwise one CA signs for all, and clients have tokens.
    pub(crate) async fn start(
        runtimes: usize,
        certificates: bool,
        conditions: &Conditions,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        let common = Arc::<Common>::default();
        let authority = || pki::Authority::new("runtimes").map(Arc::new);
        let shared_authority = authority()?;
        let runtime = |number| {
            let mut signer = Arc::clone(&shared_authority);
            if certificates {
                signer = authority()?;
            }
            let (identity, common) = (Identity::new(number, signer)?, Arc::clone(&common));
            anyhow::Ok(Runtime::new(common, number, identity, conditions))
        };
        let numbers = 0..u32::try_from(runtimes)?;
        let runtimes: anyhow::Result<Vec<Runtime>> = numbers.map(runtime).collect();
        let shared = Arc::new(Shared {
            port: listener.local_addr()?.port(),
            certificates,
            runtimes: runtimes?,
            common,
            counts: Mutex::default(),
        });
        let closing = CancellationToken::new();
        let serving = server::serve(Arc::clone(&shared), listener, closing.clone());
        tokio::spawn(serving);
        Ok(Self {
            shared,
            _ends: closing.drop_guard(),
        })
    }

    /// Returns the kubeconfigs of all runtimes. With certificates each call creates new ones, which replace the previous ones.
    pub(crate) fn kubeconfigs(&self) -> anyhow::Result<Vec<String>> {
        let shared = &self.shared;
        let kubeconfig = |runtime: &Runtime| {
            let (identity, accepted) = (&runtime.identity, &mut runtime.state().accepted);
            identity.kubeconfig(shared.port, shared.certificates, accepted)
        };
        shared.runtimes.iter().map(kubeconfig).collect()
    }

    /// Changes the conditions of runtimes, from their next connection and request on.
    pub(crate) fn set(&self, runtimes: Range<usize>, conditions: &Conditions) {
        let behavior = Arc::new(conditions.behavior());
        let conditions = Arc::new(conditions.clone());
        for runtime in &self.shared.runtimes[runtimes] {
            runtime.state().conditions = Arc::clone(&conditions);
            runtime.store.behave(Arc::clone(&behavior));
        }
    }

    pub(crate) fn rotate(&self) {
        for runtime in &self.shared.runtimes {
            runtime.state().accepted = Accepted::default();
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.shared.common.elapsed()
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.shared.counts()
    }

    /// Returns the largest number of applies of one object that changed nothing, since the last reset.
    pub(crate) fn most_redundant_applies(&self) -> u32 {
        let runtimes = self.shared.runtimes.iter();
        let applies = runtimes.map(|it| it.store.most_idle_applies());
        applies.max().unwrap_or_default()
    }

    pub(crate) fn reset_counters(&self) {
        let mut counts = self.shared.counts();
        *counts = Counts {
            in_flight: counts.in_flight,
            ..Counts::default()
        };
        for runtime in &self.shared.runtimes {
            runtime.store.reset_counts();
        }
    }

    /// Returns the time of the last change of the object at `place` on each runtime, if it was after `since`.
    pub(crate) fn changes(&self, place: &Place, since: Duration) -> Vec<Option<Duration>> {
        let change = |runtime: &Runtime| {
            let seen = runtime.store.seen(place);
            (seen.content.is_some() && seen.changed > since).then_some(seen.changed)
        };
        self.shared.runtimes.iter().map(change).collect()
    }

    /// Returns the time at which each runtime got the expected content after `since`; `None` for a runtime that does not have
    /// it.
    pub(crate) fn arrivals(&self, expected: &Expected, since: Duration) -> Vec<Option<Duration>> {
        let arrival = |runtime: &Runtime| {
            let seen = runtime.store.seen(&expected.place);
            let is_expected = seen.content.is_some() && seen.content == expected.content;
            (is_expected && seen.changed > since).then_some(seen.changed)
        };
        self.shared.runtimes.iter().map(arrival).collect()
    }
}

#[cfg(test)]
mod tests;
