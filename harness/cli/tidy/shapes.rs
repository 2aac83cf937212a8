//! The two commands of the README compile nothing twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkout::cargo;

/// Package and version → the sets of features with which it is compiled.
type Features = BTreeMap<String, BTreeSet<String>>;

/// Dependencies of programs that run while others are compiled are left out: cargo chooses their features apart.
fn features(selection: &[&str]) -> Features {
    let shape = ["--prefix", "none", "--offline", "-f", "{p}|{f}"];
    let tree = cargo(&[&["tree"], selection, &shape].concat());
    let mut features = Features::new();
    for line in tree.lines() {
        let line = line.trim_end_matches(" (*)");
        if let Some((package, chosen)) = line.split_once('|') {
            let package = features.entry(package.to_owned()).or_default();
            package.insert(chosen.to_owned());
        }
    }
    features
}

#[test]
fn running_the_harness_and_testing_the_workspace_choose_the_same_features() {
    let run = features(&["-p", "harness", "-e", "normal"]);
    let workspace = ["--workspace", "--features", "e2e/clusters"];
    let test = features(&[&workspace[..], &["-e", "normal,dev"]].concat());
    assert!(run.contains_key(test.keys().find(|it| it.starts_with("kube-core ")).unwrap()));
    let twice: Vec<_> = run
        .iter()
        .filter(|(package, chosen)| !chosen.is_subset(&test[*package]))
        .map(|(package, chosen)| format!("{package}: {chosen:?}, not {:?}", test[package]))
        .collect();
    assert!(
        twice.is_empty(),
        "name these in harness/cli/Cargo.toml:\n{}",
        twice.join("\n")
    );
}

/// `cargo test` compiles no cluster, no container and no gateway: it needs neither Docker nor their dependencies.
#[test]
fn testing_without_clusters_leaves_their_dependencies_out() {
    let test = features(&["-e", "normal,dev"]);
    let has = |name: &str| test.keys().any(|it| it.starts_with(&format!("{name} ")));
    assert!(has("e2e") && has("cucumber"), "e2e is a default member");
    for name in ["clusters", "testcontainers", "bollard"] {
        assert!(!has(name), "{name} is compiled by `cargo test`");
    }
}
