//! All Runtimes, and the names of those in mode `direct`, as their watches report them.
//!
//! Invariants: no Runtime is used before both lists were complete, because a Runtime in mode `direct` must not be signaled; a
//! Runtime that is older than the response to a write is ignored. Per Runtime, only its name and [`CachedRuntime`] are stored.
//! Of `RuntimeBootstrapper`s only the metadata is requested.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::{FINALIZER, GROUP, RuntimeBootstrapper, VERSION};
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::watch_with_backoff;
use futures::StreamExt as _;
use futures::future::ready;
use futures::stream::{self, BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{PartialObjectMeta, Selector};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt};
use policy::sync::signal::{Eligibility, ObservedKeys, ObservedRuntime, SignalKeys, Target};
use tokio::time::sleep;

use super::runtime::CachedRuntime;
use crate::inventory::{PAGE_SIZE, RuntimeEvents};
use crate::sources::served::served;

/// Watch events that never end.
type Events<T> = BoxStream<'static, Event<(String, T)>>;

const PLURAL: &str = "runtimebootstrappers";

/// Interval in which a KCP that does not serve `RuntimeBootstrapper`s is asked again.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(1);

/// The objects of one watch.
struct Listed<T> {
    events: Events<T>,
    items: BTreeMap<Arc<str>, T>,
    listing: BTreeMap<Arc<str>, T>,
    is_complete: bool,
}

impl<T> Listed<T> {
    fn new(events: Events<T>) -> Self {
        Self {
            events,
            items: BTreeMap::new(),
            listing: BTreeMap::new(),
            is_complete: false,
        }
    }

    /// `merge` receives what is known of an object and what was observed.
    fn handle(&mut self, event: Event<(String, T)>, merge: impl Fn(Option<&T>, T) -> T) {
        match event {
            Event::Init => self.listing = BTreeMap::new(),
            Event::InitApply((name, item)) => drop(self.listing.insert(name.into(), item)),
            Event::InitDone => {
                let before = mem::take(&mut self.items);
                let listing = mem::take(&mut self.listing).into_iter();
                let merged =
                    listing.map(|(name, item)| (name.clone(), merge(before.get(&name), item)));
                self.items = merged.collect();
                self.is_complete = true;
            }
            Event::Apply((name, item)) => {
                let item = merge(self.items.get(name.as_str()), item);
                self.items.insert(name.into(), item);
            }
            Event::Delete((name, _)) => drop(self.items.remove(name.as_str())),
        }
    }
}

/// See the module.
pub(super) struct RuntimeCache {
    keys: SignalKeys,
    runtimes: Listed<CachedRuntime>,
    direct: Listed<()>,
}

impl RuntimeCache {
    pub(super) fn new(
        runtimes: RuntimeEvents,
        (client, namespace): (&Client, &str),
        (selector, keys): (Selector, SignalKeys),
        readiness: &Readiness,
    ) -> Self {
        let runtimes = runtimes
            .0
            .map(move |event| trimmed(event, |it| CachedRuntime::read(it, &selector)));
        Self {
            keys,
            runtimes: Listed::new(runtimes.boxed()),
            direct: Listed::new(bootstrappers(client, namespace, readiness)),
        }
    }

