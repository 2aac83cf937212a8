use std::collections::BTreeSet;

use api::bootstrapper::{Condition, ConditionStatus};
use rstest::rstest;

use super::api_server::Runtime;
use super::samples::{desired, document, manifests, sources};
use crate::sync::identity::IdentityRecord;
use crate::sync::observed::NamespaceState;
use crate::sync::plan::{Plan, SyncDeferred, plan, plan_deletion};
use crate::sync::sources::{SourceError, SourceState, Sources};
use crate::sync::status::{
    ConnectionError, Deferral, Failure, Goal, LaneOutcome, Outcome, Reason, VariantArray as _,
    conditions,
};
use crate::sync::target::Target;
use crate::sync::{Hash, Lane, Lanes};

fn outcome(plan: &Plan) -> Outcome<'_> {
    Outcome {
        connection_error: None,
        plan: Some(plan),
        goal: Goal::Sync,
        lanes: Lanes::both(LaneOutcome::Applied),
        failures: Lanes::default(),
    }
}

fn brief(conditions: &[Condition]) -> Vec<String> {
    conditions
        .iter()
        .map(|it| format!("{}={:?}/{}", it.kind, it.status, it.reason))
        .collect()
}

fn after(outcome: Outcome<'_>) -> Vec<String> {
    brief(&conditions(&[], outcome, Some(1), "now"))
}

fn held(sources: &Sources) -> Plan {
    let mut runtime = Runtime::new();
    let desired = desired(sources);
    runtime.converge(&desired);
    runtime.plan(&desired)
}

#[test]
fn all_is_well() {
    let plan = held(&sources());
    assert_eq!(
        after(outcome(&plan)),
        [
            "Reachable=True/Connected",
            "IdentityVerified=True/Verified",
            "Installed=True/Installed",
            "ConfigurationSynchronized=True/Synchronized",
            "Ready=True/Ready"
        ]
    );
}

#[test]
fn a_first_pass_installs() {
    let plan = Runtime::new().plan(&desired(&sources()));
    assert_eq!(
        after(outcome(&plan)),
        [
            "Reachable=True/Connected",
            "IdentityVerified=True/Verified",
            "Installed=False/Installing",
            "ConfigurationSynchronized=True/Synchronized",
            "Ready=False/Installing"
        ]
    );
}

#[test]
fn a_webhook_that_the_api_server_cannot_call_is_not_installed() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let configuration = Target::of(&manifests("0.1.0")[4]).unwrap();
    let installed = runtime.observed.installed.as_mut().unwrap();
    let live = installed.get_mut(&configuration).unwrap();
    live["webhooks"][0]["clientConfig"]["caBundle"].take();
    let plan = runtime.plan(&desired);
    assert!(plan.is_empty());
    let conditions = conditions(&[], outcome(&plan), Some(1), "now");
    assert_eq!(brief(&conditions)[2], "Installed=False/Installing");
    assert_eq!(
        conditions[2].message,
        "MutatingWebhookConfiguration webhook-configuration has no caBundle, which the webhook writes: no Pod is sent to it"
    );
}

#[rstest]
#[case(ConnectionError::RuntimeNotFound("x".into()), "RuntimeNotFound")]
#[case(ConnectionError::KubeconfigNotFound("x".into()), "KubeconfigNotFound")]
#[case(ConnectionError::InvalidKubeconfig("x".into()), "InvalidKubeconfig")]
#[case(ConnectionError::ConnectionFailed("x".into()), "ConnectionFailed")]
#[case(ConnectionError::Timeout("x".into()), "Timeout")]
#[case(ConnectionError::TLSHandshakeFailed("x".into()), "TLSHandshakeFailed")]
#[case(ConnectionError::Unauthorized, "Unauthorized")]
#[case(ConnectionError::APIServerError("x".into()), "APIServerError")]
#[case(ConnectionError::RuntimeIDMissing, "RuntimeIDMissing")]
#[case(ConnectionError::RuntimeIDConflict("x".into()), "RuntimeIDConflict")]
fn unreachable_runtimes(#[case] unreached: ConnectionError, #[case] reason: &str) {
    let outcome = Outcome {
        connection_error: Some(&unreached),
        plan: None,
        goal: Goal::Sync,
        lanes: Lanes::both(LaneOutcome::Applied),
        failures: Lanes::default(),
    };
    assert_eq!(
        after(outcome),
        [
            format!("Reachable=False/{reason}"),
            "IdentityVerified=Unknown/Unreachable".to_owned(),
            "Installed=Unknown/Unreachable".to_owned(),
            "ConfigurationSynchronized=Unknown/Unreachable".to_owned(),
            format!("Ready=False/{reason}"),
        ]
    );
}

