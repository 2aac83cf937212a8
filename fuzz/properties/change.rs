//! For any input of the watcher, a listener accepts the resulting event.

use policy::change::{Field, Outcome, Watcher, decide};
use watcher_types::{PathSegment, WatchEvent};

/// Checks the property, which holds for all bytes.
pub(crate) fn check(data: &[u8]) {
    for field in [Field::Spec, Field::Status] {
        let watcher = Watcher {
            manager: PathSegment::V2,
            field,
            resources: Vec::new(),
        };
        let Ok(verdict) = decide(&watcher, data) else {
            continue;
        };
        assert!(!verdict.uid.is_empty());
        match verdict.outcome {
            Outcome::Send(event) => {
                assert!(!event.watched.name.is_empty());
                let body = serde_json::to_vec(&event).unwrap_or_default();
                assert_eq!(WatchEvent::parse(&body).ok(), Some(event));
            }
            Outcome::Skip(reason) => assert!(!reason.to_string().is_empty()),
        }
    }
}
