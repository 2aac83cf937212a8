//! Encoding of one object that one manager watches.
//!
//! The same bytes are the key in the queue and the payload of a spooled record. Therefore an event is encoded once, and an
//! event for an object that already waits requires neither memory nor a write. [`decode`] returns the values that
//! [`encode`] wrote. Each key that [`decode`] accepts could have been written by [`encode`].

use watcher_types::{Gvk, NamespacedName, PathSegment, WatchEvent};

use super::record::PAYLOAD_BYTES;

/// Writes the key of `event` for `manager` into `key`. Returns `false` if the key is larger than any body that a listener
/// accepts; `key` must not be used then.
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

/// Returns the manager and the event of `key`; `None` if it is not a valid key.
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

/// Returns the manager of `key`; `None` if it is not a valid key.
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
