//! The parsed JSON of a document, before required keys are checked.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::{ClusterTrustBundle, DocumentError, ImagePullSecret};
use crate::json::{FieldPath, describe};

/// The parsed JSON of a [`Document`](super::Document).
// Each key may be absent or null, as in the public decoder. Editors show the comments of the fields.
#[derive(Deserialize)]
#[cfg_attr(feature = "crds", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct Raw {
    /// Path or URL of the JSON Schema for editors. The webhook ignores it.
    #[serde(rename = "$schema")]
    #[cfg_attr(feature = "crds", schemars(with = "Option<String>"))]
    _schema: Option<serde_json::Value>,
    /// Registry host, with port if any, and the registry that replaces it, which may have a path. `docker.io` covers every
    /// reference that resolves to Docker Hub, such as `nginx`. Chains are resolved when the document is loaded; a cycle is
    /// invalid. Required; `{}` means that no registry is replaced.
    #[cfg_attr(feature = "crds", schemars(with = "Option<BTreeMap<String, String>>"))]
    pub(super) overrides: Option<Entries<String>>,
    /// ClusterTrustBundle that the feature `add-cluster-trust-bundle` mounts. The four keys are required together.
    pub(super) cluster_trust_bundle: Option<ClusterTrustBundle>,
    /// Namespace and the features that all its Pods get without an annotation. `all` means all available features.
    #[cfg_attr(
        feature = "crds",
        schemars(with = "Option<BTreeMap<String, Option<Vec<String>>>>")
    )]
    pub(super) namespace_features: Option<Entries<Option<Vec<String>>>>,
    /// Features that this cluster offers, by annotation key. If the list is empty, no Pod is changed.
    pub(super) available_features: Option<Vec<String>>,
    /// Environment variables that the feature `set-fips-mode` sets to `true`.
    pub(super) fips_variables: Option<Vec<String>>,
    /// Name of the pull Secret, and the Pods and namespaces that get it.
    pub(super) image_pull_secret: Option<ImagePullSecret>,
    /// Features that a Pod can opt out of with the annotation value `"false"`, independent of where it was opted in.
    pub(super) opt_out: Option<Vec<String>>,
}

/// Entries of a mapping in the order of the text, including duplicates.
pub(super) struct Entries<V>(Vec<(String, V)>);

impl Raw {
    /// Parses a text. Also returns the unsupported keys.
    pub(super) fn parse(text: &str) -> Result<(Self, Vec<FieldPath>), DocumentError> {
        let mut unknown = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let mut json = serde_json::Deserializer::from_str(text);
        let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
        let read = serde_ignored::deserialize(tracked, |path| unknown.push(FieldPath::from(&path)));
        let raw = read.and_then(|raw| json.end().map(|()| raw));
        let raw = raw.map_err(|error| DocumentError::Shape {
            // A syntax error has no field.
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
    /// Returns the entries, of which the last per key applies, and the keys that occur more than once.
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
