//! API objects of other projects, whose kinds have no Rust types in this crate.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};

/// Returns the API of the objects of a kind in a namespace. `api_version` is `group/version`.
pub(crate) fn objects(
    client: &Client,
    namespace: &str,
    (api_version, kind): (&str, &str),
) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or_default();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}
