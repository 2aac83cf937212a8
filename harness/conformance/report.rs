//! What a run found, and its reports: on the console, as JUnit, as JSON, as one HTML page.
//!
//! Invariant: nothing of a Secret gets here; checks put in what they compared, and Secrets are compared by the hosts that they
//! have credentials for.

mod console;
mod html;
mod junit;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use console::line;

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// What is special about the landscape.
    pub description: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Version of this program.
    pub version: String,
    /// The clusters, the control plane first.
    pub clusters: Vec<ClusterReport>,
    /// The checks in the order in which they ended.
    pub checks: Vec<Check>,
    /// Pods as their template has them and as they were stored.
    pub pods: Vec<PodReport>,
    /// What happened when on KCP, as its objects say.
    pub timeline: Vec<Moment>,
}

/// A cluster of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// The runtime's name in the scenario, or `kcp`.
    pub name: String,
    /// Version of its API server.
    pub kubernetes: String,
    /// Image and version of what admits Pods there, if it is known.
    pub webhook: Option<String>,
}

/// One check.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The cluster.
    pub cluster: String,
    /// What is checked, as a statement.
    pub title: String,
    /// Whether any implementation can be checked so.
    pub family: Family,
    /// What came out.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Seconds from the run's begin to the end of the check.
    pub at: f64,
}

/// What a check looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Family {
    /// Objects of the cluster: any implementation can be checked.
    Contract,
    /// Metrics and version of this project's components.
    Metrics,
}

/// What came out of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum Outcome {
    /// It is as expected.
    Passed,
    /// It is not as expected.
    Failed(Box<Failure>),
    /// It was not checked.
    #[serde(rename_all = "camelCase")]
    NotRun {
        /// Why.
        reason: String,
    },
}

/// Why a check failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// The object.
    pub location: String,
    /// The likely cause.
    pub cause: String,
    /// The next command to type.
    pub next: String,
}

/// A Pod as its template has it and as it was stored, without what every Pod gets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// The cluster.
    pub cluster: String,
    /// The workload.
    pub workload: String,
    /// Kind of the workload.
    pub kind: String,
    /// Fields of the template.
    pub template: Value,
    /// The same fields of the stored Pod.
    pub pod: Value,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// When, RFC 3339 in UTC.
    pub time: String,
    /// The cluster.
    pub cluster: String,
    /// What.
    pub what: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every check passed.
    Conforms,
    /// A check failed, or could not be run.
    Differs,
}

impl Outcome {
    /// A failure at an object: what was expected and what was found, the likely cause and the next command to type.
    pub(crate) fn failed(
        location: impl Into<String>,
        (expected, found): (impl Into<String>, impl Into<String>),
        (cause, next): (impl Into<String>, impl Into<String>),
    ) -> Self {
        Self::Failed(Box::new(Failure {
            expected: expected.into(),
            found: found.into(),
            location: location.into(),
            cause: cause.into(),
            next: next.into(),
        }))
    }

    pub(crate) fn not_run(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::NotRun { reason }
    }
}

impl Report {
    /// How the run ended. A check that was not run has shown nothing, so it does not conform.
    pub fn verdict(&self) -> Verdict {
        let is_passed = |it: &Check| it.outcome == Outcome::Passed;
        if !self.checks.is_empty() && self.checks.iter().all(is_passed) {
            Verdict::Conforms
        } else {
            Verdict::Differs
        }
    }

    /// The checks that passed, failed, and were not run.
    pub fn counts(&self) -> [usize; 3] {
        let count =
            |of: fn(&Outcome) -> bool| self.checks.iter().filter(|it| of(&it.outcome)).count();
        [
            count(|it| *it == Outcome::Passed),
            count(|it| matches!(it, Outcome::Failed(_))),
            count(|it| matches!(it, Outcome::NotRun { .. })),
        ]
    }

    /// What the console shows at the end.
    pub fn summary(&self) -> String {
        console::summary(self)
    }

    /// Writes `report.json`, `junit.xml` and `report.html` into a folder, which is created.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let files = [
            (
                "report.json",
                format!("{}\n", serde_json::to_string_pretty(self)?),
            ),
            ("junit.xml", junit::text(self)?),
            ("report.html", html::page(self)),
        ];
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for (name, text) in files {
            let file = folder.join(name);
            std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        }
        Ok(())
    }
}

/// Seconds with milliseconds.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
