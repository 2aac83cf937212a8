//! docs/conformance.md: every row of the three checklists is there, and what is said to show it exists.
//!
//! Deliberately absent: whether a test shows what its row says. That is read, not computed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rstest::rstest;

use crate::checkout::{files, root, shown};

/// The checklists, and how many rows each has.
const CHECKLISTS: [(&str, usize); 3] = [
    ("runtime-watcher", 47),
    ("infrastructure manager and broker", 50),
    ("rt-bootstrapper", 71),
];

/// What may stand in place of a test, with a reason behind it.
const EXCUSES: [&str; 2] = ["other system's: ", "not built: "];

const DIFFERS: &str = "differs: ";

#[test]
fn every_row_of_a_checklist_is_there_once_and_in_order() {
    let text = document("conformance.md");
    let titles: Vec<_> = text
        .lines()
        .filter_map(|it| it.strip_prefix("## "))
        .collect();
    assert_eq!(titles, CHECKLISTS.map(|(title, _)| title));
    for (title, rows) in CHECKLISTS {
        let numbers: Vec<_> = table(&text, title).map(|[number, ..]| number).collect();
        let expected: Vec<_> = (1..=rows).map(|row| row.to_string()).collect();
        assert_eq!(numbers, expected, "{title}");
    }
}

#[test]
fn every_row_names_what_shows_it() {
    let text = document("conformance.md");
    let proofs = Proofs::read();
    let mut faults = Vec::new();
    for (title, _) in CHECKLISTS {
        for [number, _, cell] in table(&text, title) {
            if let Err(fault) = proofs.judge(cell) {
                faults.push(format!("{title}, row {number}: {fault}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[rstest]
#[case::a_test("`watcher::metrics::tests::row_31_fips_mode_is_off`", true)]
#[case::a_test_within_its_modules_file(
    "`chassis::retry_after::tests::retry_after_is_understood`",
    true
)]
#[case::no_such_test("`watcher::metrics::tests::row_31_fips_mode_is_on`", false)]
#[case::no_such_module("`watcher::nothing::row_31_fips_mode_is_off`", false)]
#[case::a_function_that_is_no_test("`policy::change::tests::case::update`", false)]
#[case::a_scenario("`watching/silence: The watcher is down`", true)]
#[case::no_such_scenario("`watching/silence: The watcher is up`", false)]
#[case::a_scenario_elsewhere("`watching/outage: The watcher is down`", false)]
#[case::a_golden_file("`golden: change/connect`", true)]
#[case::no_such_golden_file("`golden: change/disconnect`", false)]
#[case::a_difference("differs: `listener: bad JSON`", true)]
#[case::no_such_difference("differs: `listener: good JSON`", false)]
#[case::the_second_of_two("`golden: change/connect`, `golden: change/disconnect`", false)]
#[case::somebody_elses("other system's: the broker does it", true)]
#[case::without_a_reason("not built: yet", false)]
#[case::nothing("by hand", false)]
fn a_proof_is_what_exists(#[case] cell: &str, #[case] good: bool) {
    assert_eq!(Proofs::read().judge(cell).is_ok(), good);
}

/// What can be named as a proof.
struct Proofs {
    /// The text of each Rust file, by its path.
    sources: BTreeMap<PathBuf, String>,
    scenarios: BTreeSet<String>,
    differences: BTreeSet<String>,
}

impl Proofs {
    fn read() -> Self {
        let sources = files(".rs").into_iter();
        let sources = sources.map(|file| (file.clone(), std::fs::read_to_string(file).unwrap()));
        Self {
            sources: sources.collect(),
            scenarios: scenarios(),
            differences: differences(),
        }
    }

    /// What is wrong with the third cell of a row.
    fn judge(&self, cell: &str) -> Result<(), String> {
        if let Some(reason) = EXCUSES.iter().find_map(|it| cell.strip_prefix(it)) {
            let short = reason.len() < 10;
            return short.then(|| "no reason".to_owned()).map_or(Ok(()), Err);
        }
        let parts: Vec<_> = cell.split('`').collect();
        if parts.len() < 3 {
            return Err("nothing shows it".to_owned());
        }
        for pair in parts.chunks_exact(2) {
            let (before, named) = (pair[0], pair[1]);
            let exists = if before.ends_with(DIFFERS) {
                self.differences.contains(named)
            } else {
                self.exists(named)
            };
            if !exists {
                return Err(format!("there is no {named}"));
            }
        }
        Ok(())
    }

    fn exists(&self, named: &str) -> bool {
        if let Some(golden) = named.strip_prefix("golden: ") {
            let parts = golden.split_once('/');
            return parts.is_some_and(|(room, name)| {
                let path = format!("src/policy/{room}/tests/golden/{name}.yaml");
                root().join(path).exists()
            });
        }
        if named.contains(": ") {
            return self.scenarios.contains(named);
        }
        named
            .rsplit_once("::")
            .is_some_and(|(modules, name)| self.is_test(modules, name))
    }

    /// Whether the module has a test of this name: in a file of its own, or within that of the module around it.
    fn is_test(&self, modules: &str, name: &str) -> bool {
        let file = |modules: &str| {
            let path = root().join("src").join(modules.replace("::", "/"));
            self.sources.get(&path.with_extension("rs"))
        };
        let within = modules.strip_suffix("::tests").and_then(file);
        let source = file(modules).or(within.filter(|it| it.contains("\nmod tests {")));
        source.is_some_and(|source| has_test(source, name))
    }
}

/// Whether `source` has a function of this name below an attribute that makes it a test.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let definition = format!("fn {name}(");
    let Some(at) = lines.iter().position(|line| line.contains(&definition)) else {
        return false;
    };
    let above = lines[..at].iter().rev();
    above
        .take_while(|line| !line.is_empty() && **line != "}")
        .any(|line| {
            ["#[test]", "#[tokio::test", "#[rstest]"].map(|it| line.starts_with(it)) != [false; 3]
        })
}

/// The rows of the table under `title`, without its head.
fn table<'t>(text: &'t str, title: &str) -> impl Iterator<Item = [&'t str; 3]> {
    let heading = format!("\n## {title}\n");
    let section = text.split_once(&heading).map_or("", |(_, behind)| behind);
    let section = section.split("\n## ").next().unwrap_or_default();
    rows(section).map(|cells| cells.try_into().unwrap())
}

/// The cells of each row of each table of `text`.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter_map(|line| {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        Some(line.split(" | ").collect::<Vec<_>>())
    });
    rows.filter(|cells| !matches!(cells[0], "row" | "what"))
}

/// All scenarios, as `folder/file: scenario`.
fn scenarios() -> BTreeSet<String> {
    let mut scenarios = BTreeSet::new();
    for file in files(".feature") {
        let text = std::fs::read_to_string(&file).unwrap();
        let place = shown(&file.with_extension(""));
        let place = place.strip_prefix("features/").unwrap();
        let titles = text.lines().filter_map(|line| {
            let (kind, title) = line.trim().split_once(": ")?;
            ["Scenario", "Scenario Outline", "Example"]
                .contains(&kind)
                .then_some(title)
        });
        scenarios.extend(titles.map(|title| format!("{place}: {title}")));
    }
    scenarios
}

/// The first column of docs/differences.md, without its code marks and the mark of what the specification makes.
fn differences() -> BTreeSet<String> {
    let text = document("differences.md");
    let firsts = rows(&text).map(|cells| cells[0].replace('`', ""));
    firsts
        .map(|first| first.trim_start_matches("‡ ").to_owned())
        .collect()
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}
