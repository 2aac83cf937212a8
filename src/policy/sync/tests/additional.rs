//! The manifests in additional namespaces, in which nothing that the plan needs for anything else is written.

use api::bootstrapper::INSTALLED;
use serde_json::{Value, json};

use super::api_server::Runtime;
use super::samples::{NAMESPACE, desired, installation, manifests, sources};
use crate::sync::Lanes;
use crate::sync::desired::Desired;
use crate::sync::manifests::Installation;
use crate::sync::observed::ReadFailure;
use crate::sync::plan::{Blocked, Plan, plan_deletion};
use crate::sync::status::{Deferral, Failure, Goal, LaneOutcome, Outcome, conditions};
use crate::sync::target::Target;

fn binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "restarter", "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "restarter" },
        "subjects": [{ "kind": "ServiceAccount", "name": "manager", "namespace": NAMESPACE }],
    })
}

fn shop() -> Target {
    Target::of(&binding("shop")).unwrap()
}

/// Returns a runtime, with a manifest in its own namespace and one in another, both before all others.
fn runtime() -> Runtime {
    let own = [binding("shop"), binding(NAMESPACE)];
    let documents = own.into_iter().chain(manifests("0.1.0")).collect();
    let mut runtime = Runtime::new();
    runtime.installation = Installation::new(documents).unwrap();
    runtime
}

fn converged(desired: &Desired) -> Runtime {
    let mut runtime = runtime();
    runtime.converge(desired);
    runtime.log.clear();
    runtime
}

/// Returns the verbs of the actions in the additional namespace. All others are in the lanes.
fn verbs(plan: &Plan) -> Vec<&str> {
    let mut others = plan.lanes.iter().flat_map(|it| &it.steps).flatten();
    assert!(others.all(|it| *it.target() != shop()), "{plan:?}");
    let steps = plan.additional.iter();
    let verbs = steps.map(|step| match &step[..] {
        [only] if *only.target() == shop() => only.verb(),
        step => panic!("{step:?}"),
    });
    verbs.collect()
}

#[test]
fn what_is_in_an_additional_namespace_is_the_last_step() {
    let desired = desired(&sources());
    let mut runtime = runtime();
    let plan = runtime.plan(&desired);
    assert_eq!(verbs(&plan), ["apply"]);
    runtime.carry_out(&plan);
    let log = runtime.log.join(" ");
    let (deployment, last) = log.split_once("Deployment/").unwrap();
    assert_eq!(deployment.matches("RoleBinding/").count(), 1, "{log}");
    assert!(last.ends_with(" apply RoleBinding/restarter"), "{log}");
    runtime.converge(&desired);
    assert!(runtime.plan(&desired).is_empty());
}

#[test]
fn an_installation_is_complete_without_what_is_in_an_additional_namespace() {
    let desired = desired(&sources());
    let mut runtime = converged(&desired);
    let installed = runtime.observed.installed.as_mut().unwrap();
    installed.remove(&shop());
    let plan = runtime.plan(&desired);
    assert_eq!(plan.installation.complete, Some(true));
    assert_eq!(verbs(&plan), ["apply"]);
    assert_eq!(plan.steps().count(), 1);
    let own = Target::of(&binding(NAMESPACE)).unwrap();
    let installed = runtime.observed.installed.as_mut().unwrap();
    installed.remove(&own);
    let plan = runtime.plan(&desired);
    assert_eq!(plan.installation.complete, Some(false));
}

/// A deletion is an action in the namespace like any other.
#[test]
fn another_role_is_replaced_in_the_last_steps() {
    let desired = desired(&sources());
    let mut runtime = converged(&desired);
    let installed = runtime.observed.installed.as_mut().unwrap();
    installed.get_mut(&shop()).unwrap()["roleRef"]["name"] = json!("view");
    let plan = runtime.plan(&desired);
    assert_eq!(verbs(&plan), ["delete", "apply"]);
    runtime.carry_out(&plan);
    assert!(runtime.plan(&desired).is_empty());
}

#[test]
fn fields_of_kim_are_adopted_in_the_last_steps() {
    let desired = desired(&sources());
    let mut runtime = runtime();
    runtime.installer_applies(&binding("shop"));
    let plan = runtime.plan(&desired);
    assert_eq!(verbs(&plan), ["transfer", "apply"]);
    runtime.converge(&desired);
    assert!(runtime.plan(&desired).is_empty());
}

