//! Dependencies between the crates, and the features that cargo chooses for them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{cargo, files, metadata, shown};

/// Crates, and the workspace's crates that each may depend on, as in docs/architecture.md; a star marks dependencies of tests
/// only. A crate that is not listed fails the test. `testkit` starts clusters to compare itself with a real API server. The
/// tests of `e2e` are its target in_process.
const MAY_IMPORT: &str = "
    rt-bootstrapper-api:
    runtime-watcher-types:
    rt-bootstrapper-partial-json:
    rt-bootstrapper-policy: rt-bootstrapper-api rt-bootstrapper-partial-json runtime-watcher-types
    rt-bootstrapper-serve:
    rt-bootstrapper-component-base: rt-bootstrapper-serve
    rt-bootstrapper-webhook: rt-bootstrapper-api rt-bootstrapper-partial-json rt-bootstrapper-policy rt-bootstrapper-serve rt-bootstrapper-component-base
    rt-bootstrapper-controller: rt-bootstrapper-api rt-bootstrapper-policy rt-bootstrapper-serve rt-bootstrapper-component-base runtime-watcher-listener
    rt-bootstrapper-watcher: runtime-watcher-types rt-bootstrapper-policy rt-bootstrapper-serve rt-bootstrapper-component-base
    runtime-watcher-listener: runtime-watcher-types rt-bootstrapper-serve
    runtime-bootstrapper: rt-bootstrapper-api runtime-watcher-types rt-bootstrapper-policy rt-bootstrapper-serve rt-bootstrapper-component-base rt-bootstrapper-webhook rt-bootstrapper-controller rt-bootstrapper-watcher runtime-watcher-listener*
    testkit: clusters*
    clusters: rt-bootstrapper-api testkit
    doubles: rt-bootstrapper-api runtime-watcher-listener testkit
    conformance: rt-bootstrapper-api testkit
    e2e: rt-bootstrapper-api rt-bootstrapper-serve runtime-watcher-listener testkit clusters conformance doubles rt-bootstrapper-component-base* rt-bootstrapper-policy* rt-bootstrapper-webhook*
    bench: rt-bootstrapper-api runtime-watcher-types rt-bootstrapper-serve runtime-watcher-listener testkit clusters
    harness: rt-bootstrapper-api runtime-watcher-listener testkit clusters conformance doubles e2e bench";

/// Crate that every crate may use in its tests. A crate may also use itself in tests, with other features.
const TESTKIT: &str = "testkit";

/// Crates that do IO, wait or access a cluster. Crates that make decisions must not depend on them.
const IMPURE: &str = "tokio async-std smol mio futures hyper reqwest kube kube-client kube-runtime rustls rand fastrand chrono";

#[test]
fn every_crate_imports_only_what_it_may() {
    let packages = metadata("Cargo.toml");
    let rules = MAY_IMPORT
        .lines()
        .filter_map(|line| line.trim().split_once(':'));
    let allowed: BTreeMap<&str, Vec<&str>> = rules
        .map(|(name, others)| (name, others.split_whitespace().collect()))
        .collect();
    let members = packages.iter().map(|it| it["name"].as_str().unwrap());
    let (members, listed): (BTreeSet<&str>, _) = (members.collect(), allowed.keys().copied());
    assert_eq!(
        members,
        listed.collect(),
        "a crate came or went without its rule"
    );
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let imported = dependency["name"].as_str().unwrap();
            let in_tests = [TESTKIT, name].contains(&imported)
                || allowed[name].contains(&format!("{imported}*").as_str());
            assert!(
                !members.contains(imported)
                    || allowed[name].contains(&imported)
                    || (in_tests && dependency["kind"] == "dev"),
                "{name} must not import {imported}"
            );
        }
    }
}

#[test]
fn the_deciding_crates_reach_nothing_that_does_io_and_are_not_async() {
    for package in [
        "rt-bootstrapper-api",
        "rt-bootstrapper-partial-json",
        "rt-bootstrapper-policy",
        "runtime-watcher-types",
    ] {
        let tree = features(&["-p", package, "-e", "normal"]);
        let reaches = |name: &str| tree.keys().any(|it| it.starts_with(&format!("{name} ")));
        assert!(reaches("serde"), "the tree of {package} was not read");
        for impure in IMPURE.split(' ') {
            assert!(!reaches(impure), "{package} reaches {impure}");
        }
    }
    for file in files(".rs") {
        let shown = shown(&file);
        if [
            "src/partial-json/",
            "src/policy/",
            "src/api/",
            "src/watcher-types/",
        ]
        .iter()
        .any(|it| shown.starts_with(it))
        {
            let text = std::fs::read_to_string(&file).unwrap();
            let is_async = text.contains("async fn") || text.contains("async move");
            assert!(!is_async, "{shown} is async");
        }
    }
}

#[test]
fn every_crate_obeys_the_workspaces_lints() {
    for manifest in files("Cargo.toml") {
        let text = std::fs::read_to_string(&manifest).unwrap();
        let obeys = text.contains("[lints]\nworkspace = true");
        assert!(obeys || !text.contains("[package]"), "{}", shown(&manifest));
    }
}

/// Maps package and version to the feature sets with which cargo compiles the package.
type Features = BTreeMap<String, BTreeSet<String>>;

/// Returns the features of a selection of packages. Build dependencies are excluded, because cargo selects their features
/// separately.
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
        "name these in harness/cli/Cargo.toml: {twice:#?}"
    );
}

/// `cargo test` does not compile clusters, containers and the gateway, so it needs neither Docker nor their dependencies.
#[test]
fn testing_without_clusters_leaves_their_dependencies_out() {
    let test = features(&["-e", "normal,dev"]);
    let has = |name: &str| test.keys().any(|it| it.starts_with(&format!("{name} ")));
    assert!(has("e2e") && has("cucumber"), "e2e is a default member");
    for name in ["clusters", "testcontainers", "bollard"] {
        assert!(!has(name), "{name} is compiled by `cargo test`");
    }
}
