//! One object that one manager watches, as the bytes that name it.
//!
//! The same bytes are the queue's key and the payload of a spooled record, so an event is encoded once, and an event
//! whose object waits already costs neither memory nor a write. What [`encode`] wrote, [`decode`] gives back;
//! what [`decode`] takes, [`encode`] could have written.

use watcher_types::{Gvk, NamespacedName, PathSegment, WatchEvent};

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
mod tests;
