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
        let Some(pairs) = differing_parts(one, other) else {
            return false;
        };
        open.extend(pairs);
    }
    true
}

/// Returns the parts of two values with different bytes. The values are equal if the two parts of each pair are equal;
/// `None` if they are different in any case.
fn differing_parts<'a>(one: &'a str, other: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let is_same = match (one.as_bytes().first(), other.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => return objects(one, other),
        (Some(b'['), Some(b'[')) => return lists(one, other),
        (Some(b'"'), Some(b'"')) => {
            matches!((text(one), text(other)), (Some(one), Some(other)) if one == other)
        }
        (Some(b'-' | b'0'..=b'9'), Some(b'-' | b'0'..=b'9')) => number::same(one, other),
        // true, false and null have only one notation.
        _ => false,
    };
    is_same.then(Vec::new)
}

fn objects<'a>(one: &'a str, other: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let (one, other) = (Object::open(one)?, Object::open(other)?);
    let (one, other) = (one.members(), other.members());
    if one.len() != other.len() || one.iter().zip(other).any(|(a, b)| a.key != b.key) {
        return None;
    }
    let values = one.iter().zip(other).map(|(a, b)| (a.value, b.value));
    Some(values.filter(|(a, b)| a != b).collect())
}

fn lists<'a>(one: &'a str, other: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let [one, other] = [one, other].map(serde_json::from_str::<Vec<&RawValue>>);
    let (one, other) = (one.ok()?, other.ok()?);
    if one.len() != other.len() {
        return None;
    }
    let values = one.iter().zip(&other).map(|(a, b)| (a.get(), b.get()));
    Some(values.filter(|(a, b)| a != b).collect())
}
