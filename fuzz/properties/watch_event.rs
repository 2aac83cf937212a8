//! What a listener has read of an event or a heartbeat, it would read again.

use std::fmt::Debug;

use watcher_types::{BODY_BYTES, EventError, Heartbeat, WatchEvent};

/// Holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    comes_back(data, WatchEvent::parse);
    comes_back(data, Heartbeat::parse);
}

fn comes_back<T: serde::Serialize + PartialEq + Debug>(
    body: &[u8],
    parse: fn(&[u8]) -> Result<T, EventError>,
) {
    let Ok(read) = parse(body) else { return };
    assert!(body.len() <= BODY_BYTES);
    let written = serde_json::to_vec(&read).unwrap_or_default();
    // Keys that were left out are written.
    if written.len() <= BODY_BYTES {
        assert_eq!(parse(&written).ok(), Some(read));
    }
}
