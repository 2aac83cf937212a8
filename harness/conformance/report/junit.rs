//! The report as JUnit XML: a suite for each cluster, a case for each check.

use std::time::Duration;

use anyhow::Result;
use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};

use super::{Outcome, Report};

pub(super) fn text(report: &Report) -> Result<String> {
    let mut junit = Junit::new(&report.scenario);
    for cluster in &report.clusters {
        let mut suite = TestSuite::new(format!("{}.{}", report.scenario, cluster.name));
        let mut before = 0.0;
        for check in report.checks.iter().filter(|it| it.cluster == cluster.name) {
            let status = match &check.outcome {
                Outcome::Passed => TestCaseStatus::success(),
                Outcome::Failed(failure) => {
                    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_message(&failure.found);
                    status.set_description(format!(
                        "expected: {}\nfound: {}\nwhere: {}\ncause: {}\nnext: {}",
                        failure.expected,
                        failure.found,
                        failure.location,
                        failure.cause,
                        failure.next
                    ));
                    status
                }
                Outcome::NotRun { reason } => {
                    let mut status = TestCaseStatus::skipped();
                    status.set_message(reason);
                    status
                }
            };
            let mut case = TestCase::new(&check.title, status);
            case.set_classname(format!("{}.{}", report.scenario, cluster.name));
            case.set_time(Duration::from_secs_f64((check.at - before).max(0.0)));
            before = check.at;
            suite.add_test_case(case);
        }
        junit.add_test_suite(suite);
    }
    Ok(junit.to_string()?)
}
