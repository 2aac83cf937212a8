//! Causes that block or defer a plan, and limits of the reported content.

use api::kcp::CONTENT_HASH;
use rstest::rstest;
use serde_json::json;

use super::api_server::Runtime;
use super::samples::{desired, document, manifests, secret, sources};
use crate::sync::compatibility::{IncompatibleVersion, RunningWebhook};
use crate::sync::identity::IdentityRecord;
use crate::sync::observed::{Inaccessible, NamespaceState};
use crate::sync::plan::{Blocked, SyncDeferred, plan};
use crate::sync::sources::{SourceState, Sources};
use crate::sync::{Lane, Lanes, SourceKind, status};

/// A webhook that is too old keeps the previous document.
#[test]
fn a_document_waits_for_a_webhook_that_understands_it() {
    let before = desired(&sources());
    let mut runtime = Runtime::new();
    for mut manifest in manifests("1.7.0") {
        manifest["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        runtime.installer_applies(&manifest);
    }
    runtime.roll_out();
    runtime.carry_out(&runtime.plan(&before));
    runtime.hang();
    let kept = runtime.live(SourceKind::Configuration).unwrap().clone();
    let next = desired(&Sources {
        configuration: document(r#","fipsVariables":["X"]"#),
        ..sources()
    });
    runtime.log.clear();
    let plan = runtime.plan(&next);
    runtime.carry_out(&plan);
    let too_old = IncompatibleVersion {
        needed: semver::Version::new(0, 1, 0),
        key: "fipsVariables",
        running: RunningWebhook::Unmanaged,
    };
    assert_eq!(
        plan.deferred,
        [SyncDeferred::IncompatibleWebhookVersion(too_old)]
    );
    assert_eq!(plan.hashes.revision, None);
    assert_eq!(runtime.live(SourceKind::Configuration).unwrap(), &kept);
    assert_eq!(
        status::error_chain(&plan.deferred[0]),
        "configuration document not written: key fipsVariables requires webhook version 0.1.0 or later, another one is running"
    );
    runtime.roll_out();
    runtime.converge(&next);
    assert_eq!(runtime.plan(&next).deferred, []);
    assert_ne!(
        runtime.live(SourceKind::Configuration).unwrap()["metadata"]["annotations"][CONTENT_HASH],
        kept["metadata"]["annotations"][CONTENT_HASH]
    );
}

/// Nothing is written before all checks succeed, such as the check of the namespace.
#[rstest]
#[case::no_namespace(|it: &mut Runtime| it.observed.namespace = NamespaceState::Missing, "Namespace kyma-system not found")]
#[case::terminating(|it: &mut Runtime| it.observed.namespace = NamespaceState::Terminating, "Namespace kyma-system is being deleted")]
#[case::rights(|it: &mut Runtime| it.observed.missing_permissions = Lanes::both(vec!["patch secrets".to_owned()]), "missing permissions: patch secrets")]
#[case::unread(|it: &mut Runtime| it.observed.unread = Lanes::both(vec!["get secrets".to_owned()]), "missing permissions: get secrets")]
#[case::identity(|it: &mut Runtime| it.observed.cluster = None, "cluster not verified: Namespace kube-system of the cluster has no UID")]
fn blockades(#[case] fault: fn(&mut Runtime), #[case] text: &str) {
    let mut runtime = Runtime::new();
    fault(&mut runtime);
    let plan = runtime.plan(&desired(&sources()));
    assert!(plan.is_empty());
    assert_eq!(status::error_chain(plan.blocked.as_ref().unwrap()), text);
    assert!(!plan.is_deployment_pending());
}

/// A condition truncates the last permissions: those of the configuration come first, since credentials depend on them.
#[test]
fn missing_permissions_of_the_configuration_are_listed_first() {
    let mut runtime = Runtime::new();
    let missing = |permission: &str| vec![permission.to_owned()];
    runtime.observed.missing_permissions = Lanes::both(missing("create serviceaccounts"));
    let inaccessible = Inaccessible {
        missing_permissions: missing("patch secrets"),
        ..Inaccessible::default()
    };
    let objects = &mut runtime.observed.inaccessible;
    objects.insert(SourceKind::PullSecret, inaccessible);
    let plan = runtime.plan(&desired(&sources()));
    assert_eq!(
        status::error_chain(plan.blocked.as_ref().unwrap()),
        "missing permissions: patch secrets, create serviceaccounts"
    );
}

/// A missing permission in one lane does not affect the other lane.
#[rstest]
#[case::of_the_configuration(
    Lane::Configuration,
    |it: &str| it.starts_with("apply Secret") || it.starts_with("apply ClusterTrustBundle") || it == "apply ConfigMap/rt-bootstrapper-config"
)]
#[case::of_the_webhook(
    Lane::Webhook,
    |it: &str| it.contains("ServiceAccount") || it.contains("Deployment") || it.contains("WebhookConfiguration")
)]
fn a_missing_permission_blocks_its_lane_alone(
    #[case] lane: Lane,
    #[case] is_of_the_lane: fn(&str) -> bool,
    #[values(false, true)] unread: bool,
) {
    let mut runtime = Runtime::new();
    let observed = &mut runtime.observed;
    let rights = if unread {
        &mut observed.unread
    } else {
        &mut observed.missing_permissions
    };
    *rights.get_mut(lane) = vec!["get x".to_owned()];
    let plan = runtime.plan(&desired(&sources()));
    assert_eq!(plan.blocked, None);
    assert_eq!(
        plan.lanes.get(lane).blocked,
        Some(Blocked::MissingPermissions(vec!["get x".to_owned()]))
    );
    runtime.carry_out(&plan);
    assert!(runtime.log.len() >= 3, "{:?}", runtime.log);
    assert!(
        !runtime.log.iter().any(|it| is_of_the_lane(it)),
        "{:?}",
        runtime.log
    );
}

