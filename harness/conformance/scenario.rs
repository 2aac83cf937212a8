//! Reads and validates scenario files. Errors contain the file, the line and the expected value.
//!
//! All files that a run needs are read here, before any request is sent.

mod rules;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Map, Value};

use crate::model::{EventCheck, Landscape, Workload};

/// A landscape, its file, and the manifests that it names.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Path of the scenario file.
    pub file: PathBuf,
    /// Content of the file, in which hosts replace the names of registries.
    pub landscape: Landscape,
    text: String,
    manifests: BTreeMap<String, Manifest>,
}

/// A manifest: the object that creates Pods (or the object of an event), and the objects that must exist before.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Text of the file, in which hosts replace the names of registries.
    pub text: String,
    /// The object that creates Pods, or the object of an event.
    pub object: Value,
    /// Other objects of the stream.
    pub others: Vec<Value>,
}

impl Scenario {
    /// Reads and validates a file.
    ///
    /// # Errors
    ///
    /// The file or a file that it names is not readable, is not YAML, or does not match the schema or another part of the file.
    pub fn load(file: &Path) -> Result<Self> {
        let text = read(file)?;
        let landscape = parse(file, &text)?;
        let mut scenario = Self {
            file: file.to_owned(),
            landscape,
            text,
            manifests: BTreeMap::new(),
        };
        scenario.check_references()?;
        scenario.place_registries()?;
        scenario.read_manifests()?;
        Ok(scenario)
    }

    /// Returns the manifest with this name in the scenario.
    ///
    /// # Errors
    ///
    /// The scenario does not name the manifest.
    pub fn manifest(&self, name: &str) -> Result<&Manifest> {
        let found = self.manifests.get(name);
        found.with_context(|| format!("{}: no manifest {name}", self.file.display()))
    }

    /// Returns the path of a manifest.
    pub fn manifest_file(&self, name: &str) -> PathBuf {
        self.file.with_file_name(name)
    }

    /// Returns the manifest as an argument of a bash command: its file, in which hosts replace the names of registries.
    pub fn manifest_argument(&self, name: &str) -> String {
        let file = self.manifest_file(name).display().to_string();
        let text = self.manifests.get(name).map_or("", |it| it.text.as_str());
        let registries = self.landscape.registries.iter();
        let placed = registries.filter(|(_, it)| text.contains(&it.host));
        let placed: Vec<String> = placed
            .map(|(name, it)| format!(" -e 's#${{{name}}}#{}#g'", it.host))
            .collect();
        let placed = placed.concat();
        if placed.is_empty() {
            file
        } else {
            format!("<(sed{placed} {file})")
        }
    }

    /// Returns the names of the runtimes, in order.
    pub fn runtimes(&self) -> impl Iterator<Item = &str> {
        self.landscape.runtimes.iter().map(|it| it.name.as_str())
    }

    /// Returns `file:line` for the first line that contains a text, but not as a part of a word.
    fn place(&self, text: &str) -> String {
        let is_word = |c: char| c.is_alphanumeric() || c == '-';
        let has = |line: &str| {
            line.match_indices(text).any(|(at, _)| {
                let (before, after) = (&line[..at], &line[at + text.len()..]);
                !(before.ends_with(is_word) && text.starts_with(is_word)
                    || after.starts_with(is_word) && text.ends_with(is_word))
            })
        };
        let line = self.text.lines().position(has);
        let file = self.file.display();
        line.map_or(file.to_string(), |line| format!("{file}:{}", line + 1))
    }

    fn fail<T>(&self, at: &str, what: impl std::fmt::Display) -> Result<T> {
        Err(anyhow!("{}: {what}", self.place(at)))
    }

    /// Replaces the names of registries with hosts in all fields that may contain them.
    fn place_registries(&mut self) -> Result<()> {
        let mut landscape = self.landscape.clone();
        landscape.config = self.placed_fields(&landscape.config, "config")?;
        let secret = landscape.pull_secret.iter_mut();
        for host in secret.flat_map(|it| &mut it.registries) {
            *host = self.placed(host, "pullSecret.registries")?;
        }
        for workload in &mut landscape.workloads {
            workload.expect.pod = self.placed_fields(&workload.expect.pod, "expect.pod")?;
        }
        self.landscape = landscape;
        Ok(())
    }

    fn placed_fields(&self, fields: &Map<String, Value>, what: &str) -> Result<Map<String, Value>> {
        let text = self.placed(&Value::Object(fields.clone()).to_string(), what)?;
        Ok(serde_json::from_str(&text)?)
    }

    fn placed(&self, text: &str, what: &str) -> Result<String> {
        let mut text = text.to_owned();
        for (name, registry) in &self.landscape.registries {
            let host = &registry.host;
            if !is_host(host) {
                let at = if host.is_empty() { "host:" } else { host };
                let what = format!("registries.{name}.host is {host:?}");
                return self.fail(at, format!("{what}, expected HOST or HOST:PORT"));
            }
            text = text.replace(&format!("${{{name}}}"), host);
        }
        let unknown = text
            .split_once("${")
            .and_then(|(_, rest)| rest.split_once('}'));
        if let Some((name, _)) = unknown {
            let known: Vec<&String> = self.landscape.registries.keys().collect();
            let at = format!("${{{name}}}");
            let what = format!("{what}: {at}: expected a name of `registries`: {known:?}");
            return self.fail(&at, what);
        }
        Ok(text)
    }

