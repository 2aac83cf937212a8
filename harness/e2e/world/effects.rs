//! Parts of a Pod.

use serde_json::Value;

pub(crate) use crate::admission::webhook::{LANDSCAPE, VOLUME};
pub(crate) use crate::definitions::pod::{containers, items, pull_secrets};

/// The containers that are started with the Pod, init containers first.
pub(crate) fn started(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["spec"]["initContainers"]).chain(items(&pod["spec"]["containers"]))
}
