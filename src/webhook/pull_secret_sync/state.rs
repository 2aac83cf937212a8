//! Observed state of the cluster, and the decision for one namespace. No I/O and no clock.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use api::{Feature, FeatureSet, names};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Preconditions;
use kube::runtime::watcher::Event;
use policy::admission::Annotations;
use policy::mirror::{Action, Observed, RemovalCause, SourcePresence, need, plan};

use crate::snapshot::{ActiveRevision, KnownNamespace, SecretContent, SnapshotStore};
use crate::stored::StoredMetadata;

use super::secret::{Digest, Origin, SecretState, SecretView};

/// A task in one namespace.
#[derive(Clone)]
pub(super) struct CopyTask {
    /// Name of the Secret in the configuration of this decision.
    pub(super) secret: String,
    pub(super) namespace: String,
    pub(super) action: CopyAction,
}

#[derive(Clone, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum CopyAction {
    /// Creates a copy if no Secret was observed. If another client has created a Secret since then, it is not overwritten.
    #[strum(serialize = "apply")]
    Create(Arc<SecretContent>),
    /// Overwrites the observed copy.
    #[strum(serialize = "apply")]
    Update(Arc<SecretContent>),
    Recreate(Preconditions, Arc<SecretContent>),
    Remove(Preconditions, RemovalCause),
    /// Writes an Event about the Secret of another client, which has this UID.
    Report(Option<String>),
}

impl CopyAction {
    /// Returns the label value of the action in metrics.
    pub(super) fn name(&self) -> &'static str {
        self.into()
    }
}

/// State on which decisions are based. The methods that record an observation return the namespaces to reconcile.
#[derive(Default)]
pub(super) struct State {
    product_namespace: String,
    active: Arc<ActiveRevision>,
    namespaces: Arc<HashMap<String, Arc<KnownNamespace>>>,
    /// Content of all copies, and its digest.
    source: Option<(Arc<SecretContent>, Digest)>,
    pub(super) copies: Copies,
    pods: Pods,
}

impl State {
    pub(super) fn new(product_namespace: String) -> Self {
        Self {
            product_namespace,
            ..Self::default()
        }
    }

    /// Returns the name of the Secret; `None` without a configuration.
    pub(super) fn secret_name(&self) -> Option<String> {
        let configuration = self.active.configuration.as_ref()?;
        Some(configuration.pull_secret().name.clone())
    }

    /// Reads the snapshots.
    pub(super) fn refresh(&mut self, snapshots: &SnapshotStore) -> Vec<String> {
        // Name and bytes are of one revision. Otherwise the bytes of one Secret could be written with the name of another.
        let active = snapshots.active();
        let everywhere = !Arc::ptr_eq(&self.active, &active);
        if everywhere {
            let content = active.pull_secret.content.clone();
            self.source = content.map(|it| (Arc::clone(&it), Digest::of(&it.docker_config)));
            self.active = active;
        }
        let old = mem::replace(&mut self.namespaces, snapshots.namespaces());
        let unchanged = |(name, known): &(&String, &Arc<KnownNamespace>)| {
            !everywhere && old.get(*name).is_some_and(|it| Arc::ptr_eq(it, known))
        };
        let gone = old.keys().filter(|it| !self.namespaces.contains_key(*it));
        let changed = self.namespaces.iter().filter(|it| !unchanged(it));
        changed.map(|(name, _)| name).chain(gone).cloned().collect()
    }

    pub(super) fn observe_secret(&mut self, event: Event<SecretView>) -> Vec<String> {
        let product = &self.product_namespace;
        let copies = &mut self.copies;
        match event {
            Event::Init => copies.listed.clear(),
            Event::InitApply(view) => {
                let (namespace, state) = SecretState::read(view);
                if namespace != *product {
                    copies.listed.insert(namespace, state);
                }
            }
            Event::InitDone => {
                copies.replace();
                return self.namespaces.keys().cloned().collect();
            }
            Event::Apply(view) => {
                let (namespace, state) = SecretState::read(view);
                if namespace != *product && copies.put(&namespace, state) {
                    return vec![namespace];
                }
            }
            Event::Delete(view) => {
                let (namespace, state) = SecretState::read(view);
                let held = copies.found.get(&namespace);
                if held.is_some_and(|held| !state.is_older_than(held)) {
                    copies.found.remove(&namespace);
                    return vec![namespace];
                }
            }
        }
        Vec::new()
    }

    /// Records a Pod. Finished Pods count as long as they exist, because their metadata does not contain the phase.
    pub(super) fn observe_pod(&mut self, event: Event<StoredMetadata<Pod>>) -> Vec<String> {
        let pods = &mut self.pods;
        match event {
            Event::Init => pods.listed.clear(),
            Event::InitApply(pod) => _ = note(&mut pods.listed, &pod, opts_in(&pod)),
            Event::InitDone => {
                pods.opted_in = mem::take(&mut pods.listed);
                pods.is_complete = true;
                return self.namespaces.keys().cloned().collect();
            }
            Event::Apply(pod) => {
                return Vec::from_iter(note(&mut pods.opted_in, &pod, opts_in(&pod)));
            }
            Event::Delete(pod) => return Vec::from_iter(note(&mut pods.opted_in, &pod, false)),
        }
        Vec::new()
    }

