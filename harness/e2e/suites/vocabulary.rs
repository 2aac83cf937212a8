//! The step definitions agree with the features that use them and with features/README.md, which lists them.
//!
//! Without the crate's feature `clusters`, definitions for clusters are not compiled; what they are needed for is checked
//! with it.
#![expect(
    clippy::unwrap_used,
    reason = "a test target: what cannot be read fails"
)]

use std::collections::BTreeSet;

use cucumber::codegen::{Regex, StepConstructor as _, WorldInventory, inventory};
use cucumber::feature::Ext as _;
use cucumber::gherkin::{Feature, GherkinEnv, StepType};
use e2e::runner::root;
use e2e::scenario::Scenario;

/// Folders whose scenarios use these definitions.
const FOLDERS: [&str; 3] = ["admission", "synchronization", "watching"];
/// Largest number of step definitions of all suites together.
const DEFINITIONS: usize = 120;

struct Definition {
    keyword: StepType,
    regex: Regex,
    place: String,
}

impl Definition {
    fn matches(&self, keyword: StepType, text: &str) -> bool {
        self.keyword == keyword && self.regex.is_match(text)
    }
}

fn definitions() -> Vec<Definition> {
    let mut definitions = Vec::new();
    macro_rules! collect {
        ($kind:ident) => {
            for it in inventory::iter::<<Scenario as WorldInventory>::$kind> {
                let (location, regex, _) = it.inner();
                definitions.push(Definition {
                    keyword: StepType::$kind,
                    regex: regex(),
                    place: format!("{}:{}", location.path, location.line),
                });
            }
        };
    }
    collect!(Given);
    collect!(When);
    collect!(Then);
    definitions
}

fn features() -> Vec<Feature> {
    let mut features = Vec::new();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(root().join("features").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let feature = Feature::parse_path(&path, GherkinEnv::default());
            features.push(feature.unwrap().expand_examples().unwrap());
        }
    }
    assert!(!features.is_empty());
    features
}

/// Keyword and text of every step, with the place of its scenario.
fn steps() -> Vec<(StepType, String, String)> {
    let mut steps = Vec::new();
    for feature in features() {
        for scenario in &feature.scenarios {
            let background = feature.background.iter().flat_map(|it| &it.steps);
            for step in background.chain(&scenario.steps) {
                let place = format!("{}: {}", feature.name, scenario.name);
                steps.push((step.ty, step.value.clone(), place));
            }
        }
    }
    steps
}

/// The example sentences of features/README.md: list items that are one code span.
fn listed() -> Vec<(StepType, String)> {
    let text = std::fs::read_to_string(root().join("features/README.md")).unwrap();
    let examples = text.lines().filter_map(|line| {
        let span = line.strip_prefix("- `")?.split('`').next()?;
        let (keyword, text) = span.split_once(' ')?;
        let keyword = match keyword {
            "Given" => StepType::Given,
            "When" => StepType::When,
            "Then" => StepType::Then,
            _ => return None,
        };
        Some((keyword, text.to_owned()))
    });
    examples.collect()
}

#[test]
fn every_definition_is_used_by_a_scenario() {
    let steps = steps();
    let unused: Vec<String> = definitions()
        .iter()
        .filter(|definition| {
            !steps
                .iter()
                .any(|(keyword, text, _)| definition.matches(*keyword, text))
        })
        .map(|definition| format!("{} {}", definition.place, definition.regex))
        .collect();
    assert!(unused.is_empty(), "{}", unused.join("\n"));
}

#[test]
fn every_definition_is_listed_in_the_readme() {
    let listed = listed();
    let missing: Vec<String> = definitions()
        .iter()
        .filter(|definition| {
            !listed
                .iter()
                .any(|(keyword, text)| definition.matches(*keyword, text))
        })
        .map(|definition| format!("{} {}", definition.place, definition.regex))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[cfg(feature = "clusters")]
#[test]
fn every_sentence_of_the_readme_and_the_features_has_one_definition() {
    let definitions = definitions();
    let listed = listed();
    let listed = listed
        .into_iter()
        .map(|(keyword, text)| (keyword, text, "features/README.md".to_owned()));
    let mut wrong = Vec::new();
    for (keyword, text, place) in listed.chain(steps()) {
        let found = definitions
            .iter()
            .filter(|definition| definition.matches(keyword, &text))
            .count();
        if found != 1 {
            wrong.push(format!("{place}: {keyword:?} {text}: {found} definitions"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_vocabulary_stays_small() {
    // A sentence that two keywords share is one.
    let definitions = definitions();
    let sentences: BTreeSet<&str> = definitions.iter().map(|it| it.regex.as_str()).collect();
    assert!(!sentences.is_empty());
    assert!(
        sentences.len() <= DEFINITIONS,
        "{} definitions",
        sentences.len()
    );
}

#[test]
fn examples_of_a_feature_have_different_titles() {
    for feature in features() {
        let mut titles = BTreeSet::new();
        for scenario in &feature.scenarios {
            assert!(
                titles.insert(&scenario.name),
                "{}: two examples are called {:?}; put what differs into the title",
                feature.name,
                scenario.name
            );
        }
    }
}
