//! All objects of a cluster, of every kind that the API server lists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::Resource as _;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::client::Client;
use crate::definitions::pod::items;

/// Prefixes of the names of objects that the cluster itself creates and deletes, or computes at each list.
const VOLATILE: [&str; 7] = [
    "/events ",
    "events.k8s.io/events ",
    "/componentstatuses ",
    // Of kubelets, deleted by age.
    "certificates.k8s.io/certificatesigningrequests ",
    "metrics.k8s.io/",
    "coordination.k8s.io/leases kube-node-lease/",
    "coordination.k8s.io/leases kube-system/apiserver-",
];

/// Every object but those that are [`VOLATILE`], by `group/plural namespace/name`.
pub(crate) async fn objects(api: &Client) -> Result<BTreeMap<String, Value>> {
    let is_volatile = |name: &str| VOLATILE.iter().any(|it| name.starts_with(it));
    let mut objects = BTreeMap::new();
    for resource in api.listed().await? {
        let kind = format!("{}/{} ", resource.group, resource.plural);
        if is_volatile(&kind) {
            continue;
        }
        for item in api.items(&DynamicObject::url_path(&resource, None)).await? {
            let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default();
            let name = format!("{kind}{}/{}", text("namespace"), text("name"));
            objects.insert(name, item);
        }
    }
    objects.retain(|name, _| !is_volatile(name));
    Ok(objects)
}

/// The names of [`objects`].
pub(crate) async fn inventory(api: &Client) -> Result<BTreeSet<String>> {
    Ok(objects(api).await?.into_keys().collect())
}

/// Objects with fields of a field manager.
pub(crate) async fn with_fields_of(api: &Client, manager: &str) -> Result<Vec<String>> {
    let has = |object: &Value| {
        items(&object["metadata"]["managedFields"]).any(|entry| entry["manager"] == manager)
    };
    let mut objects = objects(api).await?;
    objects.retain(|_, object| has(object));
    Ok(objects.into_keys().collect())
}
