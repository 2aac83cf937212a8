use std::collections::BTreeMap;
use std::time::Duration;

use api::bootstrapper::ConfigurationStatus;
use jiff::Timestamp;
use rstest::rstest;

use super::api_server::{
    AT_ONCE, after, bundle, desired, document, mounting, pem, salt, secret, source_names, sources,
};
use crate::convergence::desired::{Desired, Wanted, Why};
use crate::convergence::known::{Grace, Known, Last};
use crate::convergence::observed::Names;
use crate::convergence::sources::{
    ConfigMapView, PemError, PullSecret, Reading, SecretView, SourceError, SourceNames, Sources,
    Summary, TrustBundleView, read_configuration, read_pull_secret, read_trust_bundle,
};
use crate::convergence::{Hash, Kind, Salt};

const TYPE: Option<&str> = Some("kubernetes.io/dockerconfigjson");

/// The expected value was computed with another program: SHA-256 over the parts, each after its length in eight bytes.
#[test]
fn a_hash_is_what_the_documentation_says() {
    let Summary::Valid(hash) = Sources {
        trust_bundle: bundle(1),
        ..absent()
    }
    .summary(Kind::TrustBundle) else {
        panic!("invalid");
    };
    assert_eq!(hash.to_string(), include_str!("bundle.sha256").trim());
    assert_eq!(hash.to_string().parse::<Hash>(), Ok(hash));
}

#[rstest]
#[case("")]
#[case(&"0".repeat(63))]
#[case(&"0".repeat(65))]
#[case(&"A".repeat(64))]
#[case(&"g".repeat(64))]
#[case(&"é".repeat(32))]
fn no_hash(#[case] text: &str) {
    assert!(text.parse::<Hash>().is_err());
}

/// Nobody who sees a hash can try out contents without the control plane's UID.
#[test]
fn equal_contents_of_two_control_planes_have_different_hashes() {
    let view = SecretView {
        r#type: TYPE,
        docker_config: Some(br#"{"auths":{}}"#),
    };
    let hash = |uid| {
        read_pull_secret(&Salt::new(uid), Some(view))
            .valid()
            .unwrap()
            .hash
    };
    assert_eq!(hash("one"), hash("one"));
    assert_ne!(hash("one"), hash("two"));
}

/// The type has to be the docker config's.
#[rstest]
#[case::good(TYPE, Some(r#"{"auths":{}}"#), "")]
#[case::opaque(
    None,
    Some(r#"{"auths":{}}"#),
    "type: expected kubernetes.io/dockerconfigjson, got Opaque"
)]
#[case::old_type(
    Some("kubernetes.io/dockercfg"),
    Some("{}"),
    "type: expected kubernetes.io/dockerconfigjson, got kubernetes.io/dockercfg"
)]
#[case::no_key(TYPE, None, ".dockerconfigjson: missing or empty")]
#[case::empty(TYPE, Some(""), ".dockerconfigjson: missing or empty")]
#[case::no_json(TYPE, Some("hunter2"), ".dockerconfigjson")]
#[case::no_auths(TYPE, Some(r#"{"credHelpers":{}}"#), ".dockerconfigjson")]
fn pull_secrets(#[case] kind: Option<&str>, #[case] config: Option<&str>, #[case] error: &str) {
    let view = SecretView {
        r#type: kind,
        docker_config: config.map(str::as_bytes),
    };
    let reading = read_pull_secret(&salt(), Some(view));
    assert_eq!(
        reading.error().map(ToString::to_string).unwrap_or_default(),
        error
    );
    assert!(!format!("{reading:?}{view:?}").contains("hunter2"));
}

#[rstest]
#[case::one(&pem(1), None)]
#[case::two(&format!("{}{}", pem(1), pem(2)), None)]
#[case::comments(&format!("# the root\n{}\n# end\n", pem(1)), None)]
#[case::windows_line_ends(&pem(1).replace('\n', "\r\n"), None)]
#[case::empty("", Some(PemError::Empty))]
#[case::text("root.crt", Some(PemError::Empty))]
#[case::key(&format!("{}{}", pem(1), pem(2).replace("CERTIFICATE", "PRIVATE KEY")), Some(PemError::Label(2)))]
#[case::no_end(&pem(1).replace("-----END CERTIFICATE-----", ""), Some(PemError::Damaged(1)))]
#[case::no_base64(
    "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----",
    Some(PemError::Damaged(1))
)]
#[case::no_der(
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
    Some(PemError::Damaged(1))
)]
#[case::twice(&format!("{}{}", pem(1), pem(1)), Some(PemError::Repeated(2)))]
fn trust_bundles(#[case] text: &str, #[case] expected: Option<PemError>) {
    let view = TrustBundleView {
        signer_name: None,
        trust_bundle: Some(text),
    };
    let reading = read_trust_bundle(&salt(), Some(view));
    let found = match reading.error() {
        Some(SourceError::Pem(error)) => Some(error.clone()),
        Some(other) => panic!("{other}"),
        None => None,
    };
    assert_eq!(found, expected);
}

