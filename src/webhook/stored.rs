//! Metadata of stored objects, limited to the fields that are read.
//!
//! Clients can write almost any metadata, including managed fields and their times, and one unreadable object would fail
//! the list of all objects of its kind. Therefore an invalid time counts as missing. Only information that is derived from
//! managed fields is stored, because they take more memory than all other fields of most objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use api::names::SECRET_MANAGER;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use partial_json::{Summarize, Summary, Text};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// An object of kind `K` of which only metadata is requested. `L` determines the stored labels.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound(deserialize = "L: Deserialize<'de>"))]
pub(crate) struct StoredMetadata<K, L = IgnoredAny> {
    #[serde(default)]
    pub(crate) metadata: Metadata<L>,
    #[serde(skip)]
    kind: PhantomData<K>,
}

/// Metadata of an object.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Raw<L>", bound(deserialize = "L: Deserialize<'de>"))]
pub(crate) struct Metadata<L> {
    /// Name, namespace, UID, version and annotations. No other field is set.
    pub(crate) object: ObjectMeta,
    /// Labels have no limit except that of the object, so an object may have 100,000.
    pub(crate) labels: Option<L>,
    /// Whether the object is being deleted.
    pub(crate) terminating: bool,
    pub(crate) managed: ManagedFields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw<L> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<L>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(default)]
    managed_fields: Summary<ManagedFields>,
}

/// Information that is derived from the managed fields of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManagedFields {
    /// Time of the last write of a field manager of this product's annotations.
    pub(crate) annotated: Option<Timestamp>,
    /// Time of the last write of a field manager of labels.
    pub(crate) labelled: Option<Timestamp>,
    /// Whether the field manager of copies of the pull Secret manages fields of the object.
    pub(crate) has_copy_manager: bool,
}

/// One entry of the managed fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry<'a> {
    #[serde(borrow)]
    manager: Option<Text<'a>>,
    #[serde(borrow)]
    time: Option<Text<'a>>,
    fields_v1: Option<OwnedFields>,
}

#[derive(Deserialize)]
struct OwnedFields {
    #[serde(rename = "f:metadata")]
    metadata: Option<OwnedMetadata>,
}

#[derive(Default, Deserialize)]
struct OwnedMetadata {
    #[serde(rename = "f:annotations")]
    annotations: Option<OwnedKeys>,
    #[serde(rename = "f:labels")]
    labels: Option<OwnedKeys>,
}

/// The keys of a map that a field manager owns.
#[derive(Default)]
struct OwnedKeys {
    has_any: bool,
    has_ours: bool,
}

impl<'de> Summarize<'de> for ManagedFields {
    type Item = Entry<'de>;

    fn add(&mut self, entry: Entry<'de>) {
        let time = entry.time.and_then(|it| it.parse().ok());
        let owned = entry.fields_v1.and_then(|it| it.metadata);
        let OwnedMetadata {
            annotations,
            labels,
        } = owned.unwrap_or_default();
        if annotations.is_some_and(|it| it.has_ours) {
            self.annotated = self.annotated.max(time);
        }
        if labels.is_some_and(|it| it.has_any) {
            self.labelled = self.labelled.max(time);
        }
        self.has_copy_manager |= entry.manager.is_some_and(|it| &*it == SECRET_MANAGER);
    }
}

impl<'de> Deserialize<'de> for OwnedKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor;
        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = OwnedKeys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of owned fields")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnedKeys, A::Error> {
                let mut keys = OwnedKeys::default();
                while let Some((key, IgnoredAny)) = map.next_entry::<Text<'de>, _>()? {
                    keys.has_any = true;
                    keys.has_ours |= key.starts_with("f:rt-cfg.kyma-project.io/");
                }
                Ok(keys)
            }
        }
        deserializer.deserialize_map(KeysVisitor)
    }
}

impl<L> Default for Metadata<L> {
    fn default() -> Self {
        Self {
            object: ObjectMeta::default(),
            labels: None,
            terminating: false,
            managed: ManagedFields::default(),
        }
    }
}

impl<L> From<Raw<L>> for Metadata<L> {
    fn from(fields: Raw<L>) -> Self {
        Self {
            object: ObjectMeta {
                name: fields.name,
                namespace: fields.namespace,
                uid: fields.uid,
                resource_version: fields.resource_version,
                annotations: fields.annotations,
                ..ObjectMeta::default()
            },
            labels: fields.labels,
            terminating: fields.deletion_timestamp.is_some(),
            managed: fields.managed_fields.0,
        }
    }
}

impl<K: Resource<DynamicType = ()>, L> Resource for StoredMetadata<K, L> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn metadata_api() -> bool {
        true
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata.object
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata.object
    }
}

#[cfg(test)]
mod tests;
