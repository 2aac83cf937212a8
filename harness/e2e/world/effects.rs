//! The features by the names that the scenarios use, and how one sees on a Pod that a feature was applied.
//!
//! Invariant: an effect is read from the Pod alone, never from what the webhook says that it did.

use std::str::FromStr;

use cucumber::Parameter;
use serde_json::Value;

/// A feature, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Parameter)]
#[param(
    name = "feature",
    regex = "registry rewrite|pull secret|trust bundle|FIPS mode|landscape|everything"
)]
pub struct Feature(api_feature::Key);

mod api_feature {
    /// `None` stands for all.
    pub(super) type Key = Option<api::Feature>;
}

/// Where a feature left a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Which feature.
    pub feature: api::Feature,
    /// Whether each container has its part of it.
    pub everywhere: bool,
    /// Whether any container has.
    pub somewhere: bool,
}

impl FromStr for Feature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known
            .map(|(_, key)| Self(*key))
            .ok_or_else(|| text.to_owned())
    }
}

impl Feature {
    /// The key of the annotation and of the configuration.
    #[must_use]
    pub fn key(self) -> &'static str {
        self.0.map_or(api::ALL_KEY, api::Feature::key)
    }

    /// The features that it stands for.
    #[must_use]
    pub fn each(self) -> Vec<api::Feature> {
        self.0
            .map_or_else(|| api::Feature::ALL.to_vec(), |one| vec![one])
    }
}

/// All effects on a Pod that asked for them with image hosts of the shared configuration.
#[must_use]
pub fn effects(pod: &Value) -> Vec<Effect> {
    api::Feature::ALL
        .into_iter()
        .map(|feature| {
            let seen: Vec<bool> = match feature {
                api::Feature::PullSecret => {
                    vec![pull_secrets(pod).contains(&api::names::PULL_SECRET)]
                }
                _ => started(pod)
                    .map(|container| touches(feature, container))
                    .collect(),
            };
            Effect {
                feature,
                everywhere: seen.iter().all(|&seen| seen),
                somewhere: seen.contains(&true),
            }
        })
        .collect()
}

fn touches(feature: api::Feature, container: &Value) -> bool {
    match feature {
        api::Feature::RegistryRewrite => container["image"]
            .as_str()
            .is_some_and(|image| REPLACEMENTS.iter().any(|host| image.starts_with(host))),
        api::Feature::TrustBundle => {
            items(&container["volumeMounts"]).any(|mount| mount["name"] == VOLUME)
        }
        api::Feature::FipsMode => variable(container, api::names::FIPS_VARIABLE) == Some("true"),
        api::Feature::Landscape => {
            variable(container, api::names::LANDSCAPE_VARIABLE) == Some(LANDSCAPE)
        }
        api::Feature::PullSecret => false,
    }
}

/// The containers that are started with the Pod, init containers first.
pub fn started(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["spec"]["initContainers"]).chain(items(&pod["spec"]["containers"]))
}

/// All containers, ephemeral ones last.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    started(pod).chain(items(&pod["spec"]["ephemeralContainers"]))
}

/// The items of a list, none when it is absent.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The value of a variable that has one.
#[must_use]
pub fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    items(&container["env"]).find(|variable| variable["name"] == name)?["value"].as_str()
}

/// The names of the pull Secrets.
#[must_use]
pub fn pull_secrets(pod: &Value) -> Vec<&str> {
    items(&pod["spec"]["imagePullSecrets"])
        .filter_map(|entry| entry["name"].as_str())
        .collect()
}

/// The landscape that the product is told.
pub const LANDSCAPE: &str = crate::admission::webhook::LANDSCAPE;
/// The volume of the shared configuration.
pub const VOLUME: &str = "rt-bootstrapper-certs";
/// What stands first in images that the shared configuration rewrote.
const REPLACEMENTS: [&str; 2] = ["registry.landscape.test:5000/", "mirror.test/"];
const NAMES: [(&str, api_feature::Key); 6] = [
    ("registry rewrite", Some(api::Feature::RegistryRewrite)),
    ("pull secret", Some(api::Feature::PullSecret)),
    ("trust bundle", Some(api::Feature::TrustBundle)),
    ("FIPS mode", Some(api::Feature::FipsMode)),
    ("landscape", Some(api::Feature::Landscape)),
    ("everything", None),
];
