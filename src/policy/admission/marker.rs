//! The marker: says of a Pod that it was changed at CREATE (product.md §1 "Opt-in").

use std::collections::BTreeMap;

use api::names::MARKER;

use super::Annotations;
use super::patch::{PatchWriter, Path};

/// Adds the marker if the patch holds anything; an unchanged Pod carries nothing of ours.
pub(super) fn mark(annotations: Annotations, patch: &mut PatchWriter) {
    if patch.is_empty() || annotations.marked() {
        return;
    }
    if annotations.present() {
        patch.add(Path::Annotation(MARKER), &"true");
    } else {
        patch.add(Path::Annotations, &BTreeMap::from([(MARKER, "true")]));
    }
}
