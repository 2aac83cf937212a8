//! All objects of a cluster, of every kind that the API server lists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::Value;

use crate::client::Client;
use crate::definitions::pod::items;

/// Kinds whose objects are created and deleted by the cluster itself: group, plural, and why.
const VOLATILE: [(&str, &str, &str); 5] = [
    ("", "events", "written continuously, and they expire"),
    (
        "events.k8s.io",
        "events",
        "the same objects in another group",
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

/// Prefixes of Leases of nodes and API servers.
const VOLATILE_LEASES: [&str; 2] = ["kube-node-lease/", "kube-system/apiserver-"];

/// Every object but those of [`VOLATILE`] kinds, by `group/plural namespace/name`.
pub(crate) async fn objects(api: &Client) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut objects = BTreeMap::new();
    for ((group, plural), path) in kinds(api).await? {
        let listed = api.get(&path).await?;
        for item in items(listed.at("/items")) {
            let metadata = &item["metadata"];
            let text = |key: &str| metadata[key].as_str().unwrap_or_default();
            let place = format!("{}/{}", text("namespace"), text("name"));
            let is_volatile =
                plural == "leases" && VOLATILE_LEASES.iter().any(|it| place.starts_with(it));
            if !is_volatile {
                objects.insert(format!("{group}/{plural} {place}"), item.clone());
            }
        }
    }
    Ok(objects)
}

/// The path of each kind that can be listed.
async fn kinds(api: &Client) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let mut versions = vec![(String::new(), "/api/v1".to_owned())];
    let groups = api.get("/apis").await?;
    for group in items(groups.at("/groups")) {
        let name = group["name"].as_str().context("a group has a name")?;
        for version in items(&group["versions"]) {
            let version = version["groupVersion"].as_str().context("a version")?;
            versions.push((name.to_owned(), format!("/apis/{version}")));
        }
    }
    let mut kinds = BTreeMap::new();
    for (group, root) in versions {
        if is_volatile(&group, "") {
            continue;
        }
        let served = api.get(&root).await?;
        for resource in items(served.at("/resources")) {
            let plural = resource["name"].as_str().context("a resource has a name")?;
            let lists = items(&resource["verbs"]).any(|verb| verb == "list");
            if lists && !plural.contains('/') && !is_volatile(&group, plural) {
                let path = format!("{root}/{plural}");
                kinds
                    .entry((group.clone(), plural.to_owned()))
                    .or_insert(path);
            }
        }
    }
    Ok(kinds)
}

fn is_volatile(group: &str, plural: &str) -> bool {
    VOLATILE
        .iter()
        .any(|(of, kind, _)| (*of, *kind) == (group, plural))
}

/// The names of [`objects`].
pub(crate) async fn inventory(api: &Client) -> anyhow::Result<BTreeSet<String>> {
    Ok(objects(api).await?.into_keys().collect())
}

/// Objects with fields of a field manager.
pub(crate) async fn with_fields_of(api: &Client, manager: &str) -> anyhow::Result<Vec<String>> {
    let has = |object: &Value| {
        items(&object["metadata"]["managedFields"]).any(|entry| entry["manager"] == manager)
    };
    let objects = objects(api).await?.into_iter();
    Ok(objects
        .filter(|(_, object)| has(object))
        .map(|(name, _)| name)
        .collect())
}
