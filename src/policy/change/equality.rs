//! Whether two JSON values mean the same.
//!
//! Equal bytes are equal values, and the API server writes both sides with one encoder, so that is nearly always the
//! end of it. Only where bytes differ the values are opened, level by level and without recursion: the order of keys, white
//! space and the spelling of texts and numbers do not count. Invariant: in doubt different.

use serde_json::value::RawValue;

use super::number;
use super::object::{Object, text};

/// How many times over the values may be read. Each level reads its content once more; in a real object most of that is
/// equal bytes, and two to four times are enough. Who nests a megabyte sixty levels deep would else hold us for a second.
const READINGS: usize = 8;

/// Bytes that may be read in any case, so that small values are compared to the end.
const AT_LEAST: usize = 64 * 1024;

/// What two values with different bytes have to do with each other.
enum Relation<'a> {
    /// They mean the same.
    Same,
    /// They do not.
    Different,
    /// They do if these pairs do.
    IfSame(Vec<(&'a str, &'a str)>),
}

/// Whether `one` and `other`, each one JSON value, mean the same.
pub(super) fn same(one: &str, other: &str) -> bool {
    let mut budget = AT_LEAST.max(READINGS * (one.len() + other.len()));
    let mut open = vec![(one, other)];
    while let Some((one, other)) = open.pop() {
        if one == other {
            continue;
        }
        let Some(rest) = budget.checked_sub(one.len() + other.len()) else {
            return false;
        };
        budget = rest;
        match relation(one, other) {
            Relation::Same => {}
            Relation::Different => return false,
            Relation::IfSame(pairs) => open.extend(pairs),
        }
    }
    true
}

fn relation<'a>(one: &'a str, other: &'a str) -> Relation<'a> {
    let same = match (one.as_bytes().first(), other.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => return objects(one, other),
        (Some(b'['), Some(b'[')) => return lists(one, other),
        (Some(b'"'), Some(b'"')) => {
            matches!((text(one), text(other)), (Some(one), Some(other)) if one == other)
        }
        (Some(b'-' | b'0'..=b'9'), Some(b'-' | b'0'..=b'9')) => number::same(one, other),
        // true, false and null have one spelling each.
        _ => false,
    };
    if same {
        Relation::Same
    } else {
        Relation::Different
    }
}

fn objects<'a>(one: &'a str, other: &'a str) -> Relation<'a> {
    let (Some(one), Some(other)) = (Object::open(one), Object::open(other)) else {
        return Relation::Different;
    };
    let (one, other) = (one.members(), other.members());
    if one.len() != other.len() || one.iter().zip(other).any(|(a, b)| a.key != b.key) {
        return Relation::Different;
    }
    let values = one.iter().zip(other).map(|(a, b)| (a.value, b.value));
    Relation::IfSame(values.filter(|(a, b)| a != b).collect())
}

fn lists<'a>(one: &'a str, other: &'a str) -> Relation<'a> {
    let (Some(one), Some(other)) = (elements(one), elements(other)) else {
        return Relation::Different;
    };
    if one.len() != other.len() {
        return Relation::Different;
    }
    let values = one.iter().zip(&other).map(|(a, b)| (a.get(), b.get()));
    Relation::IfSame(values.filter(|(a, b)| a != b).collect())
}

fn elements(json: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(json).ok()
}
