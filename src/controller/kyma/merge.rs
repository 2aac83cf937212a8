//! Kymas and RuntimeBootstrappers as one watch: a RuntimeBootstrapper is returned while no Kyma has its name or its runtime ID.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component_base::readiness::ReadinessCheck;
use component_base::watch::watch_with_backoff;
use futures::channel::mpsc::UnboundedSender;
use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, ResourceExt as _};

use super::{BootstrapperView, CompactView, KymaView};
use crate::clients::RuntimeId;
use crate::inventory::PAGE_SIZE;

/// Watches Kymas and RuntimeBootstrappers of a namespace. No event is returned before all Kymas are known.
/// RuntimeBootstrappers are returned when they are known, so that a KCP without their kind still returns its Kymas.
pub(super) fn watch_runtimes(
    client: &Client,
    namespace: &str,
    [of_kymas, of_bootstrappers]: [ReadinessCheck; 2],
    mut observed: BootstrapperObserver,
) -> impl Stream<Item = Event<KymaView>> + Send + use<> {
    let config = Config::default().page_size(PAGE_SIZE);
    let kymas = Api::<KymaView>::namespaced(client.clone(), namespace);
    let kymas = watch_with_backoff(kymas, config.clone(), of_kymas).map(Change::OfKyma);
    let bootstrappers = Api::<BootstrapperView>::namespaced(client.clone(), namespace);
    let bootstrappers = watch_with_backoff(bootstrappers, config, of_bootstrappers);
    // The listed objects are processed before the next event is requested.
    let bootstrappers = bootstrappers.inspect(move |event| observed.observe(event));
    let bootstrappers = bootstrappers.map(Change::OfBootstrapper);
    let mut merge = Merge::new(namespace);
    stream::select(kymas, bootstrappers).flat_map(move |change| stream::iter(merge.observe(change)))
}

/// Observes the watch of RuntimeBootstrappers, also of those whose runtime has a Kyma. The receivers of a controller that has ended
/// are dropped.
pub(super) struct BootstrapperObserver {
    /// Set when all are known.
    pub(super) has_all: Arc<AtomicBool>,
    /// Receives the name of each changed one that has a runtime ID and lacks the condition `WatcherInstalled`.
    pub(super) lacking_condition: UnboundedSender<String>,
    /// Receives the runtime ID of each one that is no longer paused.
    pub(super) resumed: UnboundedSender<String>,
    /// Names of the paused ones.
    pub(super) paused: HashSet<String>,
}

impl BootstrapperObserver {
    fn observe(&mut self, event: &Event<BootstrapperView>) {
        match event {
            Event::Init => {}
            Event::InitDone => self.has_all.store(true, Ordering::Release),
            Event::InitApply(object) => self.observe_pause(object),
            Event::Apply(object) => {
                self.observe_pause(object);
                if object.view.runtime_id().is_some() && !object.has_condition {
                    drop(self.lacking_condition.unbounded_send(object.name_any()));
                }
            }
            Event::Delete(object) => {
                self.paused.remove(&object.name_any());
            }
        }
    }

    fn observe_pause(&mut self, object: &BootstrapperView) {
        if object.is_paused {
            self.paused.insert(object.name_any());
        } else if self.paused.remove(&object.name_any())
            && let Some(id) = object.view.runtime_id()
        {
            drop(self.resumed.unbounded_send(id.to_string()));
        }
    }
}

/// An event of one of the two watches.
enum Change {
    OfKyma(Event<KymaView>),
    OfBootstrapper(Event<BootstrapperView>),
}

