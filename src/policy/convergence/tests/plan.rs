use api::runtimes::{CONTENT_HASH, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use rstest::rstest;
use serde_json::json;

use super::api_server::{
    AT_ONCE, NOT_YET, Runtime, after, bundle, desired, document, manifests, secret, sources,
};
use crate::convergence::compatibility::{Running, TooOld, Version};
use crate::convergence::desired::Desired;
use crate::convergence::identity::Claim;
use crate::convergence::known::Known;
use crate::convergence::observed::NamespaceState;
use crate::convergence::plan::{Blocked, Held, plan};
use crate::convergence::sources::{Reading, SourceError, Sources};
use crate::convergence::{Kind, status};

const SECRET: &str = "apply Secret/registry-credentials";
const TRUST: &str = "apply ClusterTrustBundle/landscape";
const DOCUMENT: &str = "apply ConfigMap/rt-bootstrapper-config";

/// Equal content is not written, and applying twice changes nothing.
#[test]
fn nothing_differs_nothing_is_done() {
    let desired = desired(&sources());
    let runtime = Runtime::converged(&desired);
    let plan = runtime.plan(&desired);
    assert_eq!(plan.steps, Vec::<Vec<_>>::new());
    assert!(!plan.waits());
    assert_eq!(
        plan.content.version,
        desired.version.map(|it| it.to_string())
    );
    assert_eq!(plan.installation.complete, Some(true));
}

/// What one change writes: a part of the content, and the document that requires it.
#[rstest]
#[case::secret(Sources { pull_secret: secret("two"), ..sources() }, &[SECRET, DOCUMENT])]
#[case::bundle(Sources { trust_bundle: bundle(2), ..sources() }, &[TRUST, DOCUMENT])]
#[case::document(Sources { configuration: document(r#","availableFeatures":[]"#), ..sources() }, &[DOCUMENT])]
#[case::two(Sources { pull_secret: secret("two"), trust_bundle: bundle(2), ..sources() }, &[SECRET, TRUST, DOCUMENT])]
#[case::deleted(Sources { trust_bundle: Reading::Absent, ..sources() }, &[DOCUMENT, "delete ClusterTrustBundle/landscape"])]
#[case::invalid(Sources { pull_secret: Reading::Invalid(SourceError::Key("x")), ..sources() }, &[])]
fn one_change(#[case] now: Sources, #[case] writes: &[&str]) {
    let mut known = Known::default();
    known.advance(&sources(), AT_ONCE);
    let mut runtime = Runtime::converged(&after(&sources(), &known));
    known.advance(&now, AT_ONCE);
    let desired = after(&now, &known);
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(runtime.log, writes);
    assert!(runtime.plan(&desired).is_empty());
}

/// What is wanted while one source is missing, and was there before.
fn missing(kind: Kind) -> Desired {
    let mut known = Known::default();
    known.advance(&sources(), NOT_YET);
    let mut now = sources();
    match kind {
        Kind::PullSecret => now.pull_secret = Reading::Absent,
        Kind::TrustBundle => now.trust_bundle = Reading::Absent,
        Kind::Configuration => now.configuration = Reading::Absent,
    }
    known.advance(&now, NOT_YET);
    after(&now, &known)
}

#[rstest]
fn missing_source_changes_nothing_on_a_runtime_before_it_is_deleted(
    #[values(Kind::PullSecret, Kind::TrustBundle, Kind::Configuration)] kind: Kind,
) {
    let before = desired(&sources());
    let runtime = Runtime::converged(&before);
    let plan = runtime.plan(&missing(kind));
    assert!(plan.is_empty(), "{:?}", plan.steps);
    assert_eq!(
        plan.content.version,
        before.version.map(|it| it.to_string())
    );
    let held: Vec<String> = plan.held.iter().map(ToString::to_string).collect();
    let object = match kind {
        Kind::PullSecret => "Secret kcp-system/pull",
        Kind::TrustBundle => "ClusterTrustBundle roots",
        Kind::Configuration => "ConfigMap kcp-system/rt-bootstrapper-config",
    };
    let text = format!(
        "{object} was deleted on KCP: its copy on the runtime is deleted at 1970-01-01T00:05:00Z, unless the \
source is created again before"
    );
    assert_eq!(held, [text]);
}

/// What is there is left, and said is what is missing, by the name under which it was looked for.
#[rstest]
#[case::pull_secret(
    Sources { pull_secret: Reading::Absent, ..sources() },
    "Secret kcp-system/pull not found on KCP: an existing copy on the runtime is not changed"
)]
#[case::trust_bundle(
    Sources { trust_bundle: Reading::Absent, ..sources() },
    "ClusterTrustBundle roots not found on KCP: an existing copy on the runtime is not changed"
)]
#[case::configuration(
    Sources { configuration: Reading::Absent, ..sources() },
    "ConfigMap kcp-system/rt-bootstrapper-config not found on KCP: an existing copy on the runtime is not \
changed, and the webhook does not become ready without one"
)]
fn source_that_was_never_there_is_said_and_the_others_go_over(
    #[case] now: Sources,
    #[case] said: &str,
) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    let rotated = Sources {
        trust_bundle: match now.trust_bundle {
            Reading::Absent => Reading::Absent,
            _ => bundle(2),
        },
        pull_secret: match now.pull_secret {
            Reading::Absent => Reading::Absent,
            _ => secret("two"),
        },
        ..now
    };
    let plan = runtime.plan(&desired(&rotated));
    let held: Vec<String> = plan.held.iter().map(ToString::to_string).collect();
    assert_eq!(held, [said]);
    runtime.carry_out(&plan);
    assert!(
        runtime
            .log
            .iter()
            .any(|it| [SECRET, TRUST].contains(&&**it))
    );
    assert!(!runtime.log.iter().any(|it| it.starts_with("delete")));
    assert!(runtime.plan(&desired(&rotated)).is_empty());
}

