//! What is known of the Secret and of the webhook entry: two watches of one object each.
//!
//! Invariant: a [`Sighting`] is `Unknown` only until the first complete list; afterwards the last known state stands,
//! however long a watch fails. Leader, replica and probe of one process share the two watches.
//! Deliberately absent: judging what was seen.

use std::sync::Arc;

use chassis::readiness::Condition;
use chassis::watch::keep_watching;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use tokio::sync::watch;

use super::{CertificateSettings, Material};

/// What is known of one object.
#[derive(Debug, Default)]
pub enum Sighting<T> {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// It is this.
    Present(Arc<T>),
}

/// A sighting that one writer keeps up to date. Clones share it.
#[derive(Debug)]
pub struct Cell<T>(watch::Sender<Sighting<T>>);

/// The Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSecret {
    /// Of this Secret, not of one of the same name after it.
    pub uid: Option<String>,
    /// Which state of it.
    pub resource_version: Option<String>,
    /// Its type; cannot be changed.
    pub kind: Option<String>,
    /// Whether its content cannot be changed.
    pub immutable: bool,
    /// The three keys; empty where one is missing.
    pub material: Material,
}

/// The webhook entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEntry {
    /// Which state of the configuration object.
    pub resource_version: Option<String>,
    /// Position of the entry in `webhooks`, in that state.
    pub index: usize,
    /// What API servers trust; empty where it is missing.
    pub ca_bundle: Vec<u8>,
}

impl<T> Clone for Sighting<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Absent => Self::Absent,
            Self::Present(seen) => Self::Present(Arc::clone(seen)),
        }
    }
}

impl<T> From<Option<T>> for Sighting<T> {
    fn from(seen: Option<T>) -> Self {
        seen.map_or(Self::Absent, |seen| Self::Present(Arc::new(seen)))
    }
}

impl<T> Clone for Cell<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Cell<T> {
    fn default() -> Self {
        Self(watch::Sender::new(Sighting::Unknown))
    }
}

impl<T> Cell<T> {
    /// What is known now.
    #[must_use]
    pub fn seen(&self) -> Sighting<T> {
        self.0.borrow().clone()
    }

    /// To be told of changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Sighting<T>> {
        self.0.subscribe()
    }

    /// This is what it is now.
    pub fn set(&self, seen: Sighting<T>) {
        self.0.send_replace(seen);
    }
}

impl StoredSecret {
    pub(super) fn read(secret: &Secret) -> Self {
        let value = |key| {
            let data = secret.data.as_ref();
            data.and_then(|data| data.get(key))
                .map_or_else(Vec::new, |value| value.0.clone())
        };
        Self {
            uid: secret.metadata.uid.clone(),
            resource_version: secret.metadata.resource_version.clone(),
            kind: secret.type_.clone(),
            immutable: secret.immutable == Some(true),
            material: Material {
                chain: value("tls.crt"),
                key: value("tls.key"),
                authorities: value("ca.crt"),
            },
        }
    }
}

impl LiveEntry {
    /// The entry of that name; `None` when the configuration has none.
    pub(super) fn read(configuration: &MutatingWebhookConfiguration, name: &str) -> Option<Self> {
        let mut entries = configuration.webhooks.iter().flatten().enumerate();
        let (index, entry) = entries.find(|(_, entry)| entry.name == name)?;
        let ca_bundle = entry.client_config.ca_bundle.as_ref();
        Some(Self {
            resource_version: configuration.metadata.resource_version.clone(),
            index,
            ca_bundle: ca_bundle.map_or_else(Vec::new, |bundle| bundle.0.clone()),
        })
    }
}

/// Watches the Secret for ever. The condition is not ready until it is known whether there is one.
///
/// Rights: `secrets`: `list`, `watch`, `resourceNames: [rt-bootstrapper-webhook-cert]`, in the product namespace.
pub async fn watch_secret(
    client: Client,
    settings: Arc<CertificateSettings>,
    condition: Condition,
    cell: Cell<StoredSecret>,
) {
    let api = Api::<Secret>::namespaced(client, &settings.namespace);
    let events = keep_watching(api, only(&settings.secret), condition);
    follow(events, |secret| Some(StoredSecret::read(secret)), &cell).await;
}

/// Watches the webhook entry for ever. The condition is not ready until it is known whether there is one.
///
/// Rights: `mutatingwebhookconfigurations`: `list`, `watch`,
/// `resourceNames: [rt-bootstrapper-mutating-webhook-configuration]`.
pub async fn watch_entry(
    client: Client,
    settings: Arc<CertificateSettings>,
    condition: Condition,
    cell: Cell<LiveEntry>,
) {
    let api = Api::<MutatingWebhookConfiguration>::all(client);
    let events = keep_watching(api, only(&settings.configuration), condition);
    let read = |configuration: &_| LiveEntry::read(configuration, &settings.entry);
    follow(events, read, &cell).await;
}

fn only(name: &str) -> Config {
    Config::default().fields(&format!("metadata.name={name}"))
}

/// Turns the events of a watch on one object into sightings.
async fn follow<K, T>(
    events: impl Stream<Item = Event<K>>,
    read: impl Fn(&K) -> Option<T>,
    cell: &Cell<T>,
) {
    let mut events = std::pin::pin!(events);
    let mut listed = None;
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed = None,
            Event::InitApply(object) => listed = read(&object),
            Event::InitDone => cell.set(listed.take().into()),
            Event::Apply(object) => cell.set(read(&object).into()),
            Event::Delete(_) => cell.set(Sighting::Absent),
        }
    }
}

#[cfg(test)]
mod tests;
