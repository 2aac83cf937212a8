//! Rules of a scenario file that the schema cannot express: its parts match, and every expectation can be checked.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use super::Scenario;
use crate::model::{Inside, Landscape, Workload};

impl Scenario {
    /// Checks rules that the schema cannot express.
    pub(super) fn check_references(&self) -> Result<()> {
        let Landscape { name, config, .. } = &self.landscape;
        let stem = self.file.file_stem().unwrap_or_default().to_string_lossy();
        if stem != name.as_str() {
            let what = format!("name is {name:?}, expected {stem:?}, the name of the file");
            return self.fail("name:", what);
        }
        let document = Value::Object(config.clone()).to_string();
        if let Err(error) = api::config::Document::parse(&document) {
            return self.fail("config:", format!("config: {error}"));
        }
        let runtimes: BTreeSet<&str> = self.runtimes().collect();
        if runtimes.is_empty() || runtimes.len() < self.landscape.runtimes.len() {
            let what = "runtimes: expected at least one, each with a name of its own";
            return self.fail("runtimes:", what);
        }
        let workloads = self.landscape.workloads.iter().map(|it| &it.runtimes);
        let events = self.landscape.events.iter().map(|it| &it.runtimes);
        for named in workloads.chain(events).flatten() {
            if !runtimes.contains(named.as_str()) {
                let known: Vec<&str> = self.runtimes().collect();
                let what = format!("runtime {named:?}: expected one of {known:?}");
                return self.fail(named, what);
            }
        }
        self.check_expectations()
    }

    /// Checks that every expectation can be checked.
    fn check_expectations(&self) -> Result<()> {
        let landscape = &self.landscape;
        for Workload {
            manifest, expect, ..
        } in &landscape.workloads
        {
            let Inside { variables, trust } = &expect.inside;
            let is_inside = trust.is_some() || !variables.is_empty();
            // Every Pod has metadata and a spec.
            let is_checked = expect.pod.values().any(|it| *it != json!({}));
            let what = if expect.unchanged != expect.pod.is_empty()
                || !expect.unchanged && !is_checked
            {
                "expect: either `pod` with fields, or `unchanged: true`"
            } else if is_inside && !expect.runs {
                "expect.inside: expected `runs: true`, because the run waits for containers only then"
            } else if trust.is_some() && landscape.trust.is_none() {
                "expect.inside.trust: expected `trust` of the landscape, whose certificates it has"
            } else {
                continue;
            };
            return self.fail(manifest, format!("{manifest}: {what}"));
        }
        if !landscape.watchers.is_empty() && landscape.control_plane.is_none() {
            let what = "watchers: expected `controlPlane`, because Watchers are on KCP";
            return self.fail("watchers:", what);
        }
        for event in &landscape.events {
            if event.change.patch.is_empty() {
                let what = "change.patch: expected at least one field";
                return self.fail(&event.name, format!("{}: {what}", event.name));
            }
        }
        Ok(())
    }
}
