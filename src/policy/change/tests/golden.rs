//! Golden cases: each file is one case and describes the rule that it shows.
#![expect(
    clippy::disallowed_methods,
    reason = "a golden file is the test's input"
)]

use std::path::PathBuf;

use rstest::rstest;

use super::case::{Case, said};

#[rstest]
fn golden(#[files("change/tests/golden/*.yaml")] file: PathBuf) {
    let case: Case = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let said = said(&case.run()).map(|event| serde_json::to_value(event).unwrap());
    let expected = match (&case.sends, &case.silent) {
        (Some(event), None) => Ok(event.clone()),
        (None, Some(silence)) => Err(silence.clone()),
        _ => panic!("{}: either sends or silent", file.display()),
    };
    assert_eq!(said, expected, "{}", case.shows);
}
