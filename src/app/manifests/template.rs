//! Files under `deploy/` with settings put in.
//!
//! A file is complete as it is, and marks in comments what may differ:
//! - `key: VALUE # setting: NAME` (or `- VALUE # setting: NAME`): the value is replaced;
//! - `# setting: NAME`, a line of its own: the key `NAME` follows below it if it is set;
//! - `# further: NAME`, a line of its own: items of a list follow below it if there are any.
//!
//! Invariants: a value is written as JSON, which is YAML that cannot change the structure around it; and what was put in
//! is never searched, so no value can be mistaken for a part of the file. Lines stay as they are otherwise, with their
//! comments.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Settings by the name that the files mark them with. A setting without a value leaves the file's default.
pub(super) type Settings = BTreeMap<&'static str, Option<Value>>;

const SETTING: &str = "# setting: ";
const FURTHER: &str = "# further: ";

/// The files as one stream of documents, with these settings, and with the namespace that they name exchanged for another.
///
/// The settings are all that the files mark; a debug build checks it.
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

/// As JSON, in which installers find nothing to split at.
fn written(value: &Value) -> String {
    value.to_string().replace("---", r"\u002d\u002d\u002d")
}

/// The name in a line that is a mark and nothing else; remarks may follow it.
fn marked<'s>(
    content: &str,
    mark: &str,
    settings: &'s Settings,
) -> Option<(&'static str, Option<&'s Value>)> {
    let name = content.strip_prefix(mark)?.split([' ', ',']).next()?;
    let (name, value) = settings.get_key_value(name)?;
    Some((name, value.as_ref()))
}

/// `key: ` of a member, and `- ` of an item.
fn before_value(default: &str) -> &str {
    let end = default.find(": ").or_else(|| default.find("- "));
    &default[..end.map_or(0, |at| at + 2)]
}

/// The names that files mark.
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
    fn settings_are_put_where_they_are_marked() {
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

    /// Marks, the namespace's default, quotes and line breaks in a value are text.
    #[test]
    fn values_are_never_searched_and_never_change_the_structure() {
        let value = "here # setting: flag\"\n- evil: true";
        let text = with(&[("name", Some(json!(value)))]);
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let expected = json!({"name": value, "list": ["--flag=b"], "there": "there"});
        assert_eq!(object, expected);
    }
}