/// A document that required it would be waited for.
#[rstest]
#[case::pull_secret(Kind::PullSecret, REQUIRES_PULL_SECRET)]
#[case::trust_bundle(Kind::TrustBundle, REQUIRES_TRUST_BUNDLE)]
fn runtime_that_never_had_a_missing_source_is_not_required_to_have_it(
    #[case] kind: Kind,
    #[case] requires: &str,
) {
    let mut runtime = Runtime::new();
    let desired = missing(kind);
    runtime.converge(&desired);
    let document = runtime.live(Kind::Configuration).unwrap();
    assert_eq!(document["metadata"]["annotations"][requires], json!(null));
    assert_eq!(runtime.plan(&desired).content.version, None);
}

/// What the runtime holds goes over although its document is held back: without a word to the webhook it would wait for
/// the parts before, and keep the old credentials.
#[rstest]
#[case::invalid(broken(), &[SECRET, DOCUMENT])]
#[case::another_part_is_invalid(Sources { trust_bundle: Reading::Invalid(SourceError::Key("x")), ..next() }, &[SECRET, DOCUMENT])]
#[case::too_old(Sources { configuration: document(r#","fipsVariables":["X"]"#), ..next() }, &[SECRET, DOCUMENT])]
#[case::deleted(Sources { pull_secret: Reading::Absent, ..broken() }, &[DOCUMENT, "delete Secret/registry-credentials"])]
#[case::bundle(Sources { pull_secret: secret("one"), trust_bundle: bundle(2), ..broken() }, &[TRUST, DOCUMENT])]
#[case::nothing_changed(Sources { pull_secret: secret("one"), ..broken() }, &[])]
#[case::part_invalid_too(Sources { pull_secret: Reading::Invalid(SourceError::Key("x")), ..broken() }, &[])]
fn a_document_that_is_held_back_requires_what_goes_over(
    #[case] now: Sources,
    #[case] writes: &[&str],
) {
    let mut known = Known::default();
    known.advance(&sources(), AT_ONCE);
    let mut runtime = Runtime::converged(&after(&sources(), &known));
    // Ours no more, as far as documents are concerned: a rollout hangs.
    runtime.hang();
    let before = runtime.live(Kind::Configuration).unwrap().clone();
    known.advance(&now, AT_ONCE);
    let desired = after(&now, &known);
    let plan = runtime.plan(&desired);
    assert_eq!(plan.content.version, None);
    assert_eq!(plan.writes_content, !writes.is_empty());
    runtime.carry_out(&plan);
    assert_eq!(runtime.log, writes);
    assert!(runtime.plan(&desired).is_empty());

    let live = runtime.live(Kind::Configuration).unwrap();
    let hash = |object: &serde_json::Value| object["metadata"]["annotations"][CONTENT_HASH].clone();
    assert_eq!(live["data"], before["data"]);
    assert_eq!(hash(live), hash(&before));
    let parts = [
        (REQUIRES_PULL_SECRET, Kind::PullSecret),
        (REQUIRES_TRUST_BUNDLE, Kind::TrustBundle),
    ];
    for (key, part) in parts {
        let held = runtime.live(part).map_or("none".into(), hash);
        assert_eq!(live["metadata"]["annotations"][key], held, "{key}");
    }
    runtime.roll_out();
    runtime.converge(&after(&sources(), &known));
}

