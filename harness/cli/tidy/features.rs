//! Feature files are short, their scenarios have few steps, and their tags are a closed set.

use crate::{files, shown};

const LINES: usize = 70;
const SCENARIOS: usize = 8;
const STEPS: usize = 7;
const TAGS: [&str; 8] = [
    "@cluster",
    "@contract",
    "@node",
    "@own-cluster",
    "@sample",
    "@serial",
    "@slow",
    "@smoke",
];

#[test]
fn features_are_short() {
    for file in files(".feature") {
        let text = std::fs::read_to_string(&file).unwrap();
        let shown = shown(&file);
        assert!(
            text.lines().count() <= LINES,
            "{shown} is longer than {LINES} lines"
        );
        let scenarios = text.lines().filter(|line| is_scenario(line)).count();
        assert!(
            (1..=SCENARIOS).contains(&scenarios),
            "{shown} has {scenarios} scenarios"
        );
        let mut steps = 0;
        for line in text.lines() {
            if is_scenario(line) || line.trim().starts_with("Background:") {
                steps = 0;
            }
            if is_step(line) {
                steps += 1;
                assert!(
                    steps <= STEPS,
                    "{shown}: more than {STEPS} steps before {line:?}"
                );
            }
        }
    }
}

#[test]
fn tags_are_a_closed_set() {
    for file in files(".feature") {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with('@'))
        {
            for tag in line.split_whitespace() {
                assert!(TAGS.contains(&tag), "{}: {tag}", shown(&file));
            }
        }
    }
}

#[test]
fn every_feature_has_a_description() {
    for file in files(".feature") {
        let text = std::fs::read_to_string(&file).unwrap();
        let description = text
            .lines()
            .skip_while(|line| !line.starts_with("Feature:"))
            .nth(1);
        assert!(
            description.is_some_and(|line| !line.trim().is_empty()),
            "{} has no description under its title",
            shown(&file)
        );
    }
}

fn is_scenario(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("Scenario:")
        || line.starts_with("Scenario Outline:")
        || line.starts_with("Example:")
}

fn is_step(line: &str) -> bool {
    ["Given ", "When ", "Then ", "And ", "But "]
        .iter()
        .any(|word| line.trim().starts_with(word))
}
