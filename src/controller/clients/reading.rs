//! An answer as JSON, without what its reader does not ask for.
//!
//! Which field is whose (`metadata.managedFields`) is most of what an API server says about an object, and as a tree of
//! maps many times as large as the text. Invariant: everything else comes out as it was sent. Deliberately absent: what
//! any of it means.

use std::borrow::Cow;
use std::fmt;

use policy::sync::fields::Manager;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::error::CallError;

/// Which fields are whose, in what is read.
#[derive(Clone, Copy, Debug)]
pub enum Owners {
    /// As sent.
    Whole,
    /// Only where such a manager owns something; the other owners are then as sent, too. Else their names alone.
    With(fn(Manager<'_>) -> bool),
}

/// Reads an object, or a list of them.
pub(super) fn read(body: &[u8], owners: Owners) -> Result<Value, CallError> {
    let keeps = match owners {
        Owners::Whole => true,
        // Of another shape than expected: whoever reads it shall see it as it is.
        Owners::With(is_meant) => parse::<Head<'_>>(body).map_or(true, |it| it.has(is_meant)),
    };
    if keeps {
        return parse(body);
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Part::Object.deserialize(&mut reader);
    // The reader's error could quote the body.
    let value = value.map_err(|_| CallError::NotJson)?;
    reader.end().map_err(|_| CallError::NotJson)?;
    Ok(value)
}

/// Makes sure that an answer is JSON.
pub(super) fn check(body: &[u8]) -> Result<(), CallError> {
    parse::<IgnoredAny>(body).map(drop)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|_| CallError::NotJson)
}

/// The owners' names alone. What has another shape has no owner.
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

/// Where in an answer a value stands.
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
    /// Where the value of a key stands; `None`: it is left out.
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

    // An object or a list was expected; whatever it is instead, its reader says what is wrong.
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const INSTALLERS: Owners = Owners::With(|it| {
        (it.name, it.operation, it.subresource) == ("installer", "Update", "scale")
    });

    fn object(manager: &str) -> Value {
        json!({
            "kind": "ConfigMap",
            "metadata": {
                "name": "a", "generation": 3, "deletionTimestamp": null, "labels": {"fieldsV1": "a label"},
                "managedFields": [
                    {"fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}, "manager": manager,
                     "operation": "Update", "subresource": "scale"},
                    {"fieldsV1": {"f:data": {}}, "manager": "other", "operation": "Apply"},
                ],
            },
            "data": {"metadata": {"managedFields": [{"fieldsV1": {}}]}, "number": -1.5, "truth": true},
        })
    }

    fn without(mut object: Value) -> Value {
        for owner in object["metadata"]["managedFields"].as_array_mut().unwrap() {
            owner.as_object_mut().unwrap().remove("fieldsV1");
        }
        object
    }

    fn list(items: &[Value]) -> Value {
        json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
    }

    fn read_text(value: &Value, owners: Owners) -> Value {
        read(value.to_string().as_bytes(), owners).unwrap()
    }

    #[test]
    fn fields_of_owners_are_left_out_and_nothing_else() {
        let (whole, slim) = (object("us"), without(object("us")));
        assert_eq!(read_text(&whole, Owners::Whole), whole);
        assert_eq!(read_text(&whole, INSTALLERS), slim);
        let (whole, slim) = (list(&[whole]), list(&[slim]));
        assert_eq!(read_text(&whole, INSTALLERS), slim);
    }

    #[test]
    fn where_the_manager_owns_something_all_owners_are_as_sent() {
        let mine = object("installer");
        assert_eq!(read_text(&mine, INSTALLERS), mine);
        let among_others = list(&[object("us"), mine]);
        assert_eq!(read_text(&among_others, INSTALLERS), among_others);
    }

    #[rstest]
    #[case::text(json!("text"))]
    #[case::list(json!([1, {"metadata": 2}]))]
    #[case::no_metadata(json!({"metadata": null, "items": {"a": 1}}))]
    #[case::no_owners(json!({"metadata": {"managedFields": [null, 7, "x", {"manager": 1}]}}))]
    fn what_has_another_shape_is_read_as_it_is(#[case] strange: Value) {
        assert_eq!(read_text(&strange, INSTALLERS), strange);
    }

    #[rstest]
    #[case::nothing("")]
    #[case::broken(r#"{"metadata": {"managedFields": ["#)]
    #[case::more(r#"{"a": 1} {"b": 2}"#)]
    fn what_is_not_json_is_refused(#[case] text: &str) {
        for owners in [Owners::Whole, Owners::With(|it| it.name == "us")] {
            let refused = read(text.as_bytes(), owners);
            assert!(matches!(refused, Err(CallError::NotJson)), "{refused:?}");
        }
        assert!(matches!(check(text.as_bytes()), Err(CallError::NotJson)));
    }
}
