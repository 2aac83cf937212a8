use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn event(name: &str) -> WatchEvent {
    WatchEvent {
        watched: NamespacedName {
            namespace: "n".to_owned(),
            name: name.to_owned(),
        },
        watched_gvk: Gvk {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
        },
    }
}

#[rstest]
#[case::usual("settings", true)]
#[case::empty("", true)]
#[case::not_ascii("é\0\u{1F600}", true)]
#[case::largest(&"x".repeat(PAYLOAD_BYTES - 28), true)]
#[case::one_byte_more(&"x".repeat(PAYLOAD_BYTES - 27), false)]
#[case::too_large(&"x".repeat(PAYLOAD_BYTES), false)]
#[case::longer_than_a_length_can_say(&"x".repeat(70_000), false)]
fn a_key_comes_back(#[case] name: &str, #[case] fits: bool) {
    let manager = PathSegment::parse("kyma").unwrap();
    let mut key = b"left over".to_vec();
    assert_eq!(encode(&mut key, &manager, &event(name)), fits);
    if fits {
        assert_eq!(super::manager(&key).as_ref(), Some(&manager));
        assert_eq!(decode(&key), Some((manager, event(name))));
    }
}

#[rstest]
#[case::nothing(b"")]
#[case::cut(b"\x04\0kyma\0\0\x02\0v1\x01\0K\x01\0n\x01\0")]
#[case::too_much(b"\x04\0kyma\0\0\x02\0v1\x01\0K\x01\0n\x01\0xy")]
#[case::no_segment(b"\x04\0ky/a\0\0\x02\0v1\x01\0K\x01\0n\x01\0x")]
#[case::not_utf8(b"\x04\0kyma\0\0\x02\0v1\x01\0K\x01\0n\x01\0\xFF")]
fn what_is_no_key_is_refused(#[case] bytes: &[u8]) {
    assert_eq!(decode(bytes), None);
}

proptest! {
    #[test]
    fn any_bytes_are_no_key_or_one_that_encodes_to_them(bytes in prop::collection::vec(0_u8..4, 0..64)) {
        if let Some((manager, event)) = decode(&bytes) {
            let mut key = Vec::new();
            prop_assert!(encode(&mut key, &manager, &event));
            prop_assert_eq!(key, bytes);
        }
    }
}
