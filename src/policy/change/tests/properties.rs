//! Properties of every object: another notation never sends an event, a changed leaf always sends an event, a field
//! that is not compared never sends an event, and no bytes cause a panic.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::case::{public, review, update};
use crate::change::*;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        "[a-z\"/\\\\\n\u{e4}\u{1f600} ]{0,6}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-f\u{e4}]{1,3}", inner, 0..5)
                .prop_map(|map| Value::from(Map::from_iter(map))),
        ]
    })
}

/// Generates values from a small set, so that two of them are often equal.
fn small() -> impl Strategy<Value = Value> {
    let scalar = prop::sample::select(vec![json!(0), json!(1), json!(null), json!("a")]);
    scalar.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..2).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..2)
                .prop_map(|map| Value::from(Map::from_iter(map))),
        ]
    })
}

fn object(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "x/v1", "kind": "X",
        "metadata": {"name": "a", "namespace": "shop", "generation": 1, "resourceVersion": "1"},
        "status": {"state": "Ready"},
    });
    object["spec"] = spec;
    object
}

/// Writes `value` in another notation: `seed` determines order, white space, and the notation of texts and numbers.
fn respelled(value: &Value, seed: &mut u64, out: &mut String) {
    let mut next = |below: u64| {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) % below
    };
    let space = ["", " ", "\n\t"][usize::try_from(next(3)).unwrap()];
    out.push_str(space);
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            for index in (1..members.len()).rev() {
                let other = usize::try_from(next(index as u64 + 1)).unwrap();
                members.swap(index, other);
            }
            out.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                respelled(&json!(key), seed, out);
                out.push(':');
                respelled(value, seed, out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for (index, value) in list.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                respelled(value, seed, out);
            }
            out.push(']');
        }
        Value::String(text) if next(2) == 0 => {
            out.push('"');
            for unit in text.encode_utf16() {
                write!(out, "\\u{unit:04X}").unwrap();
            }
            out.push('"');
        }
        Value::Number(number) if number.as_u64() == Some(0) => out.push_str("0.0"),
        Value::Number(number) => match next(4) {
            0 => write!(out, "{number}.00").unwrap(),
            1 => write!(out, "{number}00e-2").unwrap(),
            2 => write!(out, "{number}0E-01").unwrap(),
            _ => out.push_str(&number.to_string()),
        },
        other => out.push_str(&other.to_string()),
    }
    out.push_str(space);
}

/// Changes the leaf at `index` modulo the number of leaves, if there is one.
fn change_leaf(value: &mut Value, index: usize) -> bool {
    let count = leaves(value);
    count > 0 && change_nth(value, index % count)
}

fn leaves(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.values().map(leaves).sum(),
        Value::Array(list) => list.iter().map(leaves).sum(),
        _ => 1,
    }
}

fn change_nth(value: &mut Value, mut index: usize) -> bool {
    let children: Vec<&mut Value> = match value {
        Value::Object(map) => map.values_mut().collect(),
        Value::Array(list) => list.iter_mut().collect(),
        leaf => {
            *leaf = match leaf {
                Value::Null => json!(false),
                Value::Bool(truth) => json!(!*truth),
                Value::Number(number) => json!(format!("{number}")),
                _ => json!(1),
            };
            return true;
        }
    };
    for child in children {
        let count = leaves(child);
        if index < count {
            return change_nth(child, index);
        }
        index -= count;
    }
    false
}

fn is_no_change(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Skip(SkipReason::NoChange { .. }))
}

proptest! {
    #[test]
    fn another_spelling_never_sends(spec in value(), seed in any::<u64>()) {
        let old = object(json!({"a": spec}));
        let mut new = String::new();
        respelled(&old, &mut { seed }, &mut new);
        let outcome = update(&new, &old.to_string());
        prop_assert!(is_no_change(&outcome), "{new}\n{old}");
    }

    #[test]
    fn a_changed_leaf_of_the_spec_always_sends(spec in value(), index in any::<usize>(), seed in any::<u64>()) {
        let old = object(json!({"a": spec, "b": 1}));
        let mut new = old.clone();
        prop_assert!(change_leaf(&mut new["spec"], index));
        let mut text = String::new();
        respelled(&new, &mut { seed }, &mut text);
        prop_assert!(matches!(update(&text, &old.to_string()), Outcome::Send(_)), "{text}\n{old}");
    }

    #[test]
    fn it_agrees_with_the_equality_of_trees(one in small(), other in small(), seed in any::<u64>()) {
        let mut text = String::new();
        respelled(&object(json!([one])), &mut { seed }, &mut text);
        let outcome = update(&text, &object(json!([other])).to_string());
        prop_assert_eq!(matches!(outcome, Outcome::Send(_)), one != other, "{}", text);
    }

    #[test]
    fn metadata_and_status_alone_never_send(spec in value(), metadata in value(), status in value()) {
        let old = object(json!({"a": spec}));
        let mut new = old.clone();
        new["metadata"]["labels"] = metadata;
        new["status"] = status;
        let outcome = update(&new.to_string(), &old.to_string());
        prop_assert!(is_no_change(&outcome), "{new}");
    }

    #[test]
    fn bookkeeping_alone_never_sends_where_there_is_no_spec(data in value(), noise in value(), seed in any::<u64>()) {
        let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
        let mut new = old.clone();
        for key in ["managedFields", "resourceVersion", "generation"] {
            new["metadata"][key] = noise.clone();
        }
        let mut text = String::new();
        respelled(&new, &mut { seed }, &mut text);
        let outcome = update(&text, &old.to_string());
        prop_assert!(is_no_change(&outcome), "{text}");
    }

    #[test]
    fn a_changed_leaf_of_the_content_sends_where_there_is_no_spec(data in value(), index in any::<usize>()) {
        let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": data}});
        let mut new = old.clone();
        prop_assume!(change_leaf(&mut new["data"], index));
        prop_assert!(matches!(update(&new.to_string(), &old.to_string()), Outcome::Send(_)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _: Result<_, _> = decide(&public(), &bytes);
    }

    #[test]
    fn no_mutation_of_a_review_makes_it_panic(
        spec in value(),
        other in value(),
        operation in prop::sample::select(vec!["CREATE", "UPDATE", "DELETE", "CONNECT"]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..8),
    ) {
        let request = Map::from_iter([("operation".to_owned(), json!(operation))]);
        let mut body = review(&request, &object(spec).to_string(), &object(other).to_string()).into_bytes();
        for (at, byte, edit) in edits {
            let at = at.index(body.len());
            match edit {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => { body.remove(at); }
            }
        }
        let _: Result<_, _> = decide(&public(), &body);
    }
}
