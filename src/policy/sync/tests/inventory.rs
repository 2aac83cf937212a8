//! The inventory: listed, pruned and uninstalled objects.

mod hostile;
mod leftovers;

use api::kcp::{CONTROLLER_FIELD_MANAGER, MANIFEST_HASH, OWNER_INVENTORY};
use serde_json::{Value, json};

use super::api_server::Runtime;
use super::samples::{AT_ONCE, absent, after, desired, installation, manifests, sources};
use crate::sync::desired::Desired;
use crate::sync::history::SourceHistory;
use crate::sync::manifests::Installation;
use crate::sync::plan::{plan_deletion, plan_orphan};
use crate::sync::target::Target;

const MARKER: &str = "apply ConfigMap/rt-bootstrapper-owner";
const PRUNED: &str = "delete ServiceAccount/legacy";

/// Returns an object of an earlier version.
fn legacy() -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "legacy", "namespace": "kyma-system" } })
}

fn place(object: &Value) -> Target {
    Target::of(object).unwrap()
}

fn wanted() -> Desired {
    desired(&sources())
}

/// Returns a runtime with an earlier version that had more objects.
fn with(extra: &[Value]) -> Runtime {
    let mut runtime = Runtime::new();
    runtime.installation = Installation::new([&manifests("0.0.9"), extra].concat()).unwrap();
    runtime.converge(&wanted());
    runtime.log.clear();
    runtime
}

fn inventory(runtime: &Runtime) -> Vec<&str> {
    let marker = runtime.observed.marker.as_ref().unwrap();
    marker["data"][OWNER_INVENTORY]
        .as_str()
        .unwrap()
        .lines()
        .collect()
}

#[test]
fn inventory_lists_every_object_before_it_is_applied() {
    let mut runtime = Runtime::new();
    let plan = runtime.plan(&wanted());
    runtime.apply_action(plan.steps().flatten().next().unwrap());
    assert_eq!(
        inventory(&runtime),
        [
            "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration webhook-configuration",
            "apps/v1 Deployment kyma-system/rt-bootstrapper-controller-manager",
            "certificates.k8s.io/v1beta1 ClusterTrustBundle landscape",
            "rbac.authorization.k8s.io/v1 ClusterRole manager-role",
            "v1 ConfigMap kyma-system/rt-bootstrapper-config",
            "v1 Secret kyma-system/registry-credentials",
            "v1 Service kyma-system/webhook-service",
            "v1 ServiceAccount kyma-system/manager",
        ]
    );
    runtime.converge(&wanted());
    let is_marker = |it: &&String| it.ends_with("ConfigMap/rt-bootstrapper-owner");
    let markers = runtime.log.iter().filter(is_marker).count();
    assert_eq!(markers, 1, "{:?}", runtime.log);
}

/// The old Pods may need the object until the new Pods are available.
#[test]
fn upgrade_prunes_an_object_that_the_new_version_does_not_have_once_its_pods_serve() {
    let mut runtime = with(&[legacy()]);
    assert!(inventory(&runtime).contains(&"v1 ServiceAccount kyma-system/legacy"));
    runtime.installation = installation("0.1.0");
    runtime.carry_out(&runtime.plan(&wanted()));
    assert!(
        !runtime.log.contains(&PRUNED.to_owned()),
        "{:?}",
        runtime.log
    );
    runtime.hang();
    assert!(runtime.plan(&wanted()).is_empty());
    runtime.roll_out();
    runtime.log.clear();
    let plan = runtime.plan(&wanted());
    assert_eq!(plan.installation.complete, Some(false));
    runtime.carry_out(&plan);
    assert_eq!(runtime.log, [PRUNED, MARKER]);
    assert!(!inventory(&runtime).contains(&"v1 ServiceAccount kyma-system/legacy"));
    let plan = runtime.plan(&wanted());
    assert!(plan.is_empty());
    assert_eq!(plan.installation.complete, Some(true));
}

/// A renamed webhook configuration is deleted before the other objects.
#[test]
fn upgrade_prunes_a_webhook_configuration_before_the_rest() {
    let mut configuration = manifests("0.0.9").remove(4);
    configuration["metadata"]["name"] = json!("old");
    let mut runtime = with(&[legacy(), configuration]);
    runtime.installation = installation("0.1.0");
    runtime.converge(&wanted());
    let deletions: Vec<_> = runtime
        .log
        .iter()
        .filter(|it| it.starts_with("delete"))
        .collect();
    assert_eq!(
        deletions,
        ["delete MutatingWebhookConfiguration/old", PRUNED]
    );
}

