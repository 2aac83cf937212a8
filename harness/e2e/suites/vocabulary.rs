//! Compares the step definitions with the features that use them and with features/README.md, which lists them, and the default
//! configuration.
//!
//! Without the crate's feature `clusters`, definitions for clusters are not compiled. The checks that need them run only with
//! the feature.
#![expect(
    clippy::unwrap_used,
    reason = "a test target: what cannot be read fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cucumber::codegen::{Regex, StepConstructor as _, WorldInventory, inventory};
use cucumber::feature::Ext as _;
use cucumber::gherkin::{Feature, GherkinEnv, StepType};
use e2e::admission::webhook::sources;
use e2e::runner::root;
use e2e::scenario::Scenario;
use rstest::rstest;
use serde_json::{Value, json};

/// Largest number of step definitions: 120 of the suites about one component each, 15 of the flow, and 10 of conformance.
const DEFINITIONS: usize = 145;

struct Definition {
    keyword: StepType,
    regex: Regex,
    place: String,
}

impl Definition {
    fn matches(&self, (keyword, text, _): &Sentence) -> bool {
        self.keyword == *keyword && self.regex.is_match(text)
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
                    place: format!("{}:{} {}", location.path, location.line, regex()),
                });
            }
        };
    }
    collect!(Given);
    collect!(When);
    collect!(Then);
    definitions
}

/// Returns all features with the examples of their outlines.
fn features() -> Vec<Feature> {
    let entries = |folder: &Path| std::fs::read_dir(folder).unwrap();
    let folders = entries(&root().join("features")).map(|it| it.unwrap().path());
    let folders = folders.filter(|it| it.is_dir());
    let files = folders
        .flat_map(|it| entries(&it))
        .map(|it| it.unwrap().path());
    files
        .map(|path| Feature::parse_path(path, GherkinEnv::default()).unwrap())
        .map(|feature| feature.expand_examples().unwrap())
        .collect()
}

/// Keyword, text and location of a sentence.
type Sentence = (StepType, String, String);

/// Returns every step of every scenario.
fn steps() -> Vec<Sentence> {
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

fn readme() -> String {
    std::fs::read_to_string(root().join("features/README.md")).unwrap()
}

/// Returns the example sentences of features/README.md: list items that are one code span.
fn listed() -> Vec<Sentence> {
    let text = readme();
    let examples = text.lines().filter_map(|line| {
        let span = line.strip_prefix("- `")?.split('`').next()?;
        let (keyword, text) = span.split_once(' ')?;
        let keyword = match keyword {
            "Given" => StepType::Given,
            "When" => StepType::When,
            "Then" => StepType::Then,
            _ => return None,
        };
        Some((keyword, text.to_owned(), "features/README.md".to_owned()))
    });
    examples.collect()
}

#[rstest]
#[case::is_used_by_a_scenario(steps())]
#[case::is_listed_in_the_readme(listed())]
fn every_definition(#[case] sentences: Vec<Sentence>) {
    let mut missing = definitions();
    missing.retain(|definition| !sentences.iter().any(|it| definition.matches(it)));
    let missing: Vec<&str> = missing.iter().map(|it| it.place.as_str()).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[cfg(feature = "clusters")]
#[test]
fn every_sentence_of_the_readme_and_the_features_has_one_definition() {
    let definitions = definitions();
    let count = |it: &Sentence| definitions.iter().filter(|one| one.matches(it)).count();
    let mut wrong = [listed(), steps()].concat();
    wrong.retain(|sentence| count(sentence) != 1);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_vocabulary_stays_small() {
    // A sentence with two keywords is counted once.
    let definitions = definitions();
    let sentences: BTreeSet<&str> = definitions.iter().map(|it| it.regex.as_str()).collect();
    let count = sentences.len();
    assert!((1..=DEFINITIONS).contains(&count), "{count} definitions");
}

#[test]
fn examples_of_a_feature_have_different_titles() {
    for feature in features() {
        let mut titles = BTreeSet::new();
        for scenario in &feature.scenarios {
            let (name, title) = (&feature.name, &scenario.name);
            let is_new = titles.insert(title);
            assert!(is_new, "{name}: put what differs into the title {title:?}");
        }
    }
}

#[test]
fn the_readme_lists_the_registries_of_the_default_configuration() {
    let docker_config = json!({"auths": {"registry.landscape.test:5000": {}}});
    let [configuration, secret, _] = sources(docker_config, "").unwrap();
    let document = configuration["data"][api::names::CONFIG_KEY].as_str();
    let document: Value = serde_json::from_str(document.unwrap()).unwrap();
    let overrides: BTreeMap<String, String> =
        serde_json::from_value(document["overrides"].clone()).unwrap();
    let encoded = secret["data"][api::names::DOCKER_CONFIG_KEY].as_str();
    let docker_config = BASE64.decode(encoded.unwrap()).unwrap();
    let docker_config: Value = serde_json::from_slice(&docker_config).unwrap();
    let hosts = docker_config["auths"].as_object().unwrap().keys();
    let mut others: BTreeSet<&str> = hosts.map(String::as_str).collect();
    let credentials = others.clone();
    let mut rows = BTreeSet::new();
    for (from, to) in &overrides {
        let host = to.split('/').next().unwrap();
        others.remove(host);
        let answer = if credentials.contains(host) {
            "yes"
        } else {
            "no"
        };
        rows.insert(format!("| `{from}` | `{to}` | {answer} |"));
    }
    rows.extend(others.iter().map(|it| format!("| `{it}` | – | yes |")));
    let (text, is_row) = (readme(), |it: &&str| {
        it.ends_with("| yes |") || it.ends_with("| no |")
    });
    let listed: BTreeSet<String> = text.lines().filter(is_row).map(str::to_owned).collect();
    assert_eq!(listed, rows);
}