    /// Returns the task in the namespace. `None` if the namespace is in the desired state, is unknown or terminates, or if
    /// required information is missing.
    pub(super) fn task_for(&self, name: &str) -> Option<CopyTask> {
        let configuration = self.active.configuration.as_deref()?;
        let namespace = self.namespaces.get(name)?;
        let found = self.copies.found.get(name);
        let blocked = namespace.terminating || found.is_some_and(|it| it.terminating);
        if blocked || !self.copies.is_complete || name == self.product_namespace {
            return None;
        }
        let pods = &self.pods;
        let by_pod = (pods.is_complete).then(|| pods.opted_in.contains_key(name));
        let need = |pods| need(configuration, name, &namespace.view, pods);
        let presence = self.presence();
        let pods_decide = need(true) != need(false);
        if by_pod.is_none() && pods_decide && presence != SourcePresence::Absent {
            return None;
        }
        let source = self.source.as_ref();
        let (source, digest) = source.map(|(it, digest)| (it, *digest)).unzip();
        let observed = found.map_or(Observed::Nothing, |it| it.observed(digest));
        let identity = || found.map(|it| it.identity.clone());
        let action = match plan(need(by_pod == Some(true)), presence, observed) {
            Action::Keep => return None,
            Action::Apply if found.is_none() => CopyAction::Create(Arc::clone(source?)),
            Action::Apply => CopyAction::Update(Arc::clone(source?)),
            Action::Recreate => CopyAction::Recreate(identity()?, Arc::clone(source?)),
            Action::Remove(cause) => CopyAction::Remove(identity()?, cause),
            Action::ReportForeign => CopyAction::Report(identity()?.uid),
        };
        Some(CopyTask {
            secret: configuration.pull_secret().name.clone(),
            namespace: name.to_owned(),
            action,
        })
    }

    fn presence(&self) -> SourcePresence {
        match &self.source {
            Some(_) => SourcePresence::Present,
            None if self.active.lacks_pull_secret() => SourcePresence::Absent,
            None => SourcePresence::Unknown,
        }
    }
}

/// The Secrets with the name of the pull Secret by namespace, from the watch and from the writes of this process. A state
/// that is certainly older never replaces the stored state, because the response to a write may arrive before the events
/// that precede it.
#[derive(Debug, Default)]
pub(super) struct Copies {
    found: HashMap<String, SecretState>,
    listed: HashMap<String, SecretState>,
    is_complete: bool,
}

impl Copies {
    /// Returns the number of copies, without the Secrets of other clients.
    pub(super) fn count(&self) -> usize {
        let copies = self.found.values();
        copies.filter(|it| it.origin != Origin::Foreign).count()
    }

    /// Records the state after a write of this process; `None` after a deletion.
    pub(super) fn written(&mut self, namespace: &str, state: Option<SecretState>) {
        match state {
            Some(state) => _ = self.put(namespace, state),
            None => _ = self.found.remove(namespace),
        }
    }

    fn replace(&mut self) {
        let before = mem::replace(&mut self.found, mem::take(&mut self.listed));
        for (namespace, held) in before {
            if let Some(state) = self.found.get_mut(&namespace)
                && state.is_older_than(&held)
            {
                *state = held;
            }
        }
        self.is_complete = true;
    }

    /// Stores a state. Returns whether it is a change.
    fn put(&mut self, namespace: &str, state: SecretState) -> bool {
        let held = self.found.get(namespace);
        let changes = held.is_none_or(|held| !state.is_older_than(held) && state != *held);
        if changes {
            self.found.insert(namespace.to_owned(), state);
        }
        changes
    }
}

type Names = HashMap<String, HashSet<Box<str>>>;

/// Names of the Pods that opt in with their annotations, by namespace.
#[derive(Debug, Default)]
struct Pods {
    opted_in: Names,
    listed: Names,
    is_complete: bool,
}

/// Records a Pod. Returns the namespace, if this is the first Pod of the namespace, or its last Pod was removed.
fn note(names: &mut Names, pod: &StoredMetadata<Pod>, opts_in: bool) -> Option<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let before = names.contains_key(&namespace);
    if opts_in {
        let pods = names.entry(namespace.clone()).or_default();
        pods.insert(pod.name_any().into());
    } else if let Some(pods) = names.get_mut(&namespace) {
        pods.remove(pod.name_any().as_str());
        if pods.is_empty() {
            names.remove(&namespace);
        }
    }
    (names.contains_key(&namespace) != before).then_some(namespace)
}

/// Returns whether a Pod opts in. The decision later considers whether the feature is available, so a changed configuration
/// does not require to read the Pods again.
pub(super) fn opts_in(pod: &StoredMetadata<Pod>) -> bool {
    let annotations = pod.annotations();
    !annotations.contains_key(names::MIRROR_POD)
        && Annotations::collect(annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .requested(FeatureSet::from_iter(Feature::ALL))
            .contains(Feature::PullSecret)
}
