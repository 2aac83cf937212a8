//! The JSON of a response, without the parts that its reader does not need.
//!
//! The ownership of fields (`metadata.managedFields`) is most of what an API server returns of an object, and as a tree of
//! maps many times as large as the text. Invariant: everything else is read as it was sent. Deliberately absent: the
//! meaning of any of it.

use std::borrow::Cow;
use std::fmt;

use policy::sync::fields::Manager;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::error::CallError;

/// How much of the ownership of fields is read.
#[derive(Clone, Copy, Debug)]
pub enum Owners {
    /// As sent.
    Whole,
    /// As sent where such a manager owns something; elsewhere only the names of the owners.
    With(fn(Manager<'_>) -> bool),
}

/// Reads an object, or a list of them.
pub(super) fn read(body: &[u8], owners: Owners) -> Result<Value, CallError> {
    let keeps = match owners {
        Owners::Whole => true,
        // Of another shape than expected: its reader reports that.
        Owners::With(is_meant) => parse::<Head<'_>>(body).map_or(true, |it| it.has(is_meant)),
    };
    if keeps {
        return parse(body);
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Part::Object.deserialize(&mut reader);
    // The error of the reader could quote the body.
    let value = value.map_err(|_| CallError::NotJson)?;
    reader.end().map_err(|_| CallError::NotJson)?;
    Ok(value)
}

/// Checks that a response is JSON.
pub(super) fn check(body: &[u8]) -> Result<(), CallError> {
    parse::<IgnoredAny>(body).map(drop)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|_| CallError::NotJson)
}

/// The names of the owners. What has another shape has no owner.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    items: Vec<Item<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    managed_fields: Vec<Owner<'a>>,
}

#[derive(Deserialize)]
struct Owner<'a> {
    #[serde(borrow, default)]
    manager: Cow<'a, str>,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
}

impl Head<'_> {
    fn has(&self, is_meant: fn(Manager<'_>) -> bool) -> bool {
        let items = self.items.iter().map(|it| &it.metadata);
        items
            .chain([&self.metadata])
            .flat_map(|it| &it.managed_fields)
            .any(|it| {
                is_meant(Manager {
                    name: &it.manager,
                    operation: &it.operation,
                    subresource: &it.subresource,
                })
            })
    }
}

/// The place of a value in a response.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Items,
    Metadata,
    Owners,
    Owner,
    Rest,
}

impl Part {
    /// The place of the value of a key; `None` if it is left out.
    fn of(self, key: &str) -> Option<Self> {
        match (self, key) {
            (Self::Object, "items") => Some(Self::Items),
            (Self::Object, "metadata") => Some(Self::Metadata),
            (Self::Metadata, "managedFields") => Some(Self::Owners),
            (Self::Owner, "fieldsV1") => None,
            _ => Some(Self::Rest),
        }
    }

    fn element(self) -> Self {
        match self {
            Self::Items => Self::Object,
            Self::Owners => Self::Owner,
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

    // An object or a list was expected; the reader of the result reports anything else.
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
