//! Golden cases: each file is one case and describes the rule that it shows.
#![expect(
    clippy::disallowed_methods,
    reason = "a golden file is the test's input"
)]

use std::path::PathBuf;

use rstest::rstest;

use super::case::Case;

#[rstest]
fn golden(#[files("admission/tests/golden/*.yaml")] file: PathBuf) {
    let case: Case = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let outcome = case.run(&case.object);
    let expected = case.gives.as_ref().unwrap_or(&case.object);
    assert_eq!(&outcome.pod, expected, "{}", case.shows);
    assert_eq!(outcome.because, case.because, "{}", case.shows);
    if let Some(warnings) = &case.warnings {
        assert_eq!(&outcome.warnings, warnings, "{}", case.shows);
    }
    assert_eq!(
        outcome.patch.is_some(),
        case.gives.is_some(),
        "a patch that changes nothing, or a change without a patch: {}",
        case.shows
    );
    if case.given.operation == "CREATE" {
        assert_eq!(
            case.run(&outcome.pod).patch,
            None,
            "second pass: {}",
            case.shows
        );
    }
}
