//! The file of Watchers: a YAML list, whose items contain the fields of a Watcher custom resource about changes.
//!
//! `manifests watcher` reads it to register the Watchers at the API server. The component `watcher` reads it to send only
//! these changes. Invariant: an unknown key is an error, so that a misspelled key cannot extend the watched changes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use policy::change::{Field, Registration, ResourceRule, Watcher};
use serde::Deserialize;
use serde_json::Value;
use watcher_types::PathSegment;

#[cfg(test)]
mod tests;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    namespace: String,
    name: String,
    manager: String,
    resource: Watched,
    field: Aspect,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Watched {
    group: String,
    version: String,
    /// `resource` or `resource/subresource`.
    resource: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Aspect {
    Spec,
    Status,
}

/// Reads the Watchers of `file`.
///
/// # Errors
/// The file is not readable, not YAML, or not a list of Watchers.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Registration>> {
    let text = std::fs::read_to_string(file);
    parse(
        &text.with_context(|| format!("cannot read {}", file.display()))?,
        file,
    )
}

fn parse(text: &str, file: &Path) -> anyhow::Result<Vec<Registration>> {
    let file = file.display();
    let documents: Result<Vec<Value>, _> = serde_saphyr::from_multiple(text);
    let mut documents = documents.with_context(|| format!("{file}: not valid YAML"))?;
    let (Some(Value::Array(listed)), true) = (documents.pop(), documents.is_empty()) else {
        anyhow::bail!("{file}: expected one list of Watchers");
    };
    let registrations = listed.into_iter().zip(1..).map(|(value, number)| {
        let listed: Listed =
            serde_json::from_value(value).with_context(|| format!("{file}: Watcher {number}"))?;
        let manager = PathSegment::parse(&listed.manager).with_context(|| {
            let name = &listed.name;
            format!("Watcher {name:?} in {file} has a manager that cannot be part of a path")
        })?;
        Ok(listed.registration(manager))
    });
    registrations.collect()
}

impl Listed {
    fn registration(self, manager: PathSegment) -> Registration {
        let Watched {
            group,
            version,
            resource,
        } = &self.resource;
        Registration {
            namespace: self.namespace,
            name: self.name,
            watcher: Watcher {
                manager,
                field: match self.field {
                    Aspect::Spec => Field::Spec,
                    Aspect::Status => Field::Status,
                },
                resources: vec![ResourceRule::new(group, version, resource)],
            },
            labels: self.labels,
        }
    }
}
