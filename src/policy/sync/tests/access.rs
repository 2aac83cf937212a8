//! Objects of the configuration that cannot be read or written, and writes that are refused: the other objects are synchronized.

use api::bootstrapper::{CONFIGURATION_SYNCHRONIZED, ConditionStatus, INSTALLED, READY};
use api::kcp::{
    CONTENT_HASH, OWNER_CONTROL_PLANE, OWNER_INVENTORY, REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::api_server::Runtime;
use super::samples::{AT_ONCE, after, bundle, desired, document, secret, sources};
use crate::sync::desired::Desired;
use crate::sync::history::SourceHistory;
use crate::sync::observed::Inaccessible;
use crate::sync::plan::{Action, Blocked, Plan, SyncDeferred};
use crate::sync::sources::{SourceState, Sources};
use crate::sync::status::{Deferral, Goal, LaneOutcome, Outcome, conditions};
use crate::sync::{Lanes, SourceKind};

const SECRET: &str = "apply Secret/registry-credentials";
const TRUST: &str = "apply ClusterTrustBundle/landscape";
const DOCUMENT: &str = "apply ConfigMap/rt-bootstrapper-config";

/// How an object is inaccessible.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It may be read only.
    Unwritable,
    /// It must not be read.
    Forbidden,
    /// The API server fails to return it.
    FailedRead,
}

impl Fault {
    /// Makes the object inaccessible, and returns the cause.
    fn cause(self, kind: SourceKind, runtime: &mut Runtime) -> Blocked {
        let observed = &mut runtime.observed;
        let text = || "x".to_owned();
        let mut inaccessible = Inaccessible::default();
        let cause = match self {
            Self::Unwritable => {
                inaccessible.missing_permissions = vec![text()];
                Blocked::MissingPermissions(vec![text()])
            }
            Self::Forbidden => {
                inaccessible.unread = Some(text());
                Blocked::MissingPermissions(vec![text()])
            }
            Self::FailedRead => {
                inaccessible.failed_read = Some(text());
                Blocked::FailedReads(vec![text()])
            }
        };
        observed.inaccessible.insert(kind, inaccessible);
        if self != Self::Unwritable {
            match kind {
                SourceKind::PullSecret => observed.pull_secret = None,
                SourceKind::TrustBundle => {
                    (observed.trust_bundles, observed.trust_bundle) = (None, None);
                }
                SourceKind::Configuration => observed.configuration = None,
            }
        }
        cause
    }
}

/// Returns three sources with new content.
fn next() -> Sources {
    Sources {
        pull_secret: secret("two"),
        trust_bundle: bundle(2),
        configuration: document(r#","availableFeatures":[]"#),
        ..sources()
    }
}

/// Returns the desired state after the deletion of the pull Secret on KCP, and with other sources of `next`.
fn revoked(next: Sources) -> Desired {
    let mut known = SourceHistory::default();
    known.advance(&sources(), AT_ONCE);
    let now = Sources {
        pull_secret: SourceState::Absent,
        ..next
    };
    known.advance(&now, AT_ONCE);
    after(&now, &known)
}

fn annotation<'r>(runtime: &'r Runtime, kind: SourceKind, key: &str) -> Option<&'r str> {
    let live = runtime.live(kind)?;
    live["metadata"]["annotations"][key].as_str()
}

fn hash(desired: &Desired, kind: SourceKind) -> String {
    let mut fresh = Runtime::new();
    fresh.converge(desired);
    annotation(&fresh, kind, CONTENT_HASH).unwrap().to_owned()
}

