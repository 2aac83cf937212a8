use futures::stream;
use k8s_openapi::ByteString;
use rstest::rstest;
use serde_json::json;

use super::*;

const ENTRY: &str = "mpod-v1.kb.io";

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

const UNKNOWN: &str = "unknown";
const ABSENT: &str = "absent";

/// The bundle of the entry that is known after the events, or one of the two words above.
async fn seen(events: Vec<Event<MutatingWebhookConfiguration>>) -> String {
    let cell = Cell::default();
    let read = |configuration: &_| LiveEntry::read(configuration, ENTRY);
    follow(stream::iter(events), read, &cell).await;
    match cell.seen() {
        Sighting::Unknown => UNKNOWN.to_owned(),
        Sighting::Absent => ABSENT.to_owned(),
        Sighting::Present(entry) => String::from_utf8(entry.ca_bundle.clone()).unwrap(),
    }
}

fn ours(bundle: &str) -> MutatingWebhookConfiguration {
    configuration("1", &[("other.io", "theirs"), (ENTRY, bundle)])
}

#[rstest]
#[case::no_list_yet(vec![Event::Init], UNKNOWN)]
#[case::half_a_list(vec![Event::Init, Event::InitApply(ours("a"))], UNKNOWN)]
#[case::empty_list(vec![Event::Init, Event::InitDone], ABSENT)]
#[case::listed(vec![Event::Init, Event::InitApply(ours("a")), Event::InitDone], "a")]
#[case::list_begun_anew(
    vec![Event::Init, Event::InitApply(ours("a")), Event::Init, Event::InitDone], ABSENT
)]
#[case::known_through_a_relist(vec![Event::Apply(ours("a")), Event::Init], "a")]
#[case::changed(vec![Event::Apply(ours("a")), Event::Apply(ours("b"))], "b")]
#[case::deleted(vec![Event::Apply(ours("a")), Event::Delete(ours("a"))], ABSENT)]
#[case::entry_removed(
    vec![Event::Apply(ours("a")), Event::Apply(configuration("2", &[("other.io", "theirs")]))], ABSENT
)]
#[case::no_entries(vec![Event::Apply(configuration("2", &[]))], ABSENT)]
#[tokio::test]
async fn the_last_complete_state_stands(
    #[case] events: Vec<Event<MutatingWebhookConfiguration>>,
    #[case] expected: &str,
) {
    assert_eq!(seen(events).await, expected);
}

#[test]
fn an_entry_without_a_bundle_is_there() {
    let mut configuration = ours("a");
    for entry in configuration.webhooks.iter_mut().flatten() {
        entry.client_config.ca_bundle = None;
    }
    let entry = LiveEntry::read(&configuration, ENTRY).unwrap();
    assert_eq!(entry.ca_bundle, b"");
    assert_eq!(entry.resource_version.as_deref(), Some("1"));
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
    let read = StoredSecret::read(&secret);
    assert_eq!(
        (read.uid.as_deref(), read.resource_version.as_deref()),
        (Some("u"), Some("9"))
    );
    assert_eq!(read.kind.as_deref(), Some("kubernetes.io/tls"));
    assert!(read.immutable);
    assert_eq!(read.material.chain, b"chain");
    assert_eq!(read.material.key, b"key");
    assert_eq!(read.material.authorities, b"");
}
