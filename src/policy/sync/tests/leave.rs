use api::kcp::KIM_FIELD_MANAGER;
use rstest::rstest;
use serde_json::{Value, json};

use super::api_server::Runtime;
use super::samples::{desired, manifests, sources};
use crate::sync::identity::IdentityRecord;
use crate::sync::observed::{
    Inaccessible, NamespaceState, ObjectIdentity, Observed, WebhookObjects,
};
use crate::sync::plan::{Blocked, Context, Plan, plan, plan_deletion, plan_orphan};
use crate::sync::status::{Goal, deletion_reason};
use crate::sync::{Lane, SourceKind};

/// The webhook configuration is deleted first, so that no Pod is sent to a webhook that does not exist. The objects
/// that the webhook created are deleted when the webhook cannot create them again.
#[test]
fn an_uninstallation() {
    let mut runtime = Runtime::converged(&desired(&sources()));
    runtime.webhook_makes(&["a", "b"]);
    let plan = plan_deletion(runtime.context(), &runtime.observed);
    assert!(!plan.is_removed());
    runtime.carry_out(&plan);
    assert_eq!(
        runtime.log,
        [
            "delete MutatingWebhookConfiguration/webhook-configuration",
            "delete Deployment/rt-bootstrapper-controller-manager",
        ]
    );
    let plan = plan_deletion(runtime.context(), &runtime.observed);
    assert!(plan.is_empty(), "its Pods run: {plan:?}");
    assert!(!plan.is_removed());
    runtime.pods_end();
    runtime.log.clear();
    runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
    assert_eq!(
        runtime.log,
        [
            "delete ConfigMap/rt-bootstrapper-config",
            "delete ClusterTrustBundle/landscape",
            "delete Secret/registry-credentials",
            "delete Secret/rt-bootstrapper-webhook-cert",
            "delete Lease/rt-bootstrapper-webhook",
            "delete Secret/registry-credentials",
            "delete Secret/registry-credentials",
            "delete Service/webhook-service",
            "delete ClusterRole/manager-role",
            "delete ServiceAccount/manager",
        ]
    );
    runtime.log.clear();
    runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
    assert_eq!(runtime.log, ["delete ConfigMap/rt-bootstrapper-owner"]);
    assert!(plan_deletion(runtime.context(), &runtime.observed).is_removed());
}

/// More copies than one reconcile lists, or a finalizer of another client on a copy: without the owner, another KCP could
/// claim the cluster, and the inventory of what is left would be lost.
#[test]
fn the_owner_stays_until_all_objects_are_deleted() {
    let mut runtime = Runtime::converged(&desired(&sources()));
    runtime.webhook_makes(&["a"]);
    runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
    runtime.pods_end();
    for _ in 0..2 {
        runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
        assert!(runtime.observed.marker.is_some());
        runtime.webhook_makes(&["b"]);
    }
    // A timeout ends a deletion whose message does not change.
    let message = |plan: &Plan| deletion_reason(Goal::Delete, plan).map(|(_, text)| text);
    let plans: Vec<Plan> = (0..2)
        .map(|_| {
            let plan = plan_deletion(runtime.context(), &runtime.observed);
            runtime.carry_out(&plan);
            plan
        })
        .collect();
    assert_ne!(message(&plans[0]), message(&plans[1]));
    assert!(runtime.observed.marker.is_none());
    assert!(plan_deletion(runtime.context(), &runtime.observed).is_removed());
}

/// A reconcile that did not list the objects of the webhook cannot determine that all of them are deleted.
#[test]
fn uninstallation_that_was_not_looked_at_is_not_finished() {
    let mut runtime = Runtime::new();
    runtime.observed.webhook_objects = None;
    assert!(!plan_deletion(runtime.context(), &runtime.observed).is_removed());
    runtime.webhook_makes(&[]);
    assert!(!plan_deletion(runtime.context(), &runtime.observed).is_removed());
}

/// A Secret with the type of copies is a copy if it has the label. A Secret of another type may have the label, too.
#[rstest]
#[case::copy(json!("true"), true)]
#[case::another_value(json!("false"), false)]
#[case::no_label(json!(null), false)]
fn copies_are_recognized_by_their_label(#[case] label: Value, #[case] is_ours: bool) {
    let metadata = json!({
        "name": "s", "namespace": "n", "uid": "u", "labels": { (api::names::PULL_SECRET_COPY_LABEL): label },
    });
    let secret = json!({ "metadata": metadata });
    assert_eq!(ObjectIdentity::of_copy(&secret).is_some(), is_ours);
}

