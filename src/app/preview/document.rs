//! YAML and JSON streams as trees that remember their lines.
//!
//! Read without types, so that no field is lost. YAML is read as Kubernetes' own tools read it, which is YAML 1.1:
//! `yes` and `on` are booleans, `0644` is octal. Aliases are bounded by the parser's budget.
//! Deliberately absent: what the documents mean (`manifest`).

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Options, Spanned};

use super::PreviewError;
use super::input::{Input, line_at};

/// Up to here every whole float is exactly one integer (2⁵³).
const WHOLE_FLOAT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// How many nodes aliases may stand for, so that a small file cannot become a large one.
const ALIASED_NODES: usize = 200_000;

/// A value and the line that it starts at; the line is not known inside JSON.
#[derive(Clone, Debug)]
pub(super) struct Located {
    line: Option<u64>,
    tree: Tree,
}

#[derive(Clone, Debug)]
enum Tree {
    Scalar(Value),
    List(Vec<Located>),
    Map(Vec<(String, Located)>),
}

/// The documents of a stream; empty ones are passed over.
///
/// As Kubernetes' tools do, a text that starts with a brace is taken as JSON first.
pub(super) fn documents(input: &Input) -> Result<Vec<Located>, PreviewError> {
    let mut documents = if input.text().trim_start().starts_with('{') {
        match json(input) {
            Ok(documents) => documents,
            // YAML's flow style starts with a brace too. If it is neither, JSON was most likely meant.
            Err(error) => yaml(input).map_err(|_| error)?,
        }
    } else {
        yaml(input)?
    };
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// The line of a JSON text that a path of keys, and of items of lists, leads to, as far as it leads. JSON is YAML as
/// well, and the reader of YAML knows its lines.
pub(super) fn line_at_path(text: &str, path: &[&str]) -> Option<u64> {
    let root = serde_saphyr::from_str_with_options::<Located>(text, options()).ok()?;
    let mut node = &root;
    for step in path {
        let Some(next) = node.step(step) else { break };
        node = next;
    }
    node.line
}

fn yaml(input: &Input) -> Result<Vec<Located>, PreviewError> {
    serde_saphyr::from_multiple_with_options(input.text(), options()).map_err(|source| {
        PreviewError::Yaml {
            place: input.at(source.location().map(|it| it.line())),
            source: Box::new(source),
        }
    })
}

fn json(input: &Input) -> Result<Vec<Located>, PreviewError> {
    let mut stream = serde_json::Deserializer::from_str(input.text()).into_iter::<Value>();
    let mut documents = Vec::new();
    loop {
        let rest = input.text().get(stream.byte_offset()..).unwrap_or_default();
        let start = input.text().len() - rest.trim_start().len();
        match stream.next() {
            None => return Ok(documents),
            Some(Ok(value)) => documents.push(Located {
                line: Some(line_at(input.text().as_bytes(), start)),
                tree: Tree::from(value),
            }),
            Some(Err(source)) => {
                return Err(PreviewError::Json {
                    place: input.at(u64::try_from(source.line()).ok()),
                    source,
                });
            }
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        // The default budget is made for configuration files. What counts here is the expansion of aliases; the text
        // itself is bounded by its size.
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
        // A snippet would repeat the line, and with it whatever secret stands there.
        with_snippet: false,
    }
}

impl Located {
    /// The line, where it is known.
    pub(super) fn line(&self) -> Option<u64> {
        self.line
    }

    /// A field of a mapping; null counts as absent, as Go's decoder has it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()?
            .iter()
            .find(|(name, value)| name == key && !value.is_null())
            .map(|(_, value)| value)
    }

    /// A field of a field, by a path with dots; the empty path is the value itself.
    pub(super) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.')
            .filter(|key| !key.is_empty())
            .try_fold(self, Self::get)
    }

    /// The field of that name, or the item that is that text.
    fn step(&self, name: &str) -> Option<&Self> {
        match &self.tree {
            Tree::Scalar(_) => None,
            Tree::List(items) => items.iter().find(|item| item.text() == Some(name)),
            Tree::Map(entries) => entries
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
        }
    }

    /// The entries of a mapping.
    pub(super) fn entries(&self) -> Option<&[(String, Self)]> {
        match &self.tree {
            Tree::Map(entries) => Some(entries),
            Tree::Scalar(_) | Tree::List(_) => None,
        }
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<&[Self]> {
        match &self.tree {
            Tree::List(items) => Some(items),
            Tree::Scalar(_) | Tree::Map(_) => None,
        }
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether there is nothing.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.tree, Tree::Scalar(Value::Null))
    }

    /// What it is, in a reader's words.
    pub(super) fn type_name(&self) -> &'static str {
        match &self.tree {
            Tree::Scalar(Value::Bool(_)) => "a boolean",
            Tree::Scalar(Value::Number(_)) => "a number",
            Tree::Scalar(Value::String(_)) => "text",
            Tree::Scalar(_) => "empty",
            Tree::List(_) => "a list",
            Tree::Map(_) => "a mapping",
        }
    }

    /// The value without its lines.
    pub(super) fn to_value(&self) -> Value {
        match &self.tree {
            Tree::Scalar(value) => value.clone(),
            Tree::List(items) => items.iter().map(Self::to_value).collect(),
            Tree::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.clone(), value.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        let unlocated = |value| Located {
            line: None,
            tree: Self::from(value),
        };
        match value {
            Value::Array(items) => Self::List(items.into_iter().map(unlocated).collect()),
            Value::Object(entries) => Self::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| (key, unlocated(value)))
                    .collect(),
            ),
            scalar => Self::Scalar(scalar),
        }
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
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
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

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Tree, E> {
        // Go writes a whole float without a point, so `089` and `1e3` reach Kubernetes as integers.
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
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<String>()? {
            entries.push((key, access.next_value()?));
        }
        Ok(Tree::Map(entries))
    }
}
