//! Descriptions of JSON errors for authors of documents: the field, the expected value, and the actual value.
//!
//! Invariant: the description of a wrong type does not repeat the value, which may be a secret.

use std::fmt;

/// Path of a field: the keys of mappings and the indexes of lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(pub Vec<Step>);

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A key of a mapping.
    Key(String),
    /// An index of a list, counted from 0.
    Index(usize),
}

impl FieldPath {
    /// Returns the path of a field of this mapping.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(Step::Key(key.into()));
        self
    }

    /// Returns the path of an item of this list.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Step::Index(index));
        self
    }
}

/// Uses the format of `kubectl explain`, with brackets for a key that is not a plain name: `spec.containers[0].name`,
/// `overrides["replace.me"]`.
impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if !key.is_empty() && key.bytes().all(plain) => {
                    let dot = if position == 0 { "" } else { "." };
                    write!(f, "{dot}{key}")?;
                }
                Step::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

impl From<&serde_path_to_error::Path> for FieldPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let steps = path.iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        Self(steps.collect())
    }
}

impl From<&serde_ignored::Path<'_>> for FieldPath {
    fn from(path: &serde_ignored::Path<'_>) -> Self {
        use serde_ignored::Path;
        match path {
            Path::Root => Self::default(),
            Path::Seq { parent, index } => Self::from(*parent).index(*index),
            Path::Map { parent, key } => Self::from(*parent).key(key.clone()),
            Path::Some { parent }
            | Path::NewtypeStruct { parent }
            | Path::NewtypeVariant { parent } => Self::from(*parent),
        }
    }
}

/// Returns the text of an error, without its position: `expected a string, got a boolean`.
#[must_use]
pub fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = text.rsplit_once(" at line ");
    let text = position.map_or(text.as_str(), |(text, _)| text);
    // The value may contain any text, so the text after it is searched from the end.
    match text.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid type: ") => {
            let found = found.trim_start_matches("invalid type: ");
            format!("expected {}, got {}", wanted(expected), got(found))
        }
        // serde accepts a list of the values of all fields as another format of a mapping, but authors of documents do not
        // use it.
        Some((found, expected))
            if found.starts_with("invalid length") && expected.starts_with("struct") =>
        {
            "expected a mapping, got a list".to_owned()
        }
        _ => text.replace("EOF while parsing", "unexpected end of"),
    }
}

/// Returns the type that serde expected, without the names of Rust types.
fn wanted(expected: &str) -> &str {
    match expected.split(' ').next() {
        Some("struct" | "map") => "a mapping",
        Some("sequence") => "a list",
        _ => match expected {
            "a map" => "a mapping",
            "a sequence" => "a list",
            other => other,
        },
    }
}

/// Returns the type that serde found, without its value.
fn got(found: &str) -> &'static str {
    match found.split([' ', ',']).next() {
        Some("null") => "null",
        Some("boolean") => "a boolean",
        Some("integer" | "floating") => "a number",
        Some("string") => "a string",
        Some("sequence") => "a list",
        Some("map") => "a mapping",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;
    use serde::de::DeserializeOwned;

    use super::*;

    fn error<T: DeserializeOwned>(text: &str) -> String {
        match serde_json::from_str::<T>(text) {
            Ok(_) => panic!("{text} was read"),
            Err(error) => describe(&error),
        }
    }

    #[rstest]
    #[case::boolean("true", "expected a string, got a boolean")]
    #[case::number("1.5", "expected a string, got a number")]
    #[case::null("null", "expected a string, got null")]
    #[case::list("[]", "expected a string, got a list")]
    #[case::mapping("{}", "expected a string, got a mapping")]
    fn description_of_a_wrong_type_names_both_types(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(error::<String>(text), expected);
    }

    #[test]
    fn description_has_neither_position_nor_value() {
        let text = error::<BTreeMap<String, u8>>("{\n\"a\": \"hunter2, expected b\"}");
        assert_eq!(text, "expected u8, got a string");
        assert_eq!(error::<Vec<u8>>("[1"), "unexpected end of a list");
    }

    #[test]
    fn path_with_an_odd_key_has_brackets() {
        let path = FieldPath::default().key("a").key("b.c/d").index(2).key("e");
        assert_eq!(path.to_string(), r#"a["b.c/d"][2].e"#);
    }
}
