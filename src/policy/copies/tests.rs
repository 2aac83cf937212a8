use api::config::Document;
use rstest::rstest;

use super::*;
use crate::admission::{Annotations, Settings};

#[rstest]
#[case::first_copy(
    Need::Namespace,
    SourcePresence::Present,
    Observed::Nothing,
    Action::Apply
)]
#[case::nothing_differs(
    Need::Namespace,
    SourcePresence::Present,
    Observed::Current,
    Action::Keep
)]
#[case::edited(Need::Pod, SourcePresence::Present, Observed::Stale, Action::Apply)]
#[case::another_type(
    Need::Pod,
    SourcePresence::Present,
    Observed::Misshapen,
    Action::Recreate
)]
#[case::foreign(
    Need::Namespace,
    SourcePresence::Present,
    Observed::Foreign,
    Action::ReportForeign
)]
#[case::no_longer_needed(
    Need::None,
    SourcePresence::Present,
    Observed::Current,
    Action::Remove(RemovalCause::NotNeeded)
)]
#[case::no_longer_needed_and_edited(
    Need::None,
    SourcePresence::Present,
    Observed::Stale,
    Action::Remove(RemovalCause::NotNeeded)
)]
#[case::no_longer_needed_without_source(
    Need::None,
    SourcePresence::Unknown,
    Observed::Current,
    Action::Remove(RemovalCause::NotNeeded)
)]
#[case::never_needed(Need::None, SourcePresence::Present, Observed::Nothing, Action::Keep)]
#[case::that_of_another_client_is_never_removed(
    Need::None,
    SourcePresence::Present,
    Observed::Foreign,
    Action::Keep
)]
#[case::source_not_known_copies_stay(
    Need::Namespace,
    SourcePresence::Unknown,
    Observed::Stale,
    Action::Keep
)]
#[case::source_deleted_foreign(
    Need::Namespace,
    SourcePresence::Absent,
    Observed::Foreign,
    Action::Keep
)]
#[case::source_deleted_no_copy(
    Need::Namespace,
    SourcePresence::Absent,
    Observed::Nothing,
    Action::Keep
)]
#[case::no_source_nothing_written(
    Need::Namespace,
    SourcePresence::Unknown,
    Observed::Nothing,
    Action::Keep
)]
fn plans(
    #[case] need: Need,
    #[case] source: SourcePresence,
    #[case] observed: Observed,
    #[case] action: Action,
) {
    assert_eq!(plan(need, source, observed), action);
}

/// The credentials are revoked, independent of the need and of the observed copy.
#[rstest]
fn deleted_source_takes_its_copies_along(
    #[values(Need::Namespace, Need::Pod, Need::None)] need: Need,
    #[values(Observed::Current, Observed::Stale, Observed::Misshapen)] observed: Observed,
) {
    assert_eq!(
        plan(need, SourcePresence::Absent, observed),
        Action::Remove(RemovalCause::SourceDeleted)
    );
}

const FEATURE: &str = "rt-cfg.kyma-project.io/add-img-pull-secret";

fn configuration(extra: &str) -> Configuration {
    let text = format!(
        r#"{{"overrides":{{}},"availableFeatures":["{FEATURE}"],"namespaceFeatures":{{"listed":["{FEATURE}"]}}{extra}}}"#
    );
    let settings = Settings {
        landscape: None,
        pull_secret: "registry-credentials".to_owned(),
    };
    Configuration::new(&Document::parse(&text).unwrap(), &settings).unwrap()
}

#[rstest]
#[case::listed("listed", "", false, Need::Namespace)]
#[case::annotated("other", "true", false, Need::Namespace)]
#[case::annotated_otherwise("other", "True", false, Need::None)]
#[case::by_a_pod("other", "", true, Need::Pod)]
#[case::by_no_pod("other", "", false, Need::None)]
#[case::never_adapted("kube-system", "true", true, Need::None)]
#[case::never_adapted_but_for_its_pods("kube-system", "", true, Need::None)]
fn a_namespace_needs_it(
    #[case] name: &str,
    #[case] annotation: &str,
    #[case] pods: bool,
    #[case] expected: Need,
) {
    let namespace = Namespace {
        annotations: Annotations::collect([(FEATURE, annotation)]),
        ..Namespace::default()
    };
    assert_eq!(need(&configuration(""), name, &namespace, pods), expected);
}

#[test]
fn credentials_go_only_where_the_selector_lets_them() {
    let configuration = configuration(
        r#","imagePullSecret":{"namespaceSelector":{"matchLabels":{"credentials":"yes"}}}"#,
    );
    let mut namespace = Namespace::default();
    assert_eq!(need(&configuration, "listed", &namespace, true), Need::None);
    namespace.labels.insert("credentials".into(), "yes".into());
    assert_eq!(
        need(&configuration, "listed", &namespace, true),
        Need::Namespace
    );
}
