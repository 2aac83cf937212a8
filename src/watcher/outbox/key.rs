//! One object that one manager watches, as the bytes that name it.
//!
//! The same bytes are the queue's key and the payload of a spooled record, so an event is encoded once, and an event
//! whose object waits already costs neither memory nor a write. Invariant: what [`encode`] wrote, [`decode`] gives back;
//! what [`decode`] takes, [`encode`] could have written.

use api::event::{Gvk, NamespacedName, PathSegment, WatchEvent};

use super::record::PAYLOAD_BYTES;

/// Writes the key of `event` for `manager` over `key`. `false`: it is larger than any body that a listener takes, and
/// `key` is not to be used.
pub(super) fn encode(key: &mut Vec<u8>, manager: &PathSegment, event: &WatchEvent) -> bool {
    let WatchEvent {
        watched: NamespacedName { namespace, name },
        watched_gvk: Gvk {
            group,
            version,
            kind,
        },
    } = event;
    let parts = [manager.as_str(), group, version, kind, namespace, name];
    key.clear();
    if parts.iter().map(|part| part.len() + 2).sum::<usize>() > PAYLOAD_BYTES {
        return false;
    }
    for part in parts {
        let Ok(length) = u16::try_from(part.len()) else {
            return false;
        };
        key.extend_from_slice(&length.to_le_bytes());
        key.extend_from_slice(part.as_bytes());
    }
    true
}

/// What `key` names; `None`: it is no key.
pub(super) fn decode(key: &[u8]) -> Option<(PathSegment, WatchEvent)> {
    if key.len() > PAYLOAD_BYTES {
        return None;
    }
    let mut rest = key;
    let manager = PathSegment::parse(text(&mut rest)?).ok()?;
    let group = text(&mut rest)?.to_owned();
    let version = text(&mut rest)?.to_owned();
    let kind = text(&mut rest)?.to_owned();
    let namespace = text(&mut rest)?.to_owned();
    let name = text(&mut rest)?.to_owned();
    let event = WatchEvent {
        watched: NamespacedName { namespace, name },
        watched_gvk: Gvk {
            group,
            version,
            kind,
        },
    };
    rest.is_empty().then_some((manager, event))
}

/// Whom `key` is for; `None`: it is no key.
pub(super) fn manager(key: &[u8]) -> Option<PathSegment> {
    let mut rest = key;
    PathSegment::parse(text(&mut rest)?).ok()
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, behind) = rest.split_first_chunk()?;
    let (text, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    *rest = behind;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
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
}
