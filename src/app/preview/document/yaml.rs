//! YAML as the tools of Kubernetes parse it, which is YAML 1.1: `yes` and `on` are booleans, `0644` is octal.
//!
//! The budget of the parser limits aliases.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::localizer::Localizer;
use serde_saphyr::{Location, Options, Spanned, UserMessageFormatter};

use super::{Located, Tree};
use crate::preview::error::SyntaxError;
use crate::preview::input::Input;

/// Limit below which each whole float is exactly one integer (2⁵³).
const WHOLE_FLOAT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// Maximum number of nodes that aliases may expand to, so that a small file cannot require much memory.
const ALIASED_NODES: usize = 200_000;

/// Removes the position from a message, because the message is prefixed with it.
struct NoPosition;

impl Localizer for NoPosition {
    fn attach_location<'a>(&self, base: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        base
    }
}

/// Parses the documents of a YAML stream.
pub(super) fn documents(input: &Input) -> Result<Vec<Located>, SyntaxError> {
    serde_saphyr::from_multiple_with_options(input.text(), options()).map_err(|source| {
        SyntaxError {
            place: input.at(source.location().map(|it| it.line())),
            format: "YAML",
            problem: describe(&source),
        }
    })
}

/// Returns the line of a path of keys and list items in a JSON text, or of the longest prefix of the path that exists. JSON
/// is also YAML, and the YAML parser returns line numbers.
pub(in crate::preview) fn line_at_path(text: &str, path: &[&str]) -> Option<u64> {
    let root = serde_saphyr::from_str_with_options::<Located>(text, options()).ok()?;
    let mut node = &root;
    for step in path {
        let Some(next) = node.step(step) else { break };
        node = next;
    }
    node.line
}

/// Returns the problem of a text, without its position and without advice for programmers.
fn describe(error: &serde_saphyr::Error) -> String {
    if let serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } = error {
        return format!("duplicate key {key:?}");
    }
    error.render_with_formatter(&UserMessageFormatter.with_localizer(&NoPosition))
}

fn options() -> Options {
    serde_saphyr::options! {
        // The default budget is designed for configuration files. Here only the expansion of aliases must be limited,
        // because the size of the text has a separate limit.
        budget: serde_saphyr::budget! {
            max_depth: 128,
            max_documents: 100_000,
            max_events: 20_000_000,
            max_nodes: 20_000_000,
            max_recorded_anchor_events: ALIASED_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIASED_NODES,
        },
        legacy_octal_numbers: true,
        // A snippet would repeat the line, including any secret in it.
        with_snippet: false,
    }
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Tree>::deserialize(deserializer)?;
        Ok(Self {
            line: Some(spanned.referenced.line()).filter(|line| *line > 0),
            tree: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor {
            seed: PhantomData::<Located>,
            // The parser rejects them.
            rejects_duplicates: false,
        })
    }
}

/// Visitor of a value, whose inner values are deserialized by `seed`.
pub(super) struct TreeVisitor<S> {
    pub(super) seed: S,
    /// Whether a key that occurs twice in a mapping is an error of this visitor.
    pub(super) rejects_duplicates: bool,
}

impl<'de, S: DeserializeSeed<'de, Value = Located> + Copy> Visitor<'de> for TreeVisitor<S> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        // Go writes a whole float without a decimal point, so `089` and `1e3` reach Kubernetes as integers.
        if value.fract() == 0.0 && value.abs() < WHOLE_FLOAT_LIMIT {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "whole and within the range that is exact"
            )]
            let whole = value as i64;
            return Ok(Tree::Scalar(whole.into()));
        }
        let number = Number::from_f64(value)
            .ok_or_else(|| E::custom("JSON, and so Kubernetes, has no such number"))?;
        Ok(Tree::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::String(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::String(text)))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self.seed)? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        let mut keys = HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            if self.rejects_duplicates && !keys.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("duplicate key {key:?}")));
            }
            entries.push((key, access.next_value_seed(self.seed)?));
        }
        Ok(Tree::Map(entries))
    }
}
