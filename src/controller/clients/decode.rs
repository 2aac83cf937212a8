//! Decoding of responses, without the field ownership that the caller does not need.
//!
//! `metadata.managedFields` is most of the data that an API server returns for an object. As a tree of maps it needs
//! many times the memory of its text. Invariants: all other fields are returned unchanged; a response of few bytes cannot
//! occupy the memory of the controller, since `[[],[],…` or `{"a":{"a":…` would need up to eighty times its text.

use std::fmt;

use policy::sync::managed_fields::{Manager, has};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::MAX_DECODED;
use super::error::CallError;

/// Extent to which `metadata.managedFields` is decoded.
#[derive(Clone, Copy, Debug)]
pub enum ManagedFields {
    /// All fields.
    All,
    /// All fields if a matching manager owns a field; otherwise without `fieldsV1`.
    IfOwnedBy(fn(Manager<'_>) -> bool),
}

/// Decodes an object, or a list of objects.
pub(super) fn read(body: &[u8], extent: ManagedFields) -> Result<Value, CallError> {
    if memory(body) > MAX_DECODED {
        return Err(CallError::TooManyValues);
    }
    let ManagedFields::IfOwnedBy(matches) = extent else {
        return parse(body);
    };
    let value = read_without_fields(body)?;
    let items = value.get("items").and_then(Value::as_array);
    let is_owned = |it: &Value| has(it, matches);
    if is_owned(&value) || items.is_some_and(|it| it.iter().any(is_owned)) {
        drop(value);
        return parse(body);
    }
    Ok(value)
}

fn read_without_fields(body: &[u8]) -> Result<Value, CallError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Part::Object.deserialize(&mut reader);
    // The error of the parser could quote the body.
    let value = value.map_err(|_| CallError::NotJson)?;
    reader.end().map_err(|_| CallError::NotJson)?;
    Ok(value)
}

/// Estimates the memory of the decoded body: its text, and its values by the punctuation outside of strings.
fn memory(body: &[u8]) -> usize {
    let (mut total, mut is_text, mut is_escaped) = (body.len(), false, false);
    for (index, byte) in body.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' if !is_text && body.get(index + 1) != Some(&b'}') => total += OBJECT,
            b'[' | b',' | b':' if !is_text => total += VALUE,
            _ => {}
        }
    }
    total
}

/// Memory of one node of a map, in bytes, which holds eleven fields.
const OBJECT: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 2 * size_of::<usize>();

/// Memory of one value and of its key or its place in a list, in bytes.
const VALUE: usize = size_of::<String>() + size_of::<Value>();

/// Checks that a response is JSON.
pub(super) fn check(body: &[u8]) -> Result<(), CallError> {
    parse::<IgnoredAny>(body).map(drop)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|_| CallError::NotJson)
}

/// The position of a value in a response.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Items,
    Metadata,
    ManagedFields,
    ManagerEntry,
    Rest,
}

impl Part {
    /// Returns the position of the value of a key. `None` if the value is skipped.
    fn of(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "items") => Some(Self::Items),
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "managedFields") => Some(Self::ManagedFields),
            (Self::ManagerEntry, "fieldsV1") => None,
            _ => Some(Self::Rest),
        }
    }

    fn element(self) -> Self {
        match self {
            Self::Items => Self::Object,
            Self::ManagedFields => Self::ManagerEntry,
            _ => Self::Rest,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self {
            Self::Rest => Value::deserialize(from),
            part => from.deserialize_any(Reader(part)),
        }
    }
}

struct Reader(Part);

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match self.0.of(&key) {
                Some(part) => {
                    let value = members.next_value_seed(part)?;
                    map.insert(key, value);
                }
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self.0.element())? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    // The expected value is an object or a list. The caller reports any other value.
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}
