//! All objects of a cluster, with which a test detects objects that were left, removed or changed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use anyhow::Result;
use kube::Resource as _;
use kube::api::DynamicObject;
use serde_json::Value;

use testkit::client::Client;

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

/// Digests of the fields of each object, by the names of the object and the field. Their key is random and only in this process, so
/// a digest does not reveal the content of a Secret.
pub(crate) type Inventory = BTreeMap<String, BTreeMap<String, u64>>;

/// Returns the digests of these objects.
pub(crate) async fn digests(client: &Client) -> Result<Inventory> {
    let objects = objects(client).await?.into_iter();
    Ok(objects
        .map(|(name, object)| digests_of(name, &object))
        .collect())
}

/// Returns the digests of the fields of an object that change only if a client writes them. There are none for an [`UNSTABLE`]
/// object.
fn digests_of(name: String, object: &Value) -> (String, BTreeMap<String, u64>) {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    if UNSTABLE.iter().any(|it| name.starts_with(it)) {
        return (name, BTreeMap::new());
    }
    let fields = |of: &Value, prefix: &str| -> Vec<(String, u64)> {
        let fields = of.as_object().into_iter().flatten();
        let digest = |(field, value): (&String, &Value)| {
            (format!("{prefix}{field}"), KEY.hash_one(value.to_string()))
        };
        fields.map(digest).collect()
    };
    let metadata = fields(&object["metadata"], "metadata.").into_iter();
    let mut digests: BTreeMap<_, _> = metadata.chain(fields(object, "")).collect();
    digests.retain(|field, _| !BY_SERVER.contains(&field.as_str()));
    (name, digests)
}

/// Returns a text for each object that only one of the inventories has, or that has different fields.
pub(crate) fn differences(before: &Inventory, now: &Inventory) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let difference = |name: &String| match (before.get(name), now.get(name)) {
        (None, _) => Some(format!("left: {name}")),
        (_, None) => Some(format!("lost: {name}")),
        (Some(before), Some(now)) => {
            let mut fields: Vec<&String> = before.keys().chain(now.keys()).collect();
            fields.retain(|it| before.get(*it) != now.get(*it));
            fields.sort();
            fields.dedup();
            (!fields.is_empty()).then(|| format!("changed: {name}: {fields:?}"))
        }
    };
    names.into_iter().filter_map(difference).collect()
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

/// Prefixes of the names of objects that the cluster or the webhook rewrites at any time. Their content is not compared.
const UNSTABLE: [&str; 4] = [
    "coordination.k8s.io/",
    "/endpoints ",
    "discovery.k8s.io/endpointslices ",
    // The webhook writes the times of a revision some seconds after it is active.
    "/secrets kyma-system/rt-bootstrapper-revisions",
];

/// Fields that change without a change of the content. The fields of the metadata are compared one by one.
const BY_SERVER: [&str; 5] = [
    "metadata",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
    "status",
];

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Returns the differences between an object and the same object after a JSON merge patch.
    fn after(name: &str, patch: &Value) -> Vec<String> {
        let mut object = json!({
            "metadata": { "name": "x", "resourceVersion": "1", "labels": { "a": "1" } },
            "data": { "password": "secret" },
            "status": { "ready": 1 },
        });
        let before = Inventory::from([digests_of(name.to_owned(), &object)]);
        json_patch::merge(&mut object, patch);
        differences(
            &before,
            &Inventory::from([digests_of(name.to_owned(), &object)]),
        )
    }

    #[rstest]
    #[case::content(json!({ "data": { "password": "other" } }), &["data"])]
    #[case::labels(json!({ "metadata": { "labels": { "a": "2" } } }), &["metadata.labels"])]
    #[case::annotation(json!({ "metadata": { "annotations": { "b": "" } } }), &["metadata.annotations"])]
    #[case::another_object(json!({ "metadata": { "uid": "2" } }), &["metadata.uid"])]
    #[case::removed_fields(json!({ "data": null, "metadata": { "labels": null } }), &["data", "metadata.labels"])]
    #[case::nothing(json!({}), &[])]
    #[case::version(json!({ "metadata": { "resourceVersion": "2", "managedFields": [] } }), &[])]
    #[case::status(json!({ "status": { "ready": 2 } }), &[])]
    fn changed_object_is_found_by_its_fields(#[case] patch: Value, #[case] fields: &[&str]) {
        let expected = (!fields.is_empty()).then(|| format!("changed: /secrets a/x: {fields:?}"));
        assert_eq!(after("/secrets a/x", &patch), Vec::from_iter(expected));
    }

    #[rstest]
    #[case("coordination.k8s.io/leases a/x")]
    #[case("/endpoints a/x")]
    #[case("discovery.k8s.io/endpointslices a/x")]
    #[case("/secrets kyma-system/rt-bootstrapper-revisions")]
    fn object_that_the_cluster_changes_is_compared_by_name(#[case] name: &str) {
        assert!(after(name, &json!({ "data": null })).is_empty());
    }

    #[test]
    fn left_and_lost_objects_are_found() {
        let [one, two] =
            ["one", "two"].map(|it| Inventory::from([(it.to_owned(), BTreeMap::new())]));
        assert_eq!(differences(&one, &two), ["lost: one", "left: two"]);
    }
}
