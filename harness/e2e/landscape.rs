//! Landscapes as data: `scenarios/*.yaml` read, checked, and turned into what a cluster needs.
//!
//! Invariant: a scenario file is data alone; where it runs is said by a [`Place`]. Whoever reads a bad file learns the
//! file, the line and what is wrong. Deliberately absent: the runner that judges a user's own clusters, and reports.

mod authority;

mod model;
mod objects;
mod schema;

pub use crate::matching::differences;
pub use model::{
    Authority, Content, Expectation, Image, Inside, Landscape, PullSecret, Registry,
    RegistryReference, Trust, Workload,
};
pub use objects::{Place, objects};
pub use schema::schema;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use clusters::workspace;

/// A landscape and the file that it came from.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub landscape: Landscape,
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`LandscapeError`] when it is not there, is no landscape, or names what is not there.
    pub fn load(file: &Path) -> Result<Self, LandscapeError> {
        let text = std::fs::read_to_string(file).map_err(LandscapeError::file(file))?;
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let landscape: Landscape =
            serde_saphyr::from_str_with_options(&text, options).map_err(|source| {
                LandscapeError::Shape {
                    place: place(file, source.location().map(|location| location.line())),
                    source: Box::new(source),
                }
            })?;
        let scenario = Self {
            file: file.to_owned(),
            landscape,
        };
        scenario.check(&text)?;
        Ok(scenario)
    }

    /// All files of `scenarios/`, by name.
    ///
    /// # Errors
    /// When the folder cannot be read or holds no scenario.
    pub fn files() -> Result<Vec<PathBuf>, LandscapeError> {
        let folder = workspace::root().join("scenarios");
        let entries = std::fs::read_dir(&folder).map_err(LandscapeError::file(&folder))?;
        let mut files: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(LandscapeError::None { folder });
        }
        Ok(files)
    }

    /// The first of them: what the demo shows.
    ///
    /// # Errors
    /// As [`Scenario::files`] and [`Scenario::load`].
    pub fn first() -> Result<Self, LandscapeError> {
        let files = Self::files()?;
        Self::load(&files[0])
    }

    /// The text of a workload's manifest.
    ///
    /// # Errors
    /// When the file is not there.
    pub fn manifest(&self, workload: &Workload) -> Result<String, LandscapeError> {
        let file = self.manifest_file(workload);
        std::fs::read_to_string(&file).map_err(LandscapeError::file(&file))
    }

    /// The file of a workload's manifest.
    #[must_use]
    pub fn manifest_file(&self, workload: &Workload) -> PathBuf {
        self.file
            .parent()
            .unwrap_or(Path::new(""))
            .join(&workload.manifest)
    }

    /// The file as people of this checkout know it.
    #[must_use]
    pub fn shown(&self) -> String {
        shown(&self.file)
    }

    fn check(&self, text: &str) -> Result<(), LandscapeError> {
        let odd = |key: &str, reason: String| LandscapeError::Content {
            place: place(&self.file, line_of(text, key)),
            reason,
        };
        let stem = self.file.file_stem().unwrap_or_default();
        if stem != self.landscape.name.as_str() {
            let reason = format!("the file is called {}", stem.display());
            return Err(odd("name:", reason));
        }
        let document = Value::Object(self.landscape.config.clone()).to_string();
        api::config::Document::parse(&document).map_err(|source| LandscapeError::Config {
            place: place(&self.file, line_of(text, "config:")),
            source,
        })?;
        for workload in &self.landscape.workloads {
            let file = self.manifest_file(workload);
            if !file.is_file() {
                let reason = format!("{} is not there", shown(&file));
                return Err(odd(&workload.manifest, reason));
            }
        }
        Ok(())
    }
}

/// Puts the registry's real host wherever `${registry}` stands.
#[must_use]
pub fn placed(fields: &Map<String, Value>, registry: &str) -> Value {
    let text = Value::Object(fields.clone()).to_string();
    // The host of a registry needs no escaping in JSON.
    let text = text.replace(model::REGISTRY, registry);
    serde_json::from_str(&text).unwrap_or_default()
}

/// A path below the workspace's root, as seen from there.
#[must_use]
pub fn shown(path: &Path) -> String {
    let path = path.strip_prefix(workspace::root()).unwrap_or(path);
    path.display().to_string()
}

fn place(file: &Path, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("{}:{line}", shown(file)),
        None => shown(file),
    }
}

/// Where a text stands first; the keys that are looked for stand at the start of a line or are unmistakable.
fn line_of(text: &str, wanted: &str) -> Option<u64> {
    let found = text.lines().position(|line| {
        line.starts_with(wanted) || (!wanted.ends_with(':') && line.contains(wanted))
    })?;
    u64::try_from(found + 1).ok()
}

/// A scenario file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LandscapeError {
    /// It cannot be read, or what was made for it not be written.
    #[error("{}: cannot be read or written", shown(path))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is none.
    #[error("{}: no scenario in it", shown(folder))]
    None {
        /// Where they are looked for.
        folder: PathBuf,
    },
    /// It is no YAML of the landscape's shape, which scenarios/schema.json describes.
    #[error("{place}: no landscape (its shape: scenarios/schema.json)")]
    Shape {
        /// File and line.
        place: String,
        /// What is wrong.
        source: Box<serde_saphyr::Error>,
    },
    /// A part contradicts another one or the files around it.
    #[error("{place}: {reason}")]
    Content {
        /// File and line.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The webhook would refuse its configuration document.
    #[error("{place}: `config` is no configuration document")]
    Config {
        /// File and line.
        place: String,
        /// What is wrong.
        source: api::config::DocumentError,
    },
    /// A certificate of its own could not be made.
    #[error("the authority {name} could not be made: {reason}")]
    Authority {
        /// Its common name.
        name: String,
        /// Why.
        reason: String,
    },
}

impl LandscapeError {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

#[cfg(test)]
mod tests;
