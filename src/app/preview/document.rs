//! YAML and JSON streams as trees with line numbers.
//!
//! Invariant: the parsing time is proportional to the size of the text. Parsing uses no types, so that no field is lost. A
//! duplicate key is an error, as in the strict decoding of `kubectl`. Deliberately absent: the meaning of the documents
//! (`manifest`).

use api::json::{FieldPath, Step};
use serde_json::{Map, Value};

use super::error::SyntaxError;
use super::input::Input;

mod json;
mod yaml;

pub(super) use json::JSON;
pub(super) use yaml::line_at_path;

/// A value and the line of its start.
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

/// Parses the documents of a stream, without empty documents.
///
/// As in tools of Kubernetes, a text that starts with a brace is first parsed as JSON.
pub(super) fn documents(input: &Input) -> Result<Vec<Located>, SyntaxError> {
    let mut documents = if input.text().trim_start().starts_with('{') {
        match json::documents(input) {
            Ok(documents) => documents,
            // The flow style of YAML also starts with a brace. If the text is neither, it is most likely JSON.
            Err(error) => yaml::documents(input).map_err(|_| error)?,
        }
    } else {
        yaml::documents(input)?
    };
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// Returns the first object of a kind, in documents or in lists of documents. The items of a typed list need no kind.
pub(super) fn find<'a, T>(
    documents: &'a [Located],
    kind: &str,
    take: &impl Fn(&'a Located) -> Option<T>,
) -> Option<T> {
    let kind_of = |it: &'a Located| it.get("kind").and_then(Located::text);
    documents.iter().find_map(|object| {
        if kind_of(object) == Some(kind) {
            return take(object);
        }
        let items = object.get("items").and_then(Located::items)?;
        let list = kind_of(object).and_then(|it| it.strip_suffix("List"));
        let mut untyped = items
            .iter()
            .filter(|it| list == Some(kind) && it.get("kind").is_none());
        find(items, kind, take).or_else(|| untyped.find_map(take))
    })
}

impl Located {
    /// Returns the line, if it is known.
    pub(super) fn line(&self) -> Option<u64> {
        self.line
    }

    /// Returns a field of a mapping. Null counts as absent, as in the decoder of Go.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()?
            .iter()
            .find(|(name, value)| name == key && !value.is_null())
            .map(|(_, value)| value)
    }

    /// Returns a nested field by a path with dots. The empty path refers to the value itself.
    pub(super) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.')
            .filter(|key| !key.is_empty())
            .try_fold(self, Self::get)
    }

    /// Returns the value at the end of a path.
    pub(super) fn follow(&self, path: &FieldPath) -> Option<&Self> {
        path.0.iter().try_fold(self, Self::next)
    }

    /// Returns the line of a path, or of the longest prefix of the path that exists.
    pub(super) fn line_at(&self, path: &FieldPath) -> Option<u64> {
        let mut node = self;
        for step in &path.0 {
            let Some(next) = node.next(step) else { break };
            node = next;
        }
        node.line
    }

    fn next(&self, step: &Step) -> Option<&Self> {
        match (step, &self.tree) {
            (Step::Key(key), Tree::Map(_)) => self.step(key),
            (Step::Index(index), Tree::List(items)) => items.get(*index),
            _ => None,
        }
    }

    /// Returns the field with this name, or the item with this text.
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

    /// Returns the entries of a mapping.
    pub(super) fn entries(&self) -> Option<&[(String, Self)]> {
        match &self.tree {
            Tree::Map(entries) => Some(entries),
            Tree::Scalar(_) | Tree::List(_) => None,
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Option<&[Self]> {
        match &self.tree {
            Tree::List(items) => Some(items),
            Tree::Scalar(_) | Tree::Map(_) => None,
        }
    }

    /// Returns the text, if the value is a string.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns whether the value is null.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.tree, Tree::Scalar(Value::Null))
    }

    /// Returns the type of the value, as used in messages.
    pub(super) fn type_name(&self) -> &'static str {
        match &self.tree {
            Tree::Scalar(Value::Bool(_)) => "a boolean",
            Tree::Scalar(Value::Number(_)) => "a number",
            Tree::Scalar(Value::String(_)) => "a string",
            Tree::Scalar(_) => "null",
            Tree::List(_) => "a list",
            Tree::Map(_) => "a mapping",
        }
    }

    /// Returns the value without its lines.
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