#[rstest]
#[case::good(&[("rt-bootstrapper-config.json", r#"{"overrides":{}}"#)], "")]
#[case::more_keys(&[("rt-bootstrapper-config.json", r#"{"overrides":{}}"#), ("README", "x")], "")]
#[case::no_key(&[("config.json", r#"{"overrides":{}}"#)], NO_DOCUMENT)]
#[case::empty(&[("rt-bootstrapper-config.json", " ")], NO_DOCUMENT)]
#[case::no_json(&[("rt-bootstrapper-config.json", "overrides: {}")], "rt-bootstrapper-config.json")]
#[case::a_cycle(&[("rt-bootstrapper-config.json", r#"{"overrides":{"a.io":"b.io","b.io":"a.io"}}"#)], "rt-bootstrapper-config.json")]
fn documents(#[case] data: &[(&str, &str)], #[case] error: &str) {
    let data: BTreeMap<String, String> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let reading = read_configuration(&salt(), Some(ConfigMapView { data: Some(&data) }));
    assert_eq!(reading.valid().is_some(), error.is_empty());
    let found = reading.error().map(ToString::to_string);
    assert_eq!(found.unwrap_or_default(), error);
}

/// It is there, and so it is not absent.
#[test]
fn a_config_map_without_data_is_invalid() {
    let reading = read_configuration(&salt(), Some(ConfigMapView { data: None }));
    let found = reading.error().map(ToString::to_string);
    assert_eq!(found.as_deref(), Some(NO_DOCUMENT));
}

const NO_DOCUMENT: &str = "rt-bootstrapper-config.json: missing or empty";

/// Keys and values do not run together.
#[test]
fn where_a_key_ends_is_part_of_the_content() {
    let hash = |pairs: &[(&str, &str)]| {
        let mut data: BTreeMap<String, String> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        data.insert(
            "rt-bootstrapper-config.json".to_owned(),
            r#"{"overrides":{}}"#.to_owned(),
        );
        read_configuration(&salt(), Some(ConfigMapView { data: Some(&data) }))
            .valid()
            .unwrap()
            .hash
    };
    assert_ne!(hash(&[("a", "bc")]), hash(&[("ab", "c")]));
}

fn absent() -> Sources {
    Sources {
        names: source_names(),
        pull_secret: Reading::Absent,
        trust_bundle: Reading::Absent,
        configuration: Reading::Absent,
    }
}

fn unreadable<T>() -> Reading<T> {
    Reading::Invalid(SourceError::Key("x"))
}

/// Creation, change and deletion are all noticed, also those made while we were down, since what is compared is a
/// record; a source that never existed is none of them.
#[test]
fn what_was_known_tells_a_deletion_from_nothing() {
    let mut known = Known::default();
    assert_eq!(known.advance(&absent(), AT_ONCE), []);
    assert_eq!(known.advance(&sources(), AT_ONCE), Kind::ALL, "created");
    assert_eq!(known.advance(&sources(), AT_ONCE), [], "nothing new");
    let changed = Sources {
        pull_secret: secret("two"),
        ..sources()
    };
    assert_eq!(known.advance(&changed, AT_ONCE), [Kind::PullSecret]);
    let broken = Sources {
        trust_bundle: unreadable(),
        ..changed
    };
    assert_eq!(known.advance(&broken, AT_ONCE), [], "invalid is no change");
    let unmanaged = Sources {
        trust_bundle: Reading::Unmanaged,
        ..broken
    };
    assert_eq!(
        known.advance(&unmanaged, AT_ONCE),
        [],
        "nor is one not looked for"
    );
    let deleted = Sources {
        trust_bundle: Reading::Absent,
        ..unmanaged
    };
    assert_eq!(known.advance(&deleted, AT_ONCE), [Kind::TrustBundle]);
    assert_eq!(known.get(Kind::TrustBundle), Some(Last::Deleted));
    let mut data = BTreeMap::new();
    known.write(&mut data);
    assert_eq!(Known::read(&data).unwrap(), known, "after a restart");
}

