//! The runtimes of KCP, as far as they concern the watcher: Kymas, and each RuntimeBootstrapper without a Kyma.
//!
//! A runtime with both is that of its Kyma: one of the same name, as KEB names both by the runtime ID, or with its runtime ID.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use api::bootstrapper::{GROUP, KIND, PLURAL, VERSION};
use api::kcp::{
    ACCEPT_CLUSTER_UID_ANNOTATION, KYMA_KIND, KYMA_PLURAL, KYMA_VERSION, RUNTIME_ID, SKR_DOMAIN,
};
use component_base::readiness::ReadinessCheck;
use component_base::watch::watch_with_backoff;
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use policy::certificates::Kyma;
use serde::{Deserialize, Deserializer};

use crate::inventory::PAGE_SIZE;

/// A Kyma as it is read from a list or a watch, or a RuntimeBootstrapper in its place.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct KymaView {
    #[serde(deserialize_with = "trimmed")]
    metadata: ObjectMeta,
    #[serde(skip)]
    is_bootstrapper: bool,
}

/// A RuntimeBootstrapper, as far as it stands for a runtime.
#[derive(Clone, Debug, Deserialize)]
struct BootstrapperView {
    #[serde(deserialize_with = "trimmed")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: BootstrapperStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct BootstrapperStatus {
    #[serde(rename = "runtimeID")]
    runtime_id: Option<String>,
}

/// Of labels and annotations only those are kept that concern the watcher.
fn trimmed<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let metadata = ObjectMeta::deserialize(from)?;
    let only = |map: Option<BTreeMap<String, String>>, keys: &[&str]| {
        let mut map = map?;
        map.retain(|key, _| keys.contains(&key.as_str()));
        (!map.is_empty()).then_some(map)
    };
    Ok(ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        deletion_timestamp: metadata.deletion_timestamp,
        labels: only(metadata.labels, &[RUNTIME_ID]),
        annotations: only(
            metadata.annotations,
            &[SKR_DOMAIN, ACCEPT_CLUSTER_UID_ANNOTATION],
        ),
        ..ObjectMeta::default()
    })
}

impl KymaView {
    /// What determines the certificate.
    pub(crate) fn kyma(&self) -> Kyma {
        Kyma {
            namespace: self.namespace().unwrap_or_default(),
            name: self.name_any(),
            runtime_id: self.labels().get(RUNTIME_ID).cloned(),
            domain: self.annotations().get(SKR_DOMAIN).cloned(),
        }
    }

    /// Whether it is a RuntimeBootstrapper without a Kyma.
    pub(crate) fn is_bootstrapper(&self) -> bool {
        self.is_bootstrapper
    }

    /// Whether the name of a certificate is known.
    pub(crate) fn has_domain(&self) -> bool {
        let domain = self.annotations().get(SKR_DOMAIN);
        domain.is_some_and(|it| !it.is_empty())
    }

    fn runtime_id(&self) -> Option<&str> {
        self.labels().get(RUNTIME_ID).map(String::as_str)
    }

    /// The reference of Events.
    pub(crate) fn reference(&self) -> ObjectReference {
        let mut reference = self.object_ref(&());
        if self.is_bootstrapper {
            reference.api_version = Some(format!("{GROUP}/{VERSION}"));
            reference.kind = Some(KIND.to_owned());
        }
        reference
    }

    /// The one of a RuntimeBootstrapper whose runtime is known; until then there is nothing to do for it.
    fn of(bootstrapper: BootstrapperView) -> Option<Self> {
        let mut metadata = bootstrapper.metadata;
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(RUNTIME_ID.to_owned(), bootstrapper.status.runtime_id?);
        Some(Self {
            metadata,
            is_bootstrapper: true,
        })
    }
}

/// Watches Kymas and RuntimeBootstrappers of a namespace. Nothing is returned before all Kymas are known; a RuntimeBootstrapper
/// follows when it is known, so that a KCP without them has its Kymas all the same.
pub(crate) fn watch_runtimes(
    client: &Client,
    namespace: &str,
    [of_kymas, of_bootstrappers]: [ReadinessCheck; 2],
) -> impl Stream<Item = Event<KymaView>> + Send + use<> {
    let config = Config::default().page_size(PAGE_SIZE);
    let kymas = Api::<KymaView>::namespaced(client.clone(), namespace);
    let kymas = watch_with_backoff(kymas, config.clone(), of_kymas).map(Change::OfKyma);
    let bootstrappers = Api::<BootstrapperView>::namespaced(client.clone(), namespace);
    let bootstrappers =
        watch_with_backoff(bootstrappers, config, of_bootstrappers).map(Change::OfBootstrapper);
    let mut merge = Merge::default();
    stream::select(kymas, bootstrappers).flat_map(move |change| stream::iter(merge.observe(change)))
}

/// What one of the two watches has told.
enum Change {
    OfKyma(Event<KymaView>),
    OfBootstrapper(Event<BootstrapperView>),
}

