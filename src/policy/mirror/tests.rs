use api::config::Document;
use rstest::rstest;

use super::*;
use crate::admission::{Annotations, Settings};

#[rstest]
#[case::first_copy(Need::Namespace, true, Observed::Nothing, Action::Apply)]
#[case::nothing_differs(Need::Namespace, true, Observed::Current, Action::Keep)]
#[case::edited(Need::Pod, true, Observed::Stale, Action::Apply)]
#[case::another_type(Need::Pod, true, Observed::Misshapen, Action::Recreate)]
#[case::foreign(Need::Namespace, true, Observed::Foreign, Action::ReportForeign)]
#[case::no_longer_needed(
    Need::None,
    true,
    Observed::Current,
    Action::Remove(RemovalCause::NotNeeded)
)]
#[case::no_longer_needed_and_edited(
    Need::None,
    true,
    Observed::Stale,
    Action::Remove(RemovalCause::NotNeeded)
)]
#[case::no_longer_needed_without_source(
    Need::None,
    false,
    Observed::Current,
    Action::Remove(RemovalCause::NotNeeded)
)]
#[case::never_needed(Need::None, true, Observed::Nothing, Action::Keep)]
#[case::a_strangers_is_never_removed(Need::None, true, Observed::Foreign, Action::Keep)]
#[case::source_deleted_copies_stay(Need::Namespace, false, Observed::Stale, Action::Keep)]
#[case::no_source_nothing_written(Need::Namespace, false, Observed::Nothing, Action::Keep)]
fn plans(
    #[case] need: Need,
    #[case] source: bool,
    #[case] observed: Observed,
    #[case] action: Action,
) {
    assert_eq!(plan(need, source, observed), action);
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
#[case::by_nobody("other", "", false, Need::None)]
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