/// The document is broken, and the pull Secret rotates.
fn broken() -> Sources {
    Sources {
        configuration: Reading::Invalid(SourceError::Key("x")),
        ..next()
    }
}

/// The pull Secret rotates.
fn next() -> Sources {
    Sources {
        pull_secret: secret("two"),
        ..sources()
    }
}

/// Where a pass ended between the part and the document, and the source of the part then broke.
#[test]
fn a_document_that_is_held_back_requires_what_is_there() {
    let mut known = Known::default();
    known.advance(&sources(), AT_ONCE);
    let mut runtime = Runtime::converged(&after(&sources(), &known));
    let rotated = runtime.plan(&after(&next(), &known));
    runtime.apply_action(&rotated.steps[0][0]);
    assert_eq!(runtime.log, [SECRET]);
    let broken = Sources {
        pull_secret: Reading::Invalid(SourceError::Key("x")),
        ..sources()
    };
    runtime.carry_out(&runtime.plan(&after(&broken, &known)));
    assert_eq!(runtime.log, [SECRET, DOCUMENT]);
}

/// A document that is not ours, or that requires nothing, has nothing to renew: the webhook takes its parts as they come.
#[rstest]
#[case::the_installers(true)]
#[case::a_strangers(false)]
fn a_document_without_requirements_stays(#[case] installer: bool) {
    let mut runtime = Runtime::new();
    let mut theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "rt-bootstrapper-config", "namespace": "kyma-system" },
        "data": { "rt-bootstrapper-config.json": "{\"overrides\":{}}" },
    });
    if installer {
        runtime.installer_applies(&theirs);
    } else {
        theirs["metadata"]["annotations"][REQUIRES_PULL_SECRET] = json!("0");
        runtime.someone_applies(&theirs, "customer");
    }
    let before = runtime.live(Kind::Configuration).cloned();
    runtime.converge(&desired(&broken()));
    assert_eq!(runtime.live(Kind::Configuration).cloned(), before);
}

