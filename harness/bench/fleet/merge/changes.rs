//! What differs between two versions of an object, as a set of fields.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::fleet::fields::{Fields, children};
use crate::fleet::shape::Shape;

/// The places that are in the new value and differ from the old one.
pub(super) fn changes(old: &Value, new: &Value, shape: Shape) -> Fields {
    if old == new {
        return Fields::default();
    }
    let comparable = old.is_object() == new.is_object() && old.is_array() == new.is_array();
    let new_children = children(new, shape);
    if !comparable || new_children.is_empty() {
        return added(new, shape);
    }
    let old_children: std::collections::BTreeMap<String, &Value> = children(old, shape)
        .into_iter()
        .map(|(element, child, _)| (element, child))
        .collect();
    let mut changed = Fields::default();
    for (element, child, shape) in new_children {
        let fields = if let Some(old) = old_children.get(&element) {
            changes(old, child, shape)
        } else {
            let mut fields = added(child, shape);
            fields.member |= !ALWAYS_THERE.contains(&element.as_str());
            fields
        };
        if !fields.is_empty() {
            changed.inside.insert(element, fields);
        }
    }
    changed
}

/// The places of a value that was not there before: maps and lists are places of their own then.
pub(super) fn added(value: &Value, shape: Shape) -> Fields {
    let inside = children(value, shape);
    let mut fields = Fields {
        member: inside.is_empty(),
        inside: BTreeMap::new(),
    };
    for (element, child, shape) in inside {
        let mut inner = added(child, shape);
        inner.member |= !ALWAYS_THERE.contains(&element.as_str());
        fields.inside.insert(element, inner);
    }
    fields
}

/// A map may be owned as a place of its own although it has entries.
pub(super) fn keep_inner_places(fields: &mut Fields) {
    fields.member = true;
    fields.inside.values_mut().for_each(keep_inner_places);
}

/// What every object has, also an empty one.
const ALWAYS_THERE: [&str; 4] = ["f:metadata", "f:spec", "f:status", "f:template"];
