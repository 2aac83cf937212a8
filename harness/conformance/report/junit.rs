//! The report as JUnit XML: a suite for each cluster, a case for each check.

use std::time::Duration;

use anyhow::Result;
use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};

use super::{Failure, Outcome, Report};

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
                    let Failure {
                        expected,
                        found,
                        location,
                        cause,
                        next,
                    } = &**failure;
                    status.set_description(format!(
                        "expected: {expected}\nfound: {found}\nwhere: {location}\ncause: {cause}\nnext: {next}"
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a report with KCP, which passed, and a runtime with a failed check and one that was not run.
    fn report() -> Report {
        let report = json!({
            "scenario": "x", "description": "", "started": "", "seconds": 3.0, "version": "",
            "clusters": [{ "name": "kcp", "kubernetes": "v1" }, { "name": "skr", "kubernetes": "v1" }],
            "checks": [
                {
                    "cluster": "skr", "title": "fails", "family": "contract", "at": 1.5, "outcome": "failed",
                    "expected": "an image", "found": "<other> & \"more\"", "location": "skr: Pod p", "cause": "none",
                    "next": "kubectl get pods",
                },
                { "cluster": "kcp", "title": "passes", "family": "contract", "at": 2.0, "outcome": "passed" },
                {
                    "cluster": "skr", "title": "is not run", "family": "contract", "at": 3.5, "outcome": "notRun",
                    "reason": "no Pod runs",
                },
            ],
            "pods": [], "timeline": [],
        });
        serde_json::from_value(report).unwrap()
    }

    #[test]
    fn each_cluster_is_a_suite_and_each_check_a_case_with_its_outcome() {
        let junit = Junit::deserialize_from_str(&text(&report()).unwrap()).unwrap();
        assert_eq!(junit.name.unwrap().as_str(), "x");
        assert_eq!((junit.tests, junit.failures, junit.errors), (3, 1, 0));
        let suites = junit.test_suites.iter();
        let suites = suites.map(|it| (it.name.as_str(), it.tests, it.failures, it.skipped));
        let expected = [("x.kcp", 1, 0, 0), ("x.skr", 2, 1, 1)];
        assert_eq!(suites.collect::<Vec<_>>(), expected);
        let cases = junit.test_suites.iter().flat_map(|it| &it.test_cases);
        let cases = cases.map(|it| {
            let (class, time) = (it.classname.as_ref().unwrap(), it.time.unwrap());
            (class.as_str(), it.name.as_str(), time.as_millis())
        });
        // The duration of a check is the time since the end of the previous check of its cluster.
        let expected = [
            ("x.kcp", "passes", 2000),
            ("x.skr", "fails", 1500),
            ("x.skr", "is not run", 2000),
        ];
        assert_eq!(cases.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn failed_case_has_the_failure_and_skipped_case_the_reason() {
        let junit = Junit::deserialize_from_str(&text(&report()).unwrap()).unwrap();
        let passed = &junit.test_suites[0].test_cases[0].status;
        assert_eq!(*passed, TestCaseStatus::success());
        let mut failed = TestCaseStatus::non_success(NonSuccessKind::Failure);
        failed.set_message("<other> & \"more\"");
        failed.set_description(
            "expected: an image\nfound: <other> & \"more\"\nwhere: skr: Pod p\ncause: none\nnext: kubectl get pods",
        );
        let mut skipped = TestCaseStatus::skipped();
        skipped.set_message("no Pod runs");
        let of_runtime = &junit.test_suites[1].test_cases;
        let statuses: Vec<_> = of_runtime.iter().map(|it| &it.status).collect();
        assert_eq!(statuses, [&failed, &skipped]);
    }
}