/// The namespace is not an additional one any more.
#[test]
fn an_obsolete_object_is_deleted_in_the_last_steps() {
    let desired = desired(&sources());
    let mut runtime = converged(&desired);
    runtime.installation = installation("0.1.0");
    let plan = runtime.plan(&desired);
    let own = plan.lanes.webhook.steps.concat();
    assert!(own.iter().all(|it| *it.target() != shop()), "{plan:?}");
    let last = plan.additional.concat();
    assert_eq!(last.len(), 1, "{plan:?}");
    assert_eq!((last[0].verb(), last[0].target()), ("delete", &shop()));
    runtime.converge(&desired);
    assert_eq!(runtime.get(&shop()), None);
    let marker = runtime.observed.marker.as_ref().unwrap().to_string();
    assert!(!marker.contains("shop/"), "{marker}");
}

#[test]
fn a_blocked_lane_writes_nothing_in_an_additional_namespace() {
    let desired = desired(&sources());
    let mut runtime = runtime();
    let failed = "ServiceAccount manager: x".to_owned();
    runtime.observed.failed_reads.webhook = vec![failed.clone()];
    let plan = runtime.plan(&desired);
    let blocked = Some(Blocked::FailedReads(vec![failed]));
    assert_eq!(plan.lanes.webhook.blocked, blocked);
    assert_eq!(verbs(&plan), [""; 0]);
}

/// An uninstallation leaves it behind, since it grants nothing without the ServiceAccount.
#[test]
fn what_cannot_be_read_is_reported_and_blocks_nothing() {
    let desired = desired(&sources());
    for is_manifest in [true, false] {
        let mut runtime = converged(&desired);
        if !is_manifest {
            runtime.installation = installation("0.1.0");
        }
        let installed = runtime.observed.installed.as_mut().unwrap();
        installed.remove(&shop());
        let cause = ReadFailure::Failed("RoleBinding restarter: x".to_owned());
        runtime.observed.unread_inventory.insert(shop(), cause);
        let plan = runtime.plan(&desired);
        assert_eq!(plan.lanes.webhook.blocked, None);
        assert_eq!(verbs(&plan), [""; 0]);
        let expected = [Failure {
            target: shop(),
            message: "failed to read RoleBinding restarter: x".to_owned(),
        }];
        assert_eq!(plan.installation.not_written, expected);
        let deletion = plan_deletion(runtime.context(), &runtime.observed);
        assert_eq!(deletion.blocked, None);
        assert!(!deletion.is_empty());
        assert_eq!(deletion.installation.not_written, expected);
    }
}

#[test]
fn a_deferred_write_is_the_message_of_the_condition() {
    let desired = desired(&sources());
    let mut runtime = converged(&desired);
    let installed = runtime.observed.installed.as_mut().unwrap();
    installed.remove(&shop());
    let plan = runtime.plan(&desired);
    let outcome = Outcome {
        connection_error: None,
        plan: Some(&plan),
        goal: Goal::Sync,
        lanes: Lanes::both(LaneOutcome::Deferred(Deferral::Paused)),
        failures: Lanes::default(),
    };
    let conditions = conditions(&[], outcome, Some(1), "now");
    let found = conditions.iter().find(|it| it.kind == INSTALLED).unwrap();
    let text = "RoleBinding shop/restarter not written: spec.paused is true";
    assert_eq!((&*found.reason, &*found.message), ("Installed", text));
}

/// The webhook evicts Pods until its own are deleted. A policy of the customer may reject the deletion for ever.
#[test]
fn an_uninstallation_ends_although_what_is_in_an_additional_namespace_remains() {
    let desired = desired(&sources());
    let mut runtime = converged(&desired);
    runtime.webhook_makes(&[]);
    let next = |runtime: &Runtime| {
        let mut plan = plan_deletion(runtime.context(), &runtime.observed);
        let refused = std::mem::take(&mut plan.additional).concat();
        (plan, refused)
    };
    let (plan, refused) = next(&runtime);
    assert!(refused.is_empty(), "{refused:?}");
    runtime.carry_out(&plan);
    runtime.pods_end();
    for _ in 0..2 {
        let (plan, refused) = next(&runtime);
        assert!(!plan.is_removed(), "{plan:?}");
        assert_eq!(refused.len(), 1);
        assert_eq!(
            (refused[0].verb(), refused[0].target()),
            ("delete", &shop())
        );
        runtime.carry_out(&plan);
    }
    assert!(plan_deletion(runtime.context(), &runtime.observed).is_removed());
    assert!(runtime.observed.marker.is_none());
    assert!(runtime.get(&shop()).is_some());
}
