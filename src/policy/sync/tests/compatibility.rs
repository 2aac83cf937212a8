use api::config::Document;
use rstest::rstest;

use crate::sync::compatibility::{Requirement, Running, Version, judge, requirement};

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[rstest]
#[case("0.1.0", Some("0.1.0"))]
#[case("v1.20.3", Some("1.20.3"))]
#[case("1.2.3-rc.1", Some("1.2.3"))]
#[case("1.2.3+build", Some("1.2.3"))]
#[case("1.2", None)]
#[case("1.2.3.4", None)]
#[case("latest", None)]
#[case("", None)]
fn versions(#[case] text: &str, #[case] expected: Option<&str>) {
    let found = text.parse::<Version>().ok().map(|it| it.to_string());
    assert_eq!(found.as_deref(), expected);
    assert!(version("0.9.0") < version("0.10.0"));
}

/// Public keys need nothing; each of ours needs a webhook that knows it.
#[rstest]
#[case::public(
    r#"{"overrides":{},"clusterTrustBundle":{"name":"a","certWritePath":"b","volumeMountPath":"/c","volumeName":"d"},"availableFeatures":[],"namespaceFeatures":{}}"#,
    None
)]
#[case::fips(r#"{"overrides":{},"fipsVariables":["A"]}"#, Some("fipsVariables"))]
#[case::pull_secret(
    r#"{"overrides":{},"imagePullSecret":{"inject":"always"}}"#,
    Some("imagePullSecret")
)]
#[case::pull_secret_of_no_effect(r#"{"overrides":{},"imagePullSecret":{}}"#, None)]
#[case::opt_out(r#"{"overrides":{},"optOut":[]}"#, Some("optOut"))]
#[case::the_first_is_named(
    r#"{"overrides":{},"optOut":[],"fipsVariables":[]}"#,
    Some("fipsVariables")
)]
fn requirements(#[case] text: &str, #[case] expected: Option<&str>) {
    let found = match requirement(&Document::parse(text).unwrap()) {
        Requirement::Any => None,
        Requirement::AtLeast {
            key,
            version: since,
        } => {
            assert_eq!(since, version("0.1.0"));
            Some(key)
        }
    };
    assert_eq!(found, expected);
}

#[rstest]
#[case::nothing_runs(Running::Nothing, true)]
#[case::foreign(Running::Foreign, false)]
#[case::older(Running::Ours(version("0.1.9")), false)]
#[case::equal(Running::Ours(version("0.2.0")), true)]
#[case::newer(Running::Ours(version("1.0.0")), true)]
fn judgements(#[case] running: Running, #[case] fits: bool) {
    let needed = Requirement::AtLeast {
        version: version("0.2.0"),
        key: "optOut",
    };
    assert_eq!(judge(needed, running).is_ok(), fits);
    assert_eq!(judge(Requirement::Any, running), Ok(()));
}
