//! What the webhook knows of its cluster: snapshots that watches write and reviews read.
//!
//! One writer for each part, any number of readers. A reader gets an `Arc` and never waits.

use std::collections::HashMap;
use std::sync::Arc;

use api::names::DOCKER_CONFIG_KEY;
use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Secret;
use policy::admission::{Configuration, Namespace, PullSecret, TrustBundlePresence};
use policy::image::{Keyring, KeyringError};
use tokio::sync::watch;

#[cfg(test)]
mod tests;

/// The snapshots. Clones share them.
#[derive(Clone)]
pub struct Knowledge {
    shared: Arc<Shared>,
}

struct Shared {
    configuration: ArcSwap<Option<Arc<Configuration>>>,
    namespaces: ArcSwap<HashMap<String, Arc<KnownNamespace>>>,
    pull_secret: ArcSwap<PullSecretSource>,
    trust_bundle: ArcSwap<TrustBundlePresence>,
    revision: watch::Sender<u64>,
}

/// A Namespace as the repairs and the decisions see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNamespace {
    /// What decisions read.
    pub view: Namespace,
    /// Whether it is on its way out: nothing can be created in it any more.
    pub terminating: bool,
}

/// The pull Secret in the product namespace.
#[derive(Clone, Default)]
pub struct PullSecretSource {
    /// What decisions read.
    pub known: PullSecret,
    /// What is copied; `None` while there is no usable source.
    pub content: Option<Arc<SecretContent>>,
}

/// The bytes of a pull Secret. Deliberately without `Debug`: they are credentials.
#[derive(PartialEq, Eq)]
pub struct SecretContent {
    /// The value of `.dockerconfigjson`.
    pub docker_config: Vec<u8>,
}

/// Why the Secret in the product namespace cannot be used. Never says anything of its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullSecretError {
    /// Another type than `kubernetes.io/dockerconfigjson`.
    #[error("the pull Secret has type {0:?}")]
    Type(Option<String>),
    /// The one key that matters is missing.
    #[error("the pull Secret has no key {DOCKER_CONFIG_KEY}")]
    NoKey,
    /// The value is no docker configuration.
    #[error("the pull Secret holds no docker configuration")]
    Content(#[source] KeyringError),
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                configuration: ArcSwap::default(),
                namespaces: ArcSwap::default(),
                pull_secret: ArcSwap::default(),
                trust_bundle: ArcSwap::default(),
                revision: watch::Sender::new(0),
            }),
        }
    }
}

impl Knowledge {
    /// The configuration in force; `None` until a valid document was seen.
    #[must_use]
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.shared.configuration.load().as_ref().clone()
    }

    /// The Namespace, if the snapshot has it.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<Arc<KnownNamespace>> {
        self.shared.namespaces.load().get(name).cloned()
    }

    /// Every Namespace of the snapshot.
    #[must_use]
    pub fn namespaces(&self) -> Arc<HashMap<String, Arc<KnownNamespace>>> {
        self.shared.namespaces.load_full()
    }

    /// The pull Secret of the product namespace.
    #[must_use]
    pub fn pull_secret(&self) -> Arc<PullSecretSource> {
        self.shared.pull_secret.load_full()
    }

    /// What is known of the configured ClusterTrustBundle.
    #[must_use]
    pub fn trust_bundle(&self) -> TrustBundlePresence {
        **self.shared.trust_bundle.load()
    }

    /// Grows with every change of any part.
    #[must_use]
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// A new configuration is in force.
    pub fn set_configuration(&self, configuration: Arc<Configuration>) {
        self.shared
            .configuration
            .store(Arc::new(Some(configuration)));
        self.grown();
    }

    /// The complete list of Namespaces.
    pub fn set_namespaces(&self, namespaces: HashMap<String, Arc<KnownNamespace>>) {
        self.shared.namespaces.store(Arc::new(namespaces));
        self.grown();
    }

    /// One Namespace came, changed or went (`None`). The map is copied; its entries are shared, so 10,000 Namespaces
    /// cost well under a millisecond, and readers never wait.
    pub fn set_namespace(&self, name: &str, namespace: Option<KnownNamespace>) {
        if self.namespace(name).as_deref() == namespace.as_ref() {
            return;
        }
        let mut namespaces = HashMap::clone(&self.shared.namespaces.load());
        match namespace {
            Some(namespace) => namespaces.insert(name.to_owned(), Arc::new(namespace)),
            None => namespaces.remove(name),
        };
        self.set_namespaces(namespaces);
    }

    /// The pull Secret came, changed or went.
    pub fn set_pull_secret(&self, source: PullSecretSource) {
        self.shared.pull_secret.store(Arc::new(source));
        self.grown();
    }

    /// The trust bundle came or went.
    pub fn set_trust_bundle(&self, presence: TrustBundlePresence) {
        self.shared.trust_bundle.store(Arc::new(presence));
        self.grown();
    }

    fn grown(&self) {
        self.shared.revision.send_modify(|revision| *revision += 1);
    }
}

impl PullSecretSource {
    /// Reads the Secret of the product namespace.
    ///
    /// # Errors
    /// [`PullSecretError`] if no kubelet could use it.
    pub fn read(secret: &Secret) -> Result<Self, PullSecretError> {
        if secret.type_.as_deref() != Some(api::names::DOCKER_CONFIG_TYPE) {
            return Err(PullSecretError::Type(secret.type_.clone()));
        }
        let bytes = secret
            .data
            .as_ref()
            .and_then(|data| data.get(DOCKER_CONFIG_KEY))
            .ok_or(PullSecretError::NoKey)?;
        let keyring = Keyring::parse(&bytes.0).map_err(PullSecretError::Content)?;
        Ok(Self {
            known: PullSecret::Known(keyring),
            content: Some(Arc::new(SecretContent {
                docker_config: bytes.0.clone(),
            })),
        })
    }
}
