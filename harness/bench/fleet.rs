//! Thousands of runtimes' API servers in one process, so that a controller of thousands can be measured and tested.
//!
//! All share one port of loopback; a runtime is chosen by its server name (SNI), which a kubeconfig can say
//! (`tls-server-name`). Invariants: what a runtime answers to the calls of the product's controller is what a real API
//! server answers (harness/testkit/tests/fidelity.rs compares); every write is counted by object; what a runtime is like
//! ([`Conditions`]) can be changed at any time. What API servers are is [`testkit::apiserver`].

mod answer;
pub mod command;
mod conditions;
pub mod control;
mod identity;
mod ledger;
mod wire;

pub use clusters::control_plane::runtime_id;
pub use conditions::{Certificate, Conditions, Faults, Reach, Writes};
pub use identity::Credentials;
pub use ledger::{Arrival, Counts, Entry, Totals, content_of};
pub use testkit::apiserver::Rollout;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use api::names;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::Place;
use testkit::apiserver::Behaviour;
use testkit::apiserver::store::{Common, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use identity::{Accepted, Access, Authority};

/// What a fleet shall be.
#[derive(Debug, Clone, Default)]
pub struct FleetOptions {
    /// How many runtimes.
    pub runtimes: usize,
    /// The port that all of them share; 0 takes a free one.
    pub port: u16,
    /// How clients show who they are.
    pub credentials: Credentials,
    /// What all of them are like at first.
    pub conditions: Conditions,
}

/// A running fleet; dropping it ends it and all its connections.
#[derive(Debug)]
pub struct Fleet {
    shared: Arc<Shared>,
    port: u16,
    credentials: Credentials,
}

/// Some runtimes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Selection {
    /// Each.
    All,
    /// Those with these numbers; the first is 0.
    Numbers(Vec<usize>),
}

/// What connections share.
#[derive(Debug)]
struct Shared {
    runtimes: Vec<Runtime>,
    common: Arc<Common>,
    authority: Authority,
    /// What tokens are made of.
    secret: Digest,
    closing: CancellationToken,
    connections: AtomicU64,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
}

/// One runtime.
#[derive(Debug)]
struct Runtime {
    id: String,
    number: usize,
    store: Arc<Store>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    conditions: Arc<Conditions>,
    accepted: Accepted,
    counts: Counts,
}

impl Runtime {
    fn new(
        common: Arc<Common>,
        number: usize,
        conditions: Arc<Conditions>,
        behaviour: Arc<Behaviour>,
    ) -> Self {
        let store = Store::new(common, u32::try_from(number).unwrap_or(u32::MAX), behaviour);
        store.put(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::SKR_NAMESPACE},
        }));
        Self {
            id: runtime_id(number),
            number,
            store: Arc::new(store),
            inner: Mutex::new(Inner {
                conditions,
                accepted: Accepted::default(),
                counts: Counts::default(),
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One more, as long as it lives.
struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn connect(&self) -> Counted<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Counted(&self.connections)
    }

    fn enter(&self) -> Counted<'_> {
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Ordering::Relaxed);
        Counted(&self.in_flight)
    }
}

impl Fleet {
    /// Starts the runtimes: each with its three Namespaces and nothing else.
    ///
    /// # Errors
    /// When no certificates can be made or the port is taken.
    pub async fn start(options: FleetOptions) -> anyhow::Result<Self> {
        let FleetOptions {
            runtimes,
            port,
            credentials,
            conditions,
        } = options;
        let authority = Authority::new().context("the fleet's certificates")?;
        let common = Arc::<Common>::default();
        let behaviour = Arc::new(conditions.behaviour());
        let conditions = Arc::new(conditions);
        let runtime = |number| {
            Runtime::new(
                Arc::clone(&common),
                number,
                Arc::clone(&conditions),
                Arc::clone(&behaviour),
            )
        };
        let shared = Arc::new(Shared {
            runtimes: (0..runtimes).map(runtime).collect(),
            secret: digest(authority.pem().as_bytes()),
            common,
            authority,
            closing: CancellationToken::new(),
            connections: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            most_in_flight: AtomicU64::new(0),
        });
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .with_context(|| format!("port {port}"))?;
        let port = listener.local_addr()?.port();
        tokio::spawn(wire::serve(Arc::clone(&shared), listener));
        Ok(Self {
            shared,
            port,
            credentials,
        })
    }

