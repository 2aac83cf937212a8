//! Missing and invalid sources: the objects that are synchronized, and the objects that are deferred.

use api::kcp::{CONTENT_HASH, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE};
use rstest::rstest;
use serde_json::json;

use super::api_server::Runtime;
use super::samples::{
    AT_ONCE, NOT_YET, after, bundle, desired, document, secret, sources, unreadable,
};
use crate::sync::SourceKind;
use crate::sync::desired::Desired;
use crate::sync::history::SourceHistory;
use crate::sync::sources::{SourceState, Sources};

const SECRET: &str = "apply Secret/registry-credentials";
const TRUST: &str = "apply ClusterTrustBundle/landscape";
const DOCUMENT: &str = "apply ConfigMap/rt-bootstrapper-config";

/// A change writes one object of the configuration, and the document that requires it.
#[rstest]
#[case::secret(Sources { pull_secret: secret("two"), ..sources() }, &[SECRET, DOCUMENT])]
#[case::bundle(Sources { trust_bundle: bundle(2), ..sources() }, &[TRUST, DOCUMENT])]
#[case::document(Sources { configuration: document(r#","availableFeatures":[]"#), ..sources() }, &[DOCUMENT])]
#[case::two(Sources { pull_secret: secret("two"), trust_bundle: bundle(2), ..sources() }, &[SECRET, TRUST, DOCUMENT])]
#[case::deleted(Sources { trust_bundle: SourceState::Absent, ..sources() }, &[DOCUMENT, "delete ClusterTrustBundle/landscape"])]
#[case::invalid(Sources { pull_secret: unreadable(), ..sources() }, &[])]
fn one_change(#[case] now: Sources, #[case] writes: &[&str]) {
    let mut known = SourceHistory::default();
    known.advance(&sources(), AT_ONCE);
    let mut runtime = Runtime::converged(&after(&sources(), &known));
    known.advance(&now, AT_ONCE);
    let desired = after(&now, &known);
    runtime.carry_out(&runtime.plan(&desired));
    assert_eq!(runtime.log, writes);
    assert!(runtime.plan(&desired).is_empty());
}

/// Returns the desired state while one source is missing that existed before.
fn missing(kind: SourceKind) -> Desired {
    let mut known = SourceHistory::default();
    known.advance(&sources(), NOT_YET);
    let mut now = sources();
    match kind {
        SourceKind::PullSecret => now.pull_secret = SourceState::Absent,
        SourceKind::TrustBundle => now.trust_bundle = SourceState::Absent,
        SourceKind::Configuration => now.configuration = SourceState::Absent,
    }
    known.advance(&now, NOT_YET);
    after(&now, &known)
}

#[rstest]
fn missing_source_changes_nothing_on_a_runtime_before_it_is_deleted(
    #[values(
        SourceKind::PullSecret,
        SourceKind::TrustBundle,
        SourceKind::Configuration
    )]
    kind: SourceKind,
) {
    let before = desired(&sources());
    let runtime = Runtime::converged(&before);
    let plan = runtime.plan(&missing(kind));
    assert!(plan.is_empty(), "{plan:?}");
    assert_eq!(
        plan.hashes.revision,
        before.complete_revision.map(|it| it.to_string())
    );
    let held: Vec<String> = plan.deferred.iter().map(ToString::to_string).collect();
    let object = match kind {
        SourceKind::PullSecret => "Secret kcp-system/pull",
        SourceKind::TrustBundle => "ClusterTrustBundle roots",
        SourceKind::Configuration => "ConfigMap kcp-system/rt-bootstrapper-config",
    };
    let text = format!(
        "{object} was deleted on KCP: its copy on the runtime is deleted at 1970-01-01T00:05:00Z, unless the \
source is created again before"
    );
    assert_eq!(held, [text]);
}

/// Existing objects are not changed. The message contains the missing source with its configured name.
#[rstest]
#[case::pull_secret(
    Sources { pull_secret: SourceState::Absent, ..sources() },
    "Secret kcp-system/pull not found on KCP: an existing copy on the runtime is not changed"
)]
#[case::trust_bundle(
    Sources { trust_bundle: SourceState::Absent, ..sources() },
    "ClusterTrustBundle roots not found on KCP: an existing copy on the runtime is not changed"
)]
#[case::configuration(
    Sources { configuration: SourceState::Absent, ..sources() },
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
            SourceState::Absent => SourceState::Absent,
            _ => bundle(2),
        },
        pull_secret: match now.pull_secret {
            SourceState::Absent => SourceState::Absent,
            _ => secret("two"),
        },
        ..now
    };
    let plan = runtime.plan(&desired(&rotated));
    let held: Vec<String> = plan.deferred.iter().map(ToString::to_string).collect();
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

/// The webhook would wait for an object that the document requires.
#[rstest]
#[case::pull_secret(SourceKind::PullSecret, REQUIRES_PULL_SECRET)]
#[case::trust_bundle(SourceKind::TrustBundle, REQUIRES_TRUST_BUNDLE)]
fn runtime_that_never_had_a_missing_source_is_not_required_to_have_it(
    #[case] kind: SourceKind,
    #[case] requires: &str,
) {
    let mut runtime = Runtime::new();
    let desired = missing(kind);
    runtime.converge(&desired);
    let document = runtime.live(SourceKind::Configuration).unwrap();
    assert_eq!(document["metadata"]["annotations"][requires], json!(null));
    assert_eq!(runtime.plan(&desired).hashes.revision, None);
}