/// The sources as they were, but the pull Secret is looked for under another name.
fn renamed(pull_secret: Reading<PullSecret>) -> Sources {
    Sources {
        names: SourceNames {
            pull_secret: Some("pul".to_owned()),
            ..source_names()
        },
        pull_secret,
        ..sources()
    }
}

#[test]
fn source_absent_under_a_name_that_was_never_rolled_out_is_not_deleted() {
    let mut known = Known::default();
    known.advance(&sources(), AT_ONCE);
    let mistyped = renamed(Reading::Absent);
    assert_eq!(known.advance(&mistyped, AT_ONCE), []);
    let desired = after(&mistyped, &known);
    assert_eq!(what(&desired.pull_secret), "never");
    let corrected = Sources {
        pull_secret: Reading::Absent,
        ..sources()
    };
    assert_eq!(known.advance(&corrected, AT_ONCE), [Kind::PullSecret]);
    assert_eq!(what(&after(&corrected, &known).pull_secret), "removed");
}

#[test]
fn source_with_the_same_content_under_another_name_is_remembered_under_that_name() {
    let mut known = Known::default();
    known.advance(&sources(), AT_ONCE);
    assert_eq!(known.advance(&renamed(secret("one")), AT_ONCE), []);
    let mut data = BTreeMap::new();
    known.write(&mut data);
    assert_eq!(data["lastSeen.pullSecret.name"], "pul");
    let mut known = Known::read(&data).unwrap();
    let deleted = renamed(Reading::Absent);
    assert_eq!(known.advance(&deleted, AT_ONCE), [Kind::PullSecret]);
    assert_eq!(what(&after(&deleted, &known).pull_secret), "removed");
}

/// Whichever name it had, nothing is deleted, and the name is there from the next content on.
#[rstest]
#[case::content(&"0".repeat(64))]
#[case::deleted("deleted")]
fn remembered_source_without_a_name_is_not_deleted(#[case] last: &str) {
    let data = BTreeMap::from([("lastSeen.pullSecret".to_owned(), last.to_owned())]);
    let mut known = Known::read(&data).unwrap();
    let gone = Sources {
        pull_secret: Reading::Absent,
        ..sources()
    };
    known.advance(&gone, AT_ONCE);
    assert_eq!(what(&after(&gone, &known).pull_secret), "never");
    known.advance(&sources(), AT_ONCE);
    known.advance(&gone, AT_ONCE);
    assert_eq!(what(&after(&gone, &known).pull_secret), "removed");
}

/// The sources as they were, but the pull Secret is missing.
fn missing() -> Sources {
    Sources {
        pull_secret: Reading::Absent,
        ..sources()
    }
}

/// So many seconds after the beginning, with a grace period of five minutes.
fn at(seconds: i64) -> Grace {
    Grace {
        now: Timestamp::from_second(seconds).unwrap(),
        period: Duration::from_mins(5),
    }
}

fn restarted(known: &Known) -> Known {
    let mut data = BTreeMap::new();
    known.write(&mut data);
    Known::read(&data).unwrap()
}

#[test]
fn missing_source_is_deleted_at_the_end_of_the_grace_period_also_after_restarts() {
    let mut known = Known::default();
    known.advance(&sources(), at(0));
    let wanted = |known: &Known| what(&after(&missing(), known).pull_secret);
    for seconds in [1000, 1100, 1299] {
        assert_eq!(known.advance(&missing(), at(seconds)), []);
        assert_eq!(known.next_deletion(), Timestamp::from_second(1300).ok());
        assert_eq!(wanted(&known), "pending");
        known = restarted(&known);
    }
    assert_eq!(
        known.advance(&missing(), at(1300)),
        [Kind::PullSecret],
        "now it is deleted"
    );
    assert_eq!(known.next_deletion(), None);
    assert_eq!(wanted(&known), "removed");
    assert_eq!(restarted(&known), known);
}

#[rstest]
#[case::there_again(sources(), &[])]
#[case::with_another_content(Sources { pull_secret: secret("two"), ..sources() }, &[Kind::PullSecret])]
#[case::invalid(Sources { pull_secret: unreadable(), ..sources() }, &[])]
#[case::not_looked_for(Sources { pull_secret: Reading::Unmanaged, ..sources() }, &[])]
#[case::looked_for_under_another_name(renamed(Reading::Absent), &[])]
fn missing_source_that_comes_back_has_a_whole_grace_period_again(
    #[case] back: Sources,
    #[case] changed: &[Kind],
) {
    let mut known = Known::default();
    known.advance(&sources(), at(0));
    known.advance(&missing(), at(1000));
    assert_eq!(known.advance(&back, at(1299)), changed);
    assert_eq!(known.next_deletion(), None);
    let mut known = restarted(&known);
    assert_eq!(known.advance(&missing(), at(1310)), []);
    assert_eq!(known.next_deletion(), Timestamp::from_second(1610).ok());
}

