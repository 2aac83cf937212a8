//! Decoding of responses, without the field ownership that the caller does not need.
//!
//! `metadata.managedFields` is most of the data that an API server returns for an object. As a tree of maps it needs
//! many times the memory of its text. Invariants: all other fields are returned unchanged; a response of few bytes cannot
//! occupy the memory of the controller, since `[[],[],…` or `{"a":{"a":…` would need up to eighty times its text.

use std::fmt;

use policy::sync::managed_fields::{Manager, has};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::MAX_DECODED;
use super::error::CallError;

/// Extent to which `metadata.managedFields` is decoded. `fieldsV1` is never decoded if the response would then need too much memory:
/// a client of the runtime can own tens of thousands of keys of one object.
#[derive(Clone, Copy, Debug)]
pub enum ManagedFields {
    /// All fields.
    All,
    /// All fields if a matching manager owns a field; otherwise without `fieldsV1`.
    IfOwnedBy(fn(Manager<'_>) -> bool),
}

/// Decodes an object, or a list of objects.
pub(super) fn read(body: &[u8], extent: ManagedFields) -> Result<Value, CallError> {
    if let ManagedFields::IfOwnedBy(matches) = extent {
        let value = read_with(body, false)?;
        let items = value.get("items").and_then(Value::as_array);
        let is_owned = |it: &Value| has(it, matches);
        if !is_owned(&value) && !items.is_some_and(|it| it.iter().any(is_owned)) {
            return Ok(value);
        }
    }
    match read_with(body, true) {
        Err(CallError::TooManyValues) => read_with(body, false),
        read => read,
    }
}

fn read_with(body: &[u8], has_fields: bool) -> Result<Value, CallError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let mut budget = Budget {
        has_fields,
        memory: Some(MAX_DECODED),
    };
    let value = Reader(Part::Object, &mut budget).deserialize(&mut reader);
    if budget.memory.is_none() {
        return Err(CallError::TooManyValues);
    }
    // The error of the parser could quote the body.
    let value = value.map_err(|_| CallError::NotJson)?;
    reader.end().map_err(|_| CallError::NotJson)?;
    Ok(value)
}

/// What may still be decoded.
struct Budget {
    /// Whether the owned fields of `metadata.managedFields` are decoded.
    has_fields: bool,
    /// Memory that is left, in bytes; `None` if it was exceeded.
    memory: Option<usize>,
}

impl Budget {
    fn take<E: Error>(&mut self, memory: usize) -> Result<(), E> {
        self.memory = self.memory.and_then(|left| left.checked_sub(memory));
        self.memory
            .map(drop)
            .ok_or_else(|| E::custom("too many values"))
    }
}

/// Memory of one node of a map, in bytes, which holds eleven fields.
const OBJECT: usize = 11 * (size_of::<String>() + size_of::<Value>()) + 2 * size_of::<usize>();

/// Memory of one value and of its key or its place in a list, in bytes. Nodes and lists are half full at worst.
const VALUE: usize = 2 * (size_of::<String>() + size_of::<Value>());

/// Checks that a response is JSON.
pub(super) fn check(body: &[u8]) -> Result<(), CallError> {
    let checked = serde_json::from_slice::<IgnoredAny>(body);
    checked.map(drop).map_err(|_| CallError::NotJson)
}

/// The position of a value in a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Object,
    Items,
    Metadata,
    ManagedFields,
    ManagerEntry,
    Fields,
    Rest,
}

impl Part {
    fn member(self, key: &str) -> Self {
        match (self, key) {
            (Self::Object, "items") => Self::Items,
            (Self::Object, "metadata") => Self::Metadata,
            (Self::Metadata, "managedFields") => Self::ManagedFields,
            (Self::ManagerEntry, "fieldsV1") => Self::Fields,
            _ => Self::Rest,
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

struct Reader<'a>(Part, &'a mut Budget);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Self(part, budget) = self;
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let member = part.member(&key);
            if member == Part::Fields && !budget.has_fields {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let node = if map.is_empty() { OBJECT } else { 0 };
            budget.take(node + VALUE + key.len())?;
            let value = members.next_value_seed(Reader(member, budget))?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let Self(part, budget) = self;
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(Reader(part.element(), budget))? {
            budget.take(VALUE)?;
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.1.take(text.len())?;
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
