//! What the JSON of a document gives, before what is required is asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::selector::null_is_default;
use super::{ClusterTrustBundle, DocumentError, ImagePullSecret, Inject, LabelSelector};
use crate::json::{FieldPath, describe};

/// Every key may be absent or null, as in the public decoder.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Raw {
    pub(super) overrides: Option<Entries<String>>,
    pub(super) cluster_trust_bundle: Option<RawTrustBundle>,
    pub(super) namespace_features: Option<Entries<Option<Vec<String>>>>,
    pub(super) available_features: Option<Vec<String>>,
    pub(super) fips_variables: Option<Vec<String>>,
    pub(super) image_pull_secret: Option<RawPullSecret>,
    pub(super) opt_out: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawTrustBundle {
    name: Option<String>,
    cert_write_path: Option<String>,
    volume_mount_path: Option<String>,
    volume_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct RawPullSecret {
    name: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    inject: Inject,
    namespace_selector: Option<LabelSelector>,
}

/// The entries of a mapping as they are written, duplicates among them.
pub(super) struct Entries<V>(Vec<(String, V)>);

impl Raw {
    /// Reads a text. Beside the result come the keys that mean nothing.
    pub(super) fn parse(text: &str) -> Result<(Self, Vec<FieldPath>), DocumentError> {
        let mut unknown = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let mut json = serde_json::Deserializer::from_str(text);
        let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
        let read = serde_ignored::deserialize(tracked, |path| unknown.push(FieldPath::from(&path)));
        let raw = read.and_then(|raw| json.end().map(|()| raw));
        let raw = raw.map_err(|error| DocumentError::Shape {
            // A fault of the syntax belongs to no field.
            path: if error.is_data() {
                FieldPath::from(&track.path())
            } else {
                FieldPath::default()
            },
            problem: describe(&error),
            line: error.line(),
            column: error.column(),
        })?;
        Ok((raw, unknown))
    }
}

impl<V> Entries<V> {
    /// The entries, of which the last of a key counts, and the keys that are written more than once.
    pub(super) fn unique(self) -> (BTreeMap<String, V>, Vec<String>) {
        let mut unique = BTreeMap::new();
        let mut duplicates = Vec::new();
        for (key, value) in self.0 {
            if unique.insert(key.clone(), value).is_some() && !duplicates.contains(&key) {
                duplicates.push(key);
            }
        }
        (unique, duplicates)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
            type Value = Entries<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<V>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

impl TryFrom<RawTrustBundle> for ClusterTrustBundle {
    type Error = DocumentError;

    fn try_from(raw: RawTrustBundle) -> Result<Self, DocumentError> {
        Ok(Self {
            name: required(raw.name, "name")?,
            cert_write_path: required(raw.cert_write_path, "certWritePath")?,
            volume_mount_path: required(raw.volume_mount_path, "volumeMountPath")?,
            volume_name: required(raw.volume_name, "volumeName")?,
        })
    }
}

impl TryFrom<RawPullSecret> for ImagePullSecret {
    type Error = DocumentError;

    fn try_from(raw: RawPullSecret) -> Result<Self, DocumentError> {
        if let Some(selector) = &raw.namespace_selector {
            let checked = selector.check();
            checked.map_err(|(index, cause)| DocumentError::Selector { index, cause })?;
        }
        Ok(Self {
            name: raw.name,
            inject: raw.inject,
            namespace_selector: raw.namespace_selector,
        })
    }
}

fn required(value: Option<String>, key: &'static str) -> Result<String, DocumentError> {
    value
        .filter(|value| !value.is_empty())
        .ok_or(DocumentError::TrustBundle(key))
}
