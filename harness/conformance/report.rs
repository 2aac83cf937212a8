//! The results of a run, and its reports: on the console, as JUnit, as JSON, and as one HTML page.
//!
//! Invariant: a report contains no data of a Secret. Checks add the compared values, and Secrets are compared by the hosts for
//! which they have credentials.

mod console;
mod html;
mod junit;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use console::line;

/// Results of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// Description of the landscape.
    pub description: String,
    /// Start of the run in RFC 3339.
    pub started: String,
    /// Duration of the run in seconds.
    pub seconds: f64,
    /// Version of this program.
    pub version: String,
    /// The clusters, the control plane first.
    pub clusters: Vec<ClusterReport>,
    /// The checks in the order of their ends.
    pub checks: Vec<Check>,
    /// Pods as in their template and as stored.
    pub pods: Vec<PodReport>,
    /// Times of creations and conditions of objects on KCP.
    pub timeline: Vec<Moment>,
}

/// A cluster of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReport {
    /// Name of the runtime in the scenario, or `kcp`.
    pub name: String,
    /// Version of the API server.
    pub kubernetes: String,
    /// Image and version of the webhook, if they are known.
    pub webhook: Option<String>,
}

/// One check.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Name of the cluster.
    pub cluster: String,
    /// Checked property, as a statement.
    pub title: String,
    /// Whether the check is possible for any implementation.
    pub family: Family,
    /// Result of the check.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Seconds from the start of the run to the end of the check.
    pub at: f64,
}

/// Kind of data that a check reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Family {
    /// Objects of the cluster. Such a check is possible for any implementation.
    Contract,
    /// Metrics, version and warnings of this project's components.
    Metrics,
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum Outcome {
    /// The state is as expected.
    Passed,
    /// The state is not as expected.
    Failed(Box<Failure>),
    /// The check was not possible.
    #[serde(rename_all = "camelCase")]
    NotRun {
        /// Reason why the check was not possible.
        reason: String,
    },
}

/// Description of a failed check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Expected state.
    pub expected: String,
    /// Found state.
    pub found: String,
    /// Location of the object.
    pub location: String,
    /// Likely cause.
    pub cause: String,
    /// Next command to run.
    pub next: String,
}

/// A Pod as in its template and as stored, without fields that every Pod gets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the workload.
    pub workload: String,
    /// Kind of the workload.
    pub kind: String,
    /// Fields of the template.
    pub template: Value,
    /// The same fields of the stored Pod.
    pub pod: Value,
}

/// An entry of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// Time in RFC 3339, UTC.
    pub time: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Description of the entry.
    pub what: String,
}

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every check passed.
    Conforms,
    /// A check failed or was not run.
    Differs,
}

impl Outcome {
    /// Returns a failure at an object: expected and found state, the likely cause, and the next command to run.
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
    /// Returns the result of the run. A run with a check that was not run does not conform.
    pub fn verdict(&self) -> Verdict {
        let is_passed = |it: &Check| it.outcome == Outcome::Passed;
        if !self.checks.is_empty() && self.checks.iter().all(is_passed) {
            Verdict::Conforms
        } else {
            Verdict::Differs
        }
    }

    /// Returns the numbers of checks that passed, failed, and were not run.
    pub fn counts(&self) -> [usize; 3] {
        let count =
            |of: fn(&Outcome) -> bool| self.checks.iter().filter(|it| of(&it.outcome)).count();
        [
            count(|it| *it == Outcome::Passed),
            count(|it| matches!(it, Outcome::Failed(_))),
            count(|it| matches!(it, Outcome::NotRun { .. })),
        ]
    }

    /// Returns the text for the end of the console output.
    pub fn summary(&self) -> String {
        console::summary(self)
    }

    /// Creates a folder and writes `report.json`, `junit.xml` and `report.html` into it.
    ///
    /// # Errors
    ///
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

/// Returns seconds with three decimal places.
pub(crate) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