    /// The port that all runtimes share.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The kubeconfig of a runtime. With client certificates every call mints a new one, and the last one counts.
    ///
    /// # Errors
    /// When there is no such runtime or no certificate can be made.
    pub fn kubeconfig(&self, number: usize) -> anyhow::Result<String> {
        let shared = &self.shared;
        let runtime = shared.runtimes.get(number);
        let runtime = runtime.with_context(|| format!("there is no runtime {number}"))?;
        let user = match self.credentials {
            Credentials::Token => {
                let epoch = runtime.inner().accepted.epoch;
                json!({ "token": identity::token(&shared.secret, &runtime.id, epoch) })
            }
            Credentials::Certificate => {
                let (user, certificate) = shared.authority.client(&runtime.id)?;
                runtime.inner().accepted.certificate = Some(certificate);
                user
            }
        };
        let access = Access {
            runtime_id: &runtime.id,
            port: self.port,
            authority: shared.authority.pem(),
            user,
        };
        Ok(access.kubeconfig())
    }

    /// Gives runtimes other conditions, from their next request on.
    pub fn set(&self, runtimes: &Selection, conditions: Conditions) {
        let behaviour = Arc::new(conditions.behaviour());
        let conditions = Arc::new(conditions);
        for runtime in self.selected(runtimes) {
            runtime.inner().conditions = Arc::clone(&conditions);
            runtime.store.behave(Arc::clone(&behaviour));
        }
    }

    /// Makes all credentials of runtimes that were handed out so far invalid.
    pub fn rotate(&self, runtimes: &Selection) {
        for runtime in self.selected(runtimes) {
            let mut inner = runtime.inner();
            inner.accepted.epoch += 1;
            inner.accepted.certificate = None;
        }
    }

    /// What happened since the counters were reset.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let shared = &self.shared;
        let mut totals = Totals {
            now: shared.common.elapsed(),
            connections: shared.connections.load(Ordering::Relaxed),
            in_flight: shared.in_flight.load(Ordering::Relaxed),
            most_in_flight: shared.most_in_flight.load(Ordering::Relaxed),
            ..Totals::default()
        };
        for runtime in &shared.runtimes {
            totals.counts.add(runtime.inner().counts);
            totals.most_idle_applies = totals
                .most_idle_applies
                .max(runtime.store.most_idle_applies());
        }
        totals
    }

    /// Sets all counters to zero; times of changes stay.
    pub fn reset_counters(&self) {
        self.shared.most_in_flight.store(0, Ordering::Relaxed);
        for runtime in &self.shared.runtimes {
            runtime.inner().counts = Counts::default();
            runtime.store.reset_counts();
        }
    }

    /// One object on every runtime.
    #[must_use]
    pub fn entries(&self, place: &Place) -> Vec<Entry> {
        let entry = |runtime: &Runtime| {
            let seen = runtime.store.seen(place);
            Entry {
                runtime: runtime.number,
                content: seen.content.as_ref().map(hex),
                changed: seen.changed,
                changing_applies: seen.changing_applies,
                idle_applies: seen.idle_applies,
            }
        };
        self.shared.runtimes.iter().map(entry).collect()
    }

    /// On how many runtimes an object has arrived.
    #[must_use]
    pub fn arrived(&self, arrival: &Arrival) -> usize {
        let arrived = |runtime: &&Runtime| {
            let seen = runtime.store.seen(&arrival.place);
            seen.changed > arrival.since
                && seen.content.is_some_and(|it| hex(&it) == arrival.content)
        };
        self.shared.runtimes.iter().filter(arrived).count()
    }

    /// One object of one runtime, as it would be answered.
    #[must_use]
    pub fn object(&self, number: usize, place: &Place) -> Option<Value> {
        self.shared.runtimes.get(number)?.store.object(place)
    }

    fn selected(&self, runtimes: &Selection) -> Vec<&Runtime> {
        let all = &self.shared.runtimes;
        match runtimes {
            Selection::All => all.iter().collect(),
            Selection::Numbers(numbers) => numbers
                .iter()
                .filter_map(|number| all.get(*number))
                .collect(),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.shared.closing.cancel();
    }
}

/// Enough of SHA-256 that two contents never meet.
type Digest = [u8; 16];

fn digest(bytes: &[u8]) -> Digest {
    short(Sha256::new_with_prefix(bytes))
}

fn short(hash: Sha256) -> Digest {
    let full = hash.finalize();
    std::array::from_fn(|index| full[index])
}

fn hex(digest: &Digest) -> String {
    format!("{:032x}", u128::from_be_bytes(*digest))
}

#[cfg(test)]
mod tests;