    /// Handles the next event. Can be cancelled.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            biased;
            // An orphaned Runtime is signaled before its `RuntimeBootstrapper` is gone.
            Some(event) = self.runtimes.events.next() => {
                self.runtimes.handle(event, |before, now| now.after(before, self.keys));
            }
            Some(event) = self.direct.events.next() => self.direct.handle(event, |_, ()| ()),
        }
    }

    /// Whether both lists were complete.
    pub(super) fn is_complete(&self) -> bool {
        self.runtimes.is_complete && self.direct.is_complete
    }

    /// All Runtimes, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, ObservedRuntime)> {
        let names = self.runtimes.items.iter();
        names.map(|(name, it)| (name, self.observed(name, it)))
    }

    /// Remembers the Runtimes that are spoiled while a source cannot be used.
    pub(super) fn spoil(&mut self, target: &Target) {
        for (name, cached) in &mut self.runtimes.items {
            let is_direct = self.direct.items.contains_key(name);
            cached.runtime.spoiled |= !is_direct && target.spoils(&cached.runtime);
        }
    }

    /// One Runtime.
    pub(super) fn get(&self, name: &str) -> Option<ObservedRuntime> {
        let cached = self.runtimes.items.get(name)?;
        Some(self.observed(name, cached))
    }

    fn observed(&self, name: &str, cached: &CachedRuntime) -> ObservedRuntime {
        let mut runtime = cached.runtime;
        let is_direct = || self.direct.items.contains_key(name);
        if runtime.eligibility == Eligibility::Selected && is_direct() {
            runtime.eligibility = Eligibility::Direct;
        }
        runtime
    }

    /// Handles the response to a write: the metadata. Returns the keys in it.
    pub(super) fn wrote(&mut self, name: &str, response: ObjectMeta) -> ObservedKeys {
        let written = CachedRuntime::written(response);
        if let Some(cached) = self.runtimes.items.get_mut(name) {
            let before = cached.runtime;
            *cached = written.after(Some(cached), self.keys);
            cached.runtime.eligibility = before.eligibility;
            cached.runtime.state = before.state;
        }
        written.runtime.keys
    }
}

/// Watches the names of all `RuntimeBootstrapper`s, except those from which the controller has removed its finalizer. A KCP that
/// does not serve the kind has none.
fn bootstrappers(client: &Client, namespace: &str, readiness: &Readiness) -> Events<()> {
    let check = readiness.check("signal-bootstrappers-watch");
    check.not_ready("first list not complete yet");
    let discovery = (client.clone(), check.clone(), false);
    let until_served = stream::unfold(discovery, async |(client, check, told)| {
        loop {
            match served(&client, GROUP, &[VERSION], PLURAL).await {
                Ok(Some(_)) => return None,
                Ok(None) if !told => {
                    check.ready();
                    let none = stream::iter([Event::Init, Event::InitDone]);
                    return Some((none, (client, check, true)));
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
    let watched = watch_with_backoff(api, Config::default().page_size(PAGE_SIZE), check)
        .filter_map(|event| ready(held(event)))
        .map(|event| trimmed(event, |_| ()));
    until_served.flatten().chain(watched).boxed()
}

type Named = PartialObjectMeta<RuntimeBootstrapper>;

fn held(event: Event<Named>) -> Option<Event<Named>> {
    let is_released = |object: &Named| {
        let is_held = object.finalizers().iter().any(|it| it == FINALIZER);
        object.metadata.deletion_timestamp.is_some() && !is_held
    };
    match event {
        Event::Apply(object) if is_released(&object) => Some(Event::Delete(object)),
        Event::InitApply(object) if is_released(&object) => None,
        event => Some(event),
    }
}

fn trimmed<K: ResourceExt, T>(event: Event<K>, trim: impl Fn(&K) -> T) -> Event<(String, T)> {
    let named = |object: K| (object.name_any(), trim(&object));
    match event {
        Event::Apply(object) => Event::Apply(named(object)),
        Event::Delete(object) => Event::Delete(named(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(named(object)),
        Event::InitDone => Event::InitDone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects are versions; a newer one wins.
    fn handle(list: &mut Listed<u64>, events: impl IntoIterator<Item = Event<(String, u64)>>) {
        for event in events {
            list.handle(event, |known, now| known.map_or(now, |it| now.max(*it)));
        }
    }

    fn applied(name: &str, version: u64) -> Event<(String, u64)> {
        Event::InitApply((name.to_owned(), version))
    }

    #[test]
    fn new_list_replaces_the_known_objects_when_it_is_complete() {
        let mut list = Listed::new(stream::pending().boxed());
        handle(&mut list, [Event::Init, applied("a", 5), applied("b", 5)]);
        assert!(!list.is_complete && list.items.is_empty());
        handle(&mut list, [Event::InitDone]);
        assert!(list.is_complete);
        handle(&mut list, [Event::Apply(("a".to_owned(), 8)), Event::Init]);
        assert_eq!(list.items.len(), 2);
        // An object that is older than the response to a write does not replace it.
        handle(
            &mut list,
            [applied("a", 7), applied("c", 9), Event::InitDone],
        );
        let items = list.items.iter().map(|(name, it)| (&**name, *it));
        assert_eq!(items.collect::<Vec<_>>(), [("a", 8), ("c", 9)]);
    }
}
