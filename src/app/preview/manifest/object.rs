//! One object of a manifest: its type, and the Pod or the Namespace in it.

use api::json::{FieldPath, Step};
use policy::admission::Annotations;
use serde_json::{Map, Value};

use super::shape;
use super::{Described, Skipped, Source, Type, Workload, undescribed};
use crate::preview::document::Located;
use crate::preview::error::Errors;
use crate::preview::input::Input;
use crate::preview::near_miss::{Candidate, MetadataMap, is_candidate};

/// The string maps in the metadata of an object.
const MAPS: [&str; 2] = ["annotations", "labels"];

/// Problem of a field that is missing, null or empty.
const REQUIRED: &str = "required";

/// An object and its position.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub(super) node: &'a Located,
    pub(super) line: Option<u64>,
    pub(super) input: &'a Input,
}

impl<'a> Object<'a> {
    fn wrong(&self, subject: Option<&str>, path: &FieldPath, problem: &str) -> anyhow::Error {
        let place = self.input.at(self.node.line_at(path).or(self.line));
        let field = Some(path.to_string()).filter(|it| !it.is_empty());
        let at = [subject, field.as_deref()].into_iter().flatten();
        let at: String = at.flat_map(|it| [it, ": "]).collect();
        anyhow::anyhow!("{place}: {at}{problem}")
    }

