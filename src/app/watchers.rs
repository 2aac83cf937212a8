//! The file of Watchers: a YAML list, whose items contain the fields of a Watcher custom resource about changes.
//!
//! `manifests watcher` reads it to register the Watchers at the API server. The component `watcher` reads it to send only
//! these changes. Invariant: an unknown key is an error, so that a misspelled key cannot extend the watched changes.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use policy::change::{Field, Registration, ResourceRule, Watcher};
use serde::Deserialize;
use serde_json::Value;
use watcher_types::{EventError, PathSegment};

#[cfg(test)]
mod tests;

/// Reason why the file is not a list of Watchers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchersError {
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: not valid YAML", file.display())]
    Yaml {
        file: PathBuf,
        source: Box<serde_saphyr::Error>,
    },
    #[error("{}: expected one list of Watchers", file.display())]
    Shape { file: PathBuf },
    #[error("{}: Watcher {number}", file.display())]
    Watcher {
        file: PathBuf,
        /// Position in the list, from 1.
        number: usize,
        source: serde_json::Error,
    },
    #[error("Watcher {name:?} in {} has a manager that cannot be part of a path", file.display())]
    Manager {
        file: PathBuf,
        name: String,
        source: EventError,
    },
}

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
pub(crate) fn read(file: &Path) -> Result<Vec<Registration>, WatchersError> {
    let text = std::fs::read_to_string(file).map_err(|source| WatchersError::Read {
        file: file.to_owned(),
        source,
    })?;
    parse(&text, file)
}

fn parse(text: &str, file: &Path) -> Result<Vec<Registration>, WatchersError> {
    let file = || file.to_owned();
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|source| WatchersError::Yaml {
            file: file(),
            source: Box::new(source),
        })?;
    let (Some(Value::Array(listed)), true) = (documents.pop(), documents.is_empty()) else {
        return Err(WatchersError::Shape { file: file() });
    };
    let mut registrations = Vec::with_capacity(listed.len());
    for (index, value) in listed.into_iter().enumerate() {
        let listed: Listed =
            serde_json::from_value(value).map_err(|source| WatchersError::Watcher {
                file: file(),
                number: index + 1,
                source,
            })?;
        let manager = PathSegment::parse(&listed.manager).map_err(|source| {
            let name = listed.name.clone();
            WatchersError::Manager {
                file: file(),
                name,
                source,
            }
        })?;
        registrations.push(listed.registration(manager));
    }
    Ok(registrations)
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
