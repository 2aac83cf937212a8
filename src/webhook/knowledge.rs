//! What the webhook knows of its cluster: snapshots that watches write and reviews read.
//!
//! One writer for each part, any number of readers. A reader gets an `Arc` and never waits. Configuration, pull Secret and
//! trust bundle are one value ([`InForce`]), so that a reader never sees halves of two versions. The pull Secret's copies
//! follow that value too, not the newest Secret: the entry in a Pod and the copy that it names are of one version.

use std::collections::HashMap;
use std::sync::Arc;

use api::names::DOCKER_CONFIG_KEY;
use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use policy::admission::{Configuration, Namespace, PullSecret};
use policy::image::{Keyring, KeyringError};
use tokio::sync::watch;

pub mod version;

#[cfg(test)]
mod tests;

use self::version::{InForce, KnownBundle, Newest, Requirements, Seen, Versions, Waiting};

/// The snapshots. Clones share them.
#[derive(Clone)]
pub struct Knowledge {
    shared: Arc<Shared>,
}

struct Shared {
    versions: ArcSwap<Versions>,
    namespaces: ArcSwap<HashMap<String, Arc<KnownNamespace>>>,
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
#[derive(Clone, Default, PartialEq)]
pub struct PullSecretSource {
    /// What decisions read.
    pub known: PullSecret,
    /// What is copied; `None` while there is no usable source.
    pub content: Option<Arc<SecretContent>>,
    /// Which Secret it is.
    pub seen: Seen,
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
    #[error("type: expected kubernetes.io/dockerconfigjson, got {0:?}")]
    Type(Option<String>),
    /// The one key that matters is missing.
    #[error("{DOCKER_CONFIG_KEY}: missing")]
    NoKey,
    /// The value is no docker configuration.
    #[error("{DOCKER_CONFIG_KEY}")]
    Content(#[source] KeyringError),
}

impl PullSecretError {
    /// Whether the kubelet fails every pull of a Pod that names the Secret. A Secret of another type or without the key
    /// is passed over by the kubelet.
    fn fails_pulls(&self) -> bool {
        match self {
            Self::Type(_) | Self::NoKey => false,
            Self::Content(error) => error.fails_pulls(),
        }
    }
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            shared: Arc::new(Shared {
                versions: ArcSwap::default(),
                namespaces: ArcSwap::default(),
                revision: watch::Sender::new(0),
            }),
        }
    }
}

impl Knowledge {
    /// Configuration, pull Secret and trust bundle of one version. Whoever reads more than one of them reads this.
    #[must_use]
    pub fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.shared.versions.load().in_force)
    }

    /// The newest parts, whether they are in force or not: they say what has to be watched.
    #[must_use]
    pub fn newest(&self) -> Newest {
        self.shared.versions.load().newest.clone()
    }

    /// Why the newest parts are not one version, if that is worth telling.
    #[must_use]
    pub fn waiting(&self) -> Option<Waiting> {
        self.shared.versions.load().told()
    }

    /// The configuration in force; `None` until a valid document was seen.
    #[must_use]
    pub fn configuration(&self) -> Option<Arc<Configuration>> {
        self.in_force().configuration.clone()
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

    /// Grows with every change of any part.
    #[must_use]
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.shared.revision.subscribe()
    }

    /// A configuration that requires nothing of the other parts.
    pub fn set_configuration(&self, configuration: Arc<Configuration>) {
        self.offer(configuration, Requirements::default());
    }

    /// A configuration came, and what its ConfigMap requires of the other parts.
    pub fn offer(&self, configuration: Arc<Configuration>, requirements: Requirements) {
        self.change(move |newest| {
            newest.configuration = Some(Arc::clone(&configuration));
            newest.requirements.clone_from(&requirements);
        });
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
        let source = Arc::new(source);
        self.change(move |newest| newest.pull_secret = Arc::clone(&source));
    }

    /// The trust bundle came, changed or went.
    pub fn set_trust_bundle(&self, bundle: impl Into<KnownBundle>) {
        let bundle = bundle.into();
        self.change(move |newest| newest.trust_bundle.clone_from(&bundle));
    }

    /// Watches may write at the same time; none of them overwrites what another one brought.
    fn change(&self, change: impl Fn(&mut Newest)) {
        let mut news = false;
        self.shared.versions.rcu(|before| {
            let after = before.after(&change);
            news = after.is_some();
            after.map_or_else(|| Arc::clone(before), Arc::new)
        });
        if news {
            self.grown();
        }
    }

    fn grown(&self) {
        self.shared.revision.send_modify(|revision| *revision += 1);
    }
}

impl PullSecretSource {
    /// No usable Secret.
    #[must_use]
    pub fn none(seen: Seen) -> Self {
        Self {
            seen,
            ..Self::default()
        }
    }

    /// A Secret that [`PullSecretSource::read`] could not use.
    ///
    /// Decisions tell the Secrets that fail a kubelet's pulls from those that a kubelet passes over.
    #[must_use]
    pub fn unusable(metadata: &ObjectMeta, error: &PullSecretError) -> Self {
        Self {
            known: if error.fails_pulls() {
                PullSecret::Invalid
            } else {
                PullSecret::Unknown
            },
            ..Self::none(Seen::of(metadata))
        }
    }

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
            seen: Seen::of(&secret.metadata),
        })
    }
}
