//! The integration test of the public watcher: 4 operations × 4 changes, without kind and apiVersion, as in the public test.
//!
//! It covers messages, the object of an event, spec and status, a spec that is null, a review without kind, and the
//! group, version and kind of the object.

use rstest::rstest;
use serde_json::{Value, json};
use watcher_types::{Gvk, NamespacedName, WatchEvent};

use super::case::{public, said};
use crate::change::decide;

const NO_CHANGE: &str = "NoChange: no change detected on watched resource default/kyma-1";
const CONNECT: &str = "ConnectNotSupported: operation CONNECT not supported for testGroup/testResourceVersion, Kind=testResourceKind";

#[derive(Clone, Copy, Debug)]
enum Change {
    No,
    Spec,
    Status,
    SpecNull,
}

fn object(change: Change, is_old: bool) -> Value {
    let old = json!({"key": "oldValue"});
    let new = json!({"key": "newValue"});
    let (spec, status) = match (change, is_old) {
        (Change::No, _) | (Change::Spec | Change::Status, true) => (old.clone(), old),
        (Change::Spec, false) => (new, json!({})),
        (Change::Status, false) => (json!({}), new),
        (Change::SpecNull, _) => (Value::Null, json!({})),
    };
    json!({
        "metadata": {
            "name": "kyma-1", "namespace": "default",
            "annotations": {"operator.kyma-project.io/owned-by": "default/ownerName"},
            "labels": {"operator.kyma-project.io/managed-by": "lifecycle-manager"},
        },
        "spec": spec,
        "apiVersion": "testGroup/testResourceVersion",
        "kind": "testResourceKind",
        "status": status,
    })
}

fn review(operation: &str, change: Change) -> Value {
    let mut request = json!({
        "uid": "00000000-0000-4000-8000-000000000000",
        "kind": {"group": "testGroup", "version": "testResourceVersion", "kind": "testResourceKind"},
        "resource": {"group": "", "version": "", "resource": ""},
        "name": "kyma-1",
        "operation": operation,
        "userInfo": {},
        "object": null,
        "oldObject": null,
        "options": null,
    });
    if matches!(change, Change::Status) {
        request["subResource"] = json!("status");
    }
    if operation != "DELETE" {
        request["object"] = object(change, false);
    }
    if matches!(operation, "DELETE" | "UPDATE") {
        request["oldObject"] = object(change, true);
    }
    json!({ "request": request })
}

#[rstest]
#[case("CONNECT", Change::No, Some(CONNECT))]
#[case("CONNECT", Change::Spec, Some(CONNECT))]
#[case("CONNECT", Change::Status, Some(CONNECT))]
#[case("CONNECT", Change::SpecNull, Some(CONNECT))]
#[case("UPDATE", Change::No, Some(NO_CHANGE))]
#[case("UPDATE", Change::Spec, None)]
#[case("UPDATE", Change::Status, None)]
#[case("UPDATE", Change::SpecNull, None)]
#[case("CREATE", Change::No, None)]
#[case("CREATE", Change::Spec, None)]
#[case("CREATE", Change::Status, None)]
#[case("CREATE", Change::SpecNull, None)]
#[case("DELETE", Change::No, None)]
#[case("DELETE", Change::Spec, None)]
#[case("DELETE", Change::Status, None)]
#[case("DELETE", Change::SpecNull, None)]
fn each_operation_with_each_change_is_answered_as_by_the_public_watcher(
    #[case] operation: &str,
    #[case] change: Change,
    #[case] silence: Option<&str>,
) {
    let body = review(operation, change).to_string();
    let verdict = decide(&public(), body.as_bytes()).unwrap();
    let event = WatchEvent {
        watched: NamespacedName {
            namespace: "default".into(),
            name: "kyma-1".into(),
        },
        watched_gvk: Gvk {
            group: "testGroup".into(),
            version: "testResourceVersion".into(),
            kind: "testResourceKind".into(),
        },
    };
    let expected = silence.map_or(Ok(event), |silence| Err(silence.to_owned()));
    assert_eq!(said(&verdict.outcome), expected);
    assert_eq!(verdict.uid, "00000000-0000-4000-8000-000000000000");
    assert_eq!((verdict.api_version, verdict.kind), (None, None), "no kind");
}
