//! What keeps a plan from being made, or from saying too much.

use api::runtimes::CONTENT_HASH;
use rstest::rstest;
use serde_json::json;

use super::api_server::Runtime;
use super::samples::{desired, document, manifests, secret, sources};
use crate::convergence::compatibility::{Running, TooOld, Version};
use crate::convergence::identity::Claim;
use crate::convergence::observed::NamespaceState;
use crate::convergence::plan::{Blocked, Held, plan};
use crate::convergence::sources::{Reading, Sources};
use crate::convergence::{Kind, status};

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