#[test]
fn an_uninstallation_leaves_what_others_made() {
    let mut runtime = Runtime::new();
    for manifest in manifests("0.1.0") {
        runtime.someone_applies(&manifest, "customer");
    }
    runtime.observed.webhook_objects = Some(WebhookObjects::default());
    assert!(plan_deletion(runtime.context(), &runtime.observed).is_removed());
}

/// The objects in the namespace were deleted with it, and the other objects must still be deleted.
#[test]
fn an_uninstallation_without_the_namespace() {
    let mut runtime = Runtime::converged(&desired(&sources()));
    runtime.webhook_makes(&["a"]);
    runtime.observed.deployment = None;
    runtime.observed.namespace = NamespaceState::Missing;
    // No Pod is sent to the webhook any more when the credentials are deleted.
    runtime.carry_out(&plan_deletion(runtime.context(), &runtime.observed));
    assert_eq!(
        runtime.log.last().unwrap(),
        "delete MutatingWebhookConfiguration/webhook-configuration"
    );
    let plan = plan_deletion(runtime.context(), &runtime.observed);
    let left: Vec<Option<&str>> = plan
        .steps()
        .flatten()
        .map(|it| it.target().namespace())
        .collect();
    assert_eq!(left, [None, Some("a"), None]);
}

/// A plan of a deletion: with all objects, or orphaning them.
type Leave = fn(Context<'_>, &Observed) -> Plan;

#[rstest]
#[case::uninstall(plan_deletion)]
#[case::hand_back(plan_orphan)]
fn a_refused_cluster_is_left_alone(#[case] leave: Leave) {
    let runtime = Runtime::converged(&desired(&sources()));
    let mut context = runtime.context();
    context.record = IdentityRecord {
        recorded_uid: Some("another"),
        ..IdentityRecord::default()
    };
    let plan = leave(context, &runtime.observed);
    assert!(plan.is_empty() && plan.blocked.is_some());
}

/// An object that cannot be read may exist. A missing permission to write is reported when it is needed, and other
/// objects are deleted without it.
#[rstest]
#[case::uninstall(plan_deletion)]
#[case::hand_back(plan_orphan)]
fn what_may_not_be_read_is_not_gone(#[case] leave: Leave) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    let rights = ["list b", "get a", "get a"].map(str::to_owned);
    runtime.observed.unread.webhook = rights.to_vec();
    let plan = leave(runtime.context(), &runtime.observed);
    assert!(plan.is_empty());
    let expected = ["list b", "get a"].map(str::to_owned).to_vec();
    assert_eq!(plan.blocked, Some(Blocked::MissingPermissions(expected)));
    runtime.observed.missing_permissions = std::mem::take(&mut runtime.observed.unread);
    let plan = leave(runtime.context(), &runtime.observed);
    assert!(!plan.is_empty() && plan.blocked.is_none());
}

/// Nor are objects of the configuration that cannot be read.
#[rstest]
#[case::uninstall(plan_deletion)]
#[case::hand_back(plan_orphan)]
fn an_object_of_the_configuration_that_cannot_be_read_is_not_gone(
    #[case] leave: Leave,
    #[values(
        SourceKind::PullSecret,
        SourceKind::TrustBundle,
        SourceKind::Configuration
    )]
    kind: SourceKind,
) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    let mut left = |inaccessible| {
        runtime.observed.inaccessible.insert(kind, inaccessible);
        let plan = leave(runtime.context(), &runtime.observed);
        (plan.is_empty(), plan.blocked)
    };
    let text = || "a".to_owned();
    let unread = Inaccessible {
        unread: Some(text()),
        ..Inaccessible::default()
    };
    let lacks = Blocked::MissingPermissions(vec![text()]);
    assert_eq!(left(unread), (true, Some(lacks)));
    let failed = Inaccessible {
        failed_read: Some(text()),
        ..Inaccessible::default()
    };
    assert_eq!(
        left(failed),
        (true, Some(Blocked::FailedReads(vec![text()])))
    );
    let unwritable = Inaccessible {
        missing_permissions: vec![text()],
        ..Inaccessible::default()
    };
    assert_eq!(left(unwritable), (false, None));
}

