use api::config::Document;
use rstest::rstest;
use semver::Version;

use crate::sync::compatibility::{
    Requirement, RunningWebhook, check_compatibility, parse_version, requirement,
};

fn version(text: &str) -> Version {
    parse_version(text).unwrap()
}

#[rstest]
#[case("0.1.0", Some("0.1.0"))]
#[case("v1.20.3", Some("1.20.3"))]
#[case("1.2.3-rc.1", Some("1.2.3-rc.1"))]
#[case("v1.2.3+build", Some("1.2.3+build"))]
#[case("1.2", None)]
#[case("1.2.3.4", None)]
#[case("latest", None)]
#[case("", None)]
fn versions(#[case] text: &str, #[case] expected: Option<&str>) {
    let found = parse_version(text).map(|it| it.to_string());
    assert_eq!(found.as_deref(), expected);
    assert!(version("0.9.0") < version("0.10.0"));
    assert!(version("0.1.0-rc.1") < version("0.1.0"));
}

/// Public keys have no requirement. Each key of this project requires a webhook that supports it.
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
#[case::pre_release(RunningWebhook::Managed(version("0.2.0-rc.1")), false)]
#[case::equal(RunningWebhook::Managed(version("0.2.0")), true)]
#[case::build(RunningWebhook::Managed(version("0.2.0+build")), true)]
#[case::pre_release_of_a_later_one(RunningWebhook::Managed(version("0.3.0-rc.1")), true)]
#[case::newer(RunningWebhook::Managed(version("1.0.0")), true)]
fn judgements(#[case] running: RunningWebhook, #[case] fits: bool) {
    let needed = Requirement::AtLeast {
        version: version("0.2.0"),
        key: "optOut",
    };
    assert_eq!(check_compatibility(&needed, running.clone()).is_ok(), fits);
    assert_eq!(check_compatibility(&Requirement::Any, running), Ok(()));
}

#[rstest]
#[case(RunningWebhook::Absent, "none")]
#[case(RunningWebhook::Unmanaged, "another one")]
#[case(
    RunningWebhook::Managed(version("v0.1.0-rc.1+build")),
    "0.1.0-rc.1+build"
)]
fn running_webhooks_in_messages(#[case] running: RunningWebhook, #[case] text: &str) {
    assert_eq!(running.to_string(), text);
}
