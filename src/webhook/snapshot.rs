//! Snapshots of the cluster that watches write and reviews read. A reader gets an `Arc` and never waits.
//!
//! Configuration, pull Secret and trust bundle are one value (`ActiveRevision`), so that no reader gets parts of two
//! revisions. The copies of the pull Secret also use that value, and not the latest Secret.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::FeatureSet;
use api::names::DOCKER_CONFIG_KEY;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use policy::admission::{Configuration, Context, Namespace, PullSecret};
use policy::image::{Keyring, KeyringError};
use tokio::sync::watch;
use tokio::time::timeout;

mod revision;
#[cfg(test)]
mod tests;

pub use self::revision::ObservedObject;
use self::revision::Revisions;
pub(crate) use self::revision::bundle_name;
pub(crate) use self::revision::{ActiveRevision, LatestRevision, Requirements};

/// The snapshots. Clones share the snapshots.
#[derive(Clone, Default)]
pub struct SnapshotStore {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    revisions: ArcSwap<Revisions>,
    namespaces: ArcSwap<HashMap<String, Arc<KnownNamespace>>>,
    fallback_policy: AtomicBool,
    changes: watch::Sender<u64>,
}

/// A Namespace with the information for decisions and for the synchronization of the pull Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNamespace {
    /// UID of the Namespace.
    pub uid: Option<String>,
    /// Labels and annotations.
    pub view: Namespace,
    /// Whether the Namespace is being deleted, so that no object can be created in it.
    pub terminating: bool,
    /// Time of the last write of a field manager of this product's annotations, by the clock of the API server.
    pub annotated: Option<Timestamp>,
    /// Time of the last write of a field manager of the labels.
    pub labelled: Option<Timestamp>,
    /// Whether one of these times is earlier than the one that the field managers show now.
    pub has_earlier_times: bool,
    /// The changes that this process has observed.
    pub observed: ObservedChanges,
}

/// Changes that a process has observed, so that it knows the time of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedChanges {
    /// Whether this product's annotations changed.
    pub annotations: bool,
    /// Whether the labels changed.
    pub labels: bool,
}

/// The pull Secret of the product namespace.
#[derive(Clone, Default, PartialEq)]
pub struct PullSecretSource {
    /// The information for decisions.
    pub(crate) known: PullSecret,
    /// The content that is copied; `None` while there is no usable source.
    pub(crate) content: Option<Arc<SecretContent>>,
    /// Name and hash of the Secret.
    pub(crate) object: ObservedObject,
    /// Namespace of a Secret that is not usable.
    pub(crate) namespace: Option<String>,
}

/// The bytes of a pull Secret. It has no `Debug`, because they are credentials.
#[derive(PartialEq, Eq)]
pub struct SecretContent {
    /// The value of `.dockerconfigjson`.
    pub(crate) docker_config: Vec<u8>,
}

/// Reason why the Secret in the product namespace is not usable. It contains no content of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullSecretError {
    /// The type is not `kubernetes.io/dockerconfigjson`.
    #[error("type: expected kubernetes.io/dockerconfigjson, got {0:?}")]
    Type(Option<String>),
    /// The key is missing.
    #[error("{DOCKER_CONFIG_KEY}: missing")]
    NoKey,
    /// The value is not a valid docker configuration.
    #[error("{DOCKER_CONFIG_KEY}")]
    Content(#[source] KeyringError),
}

impl SnapshotStore {
    /// Returns configuration, pull Secret and trust bundle of one revision. A reader of several of them must call this once.
    pub(crate) fn active(&self) -> Arc<ActiveRevision> {
        Arc::clone(&self.shared.revisions.load().active)
    }

    /// Returns the latest objects, whether they are active or not. They determine the names of the watched objects.
    pub(crate) fn latest(&self) -> LatestRevision {
        self.shared.revisions.load().latest.clone()
    }

    /// Returns why the latest objects are not of one revision, if this must be reported.
    pub(crate) fn mismatch(&self) -> Option<String> {
        self.shared.revisions.load().mismatch.clone()
    }

    /// Returns the active configuration; `None` until a valid document was observed.
    pub(crate) fn configuration(&self) -> Option<Arc<Configuration>> {
        self.active().configuration.clone()
    }

    /// Waits until a configuration was observed, at most for `limit`.
    pub async fn configured(&self, limit: Duration) {
        let mut changes = self.changes();
        let configured =
            async { while self.configuration().is_none() && changes.changed().await.is_ok() {} };
        // An error: there is none within the limit.
        let _ = timeout(limit, configured).await;
    }