/// Objects are synchronized although their document is deferred. Without updated requirements in the live document,
/// the webhook would wait for the previous objects, and keep the old credentials.
#[rstest]
#[case::invalid(broken(), &[SECRET, DOCUMENT])]
#[case::another_part_is_invalid(Sources { trust_bundle: unreadable(), ..next() }, &[SECRET, DOCUMENT])]
#[case::too_old(Sources { configuration: document(r#","fipsVariables":["X"]"#), ..next() }, &[SECRET, DOCUMENT])]
#[case::deleted(Sources { pull_secret: SourceState::Absent, ..broken() }, &[DOCUMENT, "delete Secret/registry-credentials"])]
#[case::bundle(Sources { pull_secret: secret("one"), trust_bundle: bundle(2), ..broken() }, &[TRUST, DOCUMENT])]
#[case::nothing_changed(Sources { pull_secret: secret("one"), ..broken() }, &[])]
#[case::part_invalid_too(Sources { pull_secret: unreadable(), ..broken() }, &[])]
fn a_document_that_is_held_back_requires_what_goes_over(
    #[case] now: Sources,
    #[case] writes: &[&str],
) {
    let mut known = SourceHistory::default();
    known.advance(&sources(), AT_ONCE);
    let mut runtime = Runtime::converged(&after(&sources(), &known));
    // During an incomplete rollout, the webhook is not treated as a webhook of this project.
    runtime.hang();
    let before = runtime.live(SourceKind::Configuration).unwrap().clone();
    known.advance(&now, AT_ONCE);
    let desired = after(&now, &known);
    let plan = runtime.plan(&desired);
    assert_eq!(plan.hashes.revision, None);
    assert_eq!(plan.writes_configuration, !writes.is_empty());
    runtime.carry_out(&plan);
    assert_eq!(runtime.log, writes);
    assert!(runtime.plan(&desired).is_empty());

    let live = runtime.live(SourceKind::Configuration).unwrap();
    let hash = |object: &serde_json::Value| object["metadata"]["annotations"][CONTENT_HASH].clone();
    assert_eq!(live["data"], before["data"]);
    assert_eq!(hash(live), hash(&before));
    let parts = [
        (REQUIRES_PULL_SECRET, SourceKind::PullSecret),
        (REQUIRES_TRUST_BUNDLE, SourceKind::TrustBundle),
    ];
    for (key, part) in parts {
        let held = runtime.live(part).map_or("none".into(), hash);
        assert_eq!(live["metadata"]["annotations"][key], held, "{key}");
    }
    runtime.roll_out();
    runtime.converge(&after(&sources(), &known));
}

/// Returns sources with an invalid document and a rotated pull Secret.
fn broken() -> Sources {
    Sources {
        configuration: unreadable(),
        ..next()
    }
}

/// Returns sources with a rotated pull Secret.
fn next() -> Sources {
    Sources {
        pull_secret: secret("two"),
        ..sources()
    }
}

/// A reconcile ended between the writes of the object and the document, and the source of the object became invalid.
#[test]
fn a_document_that_is_held_back_requires_what_is_there() {
    let mut known = SourceHistory::default();
    known.advance(&sources(), AT_ONCE);
    let mut runtime = Runtime::converged(&after(&sources(), &known));
    let rotated = runtime.plan(&after(&next(), &known));
    runtime.apply_action(&rotated.lanes.configuration.steps[0][0]);
    assert_eq!(runtime.log, [SECRET]);
    let broken = Sources {
        pull_secret: unreadable(),
        ..sources()
    };
    runtime.carry_out(&runtime.plan(&after(&broken, &known)));
    assert_eq!(runtime.log, [SECRET, DOCUMENT]);
}

/// A document of another owner, or without requirements, is not updated: the webhook uses its objects in any revision.
#[rstest]
#[case::of_the_installer(true)]
#[case::of_another_client(false)]
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
    let before = runtime.live(SourceKind::Configuration).cloned();
    runtime.converge(&desired(&broken()));
    assert_eq!(runtime.live(SourceKind::Configuration).cloned(), before);
}

/// The names in the live document are relevant, not the names in a document that is deferred.
#[test]
fn a_live_document_that_names_another_secret_does_not_come_to_wait_for_ours() {
    let named = Sources {
        configuration: document(r#","imagePullSecret":{"name":"registry-credentials"}"#),
        ..sources()
    };
    let mut known = SourceHistory::default();
    known.advance(&named, AT_ONCE);
    let mut runtime = Runtime::converged(&after(&named, &known));
    runtime.names.pull_secret = Some("renamed".to_owned());
    runtime.observed.pull_secret = None;
    let now = Desired::new(&broken(), &known, &runtime.names);
    runtime.carry_out(&runtime.plan(&now));
    assert_eq!(
        runtime.log,
        [
            "apply ConfigMap/rt-bootstrapper-owner",
            "apply Secret/renamed"
        ]
    );
}
