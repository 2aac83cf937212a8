//! Files under `deploy/` with inserted settings.
//!
//! A file is complete, and comments mark the variable values:
//! - `key: VALUE # setting: NAME` (or `- VALUE # setting: NAME`): the value is replaced;
//! - `# setting: NAME` in a separate line: the key `NAME` is inserted below it if it is set;
//! - `# further: NAME` in a separate line: items of a list are inserted below it if there are any.
//!
//! Invariants: a value is written as JSON, which is YAML that cannot change the surrounding structure. Inserted values are
//! never searched, so no value can be interpreted as a part of the file. Other lines and their comments are unchanged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Settings by the names in the marks of the files. A setting without a value keeps the default of the file.
pub(super) type Settings = BTreeMap<&'static str, Option<Value>>;

const SETTING: &str = "# setting: ";
const FURTHER: &str = "# further: ";

/// Returns the files as one stream of documents, with these settings, and with their namespace replaced.
///
/// The settings must be exactly those that the files mark, which a debug build checks.
pub(super) fn filled(files: &[&str], namespace: (&str, &str), settings: &Settings) -> String {
    debug_assert_eq!(marks(files), settings.keys().copied().collect());
    let (known, wanted) = namespace;
    let template = files.join("---\n").replace(known, wanted);
    let mut text = String::with_capacity(template.len());
    for line in template.lines() {
        put(&mut text, line, settings);
    }
    text
}

fn put(text: &mut String, line: &str, settings: &Settings) {
    let content = line.trim_start();
    let indent = &line[..line.len() - content.len()];
    let mut push = |parts: &[&str]| {
        text.extend(parts.iter().copied());
        text.push('\n');
    };
    if let Some((name, value)) = marked(content, SETTING, settings) {
        push(&[line]);
        if let Some(value) = value {
            push(&[indent, name, ": ", &written(value)]);
        }
    } else if let Some((_, items)) = marked(content, FURTHER, settings) {
        push(&[line]);
        for item in items.and_then(Value::as_array).into_iter().flatten() {
            push(&[indent, "- ", &written(item)]);
        }
    } else if let Some((default, mark)) = content.split_once(" # setting: ") {
        match settings.get(mark).and_then(Option::as_ref) {
            Some(value) => push(&[indent, before_value(default), &written(value)]),
            None => push(&[indent, default]),
        }
    } else {
        push(&[line]);
    }
}

/// Returns a value as JSON without the document separator, at which installers split.
fn written(value: &Value) -> String {
    value.to_string().replace("---", r"\u002d\u002d\u002d")
}

/// Returns the name in a line that contains only a mark and an optional remark.
fn marked<'s>(
    content: &str,
    mark: &str,
    settings: &'s Settings,
) -> Option<(&'static str, Option<&'s Value>)> {
    let name = content.strip_prefix(mark)?.split([' ', ',']).next()?;
    let (name, value) = settings.get_key_value(name)?;
    Some((name, value.as_ref()))
}

/// Returns the text before the value: `key: ` of a field, or `- ` of an item.
fn before_value(default: &str) -> &str {
    let end = default.find(": ").or_else(|| default.find("- "));
    &default[..end.map_or(0, |at| at + 2)]
}

/// Returns the names that files mark.
fn marks<'f>(files: &[&'f str]) -> BTreeSet<&'f str> {
    let name = |line: &'f str| {
        let rest = line.split_once(SETTING).or(line.split_once(FURTHER))?.1;
        rest.split([' ', ',']).next()
    };
    files
        .iter()
        .flat_map(|file| file.lines().filter_map(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "\
name: a # setting: name
list:
- --flag=b # setting: flag
# further: flags, of the user
# setting: pulls, if any
here: here
";

    fn with(settings: &[(&'static str, Option<Value>)]) -> String {
        let all = ["name", "flag", "flags", "pulls"].map(|it| (it, None));
        let settings = all.into_iter().chain(settings.iter().cloned()).collect();
        filled(&[FILE], ("here", "there"), &settings)
    }

    #[test]
    fn files_without_settings_have_their_defaults_and_comments() {
        let expected = "\
name: a
list:
- --flag=b
# further: flags, of the user
# setting: pulls, if any
there: there
";
        assert_eq!(with(&[]), expected);
    }

    #[test]
    fn settings_replace_their_placeholders() {
        let text = with(&[
            ("name", Some(json!("x"))),
            ("flag", Some(json!("--flag=y"))),
            ("flags", Some(json!(["--one=1", "--two=2"]))),
            ("pulls", Some(json!([{"name": "own"}]))),
        ]);
        let expected = "\
name: \"x\"
list:
- \"--flag=y\"
# further: flags, of the user
- \"--one=1\"
- \"--two=2\"
# setting: pulls, if any
pulls: [{\"name\":\"own\"}]
there: there
";
        assert_eq!(text, expected);
    }

    #[test]
    fn dashes_in_a_value_do_not_separate_documents() {
        let text = with(&[("name", Some(json!("a---b-----c")))]);
        assert!(!text.contains("---"), "{text}");
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(object["name"], "a---b-----c");
    }

    /// Marks, the default namespace, quotes and line breaks in a value are not interpreted.
    #[test]
    fn values_are_never_searched_and_never_change_the_structure() {
        let value = "here # setting: flag\"\n- evil: true";
        let text = with(&[("name", Some(json!(value)))]);
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let expected = json!({"name": value, "list": ["--flag=b"], "there": "there"});
        assert_eq!(object, expected);
    }
}
