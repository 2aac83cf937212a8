//! One object of a manifest: what it says that it is, and the Pod or the Namespace in it.

use policy::admission::{Annotations, Namespace};
use serde_json::{Map, Value};

use super::{Source, Type, Workload, undescribed};
use crate::preview::PreviewError;
use crate::preview::document::Located;
use crate::preview::error::Problem;
use crate::preview::input::Input;

/// An object and where it is written.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub(super) node: &'a Located,
    pub(super) line: Option<u64>,
    pub(super) input: &'a Input,
}

impl<'a> Object<'a> {
    pub(super) fn wrong(&self, problem: Problem) -> PreviewError {
        self.wrong_at(self.line, problem)
    }

    fn wrong_at(&self, line: Option<u64>, problem: Problem) -> PreviewError {
        PreviewError::Manifest {
            place: self.input.at(line.or(self.line)),
            problem,
        }
    }

    pub(super) fn r#type(&self, inherited: Option<Type<'a>>) -> Result<Type<'a>, PreviewError> {
        if self.node.entries().is_none() {
            return Err(self.wrong(Problem::NotAnObject));
        }
        let text = |key| self.node.get(key).and_then(Located::text);
        if let (Some(inherited), None) = (inherited, text("kind")) {
            return Ok(inherited);
        }
        let kind = text("kind").ok_or_else(|| self.wrong(Problem::NoType("kind")))?;
        let version =
            text("apiVersion").ok_or_else(|| self.wrong(Problem::NoType("apiVersion")))?;
        let group = version.split_once('/').map_or("", |(group, _)| group);
        Ok(Type { group, kind })
    }

    pub(super) fn workload(&self, kind: &str, path: &str) -> Result<Workload, PreviewError> {
        let name = self.name(kind)?;
        let namespace = self.metadata_text("namespace")?.filter(|it| !it.is_empty());
        self.part(kind, name, [path, "spec"].join(".").trim_matches('.'))?;
        let template = Self {
            node: self.part(kind, name, path)?,
            ..*self
        };
        template.strings("annotations")?;
        template.strings("labels")?;
        let mut pod = template.node.to_value();
        if !path.is_empty() {
            complete(&mut pod, name, namespace);
        }
        Ok(Workload {
            source: Source {
                kind: kind.to_owned(),
                namespace: namespace.unwrap_or("default").to_owned(),
                name: name.to_owned(),
            },
            pod,
            place: self.input.at(self.line),
        })
    }

    pub(super) fn namespace(&self) -> Result<(String, Namespace), PreviewError> {
        let name = self.name("Namespace")?;
        let annotations = self.strings("annotations")?;
        let labels = self.strings("labels")?;
        let mut namespace = undescribed(name);
        namespace.annotations = Annotations::collect(annotations);
        namespace.labels.extend(
            labels
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        Ok((name.to_owned(), namespace))
    }

    /// A mapping that every object of the kind has.
    fn part(&self, kind: &str, name: &str, path: &str) -> Result<&'a Located, PreviewError> {
        self.node
            .at(path)
            .filter(|part| part.entries().is_some())
            .ok_or_else(|| {
                self.wrong(Problem::NoPart {
                    kind: kind.to_owned(),
                    name: name.to_owned(),
                    path: path.to_owned(),
                })
            })
    }

    fn name(&self, kind: &str) -> Result<&'a str, PreviewError> {
        for key in ["name", "generateName"] {
            if let Some(name) = self.metadata_text(key)?.filter(|it| !it.is_empty()) {
                return Ok(name);
            }
        }
        Err(self.wrong(Problem::NoName {
            kind: kind.to_owned(),
        }))
    }

    fn metadata_text(&self, key: &'static str) -> Result<Option<&'a str>, PreviewError> {
        let Some(value) = self.node.at("metadata").and_then(|it| it.get(key)) else {
            return Ok(None);
        };
        match value.text() {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong_at(value.line(), Problem::NameNotText(key))),
        }
    }

    /// Annotations or labels. A value that is null means an empty text to Kubernetes; every other one that is no text is
    /// refused by the API server, so it is here.
    fn strings(&self, map: &'static str) -> Result<Vec<(&'a str, &'a str)>, PreviewError> {
        let Some(node) = self.node.at("metadata").and_then(|it| it.get(map)) else {
            return Ok(Vec::new());
        };
        let entries = node
            .entries()
            .ok_or_else(|| self.wrong_at(node.line(), Problem::NotAMap(map)))?;
        entries
            .iter()
            .map(|(key, value)| match value.text() {
                Some(text) => Ok((key.as_str(), text)),
                None if value.is_null() => Ok((key.as_str(), "")),
                None => Err(self.wrong_at(
                    value.line(),
                    Problem::NotText {
                        map,
                        key: key.clone(),
                        found: value.type_name(),
                    },
                )),
            })
            .collect()
    }
}

/// Turns a template into the Pod that its controller would create, under the owner's name.
fn complete(template: &mut Value, name: &str, namespace: Option<&str>) {
    let Value::Object(pod) = template else { return };
    pod.insert("apiVersion".into(), "v1".into());
    pod.insert("kind".into(), "Pod".into());
    let metadata = pod.entry("metadata").or_insert(Value::Null);
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata["name"] = name.into();
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
}
