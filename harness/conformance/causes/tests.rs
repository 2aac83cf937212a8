use rstest::rstest;

use super::*;

fn ours(others: &[&str]) -> Webhooks {
    let others = others.iter().map(|it| (*it).to_owned()).collect();
    Webhooks { ours: true, others }
}

/// Returns data without a Pod and warnings, for a workload in this namespace.
fn seen<'a>(namespace: &'a Namespace, webhooks: &'a Webhooks) -> Seen<'a> {
    Seen {
        kubectl: "kubectl --kubeconfig k",
        manifest: "m",
        namespace,
        pod: None,
        warnings: &[],
        webhooks,
    }
}

fn changed(is_changed: bool) -> Value {
    let value = is_changed.then_some("true");
    json!({"metadata": {"annotations": {(names::MARKER): value}}})
}

#[rstest]
#[case::nothing_registered(Webhooks::default(), false, "no webhook is registered")]
#[case::not_asked(ours(&[]), false, "was not reached")]
#[case::decided_otherwise(ours(&[]), true, "decided otherwise")]
#[case::another_webhook(ours(&["mesh"]), true, "another one that gets Pods as well: [\"mesh\"]")]
#[case::another_implementation(Webhooks { ours: false, others: vec!["x".to_owned()] }, false, "made this change: [\"x\"]")]
fn difference_has_a_likely_cause(
    #[case] webhooks: Webhooks,
    #[case] is_changed: bool,
    #[case] said: &str,
) {
    let pod = changed(is_changed);
    let plain = Namespace::default();
    let seen = Seen {
        pod: Some(&pod),
        ..seen(&plain, &webhooks)
    };
    let (cause, next) = of_difference(&seen, &["spec.containers[0].image: …".to_owned()]);
    assert!(cause.contains(said), "{cause}");
    assert!(next.starts_with("kubectl --kubeconfig k "), "{next}");
}

#[rstest]
#[case::credentials(
    "ErrImagePull",
    "failed to authorize: 401 Unauthorized",
    "rejects the credentials"
)]
#[case::absent("ImagePullBackOff", "x: not found", "does not have this image")]
#[case::away(
    "ErrImagePull",
    "dial tcp: lookup r: no such host",
    "cannot reach the registry"
)]
#[case::untrusted("ErrImagePull", "tls: x509: unknown authority", "does not trust")]
#[case::crash("CrashLoopBackOff", "back-off", "cannot be started")]
fn waiting_container_has_a_likely_cause(
    #[case] reason: &str,
    #[case] message: &str,
    #[case] said: &str,
) {
    let waiting = json!({"reason": reason, "message": message});
    let status = json!({"image": "r.test/a:1", "state": {"waiting": waiting}});
    let pod = json!({
        "spec": {"imagePullSecrets": [{"name": "s"}]}, "status": {"containerStatuses": [status]},
    });
    let (plain, webhooks) = (Namespace::default(), ours(&[]));
    let seen = Seen {
        pod: Some(&pod),
        ..seen(&plain, &webhooks)
    };
    let (cause, next) = of_no_run(&seen);
    assert!(cause.contains(said), "{cause}");
    let pulls = next.contains(
        "--image=r.test/a:1 --overrides='{\"spec\":{\"imagePullSecrets\":[{\"name\":\"s\"}]}}'",
    );
    assert_eq!(pulls, reason.contains("Image"), "{next}");
}

#[rstest]
#[case::ours(names::WEBHOOK_CONFIGURATION, "pods", "CREATE", Webhooks { ours: true, others: vec![] })]
#[case::wildcard("w", "*", "*", Webhooks { ours: false, others: vec!["w".to_owned()] })]
#[case::updates_only("w", "pods", "UPDATE", Webhooks::default())]
#[case::another_kind("w", "nodes", "CREATE", Webhooks::default())]
fn webhooks_that_get_pods_are_found(
    #[case] name: &str,
    #[case] resource: &str,
    #[case] operation: &str,
    #[case] expected: Webhooks,
) {
    let rule = json!({"apiGroups": [""], "operations": [operation], "resources": [resource]});
    let object = json!({"metadata": {"name": name}, "webhooks": [{"rules": [rule]}]});
    assert_eq!(Webhooks::of(&[object]), expected);
}

#[rstest]
#[case::crash(true, Some("CrashLoopBackOff"), &[], "cannot be started (CrashLoopBackOff)", "describe pods")]
#[case::rejected(false, None, &["FailedCreate: exceeded quota"], "rejects the Pods", EVENTS)]
#[case::unknown(true, None, &[], "not known", EVENTS)]
fn workload_that_does_not_run_is_made_again_in_a_namespace_like_that_of_the_run(
    #[case] has_pod: bool,
    #[case] reason: Option<&str>,
    #[case] warnings: &[&str],
    #[case] said: &str,
    #[case] look: &str,
) {
    let status = json!({"state": {"waiting": {"reason": reason}}});
    let pod = json!({"status": {"containerStatuses": [status]}});
    let texts = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let namespace = Namespace {
        labels: texts("a", "b"),
        annotations: texts("c", "it's"),
    };
    let warnings: Vec<String> = warnings.iter().map(|it| (*it).to_owned()).collect();
    let webhooks = ours(&[]);
    let seen = Seen {
        pod: has_pod.then_some(&pod),
        warnings: &warnings,
        ..seen(&namespace, &webhooks)
    };
    let (cause, next) = of_no_run(&seen);
    assert!(cause.contains(said), "{cause}");
    let commands: Vec<&str> = next.split(" && ").collect();
    let last = format!("kubectl --kubeconfig k -n conformance-again {look}");
    let expected = [
        "kubectl --kubeconfig k delete namespace conformance-again --ignore-not-found",
        "kubectl --kubeconfig k create namespace conformance-again",
        "kubectl --kubeconfig k label namespace conformance-again 'a=b' 'rt-bootstrapper.kyma-project.io/conformance-run=again'",
        r"kubectl --kubeconfig k annotate namespace conformance-again 'c=it'\''s'",
        "kubectl --kubeconfig k -n conformance-again apply -f m",
        "sleep 30",
        &last,
    ];
    assert_eq!(commands, expected);
}