/// The state of both watches. Of Kymas, only the fields are kept that assign a RuntimeBootstrapper to a Kyma.
struct Merge {
    namespace: String,
    /// Runtime IDs of Kymas, by name.
    kymas: HashMap<String, Option<RuntimeId>>,
    /// Number of Kymas by runtime ID.
    owners: HashMap<RuntimeId, usize>,
    /// RuntimeBootstrappers with a known runtime ID, by name.
    bootstrappers: HashMap<String, CompactView>,
    /// Names of the RuntimeBootstrappers that were returned, and represent their runtimes.
    returned: HashSet<String>,
    /// Names in a list of Kymas that is not complete.
    listed_kymas: HashSet<String>,
    /// Names in a list of RuntimeBootstrappers that is not complete.
    listed_bootstrappers: HashSet<String>,
    /// Whether all Kymas are known.
    is_complete: bool,
}

impl Merge {
    fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kymas: HashMap::new(),
            owners: HashMap::new(),
            bootstrappers: HashMap::new(),
            returned: HashSet::new(),
            listed_kymas: HashSet::new(),
            listed_bootstrappers: HashSet::new(),
            is_complete: false,
        }
    }

    fn observe(&mut self, change: Change) -> Vec<Event<KymaView>> {
        match change {
            Change::OfKyma(event) => self.observe_kyma(event),
            Change::OfBootstrapper(event) => self.observe_bootstrapper(event),
        }
    }

    /// Observes an event of a Kyma. The first list is returned as a list, with the RuntimeBootstrappers that are
    /// known when it is complete. A later list is returned as a change of each listed Kyma, and a deletion of each
    /// other Kyma.
    fn observe_kyma(&mut self, event: Event<KymaView>) -> Vec<Event<KymaView>> {
        match event {
            Event::Init => {
                self.listed_kymas.clear();
                let is_first = !self.is_complete;
                is_first.then_some(Event::Init).into_iter().collect()
            }
            Event::InitApply(kyma) => {
                self.listed_kymas.insert(kyma.name_any());
                if self.is_complete {
                    return self.apply(kyma);
                }
                self.own(&kyma.name_any(), Some(&kyma));
                vec![Event::InitApply(kyma)]
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_kymas);
                let gone = self.kymas.keys().filter(|it| !listed.contains(*it));
                let gone: Vec<KymaView> =
                    gone.map(|it| KymaView::gone(it, &self.namespace)).collect();
                let deleted = gone.into_iter().flat_map(|it| self.delete(it)).collect();
                if self.is_complete {
                    return deleted;
                }
                self.is_complete = true;
                let names = self
                    .bootstrappers
                    .keys()
                    .filter(|it| self.is_own_runtime(it));
                self.returned = names.cloned().collect();
                let own = self.returned.iter().filter_map(|it| self.view(it));
                let mut list: Vec<_> = own.map(Event::InitApply).collect();
                list.push(Event::InitDone);
                list
            }
            Event::Apply(kyma) => self.apply(kyma),
            Event::Delete(kyma) => self.delete(kyma),
        }
    }

    fn observe_bootstrapper(&mut self, event: Event<BootstrapperView>) -> Vec<Event<KymaView>> {
        let name = |it: &BootstrapperView| it.view.name_any();
        match event {
            Event::Init => {
                self.listed_bootstrappers.clear();
                Vec::new()
            }
            Event::InitApply(object) | Event::Apply(object)
                if object.view.runtime_id().is_none() =>
            {
                self.forget(&name(&object))
            }
            Event::InitApply(object) => {
                self.listed_bootstrappers.insert(name(&object));
                self.keep(object.view)
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_bootstrappers);
                let gone = self.bootstrappers.keys().filter(|it| !listed.contains(*it));
                let gone: Vec<String> = gone.cloned().collect();
                gone.iter().flat_map(|it| self.forget(it)).collect()
            }
            Event::Apply(object) => self.keep(object.view),
            Event::Delete(object) => self.forget(&name(&object)),
        }
    }

    fn apply(&mut self, kyma: KymaView) -> Vec<Event<KymaView>> {
        let changed = self.own(&kyma.name_any(), Some(&kyma));
        let events = changed.iter().filter_map(|it| self.refresh(it, false));
        // At no time a runtime is not represented: a RuntimeBootstrapper that replaces the Kyma is returned before it.
        let (mut events, deleted): (Vec<_>, Vec<_>) =
            events.partition(|it| matches!(it, Event::Apply(_)));
        events.push(Event::Apply(kyma));
        events.extend(deleted);
        events
    }

    fn delete(&mut self, kyma: KymaView) -> Vec<Event<KymaView>> {
        let name = kyma.name_any();
        let changed = self.own(&name, None);
        let mut events: Vec<_> = changed
            .iter()
            .filter_map(|it| self.refresh(it, false))
            .collect();
        if !self.returned.contains(&name) {
            events.push(Event::Delete(kyma));
        }
        events
    }

    fn keep(&mut self, bootstrapper: KymaView) -> Vec<Event<KymaView>> {
        let name = bootstrapper.name_any();
        self.bootstrappers.insert(name.clone(), bootstrapper.into());
        self.refresh(&name, true).into_iter().collect()
    }

    fn forget(&mut self, bootstrapper: &str) -> Vec<Event<KymaView>> {
        let view = self.view(bootstrapper);
        self.bootstrappers.remove(bootstrapper);
        let view = view.filter(|_| self.returned.remove(bootstrapper));
        view.map(Event::Delete).into_iter().collect()
    }

    fn view(&self, bootstrapper: &str) -> Option<KymaView> {
        let compact = self.bootstrappers.get(bootstrapper)?;
        Some(compact.view(bootstrapper, &self.namespace))
    }

    /// Stores the runtime ID of a Kyma, or removes a deleted Kyma. Returns the RuntimeBootstrappers with its name,
    /// and with its previous or its new runtime ID.
    fn own(&mut self, name: &str, kyma: Option<&KymaView>) -> Vec<String> {
        let after = kyma.and_then(|it| it.runtime_id().cloned());
        let before = match kyma {
            Some(_) => self.kymas.insert(name.to_owned(), after.clone()),
            None => self.kymas.remove(name),
        };
        let before = before.flatten();
        let mut changed: Vec<String> = self
            .bootstrappers
            .get_key_value(name)
            .map(|(it, _)| it.clone())
            .into_iter()
            .collect();
        if before == after {
            return changed;
        }
        if let Some(id) = &before
            && let Some(count) = self.owners.get_mut(id)
        {
            *count -= 1;
            if *count == 0 {
                self.owners.remove(id);
            }
        }
        if let Some(id) = &after {
            *self.owners.entry(id.clone()).or_default() += 1;
        }
        let is_of = |it: &CompactView| {
            let id = &it.details.runtime_id;
            *id == before || *id == after
        };
        let others = self
            .bootstrappers
            .iter()
            .filter(|(it, view)| *it != name && is_of(view));
        changed.extend(others.map(|(it, _)| it.clone()));
        changed
    }

    /// Returns whether a RuntimeBootstrapper represents its runtime.
    fn is_own_runtime(&self, name: &str) -> bool {
        let view = self.bootstrappers.get(name);
        let id = view.and_then(|it| it.details.runtime_id.as_ref());
        !self.kymas.contains_key(name) && id.is_some_and(|it| !self.owners.contains_key(it))
    }

    /// Returns the event of a stored RuntimeBootstrapper after a change, if there is one.
    fn refresh(&mut self, name: &str, is_changed: bool) -> Option<Event<KymaView>> {
        if !self.is_complete {
            return None;
        }
        let view = self.view(name)?;
        if self.is_own_runtime(name) {
            let is_new = self.returned.insert(name.to_owned());
            return (is_new || is_changed).then_some(Event::Apply(view));
        }
        let was_returned = self.returned.remove(name);
        // If a Kyma with the name exists, it replaces the RuntimeBootstrapper in the store.
        (was_returned && !self.kymas.contains_key(name)).then_some(Event::Delete(view))
    }
}

#[cfg(test)]
mod tests;
