use std::cell::RefCell;

use super::*;

#[test]
fn every_defect_can_be_seeded() {
    let defects = defects().unwrap();
    let names: BTreeSet<&str> = defects.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names.len(), defects.len(), "names are unique");
    for defect in &defects {
        defect.edited().unwrap();
    }
}

#[test]
fn checks_on_clusters_are_left_out_without_clusters() {
    let needs_clusters = |check: &str| {
        let check = check.split(' ').map(str::to_owned).collect();
        let defect = Defect {
            check,
            ..defect("one")
        };
        defect.needs_clusters()
    };
    assert!(needs_clusters("run -p harness -- e2e admission"));
    assert!(needs_clusters("test --features e2e/clusters --test a"));
    assert!(!needs_clusters(
        "test -p rt-bootstrapper-webhook --lib -- a"
    ));
}

#[test]
fn defect_that_no_test_catches_fails_the_command() {
    let defects = ["one", "two", "not selected"].map(defect);
    let code = |caught: [bool; 2]| {
        let outcome = |caught| Outcome {
            caught,
            tests: Vec::new(),
            seconds: 0,
        };
        let names = ["one", "two"].map(str::to_owned);
        let outcomes = names.into_iter().zip(caught.map(outcome));
        let results = Results {
            defects: outcomes.collect(),
            ..Results::default()
        };
        exit_code(&defects, &results)
    };
    assert_eq!(code([true, true]), 0);
    assert_eq!(code([true, false]), 1);
    assert_eq!(code([false, true]), 1);
}

/// Returns a defect with a check that needs no cluster.
fn defect(name: &str) -> Defect {
    Defect {
        name: name.to_owned(),
        file: PathBuf::new(),
        replace: String::new(),
        with: String::new(),
        check: vec!["test".to_owned()],
    }
}

/// Runs the checks of two defects, `one` and `two`, which have the same check. Returns the error, and the name of each run.
async fn runs(results: &mut Results, fails: &str) -> (Option<String>, Vec<String>) {
    let defects = ["one", "two"].map(defect);
    let runs = RefCell::new(Vec::new());
    let run = async |defect: &Defect, is_seeded: bool| {
        let run = if is_seeded { &defect.name } else { "without" };
        runs.borrow_mut().push(run.to_owned());
        let failed = fails.contains(run);
        let names = failed.then(|| "a::b".to_owned());
        Ok((!failed, names.into_iter().collect()))
    };
    let all = check_all(defects.iter(), results, run, |_| Ok(())).await;
    (all.err().map(|it| it.to_string()), runs.into_inner())
}

fn caught(results: &Results) -> Vec<bool> {
    results.defects.values().map(|it| it.caught).collect()
}

#[tokio::test]
async fn check_passes_once_without_a_defect_before_defects_are_seeded() {
    let mut results = Results::default();
    let (error, ran) = runs(&mut results, "one").await;
    assert_eq!(
        (error, ran),
        (None, vec!["without".into(), "one".into(), "two".into()])
    );
    assert_eq!(caught(&results), [true, false]);
}

#[tokio::test]
async fn check_that_fails_without_a_defect_catches_none() {
    let mut results = Results::default();
    let (error, ran) = runs(&mut results, "without one two").await;
    let expected = "test: fails without a defect: [\"a::b\"]";
    assert_eq!(
        (error.as_deref(), ran),
        (Some(expected), vec!["without".into()])
    );
    assert!(results.defects.is_empty() && results.passed.is_empty());
}

#[tokio::test]
async fn resumed_run_repeats_no_result() {
    let mut results = Results::default();
    runs(&mut results, "one two").await;
    results.defects.remove("two");
    let stored = serde_json::to_string(&results).unwrap();
    let mut results = serde_json::from_str(&stored).unwrap();
    let (error, ran) = runs(&mut results, "one two").await;
    assert_eq!((error, ran), (None, vec!["two".into()]));
    assert_eq!(caught(&results), [true, true]);
}

#[test]
fn failures_of_tests_and_scenarios_are_named() {
    let output = "test a::b ... ok\ntest a::c ... FAILED\n  Scenario: One\n   ✔  Given x\n  Scenario: Two\n   ✘  Then y\n✘  Then y";
    assert_eq!(failed_tests(output), ["a::c", "Two"]);
}
