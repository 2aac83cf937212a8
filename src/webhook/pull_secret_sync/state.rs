//! Observed state of the cluster, and the decision for one namespace. No I/O and no clock.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use api::names::{self, PULL_SECRET};
use api::{Feature, FeatureSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Preconditions;
use kube::runtime::watcher::Event;
use policy::admission::{Annotations, Namespace};
use policy::copies::{Action, Need, Observed, RemovalCause, SourcePresence, need, plan};

use crate::snapshot::{ActiveRevision, KnownNamespace, SecretContent, SnapshotStore};
use crate::stored::StoredMetadata;

use super::secret::{Digest, Origin, SecretState, SecretView};

/// A task in one namespace.
#[derive(Clone)]
pub(super) struct CopyTask {
    /// Name of the Secret.
    pub(super) secret: String,
    /// Whether the name is not the configured name, so that only Pods that contain it use the copy.
    pub(super) is_former: bool,
    pub(super) namespace: String,
    pub(super) action: CopyAction,
}

/// The name of the Secrets of one synchronization. The webhook always has the permissions for all three names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CopyName {
    /// The name in the configuration; without a configuration the name in the flag, under which copies are only revoked.
    #[default]
    Configured,
    /// The default name, if it is not the configured name.
    Default,
    /// The name in the flag, if it is neither the configured nor the default name.
    Flag,
}

impl CopyName {
    /// Returns the name of the watch of the Secrets in metrics and log messages.
    pub(super) fn watch(self) -> &'static str {
        match self {
            Self::Configured => "pull Secret copies",
            Self::Default => "pull Secret copies, default name",
            Self::Flag => "pull Secret copies, name in flag",
        }
    }
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
    pub(super) name: CopyName,
    active: Arc<ActiveRevision>,
    namespaces: Arc<HashMap<String, Arc<KnownNamespace>>>,
    /// Content of all copies, and its digest.
    source: Option<(Arc<SecretContent>, Digest)>,
    pub(super) copies: Copies,
    pods: Pods,
}

impl State {
    pub(super) fn new(product_namespace: String, name: CopyName) -> Self {
        Self {
            product_namespace,
            name,
            ..Self::default()
        }
    }

    /// Returns whether the copies have a name that is not the configured name.
    pub(super) fn is_former(&self) -> bool {
        self.name != CopyName::Configured
    }

    /// Returns the name of the Secrets; `None` if there is nothing to synchronize.
    pub(super) fn secret_name(&self) -> Option<&str> {
        let Some(configuration) = &self.active.configuration else {
            let observed = self.active.pull_secret.object.name();
            return observed.filter(|_| !self.is_former());
        };
        let configured: &str = &configuration.pull_secret().name;
        let flag: &str = &configuration.settings().pull_secret;
        match self.name {
            CopyName::Configured => Some(configured),
            CopyName::Default => Some(PULL_SECRET).filter(|it| *it != configured),
            CopyName::Flag => Some(flag).filter(|it| *it != configured && *it != PULL_SECRET),
        }
    }

    /// Returns the number of copies, without the Secrets of other clients and the source.
    pub(super) fn copy_count(&self) -> usize {
        let secrets = self.copies.found.iter();
        let is_copy = |namespace: &str, it: &SecretState| {
            it.origin != Origin::Foreign && namespace != self.product_namespace
        };
        secrets
            .filter(|(namespace, it)| is_copy(namespace, it))
            .count()
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
        let copies = &mut self.copies;
        match event {
            Event::Init => copies.listed.clear(),
            Event::InitApply(view) => {
                let (namespace, state) = SecretState::read(view);
                copies.listed.insert(namespace, state);
            }
            Event::InitDone => {
                copies.replace();
                return self.namespaces.keys().cloned().collect();
            }
            Event::Apply(view) => {
                let (namespace, state) = SecretState::read(view);
                if copies.put(&namespace, state) {
                    return self.affected(namespace);
                }
            }
            Event::Delete(view) => {
                let (namespace, state) = SecretState::read(view);
                let held = copies.found.get(&namespace);
                if held.is_some_and(|held| !state.is_older_than(held)) {
                    copies.found.remove(&namespace);
                    return self.affected(namespace);
                }
            }
        }
        Vec::new()
    }

    /// Returns the namespaces that are affected by a change of the Secret in a namespace. The source under the configured name is
    /// read from the snapshots, because it may belong to a revision that is not active.
    fn affected(&self, namespace: String) -> Vec<String> {
        if namespace != self.product_namespace {
            vec![namespace]
        } else if self.is_former() {
            self.namespaces.keys().cloned().collect()
        } else {
            Vec::new()
        }
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
        let secret = self.secret_name()?;
        let namespace = self.namespaces.get(name)?;
        let found = self.copies.found.get(name);
        let blocked = namespace.terminating || found.is_some_and(|it| it.terminating);
        if blocked || !self.copies.is_complete || name == self.product_namespace {
            return None;
        }
        let presence = self.presence();
        let need = self.need(name, &namespace.view, presence)?;
        let source = self.source.as_ref();
        let (source, digest) = source.map(|(it, digest)| (it, *digest)).unzip();
        let observed = found.map_or(Observed::Nothing, |it| it.observed(digest));
        let identity = || found.map(|it| it.identity.clone());
        let action = match plan(need, presence, observed) {
            Action::Keep => return None,
            Action::Apply if found.is_none() => CopyAction::Create(Arc::clone(source?)),
            Action::Apply => CopyAction::Update(Arc::clone(source?)),
            Action::Recreate => CopyAction::Recreate(identity()?, Arc::clone(source?)),
            Action::Remove(cause) => CopyAction::Remove(identity()?, cause),
            Action::ReportForeign => CopyAction::Report(identity()?.uid),
        };
        Some(CopyTask {
            secret: secret.to_owned(),
            is_former: self.is_former(),
            namespace: name.to_owned(),
            action,
        })
    }

    /// Returns whether the namespace needs a copy; `None` if required information is missing. An absent source revokes all
    /// copies, whether they are needed or not. Copies under a former name are not needed as soon as the configured source can be
    /// copied.
    fn need(&self, name: &str, namespace: &Namespace, presence: SourcePresence) -> Option<Need> {
        if presence == SourcePresence::Absent {
            return Some(Need::None);
        }
        let configuration = self.active.configuration.as_deref()?;
        if self.is_former() {
            return self.source.as_ref().map(|_| Need::None);
        }
        let need = |pods| need(configuration, name, namespace, pods);
        if self.pods.is_complete {
            return Some(need(self.pods.opted_in.contains_key(name)));
        }
        (need(true) == need(false)).then(|| need(false))
    }

    fn presence(&self) -> SourcePresence {
        let (is_present, is_absent) = if self.is_former() {
            let is_present = self.copies.found.contains_key(&self.product_namespace);
            (is_present, !is_present)
        } else {
            (self.source.is_some(), self.active.lacks_pull_secret())
        };
        match (is_present, is_absent) {
            (true, _) => SourcePresence::Present,
            (false, true) => SourcePresence::Absent,
            (false, false) => SourcePresence::Unknown,
        }
    }
}

/// The Secrets with one name by namespace, from the watch and from the writes of this process. A state
/// that is certainly older never replaces the stored state, because the response to a write may arrive before the events
/// that precede it.
#[derive(Debug, Default)]
pub(super) struct Copies {
    found: HashMap<String, SecretState>,
    listed: HashMap<String, SecretState>,
    is_complete: bool,
}

impl Copies {
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
