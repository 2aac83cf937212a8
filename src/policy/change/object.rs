//! A JSON object, parsed one level deep. Its members are references to the bytes of the request, and their values are raw JSON.
//!
//! A duplicate key counts once, with its last value, as in Go. Content below the first level costs its length and no
//! allocation, independent of its depth.

use std::fmt;

use partial_json::Text;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object, sorted by key.
#[derive(Debug)]
pub(super) struct Object<'a>(Vec<Member<'a>>);

/// A key and its raw value.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) key: Text<'a>,
    pub(super) value: &'a str,
}

impl<'a> Object<'a> {
    /// Parses `json`; `None` if it is not an object, or a key is not Unicode (half of a surrogate pair).
    pub(super) fn open(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Returns all members, sorted by key.
    pub(super) fn members(&self) -> &[Member<'a>] {
        &self.0
    }

    /// Returns the raw value of `key`, if the key exists.
    pub(super) fn get(&self, key: &str) -> Option<&'a str> {
        self.0
            .binary_search_by(|member| (*member.key).cmp(key))
            .ok()
            .and_then(|index| self.0.get(index))
            .map(|member| member.value)
    }

    /// Returns the value of `key`, if the key exists and the value is not null.
    pub(super) fn present(&self, key: &str) -> Option<&'a str> {
        self.get(key).filter(|value| *value != "null")
    }

    /// Returns the text of `key`, empty if absent or null; `None` if it is of another type.
    pub(super) fn text(&self, key: &str) -> Option<Text<'a>> {
        self.present(key).map_or(Some(Text::default()), text)
    }
}

/// Returns the text of a JSON string; `None` if it is not a string, or not Unicode.
pub(super) fn text(json: &str) -> Option<Text<'_>> {
    serde_json::from_str(json).ok()
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    let value = value.get();
                    members.push(Member { key, value });
                }
                // Sorting is stable. After the reversal the last of equal keys is the first, and is kept.
                members.reverse();
                members.sort_by(|one, other| one.key.cmp(&other.key));
                members.dedup_by(|later, kept| later.key == kept.key);
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}
