use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn settings() -> CertificateSettings {
    CertificateSettings {
        namespace: "istio-system".to_owned(),
        issuer: "klm-watcher-selfsigned".to_owned(),
        algorithm: KeyAlgorithm::EcdsaP256,
        duration: 5_184_000,
        renew_before: 2_592_000,
        skr_namespace: "kyma-system".to_owned(),
    }
}

fn kyma() -> Kyma {
    Kyma {
        namespace: "kcp-system".to_owned(),
        name: "k1".to_owned(),
        runtime_id: Some("4f8e1b7c".to_owned()),
        domain: Some("c-1.kyma.example".to_owned()),
    }
}

#[test]
fn the_certificate_of_a_runtime_is_for_both_roles() {
    let expected = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {
            "name": "k1-webhook-tls", "namespace": "istio-system",
            "labels": {
                "operator.kyma-project.io/purpose": "klm-watcher-cert-manager",
                "operator.kyma-project.io/managed-by": "rt-bootstrapper-controller",
            },
            "annotations": {"rt-bootstrapper.kyma-project.io/kyma-namespace": "kcp-system"},
        },
        "spec": {
            "commonName": "4f8e1b7c",
            "dnsNames": [
                "c-1.kyma.example",
                "skr-webhook.kyma-system.svc.cluster.local",
                "skr-webhook.kyma-system.svc",
            ],
            "duration": "5184000s",
            "renewBefore": "2592000s",
            "usages": ["digital signature", "client auth", "server auth"],
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "secretName": "k1-webhook-tls",
            "secretTemplate": {
                "labels": {
                    "operator.kyma-project.io/purpose": "klm-watcher-cert-manager",
                    "operator.kyma-project.io/managed-by": "rt-bootstrapper-controller",
                },
                "annotations": {"rt-bootstrapper.kyma-project.io/kyma-namespace": "kcp-system"},
            },
            "issuerRef": {"name": "klm-watcher-selfsigned", "kind": "Issuer", "group": "cert-manager.io"},
        },
    });
    assert_eq!(runtime_certificate(&kyma(), &settings()), Ok(expected));
}

#[test]
fn keys_can_be_those_of_the_public_project() {
    let settings = CertificateSettings {
        algorithm: KeyAlgorithm::Rsa4096,
        ..settings()
    };
    let certificate = runtime_certificate(&kyma(), &settings).unwrap();
    let expected = json!({"algorithm": "RSA", "size": 4096, "rotationPolicy": "Always"});
    assert_eq!(certificate["spec"]["privateKey"], expected);
}

#[rstest]
#[case::no_id(None, Some("a.example"), "RuntimeIDMissing")]
#[case::empty_id(Some(""), Some("a.example"), "RuntimeIDMissing")]
#[case::long_id(
    Some("0123456789012345678901234567890123456789012345678901234567890123x"),
    Some("a.example"),
    "InvalidRuntimeID"
)]
#[case::no_domain(Some("id"), None, "SKRDomainMissing")]
#[case::empty_domain(Some("id"), Some(""), "SKRDomainMissing")]
#[case::wildcard(Some("id"), Some("*.example"), "InvalidSKRDomain")]
#[case::space(Some("id"), Some("a b"), "InvalidSKRDomain")]
#[case::url(Some("id"), Some("https://a.example"), "InvalidSKRDomain")]
#[case::upper_case(Some("id"), Some("A.example"), "InvalidSKRDomain")]
#[case::dots(Some("id"), Some("a..example"), "InvalidSKRDomain")]
fn a_kyma_that_lacks_something_gets_no_certificate(
    #[case] runtime_id: Option<&str>,
    #[case] domain: Option<&str>,
    #[case] reason: &str,
) {
    let kyma = Kyma {
        runtime_id: runtime_id.map(str::to_owned),
        domain: domain.map(str::to_owned),
        ..kyma()
    };
    let error = runtime_certificate(&kyma, &settings()).unwrap_err();
    assert_eq!(error.reason(), reason);
}

#[test]
fn the_certificate_of_the_gateway_has_all_hosts_once() {
    let hosts = ["b.example", "a.example", "b.example", "*", "*.c.example"].map(str::to_owned);
    let certificate = gateway_certificate("klm-watcher-gateway", &hosts, &settings()).unwrap();
    assert_eq!(
        certificate["spec"]["dnsNames"],
        json!(["a.example", "b.example"])
    );
    assert_eq!(certificate["spec"]["commonName"], "a.example");
    assert_eq!(certificate["spec"]["isCA"], Value::Null);
    assert_eq!(
        certificate["spec"]["usages"],
        json!(["digital signature", "server auth"])
    );
    assert_eq!(
        gateway_certificate("g", &["*".to_owned()], &settings()),
        None
    );
}

#[rstest]
#[case::older(Some(9), true)]
#[case::same_second(Some(10), true)]
#[case::clock_of_cert_manager_ahead(Some(910), true)]
#[case::newer(Some(911), false)]
#[case::unknown(None, false)]
fn certificates_older_than_the_newest_ca_may_be_outdated(
    #[case] not_before: Option<i64>,
    #[case] expected: bool,
) {
    assert_eq!(may_be_outdated(not_before, 10), expected);
}

#[test]
fn a_renewal_keeps_other_conditions_and_is_requested_once() {
    let ready = json!({"type": "Ready", "status": "True"});
    let live = json!({
        "metadata": {"generation": 7},
        "status": {"conditions": [ready, {"type": "Issuing", "status": "False"}]},
    });
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let conditions = renewal(&live, now).unwrap();
    assert_eq!(conditions[0], ready);
    assert_eq!(conditions[1]["status"], "True");
    assert_eq!(conditions[1]["reason"], "ManuallyTriggered");
    assert_eq!(conditions[1]["observedGeneration"], 7);
    assert_eq!(conditions.as_array().unwrap().len(), 2);
    let mut live = live;
    live["status"]["conditions"] = conditions;
    assert_eq!(renewal(&live, now), None);
    assert!(renewal(&json!({"metadata": {}}), now).is_some());
}

#[rstest]
#[case::within_the_hour("2026-01-01T00:00:01Z", false)]
#[case::in_the_future("2026-01-01T01:10:00Z", false)]
#[case::an_hour_ago("2025-12-31T23:59:59Z", true)]
#[case::garbage("yesterday", true)]
fn a_renewal_that_failed_is_requested_again_after_an_hour(
    #[case] failed: &str,
    #[case] expected: bool,
) {
    let live = json!({"metadata": {}, "status": {
        "lastFailureTime": failed,
        "conditions": [{"type": "Issuing", "status": "False", "reason": "Denied"}],
    }});
    let now = "2026-01-01T01:00:00Z".parse().unwrap();
    assert_eq!(renewal(&live, now).is_some(), expected);
}
