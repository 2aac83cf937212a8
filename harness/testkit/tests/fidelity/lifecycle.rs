//! Replacement, merge patches, the subresource `status`, finalizers, pages and selectors.

use serde_json::{Value, json};

use super::{Call, OURS};

const MAP: &str = "/api/v1/namespaces/kyma-system/configmaps/lifecycle";
const MAPS: &str = "/api/v1/namespaces/kyma-system/configmaps";
const RUNTIMES: &str =
    "/apis/infrastructuremanager.kyma-project.io/v1/namespaces/kcp-system/runtimes";

fn map(metadata: &Value, data: &Value) -> Value {
    let mut map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "lifecycle"}, "data": data,
    });
    for (key, value) in metadata.as_object().unwrap() {
        map["metadata"][key] = value.clone();
    }
    map
}

#[rustfmt::skip]
pub(super) fn replacements() -> Vec<Call> {
    let first = map(&json!({}), &json!({"a": "1"}));
    let stale = map(&json!({"resourceVersion": "1"}), &json!({"a": "2"}));
    let seen = map(&json!({"resourceVersion": "VERSION"}), &json!({"a": "2"}));
    let other = map(
        &json!({"uid": "00000000-0000-4000-8000-000000000000"}),
        &json!({"a": "3"}),
    );
    vec![
        Call::put("replace what is absent", MAP, &first),
        Call::post("created to be replaced", MAPS, &first),
        Call::new("read before it is replaced", "GET", MAP),
        Call::put("replaced in a stale version", MAP, &stale),
        Call::put("replaced in the version seen", MAP, &seen),
        Call::put("replaced by the same without a version", MAP, &map(&json!({}), &json!({"a": "2"}))),
        Call::put("replaced without a version", MAP, &first),
        Call::put("replaced under another uid", MAP, &other),
    ]
}

#[rustfmt::skip]
pub(super) fn merge_patches() -> Vec<Call> {
    vec![
        Call::merge("a key more", MAP, &json!({"data": {"b": "1"}})),
        Call::merge("nothing new", MAP, &json!({"data": {"b": "1"}})),
        Call::merge("a key less", MAP, &json!({"data": {"a": null}})),
        Call::merge("in a stale version", MAP, &json!({"metadata": {"resourceVersion": "1"}, "data": {"b": "2"}})),
        Call::merge(
            "in the version seen",
            MAP,
            &json!({"metadata": {"resourceVersion": "VERSION"}, "data": {"b": "2"}}),
        ),
        Call::merge("of what is absent", "/api/v1/namespaces/kyma-system/configmaps/absent", &json!({"data": {}})),
    ]
}

#[rustfmt::skip]
pub(super) fn status() -> Vec<Call> {
    let path = format!("{RUNTIMES}/lifecycle");
    let runtime = |metadata: Value, size: u32, state: &str| {
        let mut runtime = json!({
            "apiVersion": "infrastructuremanager.kyma-project.io/v1", "kind": "Runtime",
            "metadata": {"name": "lifecycle"}, "spec": {"size": size}, "status": {"state": state},
        });
        if let Some(version) = metadata.get("resourceVersion") {
            runtime["metadata"]["resourceVersion"] = version.clone();
        }
        runtime
    };
    let seen = || json!({"resourceVersion": "VERSION"});
    let of_status = format!("{path}/status");
    vec![
        Call::post("created with a status", RUNTIMES, &runtime(json!({}), 1, "Ready")),
        Call::new("read without a status", "GET", &path),
        Call::put("a custom resource replaced without a version", &path, &runtime(json!({}), 2, "Ready")),
        Call::put("a custom resource replaced", &path, &runtime(seen(), 2, "Ready")),
        Call::apply("status applied", &of_status, OURS, &runtime(json!({}), 3, "Pending")),
        Call::apply("status applied again", &of_status, OURS, &runtime(json!({}), 4, "Pending")),
        Call::new("read with a status", "GET", &path),
        Call::merge(
            "a patch of the object leaves the status",
            &path,
            &json!({"spec": {"size": 5}, "status": {"state": "Ready"}}),
        ),
        Call::merge(
            "a patch of the status leaves the object",
            &of_status,
            &json!({"spec": {"size": 6}, "status": {"state": "Ready"}}),
        ),
        Call::new("status of what is absent", "GET", &format!("{RUNTIMES}/absent/status")),
        Call::new("removed", "DELETE", &path),
    ]
}

#[rustfmt::skip]
pub(super) fn finalizers() -> Vec<Call> {
    let release = json!({"metadata": {"finalizers": null}});
    vec![
        Call::merge("a finalizer", MAP, &json!({"metadata": {"finalizers": ["fidelity.test/kept"]}})),
        Call::new("deleted but kept", "DELETE", MAP),
        Call::new("still there", "GET", MAP),
        Call::new("deleted once more", "DELETE", MAP),
        Call::merge("changed meanwhile", MAP, &json!({"data": {"b": "9"}})),
        Call::merge("let go", MAP, &release),
        Call::new("gone", "GET", MAP),
    ]
}

pub(super) fn pages_and_selectors() -> Vec<Call> {
    let named = |name: &str, tier: &str| {
        let mut map = map(
            &json!({"labels": {"fidelity": "pages", "tier": tier}}),
            &json!({}),
        );
        map["metadata"]["name"] = json!(name);
        map
    };
    let list = |query: &'static str| Call {
        query,
        ..Call::new(query, "GET", MAPS)
    };
    let secrets = "/api/v1/namespaces/kyma-system/secrets";
    let of_secrets = |query: &'static str| Call {
        query,
        ..Call::new(query, "GET", secrets)
    };
    vec![
        Call::post("first of two", MAPS, &named("page-a", "front")),
        Call::post("second of two", MAPS, &named("page-b", "back")),
        list("labelSelector=fidelity%3Dpages&limit=1"),
        list("labelSelector=tier+in+%28front%2Cmiddle%29"),
        list("labelSelector=tier+notin+%28front%29%2Cfidelity%3Dpages"),
        list("labelSelector=fidelity%3Dpages%2Ctier%21%3Dback"),
        list("labelSelector=fidelity%3Dpages%2C%21tier"),
        list("labelSelector=tier%2Cfidelity%3D%3Dpages"),
        list("labelSelector=a+b"),
        list("fieldSelector=metadata.name%3Dpage-a%2Cmetadata.namespace%3Dkyma-system"),
        list("fieldSelector=metadata.name%21%3Dpage-a&labelSelector=fidelity%3Dpages"),
        list("fieldSelector=data.x%3D1"),
        of_secrets("fieldSelector=type%3Dfidelity.test%2Fnone"),
        of_secrets("fieldSelector=spec.x%3D1"),
        list("resourceVersion=9999999999"),
    ]
}

#[rustfmt::skip]
pub(super) fn terminating_namespace() -> Vec<Call> {
    let path = "/api/v1/namespaces/terminating";
    let maps = "/api/v1/namespaces/terminating/configmaps";
    let kept = map(&json!({"finalizers": ["fidelity.test/kept"]}), &json!({}));
    let mut other = map(&json!({}), &json!({}));
    other["metadata"]["name"] = json!("other");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "terminating"}});
    vec![
        Call::post("a Namespace that will be deleted", "/api/v1/namespaces", &namespace),
        Call::post("what keeps it", maps, &kept),
        Call::new("deleted with content", "DELETE", path).of_controllers(),
        Call::post("created in a Namespace that is being deleted", maps, &other),
        Call::post("created in a Namespace that is absent", "/api/v1/namespaces/absent/configmaps", &other),
    ]
}
