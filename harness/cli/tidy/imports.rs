//! Who may import whom, and what the pure crates may not even reach.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::checkout::cargo;

/// docs/architecture.md, "Who may import whom". A crate that is not listed may not exist.
const MAY_IMPORT: [(&str, &[&str]); 14] = [
    ("api", &[]),
    ("policy", &["api"]),
    ("serve", &[]),
    ("chassis", &[]),
    ("webhook", &["api", "policy", "serve", "chassis"]),
    ("controller", &["api", "policy", "serve", "chassis"]),
    ("watcher", &["api", "policy", "serve", "chassis"]),
    ("listener", &["api", "serve"]),
    (
        "runtime-bootstrapper",
        &[
            "api",
            "policy",
            "serve",
            "chassis",
            "webhook",
            "controller",
            "watcher",
        ],
    ),
    ("testkit", &[]),
    ("clusters", &["api", "testkit"]),
    // The crates behind `clusters` are for its target in_process.
    (
        "e2e",
        &[
            "api", "serve", "listener", "testkit", "clusters", "chassis", "policy", "webhook",
        ],
    ),
    (
        "bench",
        &["api", "serve", "listener", "testkit", "clusters"],
    ),
    (
        "harness",
        &["api", "listener", "testkit", "clusters", "e2e", "bench"],
    ),
];

/// What would let a deciding crate do IO, wait, or reach a cluster.
const IMPURE: [&str; 14] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "futures",
    "hyper",
    "reqwest",
    "kube",
    "kube-client",
    "kube-runtime",
    "rustls",
    "rand",
    "fastrand",
    "chrono",
];

#[test]
fn every_crate_imports_only_what_it_may() {
    let metadata: Value = serde_json::from_str(&cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
    ]))
    .unwrap();
    let allowed: BTreeMap<&str, &[&str]> = MAY_IMPORT.into_iter().collect();
    let packages = metadata["packages"].as_array().unwrap();
    let members: BTreeSet<&str> = packages
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        members,
        allowed.keys().copied().collect(),
        "a crate came or went without its rule"
    );
    for package in packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let imported = dependency["name"].as_str().unwrap();
            assert!(
                !members.contains(imported) || allowed[name].contains(&imported),
                "{name} must not import {imported}"
            );
        }
    }
}

#[test]
fn the_deciding_crates_reach_nothing_that_does_io() {
    for package in ["api", "policy"] {
        let tree = cargo(&[
            "tree",
            "-p",
            package,
            "-e",
            "normal",
            "--prefix",
            "none",
            "--offline",
        ]);
        let reached: BTreeSet<&str> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert!(
            reached.contains("serde"),
            "the tree of {package} was not read"
        );
        for impure in IMPURE {
            assert!(!reached.contains(impure), "{package} reaches {impure}");
        }
    }
}

#[test]
fn the_deciding_crates_are_not_async() {
    for file in crate::checkout::files(".rs") {
        let shown = crate::checkout::shown(&file);
        if shown.starts_with("src/policy/") || shown.starts_with("src/api/") {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(
                !text.contains("async fn") && !text.contains("async move"),
                "{shown} is async"
            );
        }
    }
}

#[test]
fn every_crate_obeys_the_workspaces_lints() {
    for manifest in crate::checkout::files("Cargo.toml") {
        let text = std::fs::read_to_string(&manifest).unwrap();
        if text.contains("[package]") {
            assert!(
                text.contains("[lints]\nworkspace = true"),
                "{}",
                crate::checkout::shown(&manifest)
            );
        }
    }
}
