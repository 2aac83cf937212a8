//! Landscapes as data: `scenarios/*.yaml` read, checked, and turned into what a cluster needs.
//!
//! A scenario file is data alone; where it runs is an argument of [`objects()`]. The error of a bad file names the file and what is
//! wrong, and the line of what cannot be read.
//!
//! Certificate authorities of a landscape are generated on first use and kept below `target`, so that the bundle of a kept
//! cluster does not change from run to run. Their keys are not kept: nothing is signed with them.

mod model;

pub use crate::matching::differences;
pub use model::{Content, Landscape, Workload, schema};

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};

use self::model::{Authority, Trust};
use crate::admission::webhook::{config_map, pull_secret, trust_bundle};
use clusters::evidence::slug;
use clusters::workspace;
use testkit::pki;

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
    pub fn load(file: &Path) -> anyhow::Result<Self> {
        let text = read(file)?;
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let landscape = serde_saphyr::from_str_with_options(&text, options);
        let landscape: Landscape = landscape.map_err(|error| {
            let line = error.location().map_or(0, |location| location.line());
            let (file, shape) = (shown(file), "its shape: scenarios/schema.json");
            anyhow::Error::new(error).context(format!("{file}:{line}: no landscape ({shape})"))
        })?;
        let scenario = Self {
            file: file.to_owned(),
            landscape,
        };
        scenario.check().with_context(|| shown(file))?;
        Ok(scenario)
    }

    /// The first file of `scenarios/`, by name: what the demo shows.
    pub fn first() -> anyhow::Result<Self> {
        Self::load(files()?.first().context("scenarios/ has no YAML file")?)
    }

    /// The text of a workload's manifest.
    pub fn manifest(&self, workload: &Workload) -> anyhow::Result<String> {
        read(&self.manifest_file(workload))
    }

    /// The file of a workload's manifest.
    pub fn manifest_file(&self, workload: &Workload) -> PathBuf {
        self.file.with_file_name(&workload.manifest)
    }

    /// Whether no part contradicts another one or the files around it.
    fn check(&self) -> anyhow::Result<()> {
        let Landscape { name, config, .. } = &self.landscape;
        let stem = self.file.file_stem().unwrap_or_default();
        ensure!(stem == name.as_str(), "`name` is not the file's: {name}");
        let document = Value::Object(config.clone()).to_string();
        api::config::Document::parse(&document).context("`config` is no configuration document")?;
        for workload in &self.landscape.workloads {
            let file = self.manifest_file(workload);
            ensure!(file.is_file(), "{} does not exist", shown(&file));
        }
        Ok(())
    }
}

/// All files of `scenarios/`, by name.
fn files() -> anyhow::Result<Vec<PathBuf>> {
    let folder = workspace::root().join("scenarios");
    let entries = std::fs::read_dir(&folder).with_context(|| shown(&folder))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| shown(file))
}

/// Puts the registry's real host wherever `${registry}` stands.
pub fn placed(fields: &Map<String, Value>, registry: &str) -> Value {
    let text = Value::Object(fields.clone()).to_string();
    // The host of a registry needs no escaping in JSON.
    let text = text.replace(model::REGISTRY, registry);
    serde_json::from_str(&text).unwrap_or_default()
}

/// A path below the workspace's root, as seen from there.
pub fn shown(path: &Path) -> String {
    let path = path.strip_prefix(workspace::root()).unwrap_or(path);
    path.display().to_string()
}

/// The objects of a landscape in a namespace: of a runtime, as KIM would write them, or of KCP, where they are the sources. Namespace,
/// ConfigMap, pull Secret and ClusterTrustBundle, as a stream that can be applied, with host and port of the private registry and the
/// docker configuration that opens it.
pub fn objects(
    landscape: &Landscape,
    namespace: &str,
    registry: &str,
    opens: &str,
) -> anyhow::Result<String> {
    let document = placed(&landscape.config, registry);
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        config_map(namespace, &format!("{document:#}")),
    ];
    if let Some(secret) = &landscape.pull_secret {
        let mut object = pull_secret(namespace, &serde_json::from_str(opens)?);
        object["metadata"]["name"] = json!(secret.name);
        objects.push(object);
    }
    if let Some(trust) = &landscape.trust {
        objects.push(trust_bundle(
            &trust.name,
            trust.signer.as_deref(),
            &trust.pem()?,
        ));
    }
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}

impl Trust {
    /// The certificates of all authorities, PEM.
    pub fn pem(&self) -> anyhow::Result<String> {
        certificates(self, &workspace::state().join("authorities"))
    }
}

fn certificates(trust: &Trust, folder: &Path) -> anyhow::Result<String> {
    let certificate = |Authority::Generate(name): &Authority| {
        let generate = || Ok(pki::Authority::new(name)?.pem().to_owned());
        workspace::get_or_create(&folder.join(format!("{}.pem", slug(name))), generate)
    };
    trust.authorities.iter().map(certificate).collect()
}

#[cfg(test)]
mod tests;