    /// The Namespace, if the snapshot has it.
    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<KnownNamespace>> {
        self.shared.namespaces.load().get(name).cloned()
    }

    /// Returns all Namespaces of the snapshot.
    pub(crate) fn namespaces(&self) -> Arc<HashMap<String, Arc<KnownNamespace>>> {
        self.shared.namespaces.load_full()
    }

    /// Returns whether the API server evaluates the fallback policy of the active revision.
    pub(crate) fn fallback_policy(&self) -> bool {
        self.shared.fallback_policy.load(Ordering::Relaxed)
    }

    /// Sets whether the API server evaluates the fallback policy of the active revision.
    pub(crate) fn set_fallback_policy(&self, is_active: bool) {
        self.shared
            .fallback_policy
            .store(is_active, Ordering::Relaxed);
    }

    /// Returns a counter that increases with each change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Sets a configuration without requirements for the other objects.
    pub fn set_configuration(&self, configuration: Arc<Configuration>) {
        self.set_revision(configuration, Requirements::default(), None);
    }

    /// Sets a configuration, the requirements of its ConfigMap for the other objects, and the ConfigMap if it exists.
    pub(crate) fn set_revision(
        &self,
        configuration: Arc<Configuration>,
        requirements: Requirements,
        document: Option<ObservedObject>,
    ) {
        self.change(move |latest| {
            latest.configuration = Some(Arc::clone(&configuration));
            latest.requirements.clone_from(&requirements);
            if let Some(document) = &document {
                latest.document.clone_from(document);
            }
        });
    }

    /// Sets the ConfigMap while there is no configuration, and its requirements for the other objects. A Secret that it requires is
    /// expected to come back, so its absence does not revoke the copies.
    pub(crate) fn set_unusable_document(
        &self,
        requirements: Requirements,
        document: ObservedObject,
    ) {
        self.change(move |latest| {
            latest.requirements.clone_from(&requirements);
            latest.document.clone_from(&document);
        });
    }

    /// Sets the complete list of Namespaces.
    pub fn set_namespaces(&self, mut namespaces: HashMap<String, Arc<KnownNamespace>>) {
        let before = self.namespaces();
        for (name, namespace) in &mut namespaces {
            if let Some(before) = before.get(name) {
                Arc::make_mut(namespace).keep_times_of(before);
            }
        }
        self.shared.namespaces.store(Arc::new(namespaces));
        self.changed();
    }

    /// Sets or removes one Namespace. The map is copied and its entries are shared, so that 10,000 Namespaces take much
    /// less than a millisecond, and readers never wait.
    pub fn set_namespace(&self, name: &str, mut namespace: Option<KnownNamespace>) {
        let before = self.namespace(name);
        if let Some((namespace, before)) = namespace.as_mut().zip(before.as_ref()) {
            namespace.keep_times_of(before);
        }
        if before.as_deref() == namespace.as_ref() {
            return;
        }
        let mut namespaces = HashMap::clone(&self.shared.namespaces.load());
        match namespace {
            Some(namespace) => namespaces.insert(name.to_owned(), Arc::new(namespace)),
            None => namespaces.remove(name),
        };
        self.shared.namespaces.store(Arc::new(namespaces));
        self.changed();
    }

    /// Sets the pull Secret.
    pub fn set_pull_secret(&self, source: PullSecretSource) {
        let source = Arc::new(source);
        self.change(move |latest| latest.pull_secret = Arc::clone(&source));
    }

    /// Sets the trust bundle.
    pub fn set_trust_bundle(&self, bundle: impl Into<ObservedObject>) {
        let bundle = bundle.into();
        self.change(move |latest| latest.trust_bundle.clone_from(&bundle));
    }

    /// Changes the latest objects. Watches may call this concurrently without overwriting each other's changes.
    fn change(&self, change: impl Fn(&mut LatestRevision)) {
        let mut changed = false;
        self.shared.revisions.rcu(|before| {
            let after = before.after(&change);
            changed = after.is_some();
            after.map_or_else(|| Arc::clone(before), Arc::new)
        });
        if changed {
            self.changed();
        }
    }

    fn changed(&self) {
        self.shared.changes.send_modify(|changes| *changes += 1);
    }
}

