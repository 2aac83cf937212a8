//! Tests of the exact wire format, and of the deviations that are accepted.

use std::error::Error as _;

use rstest::rstest;

use runtime_watcher_types::*;

fn event(group: &str) -> WatchEvent {
    WatchEvent {
        watched: NamespacedName {
            namespace: "ns".into(),
            name: "n".into(),
        },
        watched_gvk: Gvk {
            group: group.into(),
            version: "v".into(),
            kind: "K".into(),
        },
    }
}

/// The format of the public watcher: capital `Namespace` and `Name`, all keys present, this order.
#[rstest]
#[case("g", r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K"}}"#)]
#[case("", r#"{"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"","version":"v","kind":"K"}}"#)]
fn an_event_is_written_as_the_public_watcher_writes_it(#[case] group: &str, #[case] wire: &str) {
    assert_eq!(serde_json::to_string(&event(group)).unwrap(), wire);
    assert_eq!(WatchEvent::parse(wire.as_bytes()).unwrap(), event(group));
}

#[rstest]
#[case::lower_case_keys(r#"{"watched":{"namespace":"ns","name":"n"},"watchedgvk":{"group":"g","version":"v","kind":"K"}}"#)]
#[case::an_owner(
    r#"{"owner":{"Namespace":"o","Name":"o"},"watched":{"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K"}}"#
)]
#[case::keys_of_tomorrow(
    r#"{"new":[1],"watched":{"UID":1,"Namespace":"ns","Name":"n"},"watchedGvk":{"group":"g","version":"v","kind":"K","resource":"ks"}}"#
)]
fn what_others_send_is_understood(#[case] wire: &str) {
    assert_eq!(WatchEvent::parse(wire.as_bytes()).unwrap(), event("g"));
}

#[test]
fn absent_keys_are_empty_as_in_the_public_protocol() {
    assert_eq!(WatchEvent::parse(b"{}").unwrap(), WatchEvent::default());
}

#[rstest]
#[case::nothing("")]
#[case::null("null")]
#[case::another_document("[]")]
#[case::an_array_for_an_object(r#"{"watched":["ns","n"]}"#)]
#[case::another_type(r#"{"watched":{"Name":7}}"#)]
#[case::a_key_twice(r#"{"watched":{"Name":"a","name":"b"}}"#)]
#[case::bytes_behind_it("{} {}")]
#[case::cut_off(r#"{"watched":{"#)]
fn other_bodies_are_no_events(#[case] body: &str) {
    let error = WatchEvent::parse(body.as_bytes()).unwrap_err();
    assert!(matches!(error, EventError::Json(_)), "{error:?}");
}

