//! Equality of JSON values.
//!
//! Equal bytes are equal values. The API server writes both values with one encoder, so in most cases this comparison
//! is sufficient. Values are parsed only if their bytes differ, level by level and without recursion. The order of
//! keys, white space and the notation of texts and numbers do not count. Invariant: values count as different in case
//! of doubt.

use serde_json::value::RawValue;

use super::number;
use super::object::{Object, text};

/// Factor that limits how often the values may be read. Each level reads its content once more. In a real object most
/// bytes are equal, and a factor of two to four is sufficient. Without a limit, a megabyte of sixty nested levels
/// would take a second.
const READINGS: usize = 8;

/// Number of bytes that may always be read, so that small values are compared completely.
const AT_LEAST: usize = 64 * 1024;

/// The result of comparing two values with different bytes.
enum Relation<'a> {
    /// The values are equal.
    Same,
    /// The values are different.
    Different,
    /// The values are equal if these pairs are equal.
    IfSame(Vec<(&'a str, &'a str)>),
}

/// Returns whether two JSON values are equal.
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
        // true, false and null have only one notation.
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