/// The deletion fails, or the reconcile ends before the inventory is written.
#[test]
fn object_stays_in_the_inventory_until_it_is_deleted() {
    let mut runtime = with(&[legacy()]);
    runtime.installation = installation("0.1.0");
    runtime.carry_out(&runtime.plan(&wanted()));
    runtime.roll_out();
    assert!(inventory(&runtime).contains(&"v1 ServiceAccount kyma-system/legacy"));
    let plan = runtime.plan(&wanted());
    runtime.apply_action(plan.steps().flatten().next().unwrap());
    runtime.log.clear();
    runtime.carry_out(&runtime.plan(&wanted()));
    assert_eq!(runtime.log, [MARKER]);
}

/// Pods may mount the object, but revoked credentials must be deleted.
#[test]
fn source_under_an_earlier_name_is_kept_until_the_source_is_deleted() {
    let mut runtime = Runtime::converged(&wanted());
    let mut earlier = runtime.observed.pull_secret.clone().unwrap();
    earlier["metadata"]["name"] = json!("earlier");
    let mut foreign = earlier.clone();
    foreign["metadata"]["name"] = json!("foreign");
    foreign["metadata"]["managedFields"] = json!([]);
    let lines = [
        "v1 Secret kyma-system/earlier",
        "v1 Secret kyma-system/foreign",
    ];
    let listed = [inventory(&runtime), lines.to_vec()].concat().join("\n");
    runtime.observed.marker.as_mut().unwrap()["data"][OWNER_INVENTORY] = json!(listed);
    // The webhook lane is not due.
    runtime.observed.installed = None;
    let found = [earlier, foreign].map(|it| (place(&it), it));
    runtime.observed.earlier_sources.extend(found);
    let deletions = |runtime: &Runtime, desired: &Desired| {
        let plan = runtime.plan(desired);
        let actions = plan.steps().flatten().filter(|it| it.verb() == "delete");
        let names = actions.map(|it| it.target().name().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(deletions(&runtime, &wanted()), [""; 0]);
    let mut history = SourceHistory::default();
    history.advance(&sources(), AT_ONCE);
    history.advance(&absent(), AT_ONCE);
    // The Pods of another version are not available yet.
    for version in ["0.1.0", "0.1.1"] {
        runtime.installation = installation(version);
        let revoked = deletions(&runtime, &after(&absent(), &history));
        assert!(revoked.contains(&"earlier".to_owned()), "{revoked:?}");
        assert!(!revoked.contains(&"foreign".to_owned()), "{revoked:?}");
    }
}

#[test]
fn nothing_is_pruned_by_a_reconcile_that_did_not_look() {
    let mut runtime = with(&[legacy()]);
    runtime.installation = installation("0.1.0");
    runtime.carry_out(&runtime.plan(&wanted()));
    runtime.roll_out();
    runtime.observed.installed = None;
    assert!(runtime.plan(&wanted()).is_empty());
    assert!(inventory(&runtime).contains(&"v1 ServiceAccount kyma-system/legacy"));
}

#[test]
fn uninstallation_deletes_an_object_that_only_the_inventory_lists() {
    let mut deployment = manifests("0.0.9").remove(3);
    deployment["kind"] = json!("PodDisruptionBudget");
    deployment["apiVersion"] = json!("policy/v1");
    let mut runtime = with(&[legacy(), deployment]);
    runtime.installation = installation("0.1.0");
    runtime.webhook_makes(&[]);
    for _ in 0..3 {
        runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
        runtime.pods_end();
    }
    assert!(
        runtime.log.contains(&PRUNED.to_owned()),
        "{:?}",
        runtime.log
    );
    assert_eq!(runtime.observed.installed.as_ref().unwrap().len(), 0);
    assert_eq!(
        runtime.log.last().unwrap(),
        "delete ConfigMap/rt-bootstrapper-owner"
    );
    assert!(plan_deletion(runtime.context(), &runtime.observed).is_removed());
}

#[test]
fn hand_back_keeps_the_objects_and_drops_the_inventory() {
    let mut runtime = with(&[legacy()]);
    runtime.installation = installation("0.1.0");
    runtime.carry_out(&plan_orphan(runtime.context(), &runtime.observed));
    assert_eq!(runtime.observed.marker, None);
    let account = runtime.get(&place(&legacy())).unwrap();
    let text = account.to_string();
    assert!(
        !text.contains(MANIFEST_HASH) && !text.contains(CONTROLLER_FIELD_MANAGER),
        "{text}"
    );
}
