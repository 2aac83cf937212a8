//! The objects that a plan writes to a runtime, and deletes.

use api::kcp::REQUIRES_TRUST_BUNDLE;
use rstest::rstest;
use serde_json::json;

use super::api_server::Runtime;
use super::samples::{AT_ONCE, after, desired, sources};
use crate::sync::SourceKind;
use crate::sync::history::SourceHistory;
use crate::sync::plan::{Action, SyncDeferred};
use crate::sync::sources::{SourceState, Sources};

const SECRET: &str = "apply Secret/registry-credentials";
const TRUST: &str = "apply ClusterTrustBundle/landscape";
const KEYS: &str = "remove-fields ConfigMap/rt-bootstrapper-config";
const DOCUMENT: &str = "apply ConfigMap/rt-bootstrapper-config";

/// Equal content is not written, and applying twice changes nothing.
#[test]
fn nothing_differs_nothing_is_done() {
    let desired = desired(&sources());
    let runtime = Runtime::converged(&desired);
    let plan = runtime.plan(&desired);
    assert!(plan.is_empty(), "{plan:?}");
    assert!(!plan.is_deployment_pending());
    assert_eq!(
        plan.hashes.revision,
        desired.complete_revision.map(|it| it.to_string())
    );
    assert_eq!(plan.installation.complete, Some(true));
}

/// Drift: another client changes an object on the runtime.
#[rstest]
#[case::secret(SourceKind::PullSecret, "/data/.dockerconfigjson", json!("e30="), &[SECRET])]
#[case::bundle(SourceKind::TrustBundle, "/spec/trustBundle", json!(""), &[TRUST])]
#[case::document(SourceKind::Configuration, "/data/rt-bootstrapper-config.json", json!("{}"), &[DOCUMENT])]
#[case::key_added(SourceKind::Configuration, "/data/other", json!("x"), &[KEYS])]
#[case::binary_key_added(SourceKind::Configuration, "/binaryData", json!({"other": "eA=="}), &[KEYS])]
#[case::label(SourceKind::PullSecret, "/metadata/labels", json!({"a": "b"}), &[])]
#[case::annotation(SourceKind::PullSecret, "/metadata/annotations", json!({}), &[SECRET])]
fn drift(
    #[case] kind: SourceKind,
    #[case] pointer: &str,
    #[case] value: serde_json::Value,
    #[case] writes: &[&str],
) {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let mut live = runtime.live(kind).unwrap().clone();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    live.pointer_mut(parent).unwrap()[key] = value;
    let observed = &mut runtime.observed;
    match kind {
        SourceKind::PullSecret => observed.pull_secret = Some(live),
        SourceKind::TrustBundle => observed.trust_bundle = Some(live),
        SourceKind::Configuration => observed.configuration = Some(live),
    }
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(runtime.log, writes);
    assert!(runtime.plan(&desired).is_empty(), "once");
}

/// One operation removes any number of keys, because the API server accepts at most 10,000 operations.
#[test]
fn any_number_of_added_keys_is_removed_by_one_small_patch() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let live = runtime.observed.configuration.as_mut().unwrap();
    for number in 0..100_000 {
        live["data"][format!("k{number}")] = json!("");
    }
    let plan = runtime.plan(&desired);
    let Action::RemoveFields { patch, .. } = plan.steps().flatten().next().unwrap() else {
        panic!("{plan:?}");
    };
    assert!(patch.to_string().len() < 4096);
    runtime.carry_out(&plan);
    assert_eq!(runtime.log, [KEYS]);
    let live = runtime.live(SourceKind::Configuration).unwrap();
    assert_eq!(live["data"].as_object().unwrap().len(), 1);
}

#[test]
fn a_deleted_object_comes_back() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    runtime.observed.trust_bundle = None;
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(runtime.log, [TRUST]);
}