#[test]
fn a_refused_cluster() {
    let runtime = Runtime::new();
    let mut context = runtime.context();
    context.record = IdentityRecord {
        recorded_uid: Some("another"),
        ..IdentityRecord::default()
    };
    let plan = plan(context, &desired(&sources()), &runtime.observed);
    assert_eq!(
        after(outcome(&plan)),
        [
            "Reachable=True/Connected",
            "IdentityVerified=False/ClusterUIDChanged",
            "Installed=Unknown/ClusterUIDChanged",
            "ConfigurationSynchronized=Unknown/ClusterUIDChanged",
            "Ready=False/ClusterUIDChanged"
        ]
    );
}

#[test]
fn a_failed_preflight() {
    let mut runtime = Runtime::new();
    runtime.observed.namespace = NamespaceState::Terminating;
    let plan = runtime.plan(&desired(&sources()));
    assert_eq!(
        after(outcome(&plan)),
        [
            "Reachable=True/Connected",
            "IdentityVerified=True/Verified",
            "Installed=False/NamespaceTerminating",
            "ConfigurationSynchronized=False/NamespaceTerminating",
            "Ready=False/NamespaceTerminating"
        ]
    );
}

/// An invalid source is never synchronized, and a condition contains the cause.
#[test]
fn an_invalid_source() {
    let plan = held(&Sources {
        pull_secret: SourceState::of(Some(Err(SourceError::Type("Opaque".into())))),
        ..sources()
    });
    let conditions = conditions(&[], outcome(&plan), None, "now");
    assert_eq!(
        brief(&conditions)[3],
        "ConfigurationSynchronized=False/InvalidSource"
    );
    assert_eq!(
        conditions[3].message,
        "invalid source pullSecret: type: expected kubernetes.io/dockerconfigjson, got Opaque"
    );
}

#[test]
fn source_that_was_never_there_is_not_synchronized() {
    let plan = held(&Sources {
        configuration: SourceState::Absent,
        ..sources()
    });
    let conditions = conditions(&[], outcome(&plan), None, "now");
    assert_eq!(
        brief(&conditions)[3],
        "ConfigurationSynchronized=False/SourceNotFound"
    );
    let message = &conditions[3].message;
    assert!(
        message.starts_with("ConfigMap kcp-system/rt-bootstrapper-config not found"),
        "{message}"
    );
}

/// The most urgent cause determines the reason, and the message contains all causes.
#[test]
fn all_invalid_sources_are_reported() {
    let mut plan = held(&Sources {
        pull_secret: SourceState::of(Some(Err(SourceError::Type("Opaque".into())))),
        ..sources()
    });
    plan.deferred.push(SyncDeferred::DeletionPending {
        object: "ClusterTrustBundle roots".to_owned(),
        hash: Hash::UNKNOWN,
        at: jiff::Timestamp::UNIX_EPOCH,
    });
    let conditions = conditions(&[], outcome(&plan), None, "now");
    assert_eq!(
        brief(&conditions)[3],
        "ConfigurationSynchronized=False/DeletionPending"
    );
    assert_eq!(
        conditions[3].message,
        "ClusterTrustBundle roots was deleted on KCP: its copy on the runtime is deleted at 1970-01-01T00:00:00Z, unless the \
source is created again before; invalid source pullSecret: type: expected kubernetes.io/dockerconfigjson, got Opaque"
    );
}