#[rstest]
#[case::uninstall(plan_deletion)]
#[case::hand_back(plan_orphan)]
fn what_the_api_server_fails_to_return_is_not_gone(#[case] leave: Leave) {
    for lane in Lane::ALL {
        let mut runtime = Runtime::converged(&desired(&sources()));
        let failed = vec!["Secret a: API server returned 500".to_owned()];
        runtime
            .observed
            .failed_reads
            .get_mut(lane)
            .clone_from(&failed);
        let plan = leave(runtime.context(), &runtime.observed);
        assert!(plan.is_empty());
        assert_eq!(plan.blocked, Some(Blocked::FailedReads(failed)));
    }
}

/// All objects are kept, no metadata of the controller remains, and KIM owns all fields.
#[test]
fn a_way_back() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let before = runtime.live(SourceKind::PullSecret).unwrap()["data"].clone();
    let plan = plan_orphan(runtime.context(), &runtime.observed);
    runtime.carry_out(&plan);
    assert!(
        runtime
            .log
            .iter()
            .all(|it| it.starts_with("transfer") || it == "delete ConfigMap/rt-bootstrapper-owner")
    );
    assert_eq!(
        runtime.log.first().map(String::as_str),
        Some("transfer ConfigMap/rt-bootstrapper-config")
    );
    assert_eq!(runtime.log.len(), 9);
    assert!(plan_orphan(runtime.context(), &runtime.observed).is_empty());
    assert_eq!(
        runtime.live(SourceKind::PullSecret).unwrap()["data"],
        before
    );
    let objects = SourceKind::ALL
        .iter()
        .filter_map(|kind| runtime.live(*kind))
        .chain(runtime.observed.installed.as_ref().unwrap().values());
    for object in objects.chain(&runtime.observed.deployment) {
        let text = object.to_string();
        assert!(!text.contains("rt-bootstrapper.kyma-project.io/"), "{text}");
        let managers: Vec<&Value> = object["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["manager"])
            .collect();
        assert_eq!(managers, [KIM_FIELD_MANAGER], "{text}");
    }
}

/// Orphaning and adoption can be repeated any number of times.
#[test]
fn a_second_take_over_finds_nothing_odd() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    for _ in 0..2 {
        runtime.carry_out(&plan_orphan(runtime.context(), &runtime.observed));
        runtime.converge(&desired);
        assert!(plan(runtime.context(), &desired, &runtime.observed).is_empty());
    }
    let managers = runtime.live(SourceKind::PullSecret).unwrap()["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(managers, 1);
}

/// The API server records the fields of other managers separately, and the transfer keeps them.
#[test]
fn other_writers_keep_their_fields() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    runtime.someone_applies(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry-credentials", "namespace": "kyma-system", "labels": {"team": "a"}}}),
        "customer",
    );
    runtime.carry_out(&plan_orphan(runtime.context(), &runtime.observed));
    let secret = runtime.live(SourceKind::PullSecret).unwrap();
    assert_eq!(secret["metadata"]["labels"]["team"], "a");
    let managers: Vec<&Value> = secret["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["manager"])
        .collect();
    assert_eq!(managers, ["customer", KIM_FIELD_MANAGER]);
}

/// The ownership ConfigMap contains the owner of the cluster and the inventory of the watcher.
#[rstest]
#[case::uninstalled(plan_deletion)]
#[case::orphaned(plan_orphan)]
fn the_owner_stays_while_the_watcher_is_installed(#[case] leave: Leave) {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let marker = runtime.observed.marker.as_mut().unwrap();
    marker["data"][api::kcp::OWNER_WATCHER_INVENTORY] = json!("");
    for _ in 0..4 {
        runtime.carry_out(&leave(runtime.context(), &runtime.observed));
        runtime.pods_end();
        runtime.observed.webhook_objects = Some(WebhookObjects::default());
    }
    assert!(leave(runtime.context(), &runtime.observed).is_removed());
    let marker = runtime.observed.marker.as_ref().unwrap();
    assert_eq!(marker["data"][api::kcp::OWNER_INVENTORY], Value::Null);
    assert_eq!(marker["data"][api::kcp::OWNER_RUNTIME_ID], "runtime-1");
}
