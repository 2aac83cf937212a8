//! All objects of a cluster, with which a test detects objects that were left or removed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::Resource as _;
use kube::api::DynamicObject;
use serde_json::Value;

use crate::client::Client;

/// Returns the objects of every kind that the API server lists, except [`VOLATILE`] ones, by `group/plural namespace/name`.
pub(crate) async fn objects(client: &Client) -> Result<BTreeMap<String, Value>> {
    let is_volatile = |name: &str| VOLATILE.iter().any(|it| name.starts_with(it));
    let mut objects = BTreeMap::new();
    for resource in client.listed().await? {
        let kind = format!("{}/{} ", resource.group, resource.plural);
        if is_volatile(&kind) {
            continue;
        }
        let path = DynamicObject::url_path(&resource, None);
        for item in client.items(&path).await? {
            let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default();
            let name = format!("{kind}{}/{}", text("namespace"), text("name"));
            objects.insert(name, item);
        }
    }
    objects.retain(|name, _| !is_volatile(name));
    Ok(objects)
}

/// Returns the names of these objects.
pub(crate) async fn names(client: &Client) -> Result<BTreeSet<String>> {
    Ok(objects(client).await?.into_keys().collect())
}

/// Prefixes of the names of objects that the cluster itself creates and deletes, or computes at each list.
const VOLATILE: [&str; 7] = [
    "/events ",
    "events.k8s.io/events ",
    "/componentstatuses ",
    // Objects of kubelets, which are deleted by age.
    "certificates.k8s.io/certificatesigningrequests ",
    "metrics.k8s.io/",
    "coordination.k8s.io/leases kube-node-lease/",
    "coordination.k8s.io/leases kube-system/apiserver-",
];
