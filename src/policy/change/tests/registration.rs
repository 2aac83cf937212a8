//! Tests of the webhook configuration for the API server.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};
use watcher_types::PathSegment;

use crate::change::*;

const ENDPOINT: Endpoint<'_> = Endpoint {
    namespace: "kyma-system",
    authorities: Some(b"PEM"),
    timeout_seconds: 3,
};

fn kymas(field: Field, resource: &str) -> Registration {
    Registration {
        namespace: "kcp-system".into(),
        name: "klm-watcher".into(),
        watcher: Watcher {
            manager: PathSegment::parse("lifecycle-manager").unwrap(),
            field,
            resources: vec![ResourceRule::new("operator.kyma-project.io", "*", resource)],
        },
        labels: BTreeMap::from([("operator.kyma-project.io/watched-by".into(), "kyma".into())]),
    }
}

fn entries(registrations: &[Registration]) -> Vec<Value> {
    let configuration = configuration(registrations, &ENDPOINT).unwrap();
    configuration["webhooks"].as_array().unwrap().clone()
}

/// The expected object is the object of lifecycle-manager for its one released Watcher, except the timeout and
/// explicit defaults.
#[test]
fn one_watcher_gives_the_public_object() {
    let expected = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": "skr-webhook",
            "labels": {"app": "skr-webhook", "operator.kyma-project.io/managed-by": "kyma"},
        },
        "webhooks": [{
            "name": "kcp-system.klm-watcher.operator.kyma-project.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": "UEVN",
                "service": {
                    "name": "skr-webhook", "namespace": "kyma-system",
                    "path": "/validate/lifecycle-manager", "port": 443,
                },
            },
            "namespaceSelector": {},
            "objectSelector": {"matchLabels": {"operator.kyma-project.io/watched-by": "kyma"}},
            "rules": [{
                "apiGroups": ["operator.kyma-project.io"], "apiVersions": ["*"], "resources": ["kymas"],
                "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "*",
            }],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": 3,
        }],
    });
    let made = configuration(&[kymas(Field::Spec, "kymas")], &ENDPOINT).unwrap();
    assert_eq!(made, expected);
}

#[rstest]
#[case::spec(Field::Spec, "kymas", "kymas")]
#[case::status(Field::Status, "kymas", "kymas/status")]
#[case::scale(Field::Spec, "deployments/scale", "deployments/scale")]
#[case::every_subresource(Field::Spec, "pods/*", "pods/*")]
#[case::named_wins(Field::Status, "kymas/scale", "kymas/scale")]
fn the_field_or_a_subresource_says_what_of_the_resource(
    #[case] field: Field,
    #[case] resource: &str,
    #[case] expected: &str,
) {
    let [entry] = entries(&[kymas(field, resource)]).try_into().unwrap();
    assert_eq!(entry["rules"][0]["resources"], json!([expected]));
}

#[test]
fn without_labels_and_authorities_nothing_is_said_of_them() {
    let mut all = kymas(Field::Spec, "kymas");
    all.labels.clear();
    let endpoint = Endpoint {
        authorities: None,
        ..ENDPOINT
    };
    let made = configuration(&[all], &endpoint).unwrap();
    let entry = &made["webhooks"][0];
    assert_eq!(entry["objectSelector"], json!({}));
    assert_eq!(entry["clientConfig"].get("caBundle"), None);
}

#[test]
fn the_order_of_watchers_is_no_change_and_no_watcher_is_no_entry() {
    let one = kymas(Field::Spec, "kymas");
    let other = Registration {
        name: "a".into(),
        ..kymas(Field::Status, "kymas")
    };
    let sorted = entries(&[other.clone(), one.clone()]);
    assert_eq!(entries(&[one, other]), sorted);
    assert_eq!(sorted[0]["name"], "kcp-system.a.operator.kyma-project.io");
    assert_eq!(sorted.len(), 2);
    assert_eq!(entries(&[]), Vec::<Value>::new());
}

fn named(namespace: &str, name: &str) -> Registration {
    Registration {
        namespace: namespace.into(),
        name: name.into(),
        ..kymas(Field::Spec, "kymas")
    }
}

fn labelled(key: &str, value: &str) -> Registration {
    Registration {
        labels: BTreeMap::from([(key.into(), value.into())]),
        ..kymas(Field::Spec, "kymas")
    }
}

/// If the API server rejected one Watcher, it would also reject the entries of the other Watchers.
#[rstest]
#[case::no_name("Name", named("kcp-system", ""))]
#[case::dots_in_a_namespace("Name", named("kcp.system", "a"))]
#[case::upper_case("Name", named("kcp-system", "A"))]
#[case::too_long_together("Name", named(&"a".repeat(63), &"b".repeat(200)))]
#[case::label_with_a_blank("Label", labelled("a b", "c"))]
#[case::label_without_a_key("Label", labelled("", "c"))]
#[case::label_value_ends_in_a_dash("Label", labelled("a", "c-"))]
#[case::label_value_too_long("Label", labelled("a", &"c".repeat(64)))]
#[case::label_prefix("Label", labelled("A_B/c", "d"))]
#[case::no_resource("Resource", kymas(Field::Spec, ""))]
#[case::no_subresource("Resource", kymas(Field::Spec, "kymas/"))]
fn what_the_api_server_would_refuse_is_refused_by_name(
    #[case] expected: &str,
    #[case] bad: Registration,
) {
    let good = named("kcp-system", "good");
    let error = configuration(&[good, bad.clone()], &ENDPOINT).unwrap_err();
    let kind = match &error {
        RegistrationError::Twice(_) => "Twice",
        RegistrationError::Name(_) => "Name",
        RegistrationError::Label(_) => "Label",
        RegistrationError::Resource(_) => "Resource",
    };
    assert_eq!(kind, expected);
    assert!(
        error.to_string().contains(&format!("{:?}", bad.name)),
        "{error}"
    );
}

#[test]
fn entries_are_merged_by_name_so_two_of_one_name_are_refused() {
    let one = kymas(Field::Spec, "kymas");
    let other = kymas(Field::Status, "kymas");
    let error = configuration(&[one, other], &ENDPOINT).unwrap_err();
    assert_eq!(
        error,
        RegistrationError::Twice(r#""kcp-system"/"klm-watcher""#.into())
    );
}

#[rstest]
#[case::empty_value("a", "")]
#[case::prefixed("operator.kyma-project.io/watched-by", "A_1.b")]
#[case::longest(&"a".repeat(63), &"b".repeat(63))]
fn a_label_that_an_object_could_carry_is_taken(#[case] key: &str, #[case] value: &str) {
    let [entry] = entries(&[labelled(key, value)]).try_into().unwrap();
    assert_eq!(entry["objectSelector"]["matchLabels"][key], value);
}