/// An error that concerns one object does not affect the other lane.
#[rstest]
#[case::of_the_configuration(Lane::Configuration, Lane::Webhook)]
#[case::of_the_webhook(Lane::Webhook, Lane::Configuration)]
fn a_failed_read_blocks_its_lane_alone(#[case] lane: Lane, #[case] other: Lane) {
    let mut runtime = Runtime::new();
    let failed = vec!["Deployment x: API server returned 500".to_owned()];
    runtime
        .observed
        .failed_reads
        .get_mut(lane)
        .clone_from(&failed);
    let plan = runtime.plan(&desired(&sources()));
    let (blocked, rest) = (plan.lanes.get(lane), plan.lanes.get(other));
    assert_eq!(blocked.blocked, Some(Blocked::FailedReads(failed)));
    assert!(blocked.steps.is_empty());
    assert_eq!(rest.blocked, None);
    assert!(!rest.steps.is_empty());
}

/// It is unknown in which version the runtime serves the bundle.
#[rstest]
fn a_trust_bundle_that_was_not_read_stays_in_the_inventory(#[values(false, true)] is_failed: bool) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    let observed = &mut runtime.observed;
    (observed.trust_bundles, observed.trust_bundle) = (None, None);
    let bundle = observed.inaccessible.entry(SourceKind::TrustBundle);
    let bundle = bundle.or_default();
    let unread = if is_failed {
        &mut bundle.failed_read
    } else {
        &mut bundle.unread
    };
    *unread = Some("list clustertrustbundles".to_owned());
    assert!(runtime.plan(&desired(&sources())).is_empty());
}

/// A Deployment that cannot be read may run a webhook that does not support the document.
#[rstest]
fn a_document_with_new_keys_waits_while_the_deployment_cannot_be_read(
    #[values(false, true)] is_failed: bool,
) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    runtime.observed.deployment = None;
    let unread = if is_failed {
        &mut runtime.observed.failed_reads
    } else {
        &mut runtime.observed.unread
    };
    unread.webhook = vec!["get deployments.apps".to_owned()];
    let next = desired(&Sources {
        configuration: document(r#","fipsVariables":["X"]"#),
        ..sources()
    });
    assert!(matches!(
        *runtime.plan(&next).deferred,
        [SyncDeferred::IncompatibleWebhookVersion(_)]
    ));
}

#[test]
fn a_refused_cluster_is_not_written_to() {
    let runtime = Runtime::new();
    let mut context = runtime.context();
    context.record = IdentityRecord {
        claimed_by: Some("other"),
        ..IdentityRecord::default()
    };
    let plan = plan(context, &desired(&sources()), &runtime.observed);
    assert!(plan.is_empty());
    assert!(matches!(plan.blocked, Some(Blocked::Identity(_))));
}

/// `Debug` output contains no credentials.
#[test]
fn no_output_contains_credentials() {
    let sources = Sources {
        pull_secret: secret("hunter2"),
        ..sources()
    };
    let desired = desired(&sources);
    let runtime = Runtime::converged(&desired);
    let plan = Runtime::new().plan(&desired);
    let text = format!("{sources:?} {desired:?} {plan:?} {:?}", runtime.observed);
    let stored = runtime.live(SourceKind::PullSecret).unwrap()["data"][".dockerconfigjson"].clone();
    assert!(!text.contains("hunter2") && !text.contains(stored.as_str().unwrap()));
    assert!(text.contains("apply /api/v1/namespaces/kyma-system/secrets/registry-credentials"));
}

/// Metadata that a client of the runtime writes must not prevent an update of the status.
#[test]
fn what_a_runtime_says_of_itself_is_bounded_as_in_a_status() {
    let known = Sources {
        configuration: SourceState::Unmanaged,
        ..sources()
    };
    let mut runtime = Runtime::converged(&desired(&sources()));
    let mut said = |hash: &str, version: &str| {
        let document = runtime.observed.configuration.as_mut().unwrap();
        document["metadata"]["annotations"][CONTENT_HASH] = json!(hash);
        let deployment = runtime.observed.deployment.as_mut().unwrap();
        deployment["metadata"]["labels"]["app.kubernetes.io/version"] = json!(version);
        let plan = runtime.plan(&desired(&known));
        let lengths = [
            plan.hashes_before.config_map_hash,
            plan.hashes.config_map_hash,
            plan.installation.version,
        ];
        lengths.map(|it| it.map(|it| it.len()))
    };
    assert_eq!(
        said(&"a".repeat(64), &"1".repeat(63)),
        [Some(64), Some(64), Some(63)]
    );
    assert_eq!(said(&"a".repeat(65), &"1".repeat(64)), [None; 3]);
}