/// A Secret's type cannot be changed in place, nor can the data of an immutable Secret.
#[rstest]
#[case::other_type(json!({"type": "Opaque"}), &["delete Secret/registry-credentials", SECRET])]
#[case::frozen_and_equal(json!({"immutable": true}), &[])]
#[case::frozen_and_different(json!({"immutable": true, "data": {".dockerconfigjson": "e30="}}), &["delete Secret/registry-credentials", SECRET])]
fn what_cannot_be_changed_is_replaced(#[case] changes: serde_json::Value, #[case] writes: &[&str]) {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    for (key, value) in changes.as_object().unwrap() {
        runtime.observed.pull_secret.as_mut().unwrap()[key] = value.clone();
    }
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(runtime.log, writes);
}

/// Keys of an immutable ConfigMap cannot be removed, and the rejected patch would prevent all following steps.
#[test]
fn an_immutable_config_map_with_another_key_is_replaced() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let live = runtime.observed.configuration.as_mut().unwrap();
    live["immutable"] = json!(true);
    live["data"]["other"] = json!("1");
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(
        runtime.log,
        ["delete ConfigMap/rt-bootstrapper-config", DOCUMENT]
    );
    runtime.converge(&desired);
    assert!(
        runtime.live(SourceKind::Configuration).unwrap()["data"]
            .get("other")
            .is_none()
    );
}

/// A key that is removed on KCP is removed on the runtime, also if KIM wrote it.
#[test]
fn a_key_that_the_installer_wrote_and_that_is_gone_disappears() {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    runtime.installer_applies(&json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "rt-bootstrapper-config", "namespace": "kyma-system" },
        "data": { "old": "1", "rt-bootstrapper-config.json": "{}" },
    }));
    runtime.converge(&desired);
    let live = runtime.live(SourceKind::Configuration).unwrap();
    assert!(live["data"].get("old").is_none(), "{live}");
    assert_eq!(
        runtime
            .log
            .iter()
            .filter(|it| it.starts_with("transfer"))
            .count(),
        1
    );
    let managers: Vec<_> = live["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["manager"])
        .collect();
    assert_eq!(managers, ["rt-bootstrapper-controller"]);
}

/// A Secret of another client is never deleted, even if it has the name of the pull Secret.
#[test]
fn only_ours_is_removed() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), AT_ONCE);
    let now = Sources {
        pull_secret: SourceState::Absent,
        ..sources()
    };
    known.advance(&now, AT_ONCE);
    let desired = after(&now, &known);
    let mut runtime = Runtime::converged(&desired);
    runtime.someone_applies(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry-credentials", "namespace": "kyma-system"}}),
        "customer",
    );
    assert!(runtime.plan(&desired).is_empty());
}

/// A runtime whose API does not serve ClusterTrustBundles gets the other objects, and the webhook does not wait for the bundle.
#[test]
fn without_bundles_the_rest_goes_over() {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    runtime.observed.trust_bundles = None;
    runtime.converge(&desired);
    let plan = runtime.plan(&desired);
    assert_eq!(plan.deferred, [SyncDeferred::TrustBundleAPINotServed]);
    assert_eq!(plan.hashes.revision, None);
    assert!(runtime.observed.trust_bundle.is_none());
    let document = runtime.live(SourceKind::Configuration).unwrap();
    assert_eq!(
        document["metadata"]["annotations"][REQUIRES_TRUST_BUNDLE],
        "none"
    );
}

#[test]
fn the_bundle_goes_over_in_the_version_that_is_served() {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    runtime.observed.trust_bundles = Some("v1".to_owned());
    let plan = runtime.plan(&desired);
    let action = plan
        .steps()
        .flatten()
        .find(|it| it.target().kind() == "ClusterTrustBundle")
        .unwrap();
    assert_eq!(
        action.target().path(),
        "/apis/certificates.k8s.io/v1/clustertrustbundles/landscape"
    );
    let crate::sync::plan::Action::Apply { object, .. } = action else {
        panic!("{action:?}");
    };
    assert_eq!(object["apiVersion"], "certificates.k8s.io/v1");
    runtime.converge(&desired);
}
