//! Cache of all Runtimes, and of the names of the Runtimes in mode `direct`, from their watches.
//!
//! Invariants: no Runtime is used before both lists were complete, because a Runtime in mode `direct` must not be
//! signaled. A Runtime that is older than the response to a write is ignored. Per Runtime, only its name and
//! [`CachedRuntime`] are stored. Of `RuntimeBootstrapper`s only the metadata is requested.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::{FINALIZER, GROUP, RuntimeBootstrapper, VERSION};
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::{WatchChange, changes, watch_with_backoff};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{PartialObjectMeta, Selector};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt};
use policy::sync::signal::{
    Eligibility, KimActivity, ObservedKeys, ObservedRuntime, SignalKeys, Target,
};
use tokio::time::{Instant, sleep};

use super::runtime::CachedRuntime;
use crate::inventory::{PAGE_SIZE, RuntimeChanges, RuntimeView};
use crate::sources::served::served;

const PLURAL: &str = "runtimebootstrappers";

/// Interval of discovery requests to a KCP that does not serve `RuntimeBootstrapper`s.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(1);

/// The cache; see the module.
pub(super) struct RuntimeCache {
    selector: Selector,
    keys: SignalKeys,
    changes: RuntimeChanges,
    direct_changes: BoxStream<'static, WatchChange<Named>>,
    runtimes: BTreeMap<Arc<str>, CachedRuntime>,
    /// Names of the Runtimes in mode `direct`.
    direct: BTreeSet<String>,
    is_listed: [bool; 2],
}

impl RuntimeCache {
    pub(super) fn new(
        changes: RuntimeChanges,
        (client, namespace): (&Client, &str),
        (selector, keys): (Selector, SignalKeys),
        readiness: &Readiness,
    ) -> Self {
        Self {
            selector,
            keys,
            changes,
            direct_changes: bootstrappers(client, namespace, readiness),
            runtimes: BTreeMap::new(),
            direct: BTreeSet::new(),
            is_listed: [false; 2],
        }
    }

    /// Handles the next change. Is cancel safe.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            biased;
            // An orphaned Runtime is signaled before its `RuntimeBootstrapper` is deleted.
            Some(change) = self.changes.0.next() => self.take_runtime(change),
            Some(change) = self.direct_changes.next() => self.take_bootstrapper(change),
        }
    }

    fn take_runtime(&mut self, change: WatchChange<RuntimeView>) {
        match change {
            WatchChange::Put(view) => {
                let name = view.name_any();
                let before = self.runtimes.get(name.as_str());
                let now = CachedRuntime::read(&view, &self.selector).after(before, self.keys);
                self.runtimes.insert(name.into(), now);
            }
            WatchChange::Removed(name) => drop(self.runtimes.remove(name.as_str())),
            WatchChange::Listed => self.is_listed[0] = true,
        }
    }

    fn take_bootstrapper(&mut self, change: WatchChange<Named>) {
        match change {
            WatchChange::Put(object) if is_released(&object) => {
                self.direct.remove(&object.name_any());
            }
            WatchChange::Put(object) => drop(self.direct.insert(object.name_any())),
            WatchChange::Removed(name) => drop(self.direct.remove(&name)),
            WatchChange::Listed => self.is_listed[1] = true,
        }
    }

    /// Marks a Runtime whose stored revision is not that of a signal.
    pub(super) fn spoil(&mut self, name: &str) {
        if let Some(cached) = self.runtimes.get_mut(name) {
            cached.runtime.spoiled = true;
        }
    }

    /// Returns whether both lists were complete.
    pub(super) fn is_complete(&self) -> bool {
        self.is_listed == [true; 2]
    }

    /// Returns all Runtimes, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, ObservedRuntime)> {
        let names = self.runtimes.iter();
        names.map(|(name, it)| (name, self.observed(name, it)))
    }

    /// Updates which Runtimes KIM may copy the sources to now, and which are spoiled by it. Returns the time at which
    /// the next of them has its copies.
    pub(super) fn update_copying(&mut self, target: &Target, now: Instant) -> Option<Instant> {
        for (name, cached) in &mut self.runtimes {
            let is_direct = self.direct.contains(&**name);
            cached.copying_until = cached.copying_until.filter(|until| now < *until);
            let is_reconciled = std::mem::take(&mut cached.is_reconciled);
            cached.runtime.activity = match cached.copying_until {
                Some(_) => KimActivity::Copying,
                None if is_reconciled => KimActivity::Reconciled,
                None => KimActivity::None,
            };
            cached.runtime.spoiled |= !is_direct && target.spoils(&cached.runtime);
        }
        self.runtimes
            .values()
            .filter_map(|it| it.copying_until)
            .min()
    }

    /// Returns the number of Runtimes in mode `direct` by their label that have no `RuntimeBootstrapper`.
    pub(super) fn unmanaged(&self) -> usize {
        let runtimes = self.runtimes.iter();
        let unmanaged = runtimes.filter(|(name, it)| {
            it.runtime.eligibility == Eligibility::Direct && !self.direct.contains(&***name)
        });
        unmanaged.count()
    }

    /// Returns a Runtime.
    pub(super) fn get(&self, name: &str) -> Option<ObservedRuntime> {
        let cached = self.runtimes.get(name)?;
        Some(self.observed(name, cached))
    }

    fn observed(&self, name: &str, cached: &CachedRuntime) -> ObservedRuntime {
        let mut runtime = cached.runtime;
        let is_direct = || self.direct.contains(name);
        if runtime.eligibility == Eligibility::Selected && is_direct() {
            runtime.eligibility = Eligibility::Direct;
        }
        runtime
    }

    /// Handles the metadata in the response to a write. Returns the keys in the metadata.
    pub(super) fn wrote(&mut self, name: &str, response: ObjectMeta) -> ObservedKeys {
        let written = CachedRuntime::written(response);
        if let Some(cached) = self.runtimes.get_mut(name) {
            let before = cached.runtime;
            *cached = written.after(Some(cached), self.keys);
            cached.runtime.eligibility = before.eligibility;
            cached.runtime.state = before.state;
        }
        written.runtime.keys
    }
}

/// Watches the metadata of all `RuntimeBootstrapper`s. If KCP does not serve the kind, the list is empty.
fn bootstrappers(
    client: &Client,
    namespace: &str,
    readiness: &Readiness,
) -> BoxStream<'static, WatchChange<Named>> {
    let check = readiness.check("signal-bootstrappers-watch");
    check.not_ready("first list not complete yet");
    let discovery = (client.clone(), check.clone(), false);
    let until_served = stream::unfold(discovery, async |(client, check, told)| {
        loop {
            match served(&client, GROUP, &[VERSION], PLURAL).await {
                Ok(Some(_)) => return None,
                Ok(None) if !told => {
                    check.ready();
                    return Some((WatchChange::Listed, (client, check, true)));
                }
                Ok(None) => sleep(DISCOVERY_INTERVAL).await,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "failed to discover APIs of KCP");
                    sleep(DISCOVERY_INTERVAL / 12).await;
                }
            }
        }
    });
    let api: Api<Named> = Api::namespaced(client.clone(), namespace);
    let watched = watch_with_backoff(api, Config::default().page_size(PAGE_SIZE), check);
    until_served.chain(changes(watched)).boxed()
}

type Named = PartialObjectMeta<RuntimeBootstrapper>;

/// Returns whether the controller has removed its finalizer from a resource that is being deleted.
fn is_released(object: &Named) -> bool {
    let is_held = object.finalizers().iter().any(|it| it == FINALIZER);
    object.metadata.deletion_timestamp.is_some() && !is_held
}