#[test]
fn clock_that_is_set_back_does_not_prolong_a_grace_period_beyond_its_length() {
    let mut known = Known::default();
    known.advance(&sources(), at(100_000));
    known.advance(&missing(), at(100_000));
    known.advance(&missing(), at(1000));
    assert_eq!(known.next_deletion(), Timestamp::from_second(1300).ok());
}

/// Nothing changes for a runtime before the end of the grace period: neither the version nor what the document requires.
#[test]
fn missing_source_leaves_the_version_and_the_requirements_as_they_are() {
    let mut known = Known::default();
    known.advance(&sources(), at(0));
    let before = after(&sources(), &known);
    known.advance(&missing(), at(1000));
    let pending = after(&missing(), &known);
    assert_eq!(pending.version, before.version);
    assert_eq!(pending.configuration, before.configuration);
}

#[test]
fn a_damaged_record_is_no_empty_one() {
    let data = BTreeMap::from([("lastSeen.pullSecret".to_owned(), "x".to_owned())]);
    let error = Known::read(&data).unwrap_err();
    assert_eq!(error.kind, Kind::PullSecret);
}

/// They hold names, data and type, and nothing of the source's metadata.
#[test]
fn objects_hold_content_and_our_annotations_alone() {
    let sources = Sources {
        trust_bundle: read_trust_bundle(
            &salt(),
            Some(TrustBundleView {
                signer_name: Some("example.com/ca"),
                trust_bundle: Some(&pem(7)),
            }),
        ),
        ..sources()
    };
    let desired = desired(&sources);
    let [secret, bundle, document] = Kind::ALL.map(|kind| match desired.get(kind) {
        Wanted::Present { object, hash } => {
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

fn what(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::Present { .. } => "present",
        Wanted::Removed => "removed",
        Wanted::Untouched(Why::Off) => "off",
        Wanted::Untouched(Why::NotFound { .. }) => "never",
        Wanted::Untouched(Why::Unmanaged) => "unmanaged",
        Wanted::Untouched(Why::Invalid(_)) => "invalid",
        Wanted::Untouched(Why::Held(_)) => "held",
        Wanted::Untouched(Why::DeletionPending { .. }) => "pending",
    }
}

/// Parts are optional. A source that cannot be read changes nothing; what does not depend on it goes over all the same.
#[rstest]
#[case::all_there(sources(), true, ["present", "present", "present"])]
#[case::nothing_ever(absent(), false, ["never", "never", "never"])]
#[case::all_deleted(absent(), true, ["removed", "removed", "removed"])]
#[case::bundle_never(Sources { trust_bundle: Reading::Absent, ..sources() }, false, ["present", "never", "present"])]
#[case::bundle_deleted(Sources { trust_bundle: Reading::Absent, ..sources() }, true, ["present", "removed", "present"])]
#[case::secret_invalid(Sources { pull_secret: unreadable(), ..sources() }, true, ["invalid", "present", "held"])]
#[case::bundle_invalid(Sources { trust_bundle: unreadable(), ..sources() }, true, ["present", "invalid", "held"])]
#[case::secret_unmanaged(Sources { pull_secret: Reading::Unmanaged, ..sources() }, false, ["unmanaged", "present", "present"])]
#[case::bundle_unmanaged(Sources { trust_bundle: Reading::Unmanaged, ..sources() }, true, ["present", "unmanaged", "present"])]
#[case::document_invalid(Sources { configuration: unreadable(), ..sources() }, true, ["present", "present", "invalid"])]
#[case::document_deleted_secret_invalid(Sources { pull_secret: unreadable(), configuration: Reading::Absent, ..sources() }, true, ["invalid", "present", "removed"])]
fn wanted(#[case] now: Sources, #[case] there_before: bool, #[case] expected: [&str; 3]) {
    let mut known = Known::default();
    if there_before {
        known.advance(&sources(), AT_ONCE);
    }
    known.advance(&now, AT_ONCE);
    let desired = after(&now, &known);
    assert_eq!(Kind::ALL.map(|kind| what(desired.get(kind))), expected);
    let held = expected[2] == "held" || expected[2] == "invalid";
    assert_eq!(desired.version.is_none(), held);
}

/// What the operator gave no name is neither written nor waited for.
#[test]
fn a_part_without_a_name_is_off() {
    let names = Names {
        pull_secret: None,
        trust_bundle: Some(String::new()),
        ..Default::default()
    };
    let sources = Sources {
        pull_secret: unreadable(),
        ..sources()
    };
    let desired = Desired::new(&sources, &Known::default(), &names);
    assert_eq!(
        Kind::ALL.map(|kind| what(desired.get(kind))),
        ["off", "off", "present"]
    );
    let Wanted::Present { object, .. } = &desired.configuration else {
        panic!("absent");
    };
    assert_eq!(
        object["metadata"]["annotations"].as_object().unwrap().len(),
        1
    );
}

/// What an object is called on KCP says nothing of its name on the runtime.
#[test]
fn each_object_has_the_runtimes_name_for_it() {
    let names = Names {
        pull_secret: Some("there".to_owned()),
        trust_bundle: Some("their-roots".to_owned()),
        ..Names::default()
    };
    let desired = Desired::new(&sources(), &Known::default(), &names);
    let written = Kind::ALL.map(|kind| match desired.get(kind) {
        Wanted::Present { object, .. } => object["metadata"]["name"].clone(),
        other => panic!("{other:?}"),
    });
    assert_eq!(written, ["there", "their-roots", "rt-bootstrapper-config"]);
}

/// What the webhook does not read, it must not wait for: a document may name another Secret, or another bundle, than the
/// ones that are written.
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
    let names = Names {
        pull_secret: secret.map(str::to_owned),
        trust_bundle: Some("landscape".to_owned()),
        ..Names::default()
    };
    let sources = Sources {
        configuration: document(extra),
        ..sources()
    };
    let desired = Desired::new(&sources, &Known::default(), &names);
    let Wanted::Present { object, .. } = &desired.configuration else {
        panic!("{:?}", desired.configuration);
    };
    let annotations = object["metadata"]["annotations"].as_object().unwrap();
    let required: Vec<&str> = annotations
        .keys()
        .filter_map(|key| key.strip_prefix("rt-bootstrapper.kyma-project.io/requires-"))
        .collect();
    assert_eq!(required, parts);
}

/// What only metadata tells apart is the same content, and so the same version.
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
            trust_bundle: Reading::Absent,
            ..sources()
        },
    ] {
        assert_ne!(desired(&other).version, desired(&sources()).version);
    }
}

