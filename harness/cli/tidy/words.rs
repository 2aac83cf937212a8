//! Words that the harness and the features no longer use: metaphors that a Kubernetes engineer has to learn first.

use crate::{files, shown};

/// Metaphors, without the endings of plural and verb forms.
const RETIRED: &[&str] = &[
    "act", "crowd", "dialogue", "door", "guest", "house", "knock", "manieth", "play", "resident",
    "room", "stage", "stories", "story", "trouble", "twin",
];

#[test]
fn retired_words_are_not_used() {
    let mut found = Vec::new();
    for file in files(".rs").into_iter().chain(files(".feature")) {
        let shown = shown(&file);
        let is_checked = shown.starts_with("harness/") || shown.starts_with("features/");
        if !is_checked || shown == "harness/cli/tidy/words.rs" {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            if let Some(word) = retired_word(line) {
                found.push(format!("{shown}:{}: {word}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "retired words:\n{}", found.join("\n"));
}

/// The first retired word of a line, also as a part of an identifier.
fn retired_word(line: &str) -> Option<String> {
    words(line).into_iter().find(|word| {
        // The kernel calls a process's memory resident.
        let is_memory = word == "resident" && (line.contains("KiB") || line.contains("memory"));
        RETIRED.iter().any(|retired| is_form_of(word, retired)) && !is_memory
    })
}

/// The words of a line in lower case; `StageError` and `stage_error` are two words each.
fn words(line: &str) -> Vec<String> {
    let mut separated = String::new();
    for letter in line.chars() {
        if letter.is_uppercase() && separated.ends_with(char::is_lowercase) {
            separated.push(' ');
        }
        separated.push(if letter.is_alphabetic() { letter } else { ' ' });
    }
    separated
        .split_whitespace()
        .map(str::to_lowercase)
        .collect()
}

fn is_form_of(word: &str, retired: &str) -> bool {
    let ending = word.strip_prefix(retired);
    ending.is_some_and(|ending| matches!(ending, "" | "s" | "ed" | "er" | "ing"))
}

#[test]
fn retired_words_are_found_in_text_and_identifiers() {
    let found = "a room. let stages = 1; struct StageError; fn knock_twice() Rooms; it played";
    let retired: Vec<_> = found.split(' ').filter_map(retired_word).collect();
    assert_eq!(
        retired,
        ["room", "stages", "stage", "knock", "rooms", "played"]
    );
    let others = "action activate display contract backdoors resident KiB, staging";
    assert_eq!(retired_word(others), None);
}
