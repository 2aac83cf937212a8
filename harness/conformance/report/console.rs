//! The report on a console: one line for each check during the run, and all failures at the end.

use std::fmt::Write as _;

use super::{Check, Outcome, Report, Verdict};

/// Returns one line for a check that has ended.
pub fn line(check: &Check) -> String {
    let word = match &check.outcome {
        Outcome::Passed => "passed",
        Outcome::Failed(_) => "FAILED",
        Outcome::NotRun { .. } => "not run",
    };
    format!(
        "{word:<8} {:>6.1}s  {}: {}",
        check.at, check.cluster, check.title
    )
}

pub(super) fn summary(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.checks {
        match &check.outcome {
            Outcome::Passed => {}
            Outcome::Failed(failure) => {
                let _ = write!(
                    text,
                    "\nFAILED   {}: {}\n  expected  {}\n  found     {}\n  where     {}\n  cause     {}\n  next      {}\n",
                    check.cluster,
                    check.title,
                    indented(&failure.expected),
                    indented(&failure.found),
                    failure.location,
                    indented(&failure.cause),
                    indented(&failure.next),
                );
            }
            Outcome::NotRun { reason } => {
                let (cluster, title) = (&check.cluster, &check.title);
                let _ = write!(
                    text,
                    "\nnot run  {cluster}: {title}\n  because   {}\n",
                    indented(reason)
                );
            }
        }
    }
    let [passed, failed, not_run] = report.counts();
    let verdict = match report.verdict() {
        Verdict::Conforms => "the clusters conform",
        Verdict::Differs => "the clusters were not shown to conform",
    };
    let _ = write!(
        text,
        "\n{}: {verdict}: {passed} passed, {failed} failed, {not_run} not run, {:.1}s",
        report.scenario, report.seconds
    );
    text
}

/// Indents further lines below the first.
fn indented(text: &str) -> String {
    text.replace('\n', "\n            ")
}
