//! The format of a scenario file.
//!
//! Invariant: an unknown key is an error, because a misspelled key would be an expectation that is never checked.
//! `scenarios/schema.json` is generated from these types and contains their documentation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A landscape: what is special about its clusters, workloads that run there, and how their Pods must come out.
///
/// `${NAME}` in `config`, `pullSecret`, `expect.pod` and in manifests stands for the host of the registry NAME of `registries`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Landscape {
    /// The landscape's name; its file is called the same.
    pub name: String,
    /// What is special about it, in a sentence or two.
    pub description: String,
    /// The registries of the landscape by the names that `${NAME}` refers to.
    #[serde(default)]
    pub registries: BTreeMap<String, Registry>,
    /// The configuration document, as the ConfigMap `rt-bootstrapper-config` holds it.
    pub config: Map<String, Value>,
    /// The ClusterTrustBundle.
    pub trust: Option<Trust>,
    /// The pull Secret in `kyma-system`.
    pub pull_secret: Option<PullSecret>,
    /// The control plane. Without it only the runtimes are looked at.
    pub control_plane: Option<ControlPlane>,
    /// The runtimes, in the order of the option `--skr`; one of the name `skr` if there is no list.
    #[serde(default = "one_runtime")]
    pub runtimes: Vec<Runtime>,
    /// What the watcher on each runtime reports: Watchers on KCP, which are created on local clusters, and compared with `--kcp`. They
    /// need `controlPlane`.
    #[serde(default)]
    pub watchers: Vec<Watcher>,
    /// What runs there.
    pub workloads: Vec<Workload>,
    /// Changes on runtimes, and whether the watcher must report them.
    #[serde(default)]
    pub events: Vec<EventCheck>,
}

/// A container image registry.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registry {
    /// Host and port, as in image references.
    pub host: String,
    /// The images that must be there. On local clusters they are put there; your own registry is not written to.
    #[serde(default)]
    pub images: Vec<Image>,
}

/// An image of a registry.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Repository and tag.
    pub name: String,
    /// What local clusters run under this name.
    #[serde(default)]
    pub content: Content,
}

/// What an image contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// The harness's own probe: it does not end, and has `printenv` and `cat`.
    #[default]
    Probe,
}

/// A ClusterTrustBundle.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Trust {
    /// Its name. One that belongs to a signer starts with the signer's name, `/` written as `:`.
    pub name: String,
    /// The signer's name, if it belongs to one.
    pub signer: Option<String>,
    /// Common names of the authorities that local clusters get. Those of your own clusters are not compared.
    pub authorities: Vec<String>,
}

/// A Secret of type `kubernetes.io/dockerconfigjson`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PullSecret {
    /// Its name.
    pub name: String,
    /// The hosts that it must have credentials for. Their values are never read from a scenario file.
    pub registries: Vec<String>,
}

/// The control plane.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlane {
    /// Who writes the configuration to the runtimes.
    pub mode: Mode,
}

/// Who writes the configuration to the runtimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// KIM, signaled by the controller.
    Signal,
    /// The controller itself, through a RuntimeBootstrapper.
    Direct,
}

/// A runtime.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runtime {
    /// Its name in this file and in reports.
    pub name: String,
}

/// What a watcher reports, and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Watcher {
    /// Namespace of the Watcher on KCP.
    pub namespace: String,
    /// Name of the Watcher on KCP.
    pub name: String,
    /// The operator on KCP that gets the events.
    pub manager: String,
    /// The part of an object whose change is reported.
    pub field: Field,
    /// The objects.
    pub resource: WatchedResource,
    /// Labels that an object must have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The part of an object whose change is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Field {
    /// `spec`; of kinds without one, everything but metadata and status.
    Spec,
    /// `status`.
    Status,
}

/// The objects that a Watcher selects.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WatchedResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version, or `*`.
    pub version: String,
    /// `resource` or `resource/subresource`.
    pub resource: String,
}

/// Something that makes Pods, created in a namespace of its own.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// A YAML stream, seen from the scenario file: one Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob or
    /// ReplicationController, and namespaced objects that it needs.
    pub manifest: String,
    /// Its name in reports; the manifest's file name if there is none.
    pub name: Option<String>,
    /// Names of the runtimes that it runs on; all if there is no list.
    #[serde(default)]
    pub runtimes: Vec<String>,
    /// The namespace that is created for it.
    #[serde(default)]
    pub namespace: Namespace,
    /// How its Pods must come out.
    pub expect: Expectation,
}

/// What a namespace has beside its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Namespace {
    /// Its annotations, for example `rt-cfg.kyma-project.io/all: "true"`.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Its labels, for example of Pod security.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// How a Pod must come out. Either `pod` or `unchanged` is required.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expectation {
    /// Whether every container must run and be ready, or have ended successfully. `false`: the Pod is only compared.
    #[serde(default = "yes")]
    pub runs: bool,
    /// Whether the Pod must be as the workload's template has it.
    #[serde(default)]
    pub unchanged: bool,
    /// Fields that the stored Pod must have. Others may be there; the items of a list come in this order, others may
    /// be between them. An empty list must have no items, or be absent.
    #[serde(default)]
    pub pod: Map<String, Value>,
    /// What its first container must see; needs `runs`. The image needs `printenv` and `cat`.
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
    /// A file that holds exactly the certificates of the ClusterTrustBundle; needs `trust` of the landscape.
    pub trust: Option<String>,
}

/// A change on a runtime, made in a namespace of its own.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventCheck {
    /// What changes, in a few words.
    pub name: String,
    /// Names of the runtimes that it is made on; all if there is no list.
    #[serde(default)]
    pub runtimes: Vec<String>,
    /// A file with one namespaced object, seen from the scenario file; it is created first.
    pub manifest: String,
    /// The change.
    pub change: Change,
    /// Whether the watcher must report it to KCP. `false` needs a call of the watcher during the run, as of a change that is reported.
    pub reported: bool,
}

/// A change of an object.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Change {
    /// The subresource that is written to; the object itself if it is absent.
    pub subresource: Option<Subresource>,
    /// A JSON merge patch.
    pub patch: Map<String, Value>,
}

/// A subresource of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Subresource {
    /// `status`.
    Status,
}

impl Landscape {
    /// Returns the mode of the control plane, if there is one.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.control_plane.as_ref().map(|it| it.mode)
    }
}

fn one_runtime() -> Vec<Runtime> {
    let name = "skr".to_owned();
    vec![Runtime { name }]
}

fn yes() -> bool {
    true
}

/// Returns the JSON Schema of scenario files, which is published as `scenarios/schema.json`.
pub fn schema() -> String {
    let generator = SchemaSettings::draft2020_12().into_generator();
    format!(
        "{:#}\n",
        generator.into_root_schema_for::<Landscape>().as_value()
    )
}