/// What both watches have told so far.
#[derive(Default)]
struct Merge {
    kymas: Objects,
    bootstrappers: Objects,
    /// Number of Kymas by runtime ID.
    owners: HashMap<String, usize>,
    /// Names of the RuntimeBootstrappers that were returned.
    returned: HashSet<String>,
    /// Whether all Kymas are known.
    is_complete: bool,
}

/// The objects of one watch by name, and those of a list that is not complete.
#[derive(Default)]
struct Objects {
    current: HashMap<String, KymaView>,
    listed: HashMap<String, KymaView>,
}

/// Name of an object that may have changed, and what it was before.
type Changed = (String, Option<KymaView>);

impl Merge {
    fn observe(&mut self, change: Change) -> Vec<Event<KymaView>> {
        let (changed, is_list) = match change {
            Change::OfKyma(event) => {
                let is_list = matches!(event, Event::InitDone);
                let mut changed = self.kymas.observe(event, Some);
                changed.extend(self.own(&changed));
                (changed, is_list)
            }
            Change::OfBootstrapper(event) => {
                let mut changed = self.bootstrappers.observe(event, KymaView::of);
                changed.retain(|(name, _)| !self.kymas.current.contains_key(name));
                (changed, false)
            }
        };
        if self.is_complete {
            let events = changed.into_iter().filter_map(|it| self.event(it));
            return events.collect();
        }
        if !is_list {
            return Vec::new();
        }
        self.is_complete = true;
        let names = self
            .kymas
            .current
            .keys()
            .chain(self.bootstrappers.current.keys());
        let names: BTreeSet<String> = names.cloned().collect();
        let all = names.into_iter().filter_map(|it| self.event((it, None)));
        let all = all.map(|it| match it {
            Event::Apply(view) => Event::InitApply(view),
            other => other,
        });
        [Event::Init]
            .into_iter()
            .chain(all)
            .chain([Event::InitDone])
            .collect()
    }

    /// Counts the runtime IDs of changed Kymas, and returns the RuntimeBootstrappers of those whose number has changed.
    fn own(&mut self, changed: &[Changed]) -> Vec<Changed> {
        let mut ids = HashSet::new();
        for (name, before) in changed {
            let after = self.kymas.current.get(name).and_then(KymaView::runtime_id);
            let before = before.as_ref().and_then(KymaView::runtime_id);
            if before == after {
                continue;
            }
            if let Some(id) = before {
                let count = self.owners.entry(id.to_owned()).or_default();
                *count = count.saturating_sub(1);
                ids.insert(id.to_owned());
            }
            if let Some(id) = after {
                *self.owners.entry(id.to_owned()).or_default() += 1;
                ids.insert(id.to_owned());
            }
        }
        self.owners.retain(|_, count| *count > 0);
        let all = self.bootstrappers.current.iter();
        let own = all.filter(|(_, it)| it.runtime_id().is_some_and(|id| ids.contains(id)));
        own.map(|(name, it)| (name.clone(), Some(it.clone())))
            .collect()
    }

    fn event(&mut self, (name, before): Changed) -> Option<Event<KymaView>> {
        if let Some(kyma) = self.kymas.current.get(&name) {
            self.returned.remove(&name);
            return Some(Event::Apply(kyma.clone()));
        }
        let bootstrapper = self.bootstrappers.current.get(&name);
        let is_owned = |it: &&KymaView| {
            it.runtime_id()
                .is_some_and(|id| self.owners.contains_key(id))
        };
        if let Some(bootstrapper) = bootstrapper.filter(|it| !is_owned(it)) {
            self.returned.insert(name);
            return Some(Event::Apply(bootstrapper.clone()));
        }
        let before = before?;
        let was_returned = !before.is_bootstrapper || self.returned.remove(&name);
        was_returned.then_some(Event::Delete(before))
    }
}

impl Objects {
    /// Returns the objects that may have changed.
    fn observe<K: Resource>(
        &mut self,
        event: Event<K>,
        view: impl Fn(K) -> Option<KymaView>,
    ) -> Vec<Changed> {
        let (object, is_gone) = match event {
            Event::Init => {
                self.listed.clear();
                return Vec::new();
            }
            Event::InitApply(object) => {
                let view = view(object);
                self.listed.extend(view.map(|it| (it.name_any(), it)));
                return Vec::new();
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = std::mem::replace(&mut self.current, listed);
                let now = self.current.keys().map(|it| (it.clone(), None));
                let mut changed: HashMap<_, _> = now.collect();
                changed.extend(before.into_iter().map(|(name, it)| (name, Some(it))));
                return changed.into_iter().collect();
            }
            Event::Apply(object) => (object, false),
            Event::Delete(object) => (object, true),
        };
        let name = object.meta().name.clone().unwrap_or_default();
        let before = self.current.remove(&name);
        if !is_gone && let Some(view) = view(object) {
            self.current.insert(name.clone(), view);
        }
        vec![(name, before)]
    }
}

impl Resource for KymaView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KYMA_KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        KYMA_VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        KYMA_PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for BootstrapperView {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests;