#[test]
fn an_error_does_not_quote_the_sender() {
    let error = WatchEvent::parse(br#"{"watched":"<script>"}"#).unwrap_err();
    assert!(!error.to_string().contains("script"));
    assert!(error.source().is_some());
}

#[test]
fn a_body_may_be_as_large_as_the_bound_and_no_larger() {
    let mut body = b"{}".to_vec();
    body.resize(BODY_BYTES, b' ');
    assert!(WatchEvent::parse(&body).is_ok());
    body.push(b' ');
    assert!(matches!(
        WatchEvent::parse(&body),
        Err(EventError::TooLarge)
    ));
}

/// A heartbeat of a release without the optional keys. All of them are absent.
#[test]
fn a_heartbeat_without_the_later_keys_is_as_it_always_was() {
    let mut heartbeat = Heartbeat::new(BootId::parse("b-1").unwrap(), "1.2.3".into());
    (
        heartbeat.sequence,
        heartbeat.spool_depth,
        heartbeat.oldest_age_seconds,
    ) = (u64::MAX, 2, 3);
    let wire = r#"{"bootId":"b-1","sequence":18446744073709551615,"spoolDepth":2,"oldestAgeSeconds":3,"version":"1.2.3"}"#;
    assert_eq!(serde_json::to_string(&heartbeat).unwrap(), wire);
    assert_eq!(Heartbeat::parse(wire.as_bytes()).unwrap(), heartbeat);
}

#[test]
fn a_heartbeat_with_all_keys_is_camel_case() {
    let mut heartbeat = Heartbeat::new(BootId::parse("b").unwrap(), "1".into());
    heartbeat.resync_needed = true;
    heartbeat.follow_up_depth = 4;
    heartbeat.ending = true;
    heartbeat.reviews_seen = Some(0);
    heartbeat.last_review_age_seconds = Some(7);
    heartbeat.manager_reviews_seen = Some(0);
    heartbeat.manager_last_review_age_seconds = Some(9);
    heartbeat.handshake_failures = Some(8);
    heartbeat.certificate_not_after = Some(-1);
    heartbeat.bundle_sha256 = Some("0a".repeat(32));
    heartbeat.webhook_entry_hash = Some("c".to_owned());
    heartbeat.webhook_entry_age_seconds = Some(0);
    heartbeat.ready_milliseconds = Some(0);
    heartbeat.terminating_milliseconds = Some(6);
    let hash = "0a".repeat(32);
    let wire = format!(
        r#"{{"bootId":"b","sequence":0,"spoolDepth":0,"oldestAgeSeconds":0,"version":"1","resyncNeeded":true,"followUpDepth":4,"ending":true,"reviewsSeen":0,"lastReviewAgeSeconds":7,"managerReviewsSeen":0,"managerLastReviewAgeSeconds":9,"handshakeFailures":8,"certificateNotAfter":-1,"bundleSha256":"{hash}","webhookEntryHash":"c","webhookEntryAgeSeconds":0,"readyMilliseconds":0,"terminatingMilliseconds":6}}"#
    );
    assert_eq!(serde_json::to_string(&heartbeat).unwrap(), wire);
    assert_eq!(Heartbeat::parse(wire.as_bytes()).unwrap(), heartbeat);
}

/// A listener of the release before the later keys, which has these fields and ignores all other keys.
#[test]
fn a_heartbeat_with_all_keys_is_understood_by_an_earlier_listener() {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Earlier {
        boot_id: String,
        sequence: u64,
        spool_depth: u64,
        oldest_age_seconds: u64,
        version: String,
        #[serde(default)]
        resync_needed: bool,
    }
    let mut heartbeat = Heartbeat::new(BootId::parse("b").unwrap(), "1".into());
    (heartbeat.sequence, heartbeat.spool_depth) = (9, 2);
    heartbeat.follow_up_depth = 4;
    heartbeat.ending = true;
    heartbeat.reviews_seen = Some(5);
    heartbeat.bundle_sha256 = Some("0a".repeat(32));
    let wire = serde_json::to_string(&heartbeat).unwrap();
    let earlier: Earlier = serde_json::from_str(&wire).unwrap();
    assert_eq!(
        (earlier.boot_id.as_str(), earlier.version.as_str()),
        ("b", "1")
    );
    assert_eq!((earlier.sequence, earlier.spool_depth), (9, 2));
    assert_eq!(
        (earlier.oldest_age_seconds, earlier.resync_needed),
        (0, false)
    );
}

#[rstest]
#[case::too_short(r#""0a""#)]
#[case::no_digits(r#""zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz""#)]
fn a_bundle_hash_that_is_none_is_refused(#[case] hash: &str) {
    let wire = format!(
        r#"{{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"","bundleSha256":{hash}}}"#
    );
    let error = Heartbeat::parse(wire.as_bytes()).unwrap_err();
    assert!(matches!(error, EventError::BundleHash), "{error:?}");
}

#[rstest]
#[case::empty("")]
#[case::too_long(&"a".repeat(65))]
#[case::a_path("a/b")]
fn a_hash_of_webhook_entries_that_is_none_is_refused(#[case] hash: &str) {
    let wire = format!(
        r#"{{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"","webhookEntryHash":"{hash}"}}"#
    );
    let error = Heartbeat::parse(wire.as_bytes()).unwrap_err();
    assert!(matches!(error, EventError::EntryHash), "{error:?}");
}

#[rstest]
#[case::missing_key(r#"{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0}"#)]
#[case::negative(
    r#"{"bootId":"b","sequence":-1,"spoolDepth":0,"oldestAgeSeconds":0,"version":""}"#
)]
#[case::a_word_for_a_mark(
    r#"{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"","resyncNeeded":"no"}"#
)]
#[case::a_number_for_a_hash(
    r#"{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"","bundleSha256":7}"#
)]
#[case::more_reviews_than_a_number_holds(
    r#"{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"","reviewsSeen":1e30}"#
)]
#[case::empty_boot_id(
    r#"{"bootId":"","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":""}"#
)]
#[case::unprintable_boot_id(
    r#"{"bootId":"a\nb","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":""}"#
)]
fn other_bodies_are_no_heartbeats(#[case] body: &str) {
    assert!(matches!(
        Heartbeat::parse(body.as_bytes()),
        Err(EventError::Json(_))
    ));
}

#[test]
fn what_a_heartbeat_makes_others_keep_is_bounded() {
    let wire = |boot_id: usize, version: usize| {
        let (boot_id, version) = ("b".repeat(boot_id), "v".repeat(version));
        format!(
            r#"{{"bootId":"{boot_id}","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"{version}"}}"#
        )
    };
    assert!(Heartbeat::parse(wire(64, 64).as_bytes()).is_ok());
    assert!(Heartbeat::parse(wire(65, 64).as_bytes()).is_err());
    assert!(matches!(
        Heartbeat::parse(wire(64, 65).as_bytes()),
        Err(EventError::Version)
    ));
}

#[test]
fn paths_are_those_of_the_contract() {
    let manager = PathSegment::parse("lifecycle-manager").unwrap();
    assert_eq!(
        event_path(&PathSegment::V2, &manager),
        "/v2/lifecycle-manager/event"
    );
    assert_eq!(
        heartbeat_path(&PathSegment::V2, &manager),
        "/v2/lifecycle-manager/event/heartbeat"
    );
}

#[rstest]
#[case::nothing("")]
#[case::a_slash("a/b")]
#[case::dots("..")]
#[case::a_space("a b")]
#[case::an_escape("a%2fb")]
#[case::a_router_pattern("{a}")]
#[case::a_query("a?b")]
#[case::too_long(&"a".repeat(129))]
fn what_would_change_the_path_is_no_segment(#[case] text: &str) {
    assert!(matches!(
        PathSegment::parse(text),
        Err(EventError::PathSegment)
    ));
}
