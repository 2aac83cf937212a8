//! Everything that an API server lists, by name: what a cluster holds before and after something.
//!
//! Deliberately absent: contents.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::Value;

use crate::world::Dialogue;
use crate::world::effects::items;

/// Kinds of which objects come and go by themselves: group, plural, and why.
const RESTLESS: [(&str, &str, &str); 5] = [
    ("", "events", "written all the time, and they expire"),
    (
        "events.k8s.io",
        "events",
        "the same objects by another group",
    ),
    (
        "",
        "componentstatuses",
        "computed at each list, never stored",
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        "made by kubelets, deleted by age",
    ),
    ("metrics.k8s.io", "", "measured, never stored"),
];

/// Where Leases come and go by themselves: those of nodes, and those of API servers.
const RESTLESS_LEASES: [&str; 2] = ["kube-node-lease/", "kube-system/apiserver-"];

/// `group/plural namespace/name` of every object but those that are [`RESTLESS`].
pub(super) async fn inventory(dialogue: &Dialogue) -> anyhow::Result<BTreeSet<String>> {
    let mut objects = BTreeSet::new();
    for ((group, plural), path) in kinds(dialogue).await? {
        let listed = dialogue.get(&path).await?;
        for item in items(listed.at("/items")) {
            let metadata = &item["metadata"];
            let text = |key: &str| metadata[key].as_str().unwrap_or_default();
            let place = format!("{}/{}", text("namespace"), text("name"));
            let is_restless =
                plural == "leases" && RESTLESS_LEASES.iter().any(|it| place.starts_with(it));
            if !is_restless {
                objects.insert(format!("{group}/{plural} {place}"));
            }
        }
    }
    Ok(objects)
}

/// The path of each kind that can be listed, whichever version has it.
async fn kinds(dialogue: &Dialogue) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let mut versions = vec![(String::new(), "/api/v1".to_owned())];
    let groups = dialogue.get("/apis").await?;
    for group in items(groups.at("/groups")) {
        let name = group["name"].as_str().context("a group has a name")?;
        for version in items(&group["versions"]) {
            let version = version["groupVersion"].as_str().context("a version")?;
            versions.push((name.to_owned(), format!("/apis/{version}")));
        }
    }
    let mut kinds = BTreeMap::new();
    for (group, root) in versions {
        if is_restless(&group, "") {
            continue;
        }
        let served = dialogue.get(&root).await?;
        for resource in items(served.at("/resources")) {
            let plural = resource["name"].as_str().context("a resource has a name")?;
            let lists = items(&resource["verbs"]).any(|verb| verb == "list");
            if lists && !plural.contains('/') && !is_restless(&group, plural) {
                let path = format!("{root}/{plural}");
                kinds
                    .entry((group.clone(), plural.to_owned()))
                    .or_insert(path);
            }
        }
    }
    Ok(kinds)
}

fn is_restless(group: &str, plural: &str) -> bool {
    RESTLESS
        .iter()
        .any(|(of, kind, _)| (*of, *kind) == (group, plural))
}

/// An inventory as it is kept between steps.
pub(super) fn kept(objects: &BTreeSet<String>) -> Value {
    objects.iter().cloned().collect()
}