    fn read_manifests(&mut self) -> Result<()> {
        let workloads = self.landscape.workloads.iter();
        let workloads = workloads.map(|it| (it.manifest.clone(), true));
        let events = self.landscape.events.iter();
        let events = events.map(|it| (it.manifest.clone(), false));
        let named: Vec<(String, bool)> = workloads.chain(events).collect();
        for (name, is_workload) in named {
            let manifest = self.read_manifest(&name, is_workload);
            let manifest = manifest.with_context(|| self.place(&name))?;
            self.manifests.insert(name, manifest);
        }
        Ok(())
    }

    fn read_manifest(&self, name: &str, is_workload: bool) -> Result<Manifest> {
        let file = self.manifest_file(name);
        let expected = "expected a file, seen from the folder of the scenario file";
        ensure!(file.is_file(), "manifest {name} does not exist: {expected}");
        let text = self.placed(&read(&file)?, name)?;
        let documents = serde_saphyr::from_multiple::<Value>(&text);
        let documents =
            documents.map_err(|error| yaml_error(&file, "expected a YAML stream", error))?;
        let mut objects: Vec<Value> = documents.into_iter().filter(|it| !it.is_null()).collect();
        for object in &mut objects {
            for key in ["/apiVersion", "/kind", "/metadata/name"] {
                let is_text = object.pointer(key).is_some_and(Value::is_string);
                ensure!(is_text, "{}: {key}: expected a string", file.display());
            }
            // Objects are created in the namespace of the run instead.
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
        }
        let main = |object: &Value| !is_workload || template_path(object).is_some();
        let mut found = objects.iter().enumerate().filter(|(_, it)| main(it));
        let (first, second) = (found.next().map(|(at, _)| at), found.next());
        let at = first.with_context(|| format!("{}: expected one of {KINDS:?}", file.display()))?;
        if second.is_some() {
            let expected = "expected one object that makes Pods, found several";
            bail!("{}: {expected}", file.display());
        }
        let object = objects.remove(at);
        Ok(Manifest {
            text,
            object,
            others: objects,
        })
    }
}

impl Workload {
    /// Returns the name of the workload in reports.
    pub fn shown(&self) -> &str {
        let stem = Path::new(&self.manifest).file_stem();
        let stem = stem.and_then(|it| it.to_str());
        self.name.as_deref().or(stem).unwrap_or(&self.manifest)
    }

    /// Whether the workload is created on a runtime.
    pub fn is_on(&self, runtime: &str) -> bool {
        self.runtimes.is_empty() || self.runtimes.iter().any(|it| it == runtime)
    }
}

impl EventCheck {
    /// Whether the change is made on a runtime.
    pub fn is_on(&self, runtime: &str) -> bool {
        self.runtimes.is_empty() || self.runtimes.iter().any(|it| it == runtime)
    }
}

/// Returns the JSON pointer to a workload's template of Pods; empty for a Pod, `None` for an object that creates no Pods.
pub(crate) fn template_path(object: &Value) -> Option<&'static str> {
    match object["kind"].as_str()? {
        "Pod" => Some(""),
        "CronJob" => Some("/spec/jobTemplate/spec/template"),
        kind if KINDS.contains(&kind) => Some("/spec/template"),
        _ => None,
    }
}

/// Returns the template of a workload's Pods.
pub(crate) fn template(object: &Value) -> &Value {
    let path = template_path(object).unwrap_or_default();
    object.pointer(path).unwrap_or(&Value::Null)
}

fn parse(file: &Path, text: &str) -> Result<Landscape> {
    let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
    let parsed = serde_saphyr::from_str_with_options(text, options);
    parsed.map_err(|error| yaml_error(file, "expected a scenario (scenarios/schema.json)", error))
}

fn yaml_error(file: &Path, expected: &str, error: serde_saphyr::Error) -> anyhow::Error {
    let line = error.location().map_or(0, |location| location.line());
    let context = format!("{}:{line}: {expected}", file.display());
    anyhow::Error::new(error).context(context)
}

/// Reads a file with a limited size.
fn read(file: &Path) -> Result<String> {
    let shown = || file.display().to_string();
    let length = std::fs::metadata(file).with_context(shown)?.len();
    if length > LARGEST {
        bail!("{}: {length} bytes, expected at most {LARGEST}", shown());
    }
    std::fs::read_to_string(file).with_context(shown)
}

/// Whether a text consists only of characters of a host and a port, which need no escaping in JSON.
fn is_host(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
    !text.is_empty() && text.chars().all(plain)
}

/// Largest size of a scenario file and a manifest in bytes.
const LARGEST: u64 = 1 << 20;
/// Kinds that create Pods.
pub(crate) const KINDS: [&str; 8] = [
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "ReplicationController",
];

#[cfg(test)]
mod tests;
