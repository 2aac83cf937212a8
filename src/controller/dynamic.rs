//! Kinds of other projects, which have no types here.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};

/// The objects of a kind in a namespace. `api_version` is `group/version`.
pub(crate) fn objects(
    client: &Client,
    namespace: &str,
    (api_version, kind): (&str, &str),
) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}