/// The document is of the revision of the old bundle.
#[rstest]
fn beside_an_inaccessible_trust_bundle_the_secret_is_rotated_and_the_document_is_kept(
    #[values(Fault::Unwritable, Fault::Forbidden, Fault::FailedRead)] fault: Fault,
) {
    let (before, now) = (desired(&sources()), desired(&next()));
    let mut runtime = Runtime::converged(&before);
    let cause = fault.cause(SourceKind::TrustBundle, &mut runtime);
    let plan = runtime.plan(&now);
    let deferred = SyncDeferred::Inaccessible {
        kind: SourceKind::TrustBundle,
        is_unread: fault != Fault::Unwritable,
        cause,
    };
    assert_eq!(plan.deferred, [deferred]);
    assert_eq!(plan.hashes.revision, None);
    let unread: Vec<SourceKind> = plan.unread().collect();
    assert_eq!(unread.is_empty(), fault == Fault::Unwritable);
    runtime.carry_out(&plan);
    assert_eq!(runtime.log, [SECRET, DOCUMENT]);
    let document = |key| {
        annotation(&runtime, SourceKind::Configuration, key)
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        document(REQUIRES_PULL_SECRET),
        hash(&now, SourceKind::PullSecret)
    );
    assert_eq!(
        document(REQUIRES_TRUST_BUNDLE),
        hash(&before, SourceKind::TrustBundle)
    );
    assert_eq!(
        document(CONTENT_HASH),
        hash(&before, SourceKind::Configuration)
    );
    assert!(runtime.plan(&now).is_empty());
    runtime.carry_out(&runtime.plan(&revoked(next())));
    assert_eq!(runtime.live(SourceKind::PullSecret), None);
    assert_eq!(
        annotation(&runtime, SourceKind::Configuration, REQUIRES_PULL_SECRET),
        Some("none")
    );
}

/// A change of another object that waits does not hide the cause.
#[rstest]
#[case::missing_permission(Fault::Unwritable, "InsufficientPermissions", "missing permissions: x")]
#[case::failed_read(Fault::FailedRead, "APIServerError", "failed to read x")]
fn an_inaccessible_object_is_reported(
    #[case] fault: Fault,
    #[case] reason: &str,
    #[case] cause: &str,
    #[values(LaneOutcome::Applied, LaneOutcome::Deferred(Deferral::Rollout))] lane: LaneOutcome,
) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    fault.cause(SourceKind::TrustBundle, &mut runtime);
    let plan = runtime.plan(&desired(&next()));
    let outcome = Outcome {
        connection_error: None,
        plan: Some(&plan),
        goal: Goal::Sync,
        lanes: Lanes::both(lane),
        failures: Lanes::default(),
    };
    let found = conditions(&[], outcome, None, "2026-11-21T00:00:00Z");
    let found = |kind: &str| found.iter().find(|it| it.kind == kind).unwrap();
    let synchronized = found(CONFIGURATION_SYNCHRONIZED);
    assert_eq!(
        (&*synchronized.reason, &*found(READY).reason),
        (reason, reason)
    );
    let text = format!("ClusterTrustBundle not synchronized: {cause}");
    assert_eq!(synchronized.message, text);
    assert_eq!(found(INSTALLED).status, ConditionStatus::True);
}

/// A document that requires the same bundle as the live document does not wait for it.
#[test]
fn beside_an_inaccessible_trust_bundle_a_document_that_requires_the_same_is_written() {
    let mut runtime = Runtime::converged(&desired(&sources()));
    Fault::FailedRead.cause(SourceKind::TrustBundle, &mut runtime);
    let now = desired(&Sources {
        trust_bundle: bundle(1),
        ..next()
    });
    runtime.carry_out(&runtime.plan(&now));
    let written = annotation(&runtime, SourceKind::Configuration, CONTENT_HASH);
    assert_eq!(written, Some(&*hash(&now, SourceKind::Configuration)));
    assert!(runtime.plan(&now).is_empty());
}

/// The webhook is not ready without a document, and `none` would take a bundle away that exists.
#[rstest]
fn beside_an_inaccessible_trust_bundle_the_first_document_does_not_require_it(
    #[values(Fault::Unwritable, Fault::Forbidden, Fault::FailedRead)] fault: Fault,
) {
    let desired = desired(&sources());
    let mut runtime = Runtime::new();
    fault.cause(SourceKind::TrustBundle, &mut runtime);
    runtime.carry_out(&runtime.plan(&desired));
    let required = |runtime: &Runtime, key| {
        annotation(runtime, SourceKind::Configuration, key).map(str::to_owned)
    };
    assert_eq!(required(&runtime, REQUIRES_TRUST_BUNDLE), None);
    let secret = annotation(&runtime, SourceKind::PullSecret, CONTENT_HASH).map(str::to_owned);
    assert!(secret.is_some() && required(&runtime, REQUIRES_PULL_SECRET) == secret);
    assert!(runtime.plan(&desired).lanes.configuration.steps.is_empty());
    runtime.observed.inaccessible.clear();
    runtime.observed.trust_bundles = Some("v1beta1".to_owned());
    runtime.converge(&desired);
    let bundle = annotation(&runtime, SourceKind::TrustBundle, CONTENT_HASH).map(str::to_owned);
    assert_eq!(required(&runtime, REQUIRES_TRUST_BUNDLE), bundle);
}

