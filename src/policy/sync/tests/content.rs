//! The sources as they are read on KCP, and their hashes.

use std::collections::BTreeMap;

use rstest::rstest;

use super::samples::{absent, bundle, pem, salt};
use crate::sync::sources::{
    PemError, SourceError, SourceState, Sources, read_configuration, read_pull_secret,
    read_trust_bundle,
};
use crate::sync::{Hash, Salt, SourceKind};

const TYPE: Option<&str> = Some("kubernetes.io/dockerconfigjson");

/// The expected value was computed with another program: SHA-256 over the parts, each after its length in eight bytes.
#[test]
fn a_hash_is_what_the_documentation_says() {
    let SourceState::Valid(hash) = Sources {
        trust_bundle: bundle(1),
        ..absent()
    }
    .get(SourceKind::TrustBundle) else {
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

/// Without the UID of KCP, guessed content cannot be verified with a hash.
#[test]
fn equal_contents_of_two_control_planes_have_different_hashes() {
    let config = Some(&br#"{"auths":{}}"#[..]);
    let hash = |uid| {
        let read = read_pull_secret(&Salt::new(uid), TYPE, config);
        read.unwrap().hash
    };
    assert_eq!(hash("one"), hash("one"));
    assert_ne!(hash("one"), hash("two"));
}

/// The type must be the type of a docker config.
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
    let reading = read_pull_secret(&salt(), kind, config.map(str::as_bytes));
    assert!(!format!("{reading:?}").contains("hunter2"));
    let found = reading.err().map(|it| it.to_string());
    assert_eq!(found.unwrap_or_default(), error);
}

#[rstest]
#[case::one(&pem(1), None)]
#[case::two(&format!("{}{}", pem(1), pem(2)), None)]
#[case::comments(&format!("# the root\n{}\n# end\n", pem(1)), None)]
#[case::windows_line_ends(&pem(1).replace('\n', "\r\n"), None)]
#[case::empty("", Some(PemError::Empty))]
#[case::text("root.crt", Some(PemError::Empty))]
#[case::indented_key(&format!("{}  {}", pem(1), pem(2).replace("CERTIFICATE", "PRIVATE KEY")), Some(PemError::Label(2)))]
#[case::indented_certificate(&format!(" {}", pem(1)), Some(PemError::Label(1)))]
#[case::key(&format!("{}{}", pem(1), pem(2).replace("CERTIFICATE", "PRIVATE KEY")), Some(PemError::Label(2)))]
#[case::key_of_an_unknown_kind(&format!("{}{}", pem(1), pem(2).replace("CERTIFICATE", "OPENSSH PRIVATE KEY")), Some(PemError::Label(2)))]
#[case::key_inside_a_block(&pem(1).replace("\n-----END", "\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END"), Some(PemError::Label(2)))]
#[case::no_end_before_another(&format!("{}{}", pem(1).replace("-----END CERTIFICATE-----", ""), pem(2)), Some(PemError::Damaged(1)))]
#[case::header(&pem(1).replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1), Some(PemError::Damaged(1)))]
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
    let found = match read_trust_bundle(&salt(), None, Some(text)) {
        Err(SourceError::Pem(error)) => Some(error),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
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
    let reading = read_configuration(&salt(), Some(&data));
    let found = reading.err().map(|it| it.to_string());
    assert_eq!(found.unwrap_or_default(), error);
}

/// The ConfigMap exists, so that the source is not absent.
#[test]
fn a_config_map_without_data_is_invalid() {
    let error = read_configuration(&salt(), None).unwrap_err();
    assert_eq!(error.to_string(), NO_DOCUMENT);
}

const NO_DOCUMENT: &str = "rt-bootstrapper-config.json: missing or empty";

/// The hash distinguishes the end of a key from the start of its value.
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
        read_configuration(&salt(), Some(&data)).unwrap().hash
    };
    assert_ne!(hash(&[("a", "bc")]), hash(&[("ab", "c")]));
}
