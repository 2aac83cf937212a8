//! The desired state of a runtime.

use api::bootstrapper::ConfigurationStatus;
use rstest::rstest;

use super::samples::{
    AT_ONCE, absent, after, bundle, desired, document, mounting, pem, salt, secret, sources,
    unreadable, what,
};
use crate::sync::ObjectNames;
use crate::sync::SourceKind;
use crate::sync::desired::{Desired, DesiredObject};
use crate::sync::history::SourceHistory;
use crate::sync::sources::{SourceState, Sources, read_trust_bundle};

/// The objects contain names, data and type of the sources, and no other metadata.
#[test]
fn objects_hold_content_and_our_annotations_alone() {
    let sources = Sources {
        trust_bundle: SourceState::of(Some(read_trust_bundle(
            &salt(),
            Some("example.com/ca"),
            Some(&pem(7)),
        ))),
        ..sources()
    };
    let desired = desired(&sources);
    let [secret, bundle, document] = SourceKind::ALL.map(|kind| match desired.get(kind) {
        DesiredObject::Present { object, hash } => {
            assert_eq!(
                object["metadata"]["annotations"]["rt-bootstrapper.kyma-project.io/content-hash"],
                hash.to_string()
            );
            object.as_ref().clone()
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(secret["metadata"]["name"], "registry-credentials");
    assert_eq!(secret["metadata"]["namespace"], "kyma-system");
    assert_eq!(secret["type"], "kubernetes.io/dockerconfigjson");
    assert_eq!(
        secret["data"][".dockerconfigjson"]
            .as_str()
            .unwrap()
            .get(..8),
        Some("eyJhdXRo")
    );
    assert_eq!(bundle["apiVersion"], "certificates.k8s.io/v1beta1");
    assert_eq!(bundle["metadata"]["name"], "landscape");
    assert_eq!(bundle["spec"]["signerName"], "example.com/ca");
    assert_eq!(bundle["spec"]["trustBundle"], pem(7));
    assert_eq!(document["metadata"]["name"], "rt-bootstrapper-config");
    let annotations = document["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.len(), 3);
    assert_eq!(
        annotations["rt-bootstrapper.kyma-project.io/requires-pull-secret"],
        secret["metadata"]["annotations"]["rt-bootstrapper.kyma-project.io/content-hash"]
    );
    assert_eq!(
        annotations["rt-bootstrapper.kyma-project.io/requires-trust-bundle"],
        bundle["metadata"]["annotations"]["rt-bootstrapper.kyma-project.io/content-hash"]
    );
    for object in [&secret, &bundle, &document] {
        let keys: Vec<_> = object["metadata"].as_object().unwrap().keys().collect();
        assert!(
            keys.iter()
                .all(|key| ["name", "namespace", "annotations"].contains(&key.as_str())),
            "{keys:?}"
        );
    }
}

/// Sources are optional. A source that cannot be read changes nothing, and objects that do not depend on it are synchronized.
#[rstest]
#[case::all_there(sources(), true, ["present", "present", "present"])]
#[case::nothing_ever(absent(), false, ["never", "never", "never"])]
#[case::all_deleted(absent(), true, ["removed", "removed", "removed"])]
#[case::bundle_never(Sources { trust_bundle: SourceState::Absent, ..sources() }, false, ["present", "never", "present"])]
#[case::bundle_deleted(Sources { trust_bundle: SourceState::Absent, ..sources() }, true, ["present", "removed", "present"])]
#[case::secret_invalid(Sources { pull_secret: unreadable(), ..sources() }, true, ["invalid", "present", "held"])]
#[case::bundle_invalid(Sources { trust_bundle: unreadable(), ..sources() }, true, ["present", "invalid", "held"])]
#[case::secret_unmanaged(Sources { pull_secret: SourceState::Unmanaged, ..sources() }, false, ["unmanaged", "present", "present"])]
#[case::bundle_unmanaged(Sources { trust_bundle: SourceState::Unmanaged, ..sources() }, true, ["present", "unmanaged", "present"])]
#[case::document_invalid(Sources { configuration: unreadable(), ..sources() }, true, ["present", "present", "invalid"])]
#[case::document_deleted_secret_invalid(Sources { pull_secret: unreadable(), configuration: SourceState::Absent, ..sources() }, true, ["invalid", "present", "removed"])]
fn wanted(#[case] now: Sources, #[case] there_before: bool, #[case] expected: [&str; 3]) {
    let mut known = SourceHistory::default();
    if there_before {
        known.advance(&sources(), AT_ONCE);
    }
    known.advance(&now, AT_ONCE);
    let desired = after(&now, &known);
    assert_eq!(
        SourceKind::ALL.map(|kind| what(desired.get(kind))),
        expected
    );
    let held = expected[2] == "held" || expected[2] == "invalid";
    assert_eq!(desired.complete_revision.is_none(), held);
}

/// An object without a configured name is neither written nor required.
#[test]
fn a_part_without_a_name_is_off() {
    let names = ObjectNames {
        pull_secret: None,
        trust_bundle: Some(String::new()),
        ..ObjectNames::on_runtime()
    };
    let sources = Sources {
        pull_secret: unreadable(),
        ..sources()
    };
    let desired = Desired::new(&sources, &SourceHistory::default(), &names);
    assert_eq!(
        SourceKind::ALL.map(|kind| what(desired.get(kind))),
        ["off", "off", "present"]
    );
    let DesiredObject::Present { object, .. } = &desired.configuration else {
        panic!("absent");
    };
    assert_eq!(
        object["metadata"]["annotations"].as_object().unwrap().len(),
        1
    );
}

/// The name of an object on KCP does not determine its name on the runtime.
#[test]
fn each_object_has_the_runtimes_name_for_it() {
    let names = ObjectNames {
        pull_secret: Some("there".to_owned()),
        trust_bundle: Some("their-roots".to_owned()),
        ..ObjectNames::on_runtime()
    };
    let desired = Desired::new(&sources(), &SourceHistory::default(), &names);
    let written = SourceKind::ALL.map(|kind| match desired.get(kind) {
        DesiredObject::Present { object, .. } => object["metadata"]["name"].clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(written, ["there", "their-roots", "rt-bootstrapper-config"]);
}

/// A document must require only objects that the webhook reads: it may name another Secret or another bundle than the
/// written objects.
#[rstest]
#[case::ours("", Some("registry-credentials"), &["pull-secret", "trust-bundle"])]
#[case::our_secret_by_name(r#","imagePullSecret":{"name":"registry-credentials"}"#, Some("registry-credentials"), &["pull-secret", "trust-bundle"])]
#[case::another_secret(r#","imagePullSecret":{"name":"theirs"}"#, Some("registry-credentials"), &["trust-bundle"])]
#[case::the_secret_that_the_webhook_is_told("", Some("renamed"), &["pull-secret", "trust-bundle"])]
#[case::the_default_secret_by_name(r#","imagePullSecret":{"name":"registry-credentials"}"#, Some("renamed"), &["trust-bundle"])]
#[case::no_secret("", None, &["trust-bundle"])]
#[case::a_renamed_secret_by_name(r#","imagePullSecret":{"name":"renamed"}"#, Some("renamed"), &["pull-secret", "trust-bundle"])]
#[case::our_bundle(&mounting("landscape"), Some("registry-credentials"), &["pull-secret", "trust-bundle"])]
#[case::another_bundle(&mounting("theirs"), Some("registry-credentials"), &["pull-secret"])]
fn a_document_requires_only_what_it_names(
    #[case] extra: &str,
    #[case] secret: Option<&str>,
    #[case] parts: &[&str],
) {
    let names = ObjectNames {
        pull_secret: secret.map(str::to_owned),
        trust_bundle: Some("landscape".to_owned()),
        ..ObjectNames::on_runtime()
    };
    let sources = Sources {
        configuration: document(extra),
        ..sources()
    };
    let desired = Desired::new(&sources, &SourceHistory::default(), &names);
    let DesiredObject::Present { object, .. } = &desired.configuration else {
        panic!("{:?}", desired.configuration);
    };
    let annotations = object["metadata"]["annotations"].as_object().unwrap();
    let required: Vec<&str> = annotations
        .keys()
        .filter_map(|key| key.strip_prefix("rt-bootstrapper.kyma-project.io/requires-"))
        .collect();
    assert_eq!(required, parts);
    // An invalid source defers only a document that names it.
    let configuration = || document(extra);
    let [secret, bundle] = [
        Sources {
            pull_secret: unreadable(),
            configuration: configuration(),
            ..self::sources()
        },
        Sources {
            trust_bundle: unreadable(),
            configuration: configuration(),
            ..self::sources()
        },
    ]
    .map(|it| Desired::new(&it, &SourceHistory::default(), &names).configuration);
    let is_held = |it| matches!(it, DesiredObject::Untouched(_));
    assert_eq!(is_held(secret), parts.contains(&"pull-secret"));
    assert_eq!(is_held(bundle), parts.contains(&"trust-bundle"));
}

/// Sources that differ only in metadata have the same content, and so the same revision.
#[test]
fn equal_contents_are_one_version() {
    assert_eq!(desired(&sources()), desired(&sources()));
    for other in [
        Sources {
            pull_secret: secret("two"),
            ..sources()
        },
        Sources {
            trust_bundle: bundle(2),
            ..sources()
        },
        Sources {
            configuration: document(r#","availableFeatures":[]"#),
            ..sources()
        },
        Sources {
            trust_bundle: SourceState::Absent,
            ..sources()
        },
    ] {
        assert_ne!(
            desired(&other).complete_revision,
            desired(&sources()).complete_revision
        );
    }
}

fn said(desired: &Desired) -> ConfigurationStatus {
    let hash = |kind| match desired.get(kind) {
        DesiredObject::Present { hash, .. } => Some(hash.to_string()),
        DesiredObject::Removed | DesiredObject::Untouched(_) => None,
    };
    ConfigurationStatus {
        pull_secret_hash: hash(SourceKind::PullSecret),
        trust_bundle_hash: hash(SourceKind::TrustBundle),
        config_map_hash: hash(SourceKind::Configuration),
        revision: desired.complete_revision.map(|it| it.to_string()),
        last_update_time: None,
    }
}

#[test]
fn a_change_beside_an_invalid_source_is_another_revision() {
    let invalid = || unreadable();
    let one = desired(&Sources {
        configuration: invalid(),
        ..sources()
    });
    let two = desired(&Sources {
        configuration: invalid(),
        pull_secret: secret("two"),
        ..sources()
    });
    assert_eq!((one.complete_revision, two.complete_revision), (None, None));
    assert_ne!(one.revision, two.revision);
    assert_ne!(one.revision, desired(&sources()).revision);
    // The cause of an invalid source does not change the written objects.
    let other = SourceState::Invalid("y".to_owned());
    let same = desired(&Sources {
        configuration: other,
        ..sources()
    });
    assert_eq!(one.revision, same.revision);
    // A runtime with the other two objects has the desired state, with any document.
    let mut holds_one = said(&one);
    assert!(one.is_synchronized(Some(&holds_one)) && !two.is_synchronized(Some(&holds_one)));
    holds_one.config_map_hash = Some("another".to_owned());
    assert!(one.is_synchronized(Some(&holds_one)));
    assert!(!one.is_synchronized(None));
}

#[test]
fn a_complete_version_is_held_only_as_a_whole() {
    let wanted = desired(&sources());
    assert_eq!(wanted.complete_revision, Some(wanted.revision));
    let mut holds = said(&wanted);
    assert!(wanted.is_synchronized(Some(&holds)));
    // All three hashes are correct, but the document may still require an older object.
    holds.revision = None;
    assert!(!wanted.is_synchronized(Some(&holds)));
}