/// A condition reports that the webhook is too old for a document.
#[test]
fn a_webhook_that_is_too_old() {
    let mut runtime = Runtime::converged(&desired(&sources()));
    // A Deployment of this project has the annotation, a Deployment of KIM does not.
    let live = runtime.observed.deployment.as_mut().unwrap();
    let metadata = live["metadata"].as_object_mut().unwrap();
    metadata.remove("annotations");
    let plan = runtime.plan(&desired(&Sources {
        configuration: document(r#","fipsVariables":["X"]"#),
        ..sources()
    }));
    let conditions = conditions(&[], outcome(&plan), None, "now");
    assert_eq!(
        brief(&conditions)[3],
        "ConfigurationSynchronized=False/IncompatibleWebhookVersion"
    );
    let text = &conditions[3].message;
    assert!(
        text.contains("key fipsVariables requires webhook version 0.1.0"),
        "{text}"
    );
}

/// A Secret in the manifests would belong to the webhook: the lane determines the condition, not the kind.
#[rstest]
#[case::configuration(
    Lane::Configuration,
    "Installed=False/Installing",
    "ConfigurationSynchronized=False/ApplyFailed",
    "Ready=False/Installing"
)]
#[case::webhook(
    Lane::Webhook,
    "Installed=False/ApplyFailed",
    "ConfigurationSynchronized=True/Synchronized",
    "Ready=False/ApplyFailed"
)]
fn a_failed_write(
    #[case] lane: Lane,
    #[case] installed: &str,
    #[case] synchronized: &str,
    #[case] ready: &str,
) {
    let plan = Runtime::new().plan(&desired(&sources()));
    let failure = Failure {
        target: Target::secret("n", "s"),
        message: "quota exceeded".to_owned(),
    };
    let mut failures = Lanes::default();
    *failures.get_mut(lane) = Some(&failure);
    let found = after(Outcome {
        failures,
        ..outcome(&plan)
    });
    assert_eq!(found[2..], [installed, synchronized, ready]);
}

#[rstest]
#[case::configuration(
    Lane::Configuration,
    "Installed=False/Installing",
    "ConfigurationSynchronized=False/InsufficientPermissions"
)]
#[case::webhook(
    Lane::Webhook,
    "Installed=False/InsufficientPermissions",
    "ConfigurationSynchronized=True/Synchronized"
)]
fn a_missing_permission(#[case] lane: Lane, #[case] installed: &str, #[case] synchronized: &str) {
    let mut runtime = Runtime::new();
    let rights = runtime.observed.missing_permissions.get_mut(lane);
    *rights = vec!["patch x".to_owned()];
    let plan = runtime.plan(&desired(&sources()));
    let found = after(outcome(&plan));
    assert_eq!(found[2..4], [installed, synchronized]);
}

#[rstest]
#[case(Deferral::Paused, "Paused")]
#[case(Deferral::Rollout, "RolloutPending")]
fn what_is_deferred(#[case] deferral: Deferral, #[case] reason: &str) {
    let plan = Runtime::new().plan(&desired(&sources()));
    let found = after(Outcome {
        lanes: Lanes::both(LaneOutcome::Deferred(deferral)),
        ..outcome(&plan)
    });
    assert_eq!(
        found[2..4],
        [
            format!("Installed=False/{reason}"),
            format!("ConfigurationSynchronized=False/{reason}")
        ]
    );
    let done = held(&sources());
    assert_eq!(
        after(Outcome {
            lanes: Lanes::both(LaneOutcome::Deferred(deferral)),
            ..outcome(&done)
        })[4],
        "Ready=True/Ready",
        "nothing is withheld"
    );
}

#[test]
fn leaving() {
    let runtime = Runtime::converged(&desired(&sources()));
    let plan = plan_deletion(runtime.context(), &runtime.observed);
    let found = after(Outcome {
        goal: Goal::Delete,
        ..outcome(&plan)
    });
    assert_eq!(found[4], "Ready=False/Uninstalling");
}