fn said(desired: &Desired) -> ConfigurationStatus {
    let hash = |kind| match desired.get(kind) {
        Wanted::Present { hash, .. } => Some(hash.to_string()),
        Wanted::Removed | Wanted::Untouched(_) => None,
    };
    ConfigurationStatus {
        pull_secret_hash: hash(Kind::PullSecret),
        trust_bundle_hash: hash(Kind::TrustBundle),
        config_map_hash: hash(Kind::Configuration),
        revision: desired.version.map(|it| it.to_string()),
        last_update_time: None,
    }
}

#[test]
fn a_change_beside_an_invalid_source_is_another_revision() {
    let invalid = || Reading::Invalid(SourceError::Key("x"));
    let one = desired(&Sources {
        configuration: invalid(),
        ..sources()
    });
    let two = desired(&Sources {
        configuration: invalid(),
        pull_secret: secret("two"),
        ..sources()
    });
    assert_eq!((one.version, two.version), (None, None));
    assert_ne!(one.revision, two.revision);
    assert_ne!(one.revision, desired(&sources()).revision);
    // Why a source is invalid changes nothing of what is written.
    let other = Reading::Invalid(SourceError::Key("y"));
    let same = desired(&Sources {
        configuration: other,
        ..sources()
    });
    assert_eq!(one.revision, same.revision);
    // A runtime that holds the parts holds all that is wanted, whatever its document.
    let mut holds_one = said(&one);
    assert!(one.is_held(Some(&holds_one)) && !two.is_held(Some(&holds_one)));
    holds_one.config_map_hash = Some("another".to_owned());
    assert!(one.is_held(Some(&holds_one)));
    assert!(!one.is_held(None));
}

#[test]
fn a_complete_version_is_held_only_as_a_whole() {
    let wanted = desired(&sources());
    assert_eq!(wanted.version, Some(wanted.revision));
    let mut holds = said(&wanted);
    assert!(wanted.is_held(Some(&holds)));
    // All three hashes are right, but the document may still require an older part.
    holds.revision = None;
    assert!(!wanted.is_held(Some(&holds)));
}
