//! What the webhook changed, as a diff of two Pods.
//!
//! Invariant: both sides are what the API server stores, reduced in the same way.

use std::fmt::Write as _;

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use super::paint::{Meaning, Paint};

/// The Pod with the webhook; `-` marks what it would be without, `+` what is new. Unchanged parts are told in full:
/// a reader shall see a Pod, not a patch.
pub(super) fn lines(without: &impl Serialize, with: &impl Serialize, paint: Paint) -> String {
    let (before, after) = (yaml(without), yaml(with));
    let diff = TextDiff::from_lines(&before, &after);
    let mut out = String::new();
    for change in diff.iter_all_changes() {
        let (mark, meaning) = match change.tag() {
            ChangeTag::Delete => ('-', Meaning::Bad),
            ChangeTag::Insert => ('+', Meaning::Good),
            ChangeTag::Equal => (' ', Meaning::Aside),
        };
        let text = format!("{mark} {}", change.value().trim_end());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "     {}", paint.text(meaning, &text));
    }
    out
}

fn yaml(value: &impl Serialize) -> String {
    let options = serde_saphyr::ser_options! {
        // Folded lines are hard to compare.
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(value, options).unwrap_or_else(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_new_and_what_is_gone_is_marked() {
        let without = json!({ "image": "a/x", "name": "pause" });
        let with = json!({ "image": "b/x", "name": "pause" });
        assert_eq!(
            lines(&without, &with, Paint(false)),
            "     - image: a/x\n     + image: b/x\n       name: pause\n"
        );
    }
}
