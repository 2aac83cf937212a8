use api::config::Document;
use rstest::rstest;

use crate::sync::compatibility::{
    Requirement, RunningWebhook, Version, check_compatibility, requirement,
};

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
#[case::nothing_runs(RunningWebhook::Absent, true)]
#[case::foreign(RunningWebhook::Unmanaged, false)]
#[case::older(RunningWebhook::Managed(version("0.1.9")), false)]
#[case::equal(RunningWebhook::Managed(version("0.2.0")), true)]
#[case::newer(RunningWebhook::Managed(version("1.0.0")), true)]
fn judgements(#[case] running: RunningWebhook, #[case] fits: bool) {
    let needed = Requirement::AtLeast {
        version: version("0.2.0"),
        key: "optOut",
    };
    assert_eq!(check_compatibility(needed, running).is_ok(), fits);
    assert_eq!(check_compatibility(Requirement::Any, running), Ok(()));
}
