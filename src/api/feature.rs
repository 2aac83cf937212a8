//! The five features that a namespace or a Pod opts in to, and small sets of them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::suggest::{DidYouMean, closest};

/// Alias for all available features. Valid in `namespaceFeatures` and as an annotation, but not in `availableFeatures`.
pub const ALL_KEY: &str = "rt-cfg.kyma-project.io/all";

/// A feature that changes a Pod. The order is the order in which features are applied and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Registry hosts of images are replaced.
    RegistryRewrite,
    /// The pull Secret is added to `imagePullSecrets`.
    PullSecret,
    /// The ClusterTrustBundle is mounted.
    TrustBundle,
    /// FIPS variables are set.
    FipsMode,
    /// The name of the landscape is set as a variable.
    Landscape,
}

/// A key that is not a feature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown feature {:?}{}", .0, DidYouMean(Feature::like(.0).map(Feature::key)))]
pub struct UnknownFeature(pub String);

impl Feature {
    /// All features, in order.
    pub const ALL: [Self; 5] = [
        Self::RegistryRewrite,
        Self::PullSecret,
        Self::TrustBundle,
        Self::FipsMode,
        Self::Landscape,
    ];

    /// Returns the annotation key, which is also the configuration key.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::RegistryRewrite => "rt-cfg.kyma-project.io/alter-img-registry",
            Self::PullSecret => "rt-cfg.kyma-project.io/add-img-pull-secret",
            Self::TrustBundle => "rt-cfg.kyma-project.io/add-cluster-trust-bundle",
            Self::FipsMode => "rt-cfg.kyma-project.io/set-fips-mode",
            Self::Landscape => "rt-cfg.kyma-project.io/set-landscape",
        }
    }

    /// Returns the key without its domain, as used in reports, metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.key().rsplit('/').next().unwrap_or_default()
    }

    /// Returns the feature of an annotation or configuration key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.key() == key)
    }

    /// Returns the feature that was probably intended by an unknown key, which has a different spelling, or another domain
    /// or none.
    #[must_use]
    pub fn like(key: &str) -> Option<Self> {
        let (_, name) = key.rsplit_once('/').unwrap_or_default();
        let name = if name.is_empty() { key } else { name };
        let names = Self::ALL.map(Self::name);
        let name = closest(name, names)?;
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Feature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A set of features, stored in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureSet(u8);

impl FeatureSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Adds one feature.
    pub fn insert(&mut self, feature: Feature) {
        self.0 |= 1 << feature as u8;
    }

    /// Returns whether the feature is in the set.
    #[must_use]
    pub fn contains(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the features of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the features of both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the features of this set that are not in the other set.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The features, in order.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL
            .into_iter()
            .filter(move |it| self.contains(*it))
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<T: IntoIterator<Item = Feature>>(features: T) -> Self {
        let mut set = Self::EMPTY;
        for feature in features {
            set.insert(feature);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::without_domain("alter-img-registry", Some(Feature::RegistryRewrite))]
    #[case::spelling(
        "rt-cfg.kyma-project.io/alter-image-registry",
        Some(Feature::RegistryRewrite)
    )]
    #[case::case("rt-cfg.kyma-project.io/Set-FIPS-Mode", Some(Feature::FipsMode))]
    #[case::underscores(
        "rt-cfg.kyma-project.io/add_img_pull_secret",
        Some(Feature::PullSecret)
    )]
    #[case::another_domain("kyma-project.io/set-landscape", Some(Feature::Landscape))]
    #[case::another_name("rt-cfg.kyma-project.io/something", None)]
    #[case::empty("", None)]
    fn like_finds_the_feature_that_was_meant(#[case] key: &str, #[case] meant: Option<Feature>) {
        assert_eq!(Feature::like(key), meant);
    }
}
