//! What a server says of itself and of its namespaces.

use serde_json::json;

use super::{Call, OURS};

pub(super) fn namespaces() -> Vec<Call> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "labels": {"a": "b"}}});
    vec![
        Call::apply("a Namespace", "/api/v1/namespaces/new", OURS, &body),
        Call::apply("a Namespace again", "/api/v1/namespaces/new", OURS, &body),
        Call::new("kube-system", "GET", "/api/v1/namespaces/kube-system"),
        Call::new("an absent Namespace", "GET", "/api/v1/namespaces/absent"),
    ]
}

pub(super) fn discovery() -> Vec<Call> {
    let paths = [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/certificates.k8s.io",
        "/apis/certificates.k8s.io/v1beta1",
        "/apis/policy/v1",
        "/apis/absent.example",
        "/apis/absent.example/v1",
        "/apis/apps/v9",
        "/api/v1/absents",
        "/apis/apps/v1/namespaces/kyma-system/absents/x",
    ];
    let mut calls: Vec<Call> = paths.map(|path| Call::new(path, "GET", path)).into();
    let reviews = "/apis/authorization.k8s.io/v1";
    calls.push(Call::post(
        "a review of rules",
        &format!("{reviews}/selfsubjectrulesreviews"),
        &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "kyma-system"}}),
    ));
    calls.push(Call::post(
        "a review of one right",
        &format!("{reviews}/selfsubjectaccessreviews"),
        &json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "patch", "resource": "secrets"}}}),
    ));
    calls
}
