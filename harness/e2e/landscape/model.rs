//! The shape of a scenario file.
//!
//! Invariant: an unknown key is an error, so that a typing mistake is not an expectation that nobody checks.
//! `scenarios/schema.json` is made from these types; their documentation is the schema's.
//! Several runtimes and objects of the control plane are not part of it yet: no runner exists for them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A landscape: what is special about its clusters, workloads that run there, and how their Pods must come out.
///
/// `${registry}` in `config`, in `pullSecret` and in `expect.pod` stands for host and port of the private registry.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Landscape {
    /// The landscape's name; its file is called the same.
    pub name: String,
    /// What is special about it, in a sentence or two.
    pub description: String,
    /// The private registry.
    #[serde(default)]
    pub registry: Registry,
    /// The webhook's configuration document, as the ConfigMap holds it.
    pub config: Map<String, Value>,
    /// The `ClusterTrustBundle`.
    pub trust: Option<Trust>,
    /// The pull Secret in the product's namespace.
    pub pull_secret: Option<PullSecret>,
    /// What runs there.
    pub workloads: Vec<Workload>,
}

/// The landscape's private registry. Where it is and who may pull is said by whoever runs the landscape.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registry {
    /// The images that it holds.
    #[serde(default)]
    pub images: Vec<Image>,
}

/// An image of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Repository and tag.
    pub name: String,
    /// What it contains.
    pub content: Content,
}

/// What an image contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// The harness's own probe: it stays for ever and can be asked from inside.
    Probe,
}

/// A `ClusterTrustBundle`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Trust {
    /// Its name. One that belongs to a signer starts with the signer's name, `/` written as `:`.
    pub name: String,
    /// The signer's name, if it belongs to one.
    pub signer: Option<String>,
    /// Whom it trusts.
    pub authorities: Vec<Authority>,
}

/// A trusted authority.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Authority {
    /// One of this common name, made on the machine that runs the landscape.
    Generate(String),
}

/// A Secret of type `kubernetes.io/dockerconfigjson`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullSecret {
    /// Its name.
    pub name: String,
    /// The registry that it opens.
    pub registry: RegistryReference,
}

/// A registry whose credentials are known where the landscape runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum RegistryReference {
    /// The landscape's private registry.
    #[serde(rename = "${registry}")]
    Private,
}

/// Something that makes Pods.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// A file with one object, seen from the scenario file.
    pub manifest: String,
    /// How its Pods must come out.
    pub expect: Expectation,
}

/// How a Pod must come out.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// Whether all its containers run.
    pub runs: bool,
    /// Fields that the stored Pod must have. Others may be there; the items of a list come in this order, others may
    /// stand between them.
    pub pod: Map<String, Value>,
    /// What its first container must see, asked from inside.
    #[serde(default)]
    pub inside: Inside,
}

/// What a container must see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inside {
    /// Environment variables and their values.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// A file that holds exactly the certificates of `trust`.
    pub trust: Option<String>,
}

/// Stands for host and port of the private registry.
pub(super) const REGISTRY: &str = "${registry}";

/// The JSON schema of scenario files, which `scenarios/schema.json` publishes.
pub fn schema() -> String {
    let generator = SchemaSettings::draft2020_12().into_generator();
    format!(
        "{:#}\n",
        generator.into_root_schema_for::<Landscape>().as_value()
    )
}