/// Only the document depends on the Secret. A webhook that gets its first document without it would change images that Pods
/// cannot pull.
#[rstest]
fn beside_an_inaccessible_secret_the_bundle_is_written_and_the_document_waits(
    #[values(Fault::Unwritable, Fault::Forbidden, Fault::FailedRead)] fault: Fault,
    #[values(false, true)] is_new: bool,
) {
    let before = desired(&sources());
    let now = desired(&next());
    let mut runtime = if is_new {
        Runtime::new()
    } else {
        Runtime::converged(&before)
    };
    fault.cause(SourceKind::PullSecret, &mut runtime);
    runtime.carry_out(&runtime.plan(&now));
    assert!(runtime.log.iter().any(|it| it == TRUST));
    assert!(!runtime.log.iter().any(|it| it == SECRET));
    let required = |key| annotation(&runtime, SourceKind::Configuration, key);
    if is_new {
        assert_eq!(runtime.live(SourceKind::Configuration), None);
    } else {
        assert_eq!(
            required(REQUIRES_PULL_SECRET),
            Some(&*hash(&before, SourceKind::PullSecret))
        );
        assert_eq!(
            required(REQUIRES_TRUST_BUNDLE),
            Some(&*hash(&now, SourceKind::TrustBundle))
        );
        assert_eq!(
            required(CONTENT_HASH),
            Some(&*hash(&before, SourceKind::Configuration))
        );
    }
    assert!(runtime.plan(&now).lanes.configuration.steps.is_empty());
}

/// A Secret that must not be deleted is at least not used any more.
#[rstest]
#[case::new_document(next())]
#[case::kept_document(Sources { configuration: SourceState::Unmanaged, ..sources() })]
fn a_revoked_secret_that_cannot_be_deleted_is_not_required(#[case] next: Sources) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    Fault::Unwritable.cause(SourceKind::PullSecret, &mut runtime);
    runtime.carry_out(&runtime.plan(&revoked(next)));
    assert_eq!(
        annotation(&runtime, SourceKind::Configuration, REQUIRES_PULL_SECRET),
        Some("none")
    );
    assert!(runtime.live(SourceKind::PullSecret).is_some());
}

#[rstest]
fn beside_an_inaccessible_document_the_secret_is_rotated_and_revoked(
    #[values(Fault::Unwritable, Fault::Forbidden, Fault::FailedRead)] fault: Fault,
) {
    let now = desired(&next());
    let mut runtime = Runtime::converged(&desired(&sources()));
    fault.cause(SourceKind::Configuration, &mut runtime);
    runtime.carry_out(&runtime.plan(&now));
    assert_eq!(runtime.log, [SECRET, TRUST]);
    assert!(runtime.plan(&now).is_empty());
    let plan = runtime.plan(&revoked(sources()));
    assert_eq!(plan.revocations.len(), 1);
    runtime.carry_out(&plan);
    assert_eq!(runtime.live(SourceKind::PullSecret), None);
}

/// Returns the required hashes and the hash of the live document.
fn revision(runtime: &Runtime) -> [Option<String>; 3] {
    [REQUIRES_PULL_SECRET, REQUIRES_TRUST_BUNDLE, CONTENT_HASH]
        .map(|key| annotation(runtime, SourceKind::Configuration, key).map(str::to_owned))
}

fn fallback(plan: &Plan, done: impl Fn(&Action) -> bool) -> usize {
    let done: Vec<Action> = plan
        .steps()
        .flatten()
        .filter(|it| done(it))
        .cloned()
        .collect();
    plan.fallback_after(&done).len()
}

fn is(action: &Action, kind: &str) -> bool {
    action.target().kind() == kind
}

