//! Manifests: the Pods that they would create, and the Namespaces that they describe.
//!
//! Other kinds are counted and skipped. Unknown fields are kept. Deliberately absent: validation that neither a decision
//! nor its report requires, because the API server does it.

use std::collections::BTreeMap;
use std::fmt;

use policy::admission::{Annotations, Namespace};
use serde::Serialize;
use serde_json::Value;

use super::document;
use super::error::{Errors, Place};
use super::input::Input;
use super::near_miss::Candidate;

mod object;
mod shape;

use object::Object;

/// Label that the API server sets on each Namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The objects that were read so far.
#[derive(Debug)]
pub(super) struct Manifests {
    /// Objects that create Pods, in the order of reading.
    pub(super) workloads: Vec<Workload>,
    /// The described Namespaces. As with `kubectl apply`, the last description applies.
    pub(super) namespaces: BTreeMap<String, Described>,
    /// Objects that have no Pod template and are not Namespaces.
    pub(super) skipped: Vec<Skipped>,
    /// Namespace of objects without a namespace.
    default_namespace: String,
}

/// The Pod of one object.
#[derive(Debug)]
pub(super) struct Workload {
    /// The object.
    pub(super) source: Source,
    /// The object itself if it is a Pod, or the Pod that it creates.
    pub(super) pod: Value,
    /// Position of the object.
    pub(super) place: Place,
    /// Path of the template in the object; empty if it is a Pod.
    pub(super) template: String,
    /// Annotations and labels of the Pod that may be intended for this webhook.
    pub(super) on_pod: Vec<Candidate>,
    /// Such annotations and labels of the object above the template, which no Pod gets.
    pub(super) above_pod: Vec<Candidate>,
}

/// A Namespace that a manifest describes.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) namespace: Namespace,
    /// Annotations and labels that may be intended for this webhook.
    pub(super) candidates: Vec<Candidate>,
}

/// The object from which a Pod originates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Source {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A skipped object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Skipped {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Namespace in the manifest; empty if it is absent.
    pub(super) namespace: String,
    /// Name in the manifest; empty if it is absent.
    pub(super) name: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.namespace.as_str(), self.name.as_str()) {
            (_, "") => f.write_str("without a name"),
            ("", name) => f.write_str(name),
            (namespace, name) => write!(f, "{namespace}/{name}"),
        }
    }
}

/// API version and kind of an object.
#[derive(Clone, Copy)]
struct Type<'a> {
    api_version: &'a str,
    group: &'a str,
    kind: &'a str,
}

/// Processing of a kind.
enum Role {
    /// Path of the template from which the kind creates Pods; empty for a Pod itself.
    Makes(&'static str),
    Namespace,
    List,
    Other,
}

impl Role {
    fn of(it: Type<'_>) -> Self {
        match (it.group, it.kind) {
            ("", "Pod") => Self::Makes(""),
            ("", "PodTemplate") => Self::Makes("template"),
            ("", "ReplicationController")
            | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job") => Self::Makes("spec.template"),
            ("batch", "CronJob") => Self::Makes("spec.jobTemplate.spec.template"),
            ("", "Namespace") => Self::Namespace,
            ("", "List") => Self::List,
            (_, kind) => match kind.strip_suffix("List") {
                // The list kinds that `kubectl get --raw` prints: PodList, DeploymentList, …
                Some(kind) if !matches!(Self::of(Type { kind, ..it }), Self::Other) => Self::List,
                _ => Self::Other,
            },
        }
    }
}

impl Manifests {
    /// Creates an empty collection.
    pub(super) fn new(default_namespace: &str) -> Self {
        Self {
            workloads: Vec::new(),
            namespaces: BTreeMap::new(),
            skipped: Vec::new(),
            default_namespace: default_namespace.to_owned(),
        }
    }

    /// Adds the objects of an input. Errors are collected, and the other objects are read nevertheless.
    pub(super) fn read(&mut self, input: &Input) -> Result<(), Errors> {
        let mut errors = Errors::default();
        for document in document::documents(input).map_err(anyhow::Error::from)? {
            let document = Object {
                node: &document,
                line: document.line(),
                input,
            };
            errors.keep(self.add(document, None));
        }
        errors.none_or(Some(()))
    }

    fn add(&mut self, object: Object<'_>, inherited: Option<Type<'_>>) -> Result<(), Errors> {
        let it = object.r#type(inherited)?;
        match Role::of(it) {
            Role::Makes(path) => {
                let workload = object.workload(it.kind, path, &self.default_namespace)?;
                self.workloads.push(workload);
            }
            Role::Namespace => {
                let (name, namespace) = object.namespace()?;
                self.namespaces.insert(name, namespace);
            }
            Role::List => self.add_items(object, it)?,
            Role::Other => self.skipped.push(object.skipped(it)),
        }
        Ok(())
    }

    fn add_items(&mut self, list: Object<'_>, it: Type<'_>) -> Result<(), Errors> {
        // The items of a typed list need no kind.
        let inherited = it.kind.strip_suffix("List").filter(|kind| !kind.is_empty());
        let inherited = inherited.map(|kind| Type { kind, ..it });
        let mut errors = Errors::default();
        for item in list.items()? {
            let item = Object {
                node: item,
                line: item.line().or(list.line),
                ..list
            };
            errors.keep(self.add(item, inherited));
        }
        errors.none_or(Some(()))
    }
}

/// Returns a Namespace of which only the name is known. It counts as existing, because an offline run has no other information.
pub(super) fn undescribed(name: &str) -> Namespace {
    Namespace {
        annotations: Annotations::default(),
        labels: BTreeMap::from([(NAME_LABEL.to_owned(), name.to_owned())]),
    }
}
