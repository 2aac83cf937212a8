//! A Kubernetes API server in memory.
//!
//! It stores objects with field owners, and serves get, list with pages, watch, create, update, patch, server-side apply, and
//! delete with finalizers and preconditions. It also checks RBAC permissions; see [`store`] and [`respond`].
//! `tests/fidelity.rs` compares its responses with those of a real API server. It does not support admission, schemas (lists
//! and maps are merged by the names of fields), conversion between versions, subresources other than `status`, and OpenAPI.
//!
//! [`ApiServer`] adds features for tests: a client without sockets (so that a test may pause tokio's clock), a record of all
//! requests, and faults.

mod behavior;
mod change;
mod fields;
pub mod kinds;
mod merge;
mod object;
mod request;
pub mod respond;
mod rights;
mod service;
mod status;
pub mod store;
mod validate;
mod watch;
mod write;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;
use tokio::time::Instant;

pub use crate::tls::Body;
pub use behavior::{Behavior, FaultBuilder, FaultHandle, Hold};
pub use kinds::{Handling, Kind};
pub use rights::Rights;
pub use service::{Asked, Recorded, Reset};

use crate::{Place, locked};
use behavior::Fault;
use store::{Common, Store};

/// An API server in memory; see the module. Clones share one server.
#[derive(Debug, Clone)]
pub struct ApiServer {
    store: Arc<Store>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Recorded requests by their number.
    requests: BTreeMap<usize, Recorded>,
    count: usize,
    faults: Vec<Fault>,
    latency: Duration,
    token: Option<String>,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiServer {
    /// Returns a server that serves the built-in kinds to a client with all permissions.
    pub fn new() -> Self {
        Self::with_kinds([])
    }

    /// Returns a server that also serves the kinds of CustomResourceDefinitions.
    pub fn with_kinds(custom: impl IntoIterator<Item = &'static Kind>) -> Self {
        Self::of(Common::default(), custom)
    }

    /// Returns a server whose clock is ahead of that of this process by `ahead`, which may be negative.
    pub fn with_clock(ahead: SignedDuration) -> Self {
        Self::of(Common::ahead_by(ahead), [])
    }

    fn of(common: Common, custom: impl IntoIterator<Item = &'static Kind>) -> Self {
        let behavior = Behavior {
            kinds: kinds::BUILTIN.into_iter().chain(custom).collect(),
            ..Behavior::default()
        };
        let store = Store::new(Arc::new(common), 0, Arc::new(behavior));
        store.keep_history();
        Self {
            store: Arc::new(store),
            state: Arc::default(),
        }
    }

    /// Returns the objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a closure of a test leaves the state consistent.
        locked(&self.state)
    }

    /// Changes the behavior of the server from the next request on.
    pub fn behave(&self, change: impl FnOnce(&mut Behavior)) {
        let mut behavior = Behavior::clone(&self.store().behavior());
        change(&mut behavior);
        self.store().behave(Arc::new(behavior));
    }

    /// Creates or replaces an object as given, including its status. Creates its namespace if necessary. Ignores an object
    /// whose kind is not served.
    pub fn put(&self, object: &Value) {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            self.namespace(namespace);
        }
        self.store().put(object);
    }

    /// Creates a namespace, unless it exists.
    pub fn namespace(&self, name: &str) {
        if self.get("namespaces", "", name).is_none() {
            let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.store().put(&namespace);
        }
    }

    /// Returns an object.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.store().object(&place(resource, namespace, name))
    }

    /// Changes an object by a function, as an administrator does. Ignores an object that does not exist.
    pub fn edit(
        &self,
        resource: &str,
        (namespace, name): (&str, &str),
        change: impl FnOnce(&mut Value),
    ) {
        if let Some(mut object) = self.get(resource, namespace, name) {
            change(&mut object);
            self.store().put(&object);
        }
    }

    /// Removes an object, even if it has finalizers.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        self.store().remove(&place(resource, namespace, name));
    }

    /// Deletes an object as a client does: an object with finalizers stays. Ignores an object that does not exist.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        let place = place(resource, namespace, name);
        self.store().delete_object(&place);
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        self.state().requests.values().cloned().collect()
    }

    /// Returns the number of all requests so far, including those that [`Self::take_requests`] has cleared.
    pub fn received(&self) -> usize {
        self.state().count
    }

    /// Returns the requests that match a pattern (see [`Asked::is_of`]).
    pub fn requests_of(&self, pattern: &str) -> Vec<Recorded> {
        let state = self.state();
        let of = state.requests.values().filter(|it| it.asked.is_of(pattern));
        of.cloned().collect()
    }

    /// Returns the number of requests that match a pattern.
    pub fn count(&self, pattern: &str) -> usize {
        self.requests_of(pattern).len()
    }

    /// Returns all writes so far, including rejected ones, as text: `apply secrets a/b`.
    pub fn writes(&self) -> Vec<String> {
        let state = self.state();
        let writes = state.requests.values().filter(|it| it.is_write());
        writes.map(|it| it.asked.to_string()).collect()
    }

    /// Clears the recorded requests and returns them.
    pub fn take_requests(&self) -> Vec<Recorded> {
        std::mem::take(&mut self.state().requests)
            .into_values()
            .collect()
    }

    /// Returns the largest number of concurrent requests that match a pattern.
    pub fn most_at_once(&self, pattern: &str) -> usize {
        let spans = self.requests_of(pattern);
        let is_open = |it: &&Recorded, at| it.begin <= at && it.end.is_none_or(|end| end > at);
        let open = |at: Instant| spans.iter().filter(|it| is_open(it, at)).count();
        let most = spans.iter().map(|it| open(it.begin)).max();
        most.unwrap_or_default()
    }

    /// Sets the duration of every write from now on.
    pub fn delay_writes(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// Sets the bearer token that the server accepts from now on; requests with another token get 401.
    pub fn expect_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// Adds a fault for the next requests that match a pattern.
    pub fn fault(&self, pattern: &str) -> FaultBuilder {
        FaultBuilder {
            server: self.clone(),
            pattern: pattern.to_owned(),
            times: usize::MAX,
        }
    }
}

/// Returns the location of an object; the namespace of cluster-scoped objects is empty.
pub fn place(resource: &str, namespace: &str, name: &str) -> Place {
    Place {
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
