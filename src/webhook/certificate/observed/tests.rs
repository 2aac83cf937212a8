use k8s_openapi::ByteString;
use serde_json::json;

use rstest::rstest;

use super::*;
use crate::certificate::fixtures::{entry_with, epoch, material, present};

fn configuration(version: &str, entries: &[(&str, &str)]) -> MutatingWebhookConfiguration {
    let webhooks: Vec<_> = entries
        .iter()
        .map(|(name, bundle)| {
            let bundle = ByteString(bundle.as_bytes().to_vec());
            json!({ "name": name, "clientConfig": { "caBundle": bundle }, "sideEffects": "None", "admissionReviewVersions": ["v1"] })
        })
        .collect();
    let metadata = json!({ "name": "any", "resourceVersion": version });
    serde_json::from_value(json!({ "metadata": metadata, "webhooks": webhooks })).unwrap()
}

fn ours(bundle: &str) -> MutatingWebhookConfiguration {
    configuration("1", &[("other.io", "theirs"), (ENTRY, bundle)])
}

#[test]
fn a_configuration_without_the_entry_has_none() {
    for entries in [&[("other.io", "theirs")][..], &[]] {
        assert_eq!(LiveEntry::read(configuration("2", entries), ENTRY), None);
    }
    let entry = LiveEntry::read(ours("a"), ENTRY).unwrap();
    assert_eq!(entry.ca_bundle, b"a");
}

#[test]
fn an_entry_without_a_bundle_is_there() {
    let mut configuration = ours("a");
    for entry in configuration.webhooks.iter_mut().flatten() {
        entry.client_config.ca_bundle = None;
    }
    let entry = LiveEntry::read(configuration, ENTRY).unwrap();
    assert_eq!(entry.ca_bundle, b"");
    assert_eq!(entry.resource_version, "1");
    assert_eq!(entry.index, 1);
}

#[test]
fn a_secret_is_taken_as_it_is() {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "uid": "u", "resourceVersion": "9" },
        "type": "kubernetes.io/tls",
        "immutable": true,
        "data": { "tls.crt": ByteString(b"chain".to_vec()), "tls.key": ByteString(b"key".to_vec()) },
    }))
    .unwrap();
    let read = StoredCertificate::read(secret);
    assert_eq!(
        read.identity,
        Preconditions {
            uid: Some("u".to_owned()),
            resource_version: Some("9".to_owned()),
        }
    );
    assert_eq!(read.type_.as_deref(), Some("kubernetes.io/tls"));
    assert!(read.immutable);
    assert_eq!(read.material.chain, b"chain");
    assert_eq!(*read.material.key, b"key");
    assert_eq!(read.material.authorities, b"");
}

fn stored(material: Material) -> Observed<StoredCertificate> {
    present(material.into())
}

#[rstest]
#[case::entry_and_files(present(entry_with(material(epoch()).authorities)), true)]
#[case::entry_without_bundle(present(entry_with("")), false)]
#[case::no_entry(Observed::Absent, true)]
#[case::not_known_yet(Observed::Unknown, false)]
fn trust_is_the_live_bundle_or_what_it_will_be(
    #[case] entry: Observed<LiveEntry>,
    #[case] is_verified: bool,
) {
    let files = material(epoch());
    let own = Bundle::read(&files.authorities);
    let files = stored(files);
    let trust = callers_trust(&entry, &files);
    assert_eq!(!trust.is_empty(), is_verified);
    assert_eq!(trust == own, matches!(entry, Observed::Absent));
    assert!(callers_trust(&Observed::Absent, &Observed::Absent).is_empty());
}
