//! A listener accepts an event or a heartbeat again after it was parsed and serialized.

use std::fmt::Debug;

use watcher_types::{BODY_BYTES, EventError, Heartbeat, WatchEvent};

/// Checks the property, which holds for all bytes.
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
    // Omitted keys are also written.
    if written.len() <= BODY_BYTES {
        assert_eq!(parse(&written).ok(), Some(read));
    }
}
