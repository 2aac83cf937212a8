//! Changes of the inventory by a client of the runtime do not affect objects of other owners.

use rstest::rstest;
use serde_json::{Value, json};

use super::{MARKER, PRUNED, inventory, legacy, place, wanted, with};
use crate::sync::inventory::candidates;
use crate::sync::observed::ReadFailure;
use crate::sync::plan::plan_deletion;
use crate::sync::target::Target;
use crate::sync::tests::api_server::Runtime;
use crate::sync::tests::samples::installation;
use api::kcp::OWNER_INVENTORY;

/// Writes the inventory as a client of the runtime.
fn write(runtime: &mut Runtime, text: impl Into<String>) {
    let marker = runtime.observed.marker.as_mut().unwrap();
    marker["data"][OWNER_INVENTORY] = text.into().into();
}

/// Returns a runtime with an object that is in the inventory and whose metadata does not show that the controller applied it.
fn foreign(pointer: &str, value: Value) -> Runtime {
    let mut runtime = with(&[legacy()]);
    runtime.installation = installation("0.0.9");
    let installed = runtime.observed.installed.as_mut().unwrap();
    let metadata = &mut installed.get_mut(&place(&legacy())).unwrap()["metadata"];
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let slot = metadata.pointer_mut(parent).unwrap();
    match slot {
        Value::Array(_) => slot[key.parse::<usize>().unwrap()] = value,
        _ => slot[key] = value,
    }
    runtime
}

#[rstest]
#[case::another_manager("/managedFields/0/manager", json!("customer"))]
#[case::a_status_writer("/managedFields/0/subresource", json!("status"))]
#[case::an_update("/managedFields/0/operation", json!("Update"))]
#[case::no_managers("/managedFields", Value::Null)]
#[case::no_hash("/annotations", Value::Null)]
fn inventory_that_names_a_foreign_object_deletes_nothing(
    #[case] pointer: &str,
    #[case] value: Value,
) {
    let mut runtime = foreign(pointer, value);
    runtime.carry_out(&runtime.plan(&wanted()));
    assert_eq!(runtime.log, [MARKER], "the entry is dropped");
    assert!(runtime.plan(&wanted()).is_empty());
    write(&mut runtime, "v1 ServiceAccount kyma-system/legacy\n");
    runtime.webhook_makes(&[]);
    for _ in 0..3 {
        runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
        runtime.pods_end();
    }
    assert!(runtime.get(&place(&legacy())).is_some());
    assert!(!runtime.log.contains(&PRUNED.to_owned()));
}

/// Invalid lines, lines with the path of another object, and lines of objects that are never pruned.
#[rstest]
#[case::nothing("")]
#[case::words("a b c d e f")]
#[case::unknown_kind("v1 Pod kyma-system/a")]
#[case::namespace("v1 Namespace kyma-system")]
#[case::path("v1 ServiceAccount kyma-system/../../namespaces/x")]
#[case::query("v1 ServiceAccount kyma-system/a?b")]
#[case::version("apps/v1/x Deployment kyma-system/a")]
#[case::no_namespace("v1 ServiceAccount a")]
#[case::namespace_of_cluster_object("scheduling.k8s.io/v1 PriorityClass kyma-system/a")]
#[case::more("v1 ServiceAccount kyma-system/a b")]
#[case::long(format!("v1 ServiceAccount kyma-system/{}", "a".repeat(300)))]
fn line_that_is_not_valid_is_not_read(#[case] line: impl Into<String>) {
    let line = line.into();
    assert_eq!(Target::of_line(&line), None);
    let mut runtime = Runtime::converged(&wanted());
    let before = runtime.observed.marker.clone().unwrap()["data"].clone();
    write(&mut runtime, line);
    runtime.carry_out(&runtime.plan(&wanted()));
    assert_eq!(runtime.log, [MARKER]);
    assert_eq!(runtime.observed.marker.as_ref().unwrap()["data"], before);
}

#[test]
fn long_inventory_is_read_in_part() {
    let mut runtime = Runtime::converged(&wanted());
    let lines = (0..10_000).map(|it| format!("v1 ServiceAccount kyma-system/n{it}\n"));
    write(&mut runtime, lines.collect::<String>());
    let context = runtime.context();
    let candidates = candidates(context.installation, context.names, &runtime.observed);
    assert_eq!(candidates.len(), 128);
    runtime.carry_out(&runtime.plan(&wanted()));
    assert_eq!(runtime.log, [MARKER]);
    assert_eq!(inventory(&runtime).len(), 8);
}

/// The three objects, the ownership ConfigMap and the manifests are not candidates, in any version of their API.
#[test]
fn what_is_wanted_is_never_pruned() {
    let mut runtime = Runtime::converged(&wanted());
    let lines = inventory(&runtime)
        .join("\n")
        .replace("apps/v1 ", "apps/v2 ");
    write(
        &mut runtime,
        lines + "\nv1 ConfigMap kyma-system/rt-bootstrapper-owner\n",
    );
    let context = runtime.context();
    let candidates = candidates(context.installation, context.names, &runtime.observed);
    assert_eq!(candidates.len(), 0, "{candidates:?}");
    runtime.carry_out(&runtime.plan(&wanted()));
    assert_eq!(runtime.log, [MARKER]);
}

/// An object that cannot be read may exist.
#[test]
fn entry_that_may_not_be_read_stays_and_blocks_the_uninstallation() {
    let mut runtime = Runtime::converged(&wanted());
    let text = inventory(&runtime).join("\n") + "\nv1 ServiceAccount kyma-system/other\n";
    write(&mut runtime, text);
    let place = Target::of_line("v1 ServiceAccount kyma-system/other").unwrap();
    let text = || "get serviceaccounts".to_owned();
    let causes = [ReadFailure::Forbidden(text()), ReadFailure::Failed(text())];
    for cause in causes {
        let unread = (place.clone(), cause);
        runtime.observed.unread_inventory.extend([unread]);
        assert!(runtime.plan(&wanted()).is_empty());
        let plan = plan_deletion(runtime.context(), &runtime.observed);
        assert!(plan.is_empty() && plan.blocked.is_some());
    }
}