    pub(super) fn r#type(&self, inherited: Option<Type<'a>>) -> anyhow::Result<Type<'a>> {
        if self.node.entries().is_none() {
            let problem = mismatch("a Kubernetes object", self.node);
            return Err(self.wrong(None, &FieldPath::default(), &problem));
        }
        if let (Some(inherited), None) = (inherited, self.node.get("kind")) {
            return Ok(inherited);
        }
        let kind = self.required_text(None, "kind")?;
        let version = self.required_text(None, "apiVersion")?;
        let group = version.split_once('/').map_or("", |(group, _)| group);
        Ok(Type {
            api_version: version,
            group,
            kind,
        })
    }

    /// Returns the names of a skipped object.
    pub(super) fn skipped(&self, it: Type<'_>) -> Skipped {
        let text = |path| self.node.at(path).and_then(Located::text);
        Skipped {
            api_version: it.api_version.to_owned(),
            kind: it.kind.to_owned(),
            namespace: text("metadata.namespace").unwrap_or_default().to_owned(),
            name: text("metadata.name").unwrap_or_default().to_owned(),
        }
    }

    /// Returns the items of a list; empty if there are none.
    pub(super) fn items(&self) -> anyhow::Result<&'a [Located]> {
        let Some(items) = self.node.get("items") else {
            return Ok(&[]);
        };
        items
            .items()
            .ok_or_else(|| self.wrong(None, &path_of("items"), &mismatch("a list", items)))
    }

    /// Returns the Pod at a path of the object, or all its errors.
    pub(super) fn workload(
        &self,
        kind: &str,
        path: &str,
        default_namespace: &str,
    ) -> Result<Workload, Errors> {
        let mut errors = Errors::default();
        let name = errors.keep(self.name(kind));
        let namespace = errors
            .keep(self.text(Some(kind), "metadata.namespace"))
            .flatten();
        let source = Source {
            kind: kind.to_owned(),
            namespace: namespace.unwrap_or(default_namespace).to_owned(),
            name: name.unwrap_or_default().to_owned(),
        };
        let subject = name.map_or_else(|| kind.to_owned(), |_| source.to_string());
        let spec = [path, "spec"].join(".");
        errors.keep(self.mapping(&subject, spec.trim_matches('.')));
        for (at, map) in above(path)
            .chain([path])
            .flat_map(|at| MAPS.map(|map| (at, map)))
        {
            errors.keep(self.strings(&subject, at, map));
        }
        let pod = self.node.at(path).map(Located::to_value);
        let faults = pod.iter().flat_map(shape::faults);
        let faults = faults.filter_map(|(inner, problem)| {
            let known = self.is_reported(path, &inner);
            let path = FieldPath([path_of(path).0, inner.0].concat());
            (!known).then(|| self.wrong(Some(&subject), &path, &problem))
        });
        errors.keep::<()>(Err(faults.collect::<Vec<_>>()));
        let pod = pod.map(|mut pod| {
            if !path.is_empty() {
                complete(&mut pod, &source.name, namespace);
            }
            pod
        });
        errors.none_or(pod.map(|pod| Workload {
            source,
            pod,
            place: self.input.at(self.line),
            template: path.to_owned(),
            on_pod: self.candidates(path),
            above_pod: above(path).flat_map(|it| self.candidates(it)).collect(),
        }))
    }

    /// Returns whether another check reports the type of a field of the Pod.
    fn is_reported(&self, template: &str, path: &FieldPath) -> bool {
        let key = |index: usize| match path.0.get(index) {
            Some(Step::Key(key)) => key.as_str(),
            _ => "",
        };
        let template = self.node.at(template);
        (key(0) == "metadata" && key(1) == "annotations")
            || (key(0) == "spec" && key(1).is_empty())
            || template.is_none_or(|it| it.entries().is_none())
    }

    /// Returns annotations and labels of the object at a path that may be intended for this webhook.
    fn candidates(&self, path: &str) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (map, name) in [MetadataMap::Annotations, MetadataMap::Labels]
            .into_iter()
            .zip(MAPS)
        {
            let map_path = path_of(path).key("metadata").key(name);
            let node = self.node.follow(&map_path);
            let entries = node.and_then(Located::entries).unwrap_or_default();
            let meant = entries.iter().filter(|(key, _)| is_candidate(key));
            candidates.extend(meant.map(|(key, value)| Candidate {
                map,
                key: key.clone(),
                value: value.text().unwrap_or_default().to_owned(),
                field: map_path.clone().key(key.as_str()),
                place: self.input.at(value.line().or(self.line)),
            }));
        }
        candidates
    }

    pub(super) fn namespace(&self) -> Result<(String, Described), Errors> {
        let mut errors = Errors::default();
        let name = errors.keep(self.name("Namespace"));
        let subject = format!("Namespace {}", name.unwrap_or_default());
        let [annotations, labels] =
            MAPS.map(|map| errors.keep(self.strings(subject.trim_end(), "", map)));
        let name = errors.none_or(name)?;
        let mut namespace = undescribed(name);
        namespace.annotations = Annotations::collect(annotations.unwrap_or_default());
        let labels = labels.unwrap_or_default().into_iter();
        namespace
            .labels
            .extend(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let candidates = self.candidates("");
        Ok((
            name.to_owned(),
            Described {
                namespace,
                candidates,
            },
        ))
    }

    /// Returns a mapping that each object of the kind must have.
    fn mapping(&self, subject: &str, path: &str) -> anyhow::Result<&'a Located> {
        let problem = match self.node.at(path) {
            Some(part) if part.entries().is_some() => return Ok(part),
            Some(part) => mismatch("a mapping", part),
            None => REQUIRED.to_owned(),
        };
        Err(self.wrong(Some(subject), &path_of(path), &problem))
    }

    fn name(&self, kind: &str) -> anyhow::Result<&'a str> {
        for path in ["metadata.name", "metadata.generateName"] {
            if let Some(name) = self.text(Some(kind), path)? {
                return Ok(name);
            }
        }
        Err(self.wrong(Some(kind), &path_of("metadata.name"), REQUIRED))
    }

    fn required_text(&self, subject: Option<&str>, path: &str) -> anyhow::Result<&'a str> {
        self.text(subject, path)?
            .ok_or_else(|| self.wrong(subject, &path_of(path), REQUIRED))
    }

    /// Returns a text. An empty text counts as absent.
    fn text(&self, subject: Option<&str>, path: &str) -> anyhow::Result<Option<&'a str>> {
        let Some(value) = self.node.at(path) else {
            return Ok(None);
        };
        match value.text() {
            Some(text) => Ok(Some(text).filter(|it| !it.is_empty())),
            None => Err(self.wrong(subject, &path_of(path), &mismatch("a string", value))),
        }
    }

    /// Returns annotations or labels of the object at a path. Kubernetes treats a null value as an empty text. Other values
    /// that are not texts are rejected, as in the API server.
    fn strings(
        &self,
        subject: &str,
        path: &str,
        map: &str,
    ) -> Result<Vec<(&'a str, &'a str)>, Errors> {
        let path = path_of(path).key("metadata").key(map);
        let node = self.node.follow(&path);
        let Some(node) = node.filter(|node| !node.is_null()) else {
            return Ok(Vec::new());
        };
        let Some(entries) = node.entries() else {
            let problem = mismatch("a mapping", node);
            return Err(self.wrong(Some(subject), &path, &problem).into());
        };
        let mut errors = Errors::default();
        let mut strings = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            match value.text() {
                Some(text) => strings.push((key.as_str(), text)),
                None if value.is_null() => strings.push((key.as_str(), "")),
                None => {
                    let problem = mismatch("a string", value);
                    let path = path.clone().key(key.as_str());
                    errors.keep::<()>(Err(self.wrong(Some(subject), &path, &problem)));
                }
            }
        }
        errors.none_or(Some(strings))
    }
}

fn mismatch(expected: &str, found: &Located) -> String {
    format!("expected {expected}, got {}", found.type_name())
}

/// Returns the paths above a path that may have separate metadata: the object and the templates in it.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let own = (!path.is_empty()).then_some("");
    own.into_iter().chain(path.strip_suffix(".spec.template"))
}

/// Converts a path of plain names with dots.
fn path_of(path: &str) -> FieldPath {
    let steps = path.split('.').filter(|key| !key.is_empty());
    FieldPath(steps.map(|key| Step::Key(key.to_owned())).collect())
}

/// Converts a template to the Pod that its controller would create, with the name of the owner.
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
