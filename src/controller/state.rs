//! What the controller has to remember over its own end, in a ConfigMap of ours on the control plane.
//!
//! Invariants:
//! - every write names the version that was read, so a leader that was deposed without knowing it writes nothing;
//! - a ConfigMap that does not say it is ours is neither believed nor written;
//! - a content that would not fit is not written at all: half a record would be believed.
//!
//! # Rights
//! A Role in the record's namespace:
//! ```yaml
//! - apiGroups: [""]
//!   resources: [configmaps]
//!   resourceNames: [rt-bootstrapper-signal-state]
//!   verbs: [get, update]
//! - apiGroups: [""]
//!   resources: [configmaps]
//!   verbs: [create]       # cannot be limited to a name
//! ```
//! Deliberately absent: what a record says (`policy::sync`), caching and retries.

use std::collections::BTreeMap;

use api::kcp::CONTROLLER_FIELD_MANAGER;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};

mod load;

#[cfg(test)]
mod tests;

pub use load::{RecallError, Recalled, load};

/// What the record of the signal is called.
pub const SIGNAL_STATE: &str = "rt-bootstrapper-signal-state";

/// The label by which a record is ours; its value is [`CONTROLLER_FIELD_MANAGER`].
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// What etcd takes is 1 MiB, metadata included; the rest is for what others attach to it.
const LARGEST: usize = 900 * 1024;

/// The data of a record.
pub type Data = BTreeMap<String, String>;

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Somebody else's ConfigMap has the name.
    #[error("ConfigMap {name}: label {MANAGED_BY}={CONTROLLER_FIELD_MANAGER} is missing")]
    Foreign {
        /// The ConfigMap.
        name: String,
    },
    /// It would not fit into a ConfigMap.
    #[error("state of {size} bytes exceeds {LARGEST} bytes")]
    Oversized {
        /// Of keys and values together.
        size: usize,
    },
    /// It is not as it was read any more.
    #[error("conflict: state written by another client")]
    Changed,
    /// Somebody deleted it since it was read; the next write creates it.
    #[error("state ConfigMap not found")]
    Deleted,
    /// The API server did not do it.
    #[error("failed to access the state ConfigMap")]
    Unavailable(#[source] kube::Error),
}

/// One record. Not shared: who reads it writes it.
pub struct StateStore {
    api: Api<ConfigMap>,
    name: String,
    namespace: String,
    /// As it was read or written last, without its data; `None` while there is none.
    stored: Option<ConfigMap>,
}

impl StateStore {
    /// Nothing is asked yet.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            stored: None,
        }
    }

    /// What the control plane holds now; `None` before the first write ever.
    ///
    /// # Errors
    /// [`StateError::Foreign`] and [`StateError::Unavailable`]. Neither means that there is none.
    pub async fn load(&mut self) -> Result<Option<Data>, StateError> {
        self.stored = None;
        let found = self.api.get_opt(&self.name).await;
        let Some(mut found) = found.map_err(StateError::Unavailable)? else {
            return Ok(None);
        };
        let labels = found.metadata.labels.as_ref();
        let manager = labels.and_then(|labels| labels.get(MANAGED_BY));
        if manager.is_none_or(|manager| manager != CONTROLLER_FIELD_MANAGER) {
            return Err(StateError::Foreign {
                name: self.name.clone(),
            });
        }
        let data = found.data.take().unwrap_or_default();
        self.stored = Some(trimmed(found));
        Ok(Some(data))
    }

    /// Replaces the data, labels and annotations of others stay. Without a [`StateStore::load`] that found one, it is
    /// created.
    ///
    /// # Errors
    /// [`StateError::Changed`]: read it again and decide anew; the others leave the record as it was, as far as anybody knows.
    pub async fn save(&mut self, data: Data) -> Result<(), StateError> {
        let size = data
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if size > LARGEST {
            return Err(StateError::Oversized { size });
        }
        let parameters = PostParams {
            field_manager: Some(CONTROLLER_FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let written = match &self.stored {
            None => self.api.create(&parameters, &self.first(data)).await,
            Some(stored) => {
                let next = ConfigMap {
                    data: Some(data),
                    ..stored.clone()
                };
                self.api.replace(&self.name, &parameters, &next).await
            }
        };
        match written {
            Ok(written) => {
                self.stored = Some(trimmed(written));
                Ok(())
            }
            // Created or written meanwhile.
            Err(kube::Error::Api(status)) if status.code == 409 => Err(StateError::Changed),
            Err(kube::Error::Api(status)) if status.code == 404 && self.stored.is_some() => {
                self.stored = None;
                Err(StateError::Deleted)
            }
            Err(error) => Err(StateError::Unavailable(error)),
        }
    }

    /// For Events.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        self.stored.as_ref().map_or_else(
            || ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("ConfigMap".to_owned()),
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectReference::default()
            },
            |stored| stored.object_ref(&()),
        )
    }

    fn first(&self, data: Data) -> ConfigMap {
        let label = (MANAGED_BY.to_owned(), CONTROLLER_FIELD_MANAGER.to_owned());
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(BTreeMap::from([label])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        }
    }
}

/// Managed fields may not be sent back, and whoever asked for the data has it.
fn trimmed(mut map: ConfigMap) -> ConfigMap {
    map.metadata.managed_fields = None;
    map.data = None;
    map
}
