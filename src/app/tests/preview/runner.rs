//! Runs the binary in a new directory.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Configuration in which the registry rewrite of `replace.me`, the pull Secret and the landscape are available features.
pub(crate) const CONFIG: &str = r#"{
  "overrides": {"replace.me": "ghcr.io"},
  "availableFeatures": [
    "rt-cfg.kyma-project.io/alter-img-registry",
    "rt-cfg.kyma-project.io/add-img-pull-secret",
    "rt-cfg.kyma-project.io/set-landscape"
  ]
}"#;

/// A Pod that opts in to the registry rewrite.
pub(crate) const POD: &str = r#"apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    rt-cfg.kyma-project.io/alter-img-registry: "true"
spec:
  containers:
  - {name: main, image: "replace.me/x:1"}
"#;

/// Result of a run.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Returns the Pods of a JSON report.
    pub(crate) fn pods(&self) -> Vec<Value> {
        assert_eq!(self.code, 0, "{}", self.err);
        let report: Value = serde_json::from_str(&self.out).unwrap();
        report["pods"].as_array().unwrap().clone()
    }
}

/// A directory with a configuration and additional files.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap()).with("config.json", CONFIG)
    }

    pub(crate) fn with(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        fs::write(self.path().join(name), content).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs `preview --config config.json …`.
    pub(crate) fn preview(&self, arguments: &[&str]) -> Ran {
        self.run(
            &[&["preview", "--config", "config.json"], arguments].concat(),
            "",
        )
    }

    /// Runs the binary with any arguments and standard input.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = Command::new(env!("CARGO_BIN_EXE_runtime-bootstrapper"))
            .args(arguments)
            .current_dir(self.path())
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A process that does not read standard input closes the pipe.
        let _unread = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Returns the Pods of the JSON report for one manifest.
pub(crate) fn pods_of(manifest: &str) -> Vec<Value> {
    Folder::new()
        .with("m.yaml", manifest)
        .preview(&["--output", "json", "m.yaml"])
        .pods()
}
