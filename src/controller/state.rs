//! State that the controller persists in a ConfigMap on KCP.
//!
//! Invariants:
//! - every write contains the resource version that was read, so a replica that lost leadership without detecting it
//!   does not overwrite the state;
//! - a ConfigMap without the label of the controller is neither used nor written;
//! - data that exceeds the limit is rejected, not truncated.
//!
//! Permissions: `deploy/controller/rbac-common.yaml` and `rbac-direct.yaml`.
//!
//! Not in here: the meaning of the data (`policy::sync`), caching and retries.

use std::collections::BTreeMap;

use api::kcp::CONTROLLER_FIELD_MANAGER;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource as _};

use crate::requests::{MANAGED_BY, own_label, posting};

mod load;

#[cfg(test)]
mod tests;

pub use load::{LoadError, LoadedState, load};

/// Name of the state ConfigMap of the controller `signal`.
pub const SIGNAL_STATE: &str = "rt-bootstrapper-signal-state";

/// Maximum size of keys and values in bytes. The limit of etcd is 1 MiB, including metadata. The remaining space is
/// for annotations and labels of other clients.
const MAX_SIZE: usize = 900 * 1024;

/// The data of a state ConfigMap.
pub type Data = BTreeMap<String, String>;

/// Reason why the state cannot be loaded or saved.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A ConfigMap with the name exists and does not belong to the controller.
    #[error("ConfigMap {name}: label {MANAGED_BY}={CONTROLLER_FIELD_MANAGER} is missing")]
    NotOwned {
        /// Name of the ConfigMap.
        name: String,
    },
    /// The data exceeds the limit of a ConfigMap.
    #[error("state of {size} bytes exceeds {MAX_SIZE} bytes")]
    Oversized {
        /// Size of keys and values in bytes.
        size: usize,
    },
    /// Another client wrote the ConfigMap since it was read.
    #[error("conflict: state written by another client")]
    Changed,
    /// Another client deleted the ConfigMap since it was read. The next write creates it.
    #[error("state ConfigMap not found")]
    Deleted,
    /// The request failed.
    #[error("failed to access the state ConfigMap")]
    Unavailable(#[source] kube::Error),
}

/// One state ConfigMap. It has one user, which reads and writes it.
pub struct StateStore {
    api: Api<ConfigMap>,
    name: String,
    namespace: String,
    /// The ConfigMap as last read or written, without its data; `None` if it does not exist.
    stored: Option<ConfigMap>,
}

impl StateStore {
    /// Creates the store. No request is sent.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            stored: None,
        }
    }

    /// Reads the data from KCP; `None` if the ConfigMap does not exist.
    ///
    /// # Errors
    /// [`StateError::NotOwned`] and [`StateError::Unavailable`]. Neither means that the ConfigMap does not exist.
    pub async fn load(&mut self) -> Result<Option<Data>, StateError> {
        self.stored = None;
        let found = self.api.get_opt(&self.name).await;
        let Some(mut found) = found.map_err(StateError::Unavailable)? else {
            return Ok(None);
        };
        let labels = found.metadata.labels.as_ref();
        let manager = labels.and_then(|labels| labels.get(MANAGED_BY));
        if manager.is_none_or(|manager| manager != CONTROLLER_FIELD_MANAGER) {
            return Err(StateError::NotOwned {
                name: self.name.clone(),
            });
        }
        let data = found.data.take().unwrap_or_default();
        self.stored = Some(trimmed(found));
        Ok(Some(data))
    }

    /// Replaces the data, and keeps labels and annotations of other clients. Creates the ConfigMap if the last
    /// [`StateStore::load`] found none.
    ///
    /// # Errors
    /// After [`StateError::Changed`] the caller has to load and decide again. After the other errors the ConfigMap is
    /// presumably unchanged.
    pub async fn save(&mut self, data: Data) -> Result<(), StateError> {
        let size = data
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if size > MAX_SIZE {
            return Err(StateError::Oversized { size });
        }
        let parameters = posting();
        let written = match self.stored.clone() {
            None => {
                let new = self.new_config_map(data);
                self.api.create(&parameters, &new).await
            }
            Some(mut next) => {
                next.data = Some(data);
                self.api.replace(&self.name, &parameters, &next).await
            }
        };
        match written {
            Ok(written) => {
                self.stored = Some(trimmed(written));
                Ok(())
            }
            // Another client created or wrote the ConfigMap.
            Err(kube::Error::Api(status)) if status.code == 409 => Err(StateError::Changed),
            Err(kube::Error::Api(status)) if status.code == 404 && self.stored.is_some() => {
                self.stored = None;
                Err(StateError::Deleted)
            }
            Err(error) => Err(StateError::Unavailable(error)),
        }
    }

    /// Returns the reference to the ConfigMap, for Events.
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

    fn new_config_map(&self, data: Data) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(BTreeMap::from([own_label()])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        }
    }
}

/// Removes the data, which the caller owns, and managed fields, which must not be sent back.
fn trimmed(mut map: ConfigMap) -> ConfigMap {
    map.metadata.managed_fields = None;
    map.data = None;
    map
}