#[test]
fn a_refused_trust_bundle_does_not_keep_the_rotated_secret_away() {
    let (before, now) = (desired(&sources()), desired(&next()));
    let mut runtime = Runtime::converged(&before);
    let mut plan = runtime.plan(&now);
    assert_eq!(
        fallback(&plan, |it| is(it, "Secret")),
        1,
        "only the bundle was refused"
    );
    assert_eq!(
        fallback(&plan, |it| is(it, "ClusterTrustBundle")),
        0,
        "the Secret was refused"
    );
    assert_eq!(fallback(&plan, |_| false), 0, "both were refused");
    assert_eq!(
        fallback(&plan, |it| !is(it, "ConfigMap")),
        0,
        "the document was refused"
    );
    assert_eq!(fallback(&plan, |_| true), 0, "nothing was refused");
    let done = runtime.carry_out_without_bundle(&plan);
    assert_eq!(runtime.log, [SECRET, DOCUMENT]);
    let kept = [
        hash(&now, SourceKind::PullSecret),
        hash(&before, SourceKind::TrustBundle),
        hash(&before, SourceKind::Configuration),
    ];
    assert_eq!(revision(&runtime), kept.clone().map(Some));
    plan.record_applied(&done);
    let reported = SourceKind::ALL.map(|kind| kind.hash(&plan.hashes).unwrap().to_owned());
    assert_eq!(reported, kept);
    assert!(plan.writes_configuration && plan.hashes.revision.is_none());
    let again = runtime.plan(&now);
    assert!(!again.is_empty());
    assert_eq!(runtime.carry_out_without_bundle(&again), []);
    runtime.carry_out(&again);
    assert_eq!(
        revision(&runtime)[1].as_deref(),
        Some(&*hash(&now, SourceKind::TrustBundle))
    );
    assert!(runtime.plan(&now).is_empty());
}

/// The webhook would wait for the bundle, and keep the old Secret.
#[rstest]
#[case::refused(false)]
#[case::inaccessible(true)]
fn a_lost_trust_bundle_that_cannot_be_written_is_not_required(#[case] is_inaccessible: bool) {
    let now = desired(&next());
    let mut runtime = Runtime::converged(&desired(&sources()));
    runtime.observed.trust_bundle = None;
    if is_inaccessible {
        Fault::Unwritable.cause(SourceKind::TrustBundle, &mut runtime);
    }
    runtime.carry_out_without_bundle(&runtime.plan(&now));
    let [secret, bundle, _] = revision(&runtime);
    assert_eq!(
        (secret, bundle),
        (Some(hash(&now, SourceKind::PullSecret)), None)
    );
    assert_eq!(runtime.carry_out_without_bundle(&runtime.plan(&now)), []);
}

/// The ownership ConfigMap has an entry that is to be removed.
#[rstest]
#[case::recorded(|_: &mut Value| (), true)]
#[case::another_control_plane(|it: &mut Value| it["data"][OWNER_CONTROL_PLANE] = json!("x"), false)]
#[case::no_secret(|it: &mut Value| remove(it, "Secret"), false)]
#[case::no_bundle(|it: &mut Value| remove(it, "ClusterTrustBundle"), true)]
fn the_configuration_depends_on_the_ownership_config_map_unless_it_is_recorded(
    #[case] edit: fn(&mut Value),
    #[case] expected: bool,
) {
    let mut runtime = Runtime::converged(&desired(&sources()));
    let marker = runtime.observed.marker.as_mut().unwrap();
    let listed = marker["data"][OWNER_INVENTORY].as_str().unwrap();
    marker["data"][OWNER_INVENTORY] = format!("{listed}v1 Service kyma-system/gone\n").into();
    edit(marker);
    let uid = runtime.observed.cluster.clone();
    let mut context = runtime.context();
    context.record.accepted_uid = uid.as_deref();
    let next = desired(&Sources {
        pull_secret: secret("two"),
        ..sources()
    });
    let plan = crate::sync::plan::plan(context, &next, &runtime.observed);
    assert!(!plan.common.is_empty() && !plan.lanes.configuration.steps.is_empty());
    assert_eq!(plan.is_owner_recorded, expected);
    assert!(!Runtime::new().plan(&next).is_owner_recorded);
}

/// Removes the entries of a kind from the inventory.
fn remove(marker: &mut Value, kind: &str) {
    let listed = marker["data"][OWNER_INVENTORY].as_str().unwrap();
    let kept = listed
        .lines()
        .filter(|it| !it.contains(&format!(" {kind} ")));
    let kept: Vec<&str> = kept.collect();
    marker["data"][OWNER_INVENTORY] = kept.join("\n").into();
}
