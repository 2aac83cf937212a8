//! Feature files are short, their scenarios have few steps, and their tags are a closed set.

use crate::{files, shown};

const SCENARIO: &[&str] = &["Scenario:", "Scenario Outline:", "Example:"];
const STEP: &[&str] = &["Given ", "When ", "Then ", "And ", "But "];
const LINES: usize = 70;
const SCENARIOS: usize = 8;
const STEPS: usize = 7;
const TAGS: &str = "@cluster @contract @node @own-cluster @sample @serial @slow @smoke";

#[test]
fn features_are_short_described_and_have_known_tags() {
    for file in files(".feature") {
        let (text, shown) = (std::fs::read_to_string(&file).unwrap(), shown(&file));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert!(lines.len() <= LINES, "{shown} is longer than {LINES} lines");
        let scenarios = lines.iter().filter(|it| starts(it, SCENARIO)).count();
        assert!(
            (1..=SCENARIOS).contains(&scenarios),
            "{shown}: {scenarios} scenarios"
        );
        let mut after_title = lines
            .iter()
            .skip_while(|it| !it.starts_with("Feature:"))
            .skip(1);
        let is_described = after_title.next().is_some_and(|it| !it.is_empty());
        assert!(is_described, "{shown} has no description under its title");
        let mut steps = 0;
        for line in lines {
            if starts(line, SCENARIO) || line.starts_with("Background:") {
                steps = 0;
            }
            steps += usize::from(starts(line, STEP));
            assert!(
                steps <= STEPS,
                "{shown}: more than {STEPS} steps before {line:?}"
            );
            if line.starts_with('@') {
                let mut tags = line.split_whitespace();
                let unknown = tags.find(|tag| TAGS.split(' ').all(|known| known != *tag));
                assert_eq!(unknown, None, "{shown}");
            }
        }
    }
}

fn starts(line: &str, words: &[&str]) -> bool {
    words.iter().any(|word| line.starts_with(word))
}
