//! The marker: an annotation of a Pod that was changed at CREATE.

use api::names::MARKER;

use super::Annotations;
use super::entry::Entry;
use super::patch::{PatchWriter, Path, Value};

/// Adds the marker if the patch is not empty. An unchanged Pod gets no marker.
pub(super) fn mark(annotations: Option<Annotations>, patch: &mut PatchWriter) {
    if patch.is_empty() || annotations.is_some_and(Annotations::marked) {
        return;
    }
    if annotations.is_some() {
        patch.add(Path::Annotation(MARKER), Value::Text("true"));
    } else {
        let marker = Entry::annotations(MARKER, "true");
        patch.add(Path::Annotations, Value::Entry(&marker));
    }
}