/// What the live document names counts, not what one names that does not come.
#[test]
fn a_live_document_that_names_another_secret_does_not_come_to_wait_for_ours() {
    let named = Sources {
        configuration: document(r#","imagePullSecret":{"name":"registry-credentials"}"#),
        ..sources()
    };
    let mut known = Known::default();
    known.advance(&named, AT_ONCE);
    let mut runtime = Runtime::converged(&after(&named, &known));
    runtime.names.pull_secret = Some("renamed".to_owned());
    runtime.observed.pull_secret = None;
    let now = Desired::new(&broken(), &known, &runtime.names);
    runtime.carry_out(&runtime.plan(&now));
    assert_eq!(runtime.log, ["apply Secret/renamed"]);
}

/// Drift: another client changes the runtime, and the annotations still say what they said.
#[rstest]
#[case::secret(Kind::PullSecret, "/data/.dockerconfigjson", json!("e30="), &[SECRET])]
#[case::bundle(Kind::TrustBundle, "/spec/trustBundle", json!(""), &[TRUST])]
#[case::document(Kind::Configuration, "/data/rt-bootstrapper-config.json", json!("{}"), &[DOCUMENT])]
#[case::key_added(Kind::Configuration, "/data/other", json!("x"), &[])]
#[case::label(Kind::PullSecret, "/metadata/labels", json!({"a": "b"}), &[])]
#[case::annotation(Kind::PullSecret, "/metadata/annotations", json!({}), &[SECRET])]
fn drift(
    #[case] kind: Kind,
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
        Kind::PullSecret => observed.pull_secret = Some(live),
        Kind::TrustBundle => observed.trust_bundle = Some(live),
        Kind::Configuration => observed.configuration = Some(live),
    }
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(runtime.log, writes);
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

/// A key that is removed on KCP disappears on the runtime, also where today's installer wrote it.
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
    let live = runtime.live(Kind::Configuration).unwrap();
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

/// A stranger's Secret is never deleted, even under our name.
#[test]
fn only_ours_is_removed() {
    let mut known = Known::default();
    known.advance(&sources(), AT_ONCE);
    let now = Sources {
        pull_secret: Reading::Absent,
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

/// A runtime whose API has no ClusterTrustBundles gets the rest, and nothing waits for the bundle.
#[test]
fn without_bundles_the_rest_goes_over() {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    runtime.observed.trust_bundles = None;
    runtime.converge(&desired);
    let plan = runtime.plan(&desired);
    assert_eq!(plan.held, [Held::NotServed]);
    assert_eq!(plan.content.version, None);
    assert!(runtime.observed.trust_bundle.is_none());
    let document = runtime.live(Kind::Configuration).unwrap();
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
        .steps
        .iter()
        .flatten()
        .find(|it| it.target().kind() == "ClusterTrustBundle")
        .unwrap();
    assert_eq!(
        action.target().path(),
        "/apis/certificates.k8s.io/v1/clustertrustbundles/landscape"
    );
    let crate::convergence::plan::Action::Apply { object, .. } = action else {
        panic!("{action:?}");
    };
    assert_eq!(object["apiVersion"], "certificates.k8s.io/v1");
    runtime.converge(&desired);
}

/// A webhook that is too old keeps what it has.
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
    let kept = runtime.live(Kind::Configuration).unwrap().clone();
    let next = desired(&Sources {
        configuration: document(r#","fipsVariables":["X"]"#),
        ..sources()
    });
    runtime.log.clear();
    let plan = runtime.plan(&next);
    runtime.carry_out(&plan);
    let too_old = TooOld {
        needed: "0.1.0".parse::<Version>().unwrap(),
        key: "fipsVariables",
        running: Running::Foreign,
    };
    assert_eq!(plan.held, [Held::TooOld(too_old)]);
    assert_eq!(plan.content.version, None);
    assert_eq!(runtime.live(Kind::Configuration).unwrap(), &kept);
    assert_eq!(
        status::chain(&plan.held[0]),
        "configuration document not written: key fipsVariables requires webhook version 0.1.0 or later, another one is running"
    );
    runtime.roll_out();
    runtime.converge(&next);
    assert_eq!(runtime.plan(&next).held, []);
    assert_ne!(
        runtime.live(Kind::Configuration).unwrap()["metadata"]["annotations"][CONTENT_HASH],
        kept["metadata"]["annotations"][CONTENT_HASH]
    );
}

/// Nothing is written before everything is in order: the namespace has to be there.
#[rstest]
#[case::no_namespace(|it: &mut Runtime| it.observed.namespace = NamespaceState::Missing, "Namespace kyma-system not found")]
#[case::terminating(|it: &mut Runtime| it.observed.namespace = NamespaceState::Terminating, "Namespace kyma-system is being deleted")]
#[case::rights(|it: &mut Runtime| it.observed.missing_rights = vec!["patch secrets".to_owned()], "missing permissions: patch secrets")]
#[case::unread(|it: &mut Runtime| it.observed.unread = vec!["get secrets".to_owned()], "missing permissions: get secrets")]
#[case::identity(|it: &mut Runtime| it.observed.cluster = None, "cluster not verified: Namespace kube-system of the cluster has no UID")]
fn blockades(#[case] fault: fn(&mut Runtime), #[case] text: &str) {
    let mut runtime = Runtime::new();
    fault(&mut runtime);
    let plan = runtime.plan(&desired(&sources()));
    assert!(plan.is_empty());
    assert_eq!(status::chain(plan.blocked.as_ref().unwrap()), text);
    assert!(!plan.waits());
}

#[test]
fn a_refused_cluster_is_not_written_to() {
    let runtime = Runtime::new();
    let mut context = runtime.context();
    context.claim = Claim {
        claimed_by: Some("other"),
        ..Claim::default()
    };
    let plan = plan(context, &desired(&sources()), &runtime.observed);
    assert!(plan.is_empty());
    assert!(matches!(plan.blocked, Some(Blocked::Identity(_))));
}

/// Whatever is logged: no credential is in it.
#[test]
fn nothing_tells_a_credential() {
    let sources = Sources {
        pull_secret: secret("hunter2"),
        ..sources()
    };
    let desired = desired(&sources);
    let runtime = Runtime::converged(&desired);
    let plan = Runtime::new().plan(&desired);
    let text = format!("{sources:?} {desired:?} {plan:?} {:?}", runtime.observed);
    let stored = runtime.live(Kind::PullSecret).unwrap()["data"][".dockerconfigjson"].clone();
    assert!(!text.contains("hunter2") && !text.contains(stored.as_str().unwrap()));
    assert!(text.contains("apply /api/v1/namespaces/kyma-system/secrets/registry-credentials"));
}

/// Whoever writes these on the runtime must not keep its status from being written.
#[test]
fn what_a_runtime_says_of_itself_is_bounded_as_in_a_status() {
    let known = Sources {
        configuration: Reading::Unmanaged,
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
            plan.found.configuration,
            plan.content.configuration,
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
