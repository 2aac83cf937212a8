//! All objects of a cluster, of every kind that the API server lists.

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource as _;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::client::Client;
use crate::definitions::pod::items;

/// Kinds whose objects are created and deleted by the cluster itself: group, plural (empty: all of the group), and why.
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
    for resource in api.listed().await? {
        let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
        if VOLATILE
            .iter()
            .any(|(of, kind, _)| *of == group && ["", plural].contains(kind))
        {
            continue;
        }
        for item in api.items(&DynamicObject::url_path(&resource, None)).await? {
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