impl ActiveRevision {
    /// Returns whether decisions read the labels of Namespaces.
    pub(crate) fn reads_labels(&self) -> bool {
        let configuration = self.configuration.as_ref();
        configuration.is_some_and(|it| it.pull_secret().namespaces.is_some())
    }

    /// Returns the input of decisions about Pods of this Namespace; `None` without a configuration.
    pub(crate) fn context<'a>(
        &'a self,
        name: &str,
        namespace: Option<&'a KnownNamespace>,
        fallback_policy: bool,
    ) -> Option<Context<'a>> {
        Some(Context {
            configuration: self.configuration.as_deref()?,
            namespace: namespace.map(|it| &it.view),
            pull_secret: self.pull_secret.known_in(name),
            trust_bundle: self.trust_bundle,
            fallback_policy,
        })
    }
}

impl KnownNamespace {
    /// Returns the time since when the Namespace opts in to any of these features. If no field manager tells it, no Pod counts
    /// as created after it.
    pub(crate) fn opted_in(&self, available: FeatureSet) -> Option<Timestamp> {
        let opts_in = || !self.view.annotations.requested(available).is_empty();
        self.annotated
            .or_else(|| opts_in().then_some(Timestamp::MAX))
    }

    /// Keeps the earlier times of annotations and labels that are unchanged: a field manager that owns some of them moves the time
    /// with each write of another field.
    fn keep_times_of(&mut self, before: &Self) {
        // A Namespace that was deleted and created again has none.
        if self.uid != before.uid {
            return;
        }
        let shown = (self.annotated, self.labelled);
        self.observed = before.observed;
        if self.view.annotations == before.view.annotations {
            self.annotated = earliest(self.annotated, before.annotated);
        } else {
            self.observed.annotations = true;
        }
        if self.view.labels == before.view.labels {
            self.labelled = earliest(self.labelled, before.labelled);
        } else {
            self.observed.labels = true;
        }
        self.has_earlier_times = shown != (self.annotated, self.labelled);
    }
}

/// Returns the earlier time. A client may remove the managed fields, which leaves no time.
pub(crate) fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

impl PullSecretSource {
    /// Returns a source without a usable Secret.
    pub(crate) fn none(object: ObservedObject) -> Self {
        Self {
            object,
            ..Self::default()
        }
    }

    /// Returns a source for a Secret of that name that does not exist.
    #[must_use]
    pub fn absent(name: &str) -> Self {
        Self::none(ObservedObject::absent(name))
    }

    /// Returns a source for a Secret that [`PullSecretSource::read`] rejected. It is invalid for decisions if a kubelet
    /// fails each pull of a Pod that refers to it. A kubelet ignores a Secret of another type or without the key.
    #[must_use]
    pub fn unusable(metadata: &ObjectMeta, error: &PullSecretError) -> Self {
        Self {
            known: match error {
                PullSecretError::Content(error) if error.fails_pulls() => PullSecret::Invalid,
                _ => PullSecret::Unknown,
            },
            namespace: metadata.namespace.clone(),
            ..Self::none(ObservedObject::of(metadata))
        }
    }

    /// Returns the state of the Secret for Pods of a Namespace. Pods of other Namespaces use copies, which an invalid source does
    /// not replace.
    pub(crate) fn known_in(&self, namespace: &str) -> &PullSecret {
        static COPIED: PullSecret = PullSecret::Unknown;
        let is_other = || self.namespace.as_ref().is_some_and(|it| it != namespace);
        match &self.known {
            PullSecret::Invalid if is_other() => &COPIED,
            known => known,
        }
    }

    /// Reads the Secret of the product namespace.
    ///
    /// # Errors
    /// [`PullSecretError`] if a kubelet could not use it.
    pub fn read(secret: &Secret) -> Result<Self, PullSecretError> {
        if secret.type_.as_deref() != Some(api::names::DOCKER_CONFIG_TYPE) {
            return Err(PullSecretError::Type(secret.type_.clone()));
        }
        let data = secret.data.as_ref();
        let bytes = data.and_then(|data| data.get(DOCKER_CONFIG_KEY));
        let docker_config = bytes.ok_or(PullSecretError::NoKey)?.0.clone();
        let keyring = Keyring::parse(&docker_config).map_err(PullSecretError::Content)?;
        Ok(Self {
            known: PullSecret::Known(keyring),
            object: ObservedObject::of(&secret.metadata).with_content(&docker_config),
            content: Some(Arc::new(SecretContent { docker_config })),
            namespace: None,
        })
    }
}
