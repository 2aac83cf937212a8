//! The annotations that the webhook uses, read from a map of any size without storing the map.

use std::fmt;

use api::{ALL_KEY, Feature, FeatureSet, names};
use partial_json::Scalar;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// The relevant annotations of a Pod or a Namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    enabled: FeatureSet,
    refused: FeatureSet,
    mentioned: FeatureSet,
    all: bool,
    marked: bool,
    mirror: bool,
}

impl Annotations {
    /// Reads the relevant annotations from a map of the caller, which is the Namespace snapshot.
    pub fn collect<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut annotations = Self::default();
        for (key, value) in entries {
            annotations.note(key, value);
        }
        annotations
    }

    /// Returns whether the marker is already set.
    #[must_use]
    pub fn marked(self) -> bool {
        self.marked
    }

    /// Returns whether the kubelet created this Pod from a file.
    pub(super) fn mirror(self) -> bool {
        self.mirror
    }

    /// Returns the features to which this map opts in. `all` selects the available features that the map does not
    /// mention itself.
    #[must_use]
    pub fn requested(self, available: FeatureSet) -> FeatureSet {
        if self.all {
            self.enabled.union(available.difference(self.mentioned))
        } else {
            self.enabled
        }
    }

    /// Returns the features with exactly the value `"false"`.
    #[must_use]
    pub fn refused(self) -> FeatureSet {
        self.refused
    }

    fn note(&mut self, key: &str, value: &str) {
        match key {
            ALL_KEY => self.all = value == "true",
            names::MARKER => self.marked = value == "true",
            names::MIRROR_POD => self.mirror = true,
            _ => {
                if let Some(feature) = Feature::from_key(key) {
                    self.mentioned.insert(feature);
                    match value {
                        "true" => self.enabled.insert(feature),
                        "false" => self.refused.insert(feature),
                        _ => {}
                    }
                }
            }
        }
    }
}

fn concerns_us(key: &str) -> bool {
    key.starts_with("rt-cfg.kyma-project.io/") || key == names::MARKER || key == names::MIRROR_POD
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationsVisitor)
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        let mut annotations = Annotations::default();
        while let Some(key) = map.next_key::<Scalar<'de>>()? {
            let key = key.text().unwrap_or_default();
            if concerns_us(key) {
                // A value that is not a string does not opt in.
                let value: Scalar<'de> = map.next_value()?;
                annotations.note(key, value.text().unwrap_or_default());
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(annotations)
    }
}
