//! The wire format, byte for byte, and what is forgiven.

use std::error::Error as _;

use rstest::rstest;

use super::*;

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

/// As the public watcher writes it: capital `Namespace` and `Name`, all keys present, this order.
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

#[test]
fn a_heartbeat_is_camel_case() {
    let heartbeat = Heartbeat {
        boot_id: BootId::parse("b-1").unwrap(),
        sequence: u64::MAX,
        spool_depth: 2,
        oldest_age_seconds: 3,
        version: "1.2.3".into(),
        resync_needed: false,
    };
    let wire = r#"{"bootId":"b-1","sequence":18446744073709551615,"spoolDepth":2,"oldestAgeSeconds":3,"version":"1.2.3"}"#;
    assert_eq!(serde_json::to_string(&heartbeat).unwrap(), wire);
    assert_eq!(Heartbeat::parse(wire.as_bytes()).unwrap(), heartbeat);
}

#[test]
fn a_heartbeat_may_ask_for_a_look_at_everything() {
    let heartbeat = Heartbeat {
        boot_id: BootId::parse("b").unwrap(),
        sequence: 1,
        spool_depth: 0,
        oldest_age_seconds: 0,
        version: "1".into(),
        resync_needed: true,
    };
    let wire = r#"{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"1","resyncNeeded":true}"#;
    assert_eq!(serde_json::to_string(&heartbeat).unwrap(), wire);
    assert_eq!(Heartbeat::parse(wire.as_bytes()).unwrap(), heartbeat);
}

#[rstest]
#[case::missing_key(r#"{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0}"#)]
#[case::negative(
    r#"{"bootId":"b","sequence":-1,"spoolDepth":0,"oldestAgeSeconds":0,"version":""}"#
)]
#[case::a_word_for_a_mark(
    r#"{"bootId":"b","sequence":1,"spoolDepth":0,"oldestAgeSeconds":0,"version":"","resyncNeeded":"no"}"#
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