/// A reconcile without a change does not change the conditions, including their times.
#[test]
fn a_pass_without_news_changes_nothing() {
    let plan = held(&sources());
    let first = conditions(&[], outcome(&plan), Some(1), "t1");
    assert_eq!(conditions(&first, outcome(&plan), Some(1), "t2"), first);
    let unreached = ConnectionError::Timeout("no response within 10s".into());
    let lost = Outcome {
        connection_error: Some(&unreached),
        plan: None,
        ..outcome(&plan)
    };
    let second = conditions(&first, lost, Some(1), "t3");
    assert!(
        second
            .iter()
            .all(|it| it.last_transition_time == "t3" && it.status != ConditionStatus::True)
    );
    let unreached = ConnectionError::Unauthorized;
    let other = Outcome {
        connection_error: Some(&unreached),
        ..lost
    };
    let third = conditions(&second, other, Some(2), "t4");
    assert_eq!(third[0].reason, "Unauthorized");
    assert_eq!(
        third[0].last_transition_time, "t3",
        "the status is the same, the reason is another"
    );
    assert_eq!(third[0].observed_generation, Some(2));
}

/// A reconcile of only the configuration keeps the condition of the installation.
#[test]
fn what_was_not_looked_at_is_as_it_was() {
    let desired = desired(&sources());
    let mut runtime = Runtime::converged(&desired);
    let before = conditions(&[], outcome(&runtime.plan(&desired)), None, "t1");
    runtime.observed.installed = None;
    let plan = runtime.plan(&desired);
    assert_eq!(conditions(&before, outcome(&plan), None, "t2"), before);
    assert_eq!(
        after(outcome(&plan)).last().unwrap(),
        "Ready=Unknown/Pending"
    );
}

/// `kubectl get` shows only the reason of `Ready`, and `kubectl wait` and users read its message: both contain the cause.
#[test]
fn every_condition_that_is_not_true_has_a_message_and_ready_repeats_the_first() {
    let unreached = ConnectionError::RuntimeNotFound("kcp-system/a".to_owned());
    let plan = Runtime::new().plan(&desired(&sources()));
    let lost = Outcome {
        connection_error: Some(&unreached),
        plan: None,
        ..outcome(&plan)
    };
    let paused = Outcome {
        lanes: Lanes::both(LaneOutcome::Deferred(Deferral::Paused)),
        ..outcome(&plan)
    };
    let waiting = Outcome {
        lanes: Lanes::both(LaneOutcome::Deferred(Deferral::Rollout)),
        ..outcome(&plan)
    };
    let expected = [
        (lost, "Reachable: Runtime kcp-system/a not found"),
        (paused, "Installed: spec.paused is true"),
        (
            waiting,
            "Installed: an earlier step is not complete, or the rollout is paused or over its failure limit",
        ),
        (outcome(&plan), "Installed: 0 of 0 replicas are ready"),
    ];
    for (outcome, message) in expected {
        let conditions = conditions(&[], outcome, None, "now");
        assert_eq!(conditions[4].message, message);
        let lacking = conditions
            .iter()
            .find(|it| it.status != ConditionStatus::True && it.message.is_empty());
        assert_eq!(lacking, None);
    }
}

#[test]
fn messages_are_bounded() {
    let failure = Failure {
        target: Target::secret("n", "s"),
        message: "é".repeat(5000),
    };
    let plan = Runtime::new().plan(&desired(&sources()));
    let found = conditions(
        &[],
        Outcome {
            failures: Lanes::both(Some(&failure)),
            ..outcome(&plan)
        },
        None,
        "t",
    );
    assert!(found[3].message.len() <= 1024 && found[3].message.ends_with('…'));
}

#[test]
fn reasons_are_distinct_words() {
    let names: BTreeSet<&str> = Reason::VARIANTS.iter().map(|it| it.name()).collect();
    assert_eq!(names.len(), Reason::VARIANTS.len());
    assert!(names.iter().all(|it| it.len() <= 64
        && it.starts_with(char::is_uppercase)
        && it.chars().all(char::is_alphanumeric)));
}
