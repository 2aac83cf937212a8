//! Tests of the manifests: each document is parsed with its type, and compared with the requirements of the process.

mod controller;
mod network;
mod pods;
mod rights;
mod values;
mod watcher;
mod workload;

use std::collections::BTreeMap;

use api::names::{WEBHOOK_CONFIGURATION, WEBHOOK_ENTRY, WEBHOOK_PATH};
use clap::Parser;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: ManifestsArgs,
}

/// Returns the output of a command line.
fn printed(flags: &[&str]) -> Result<String, clap::Error> {
    let line = Line::try_parse_from([&["manifests", "webhook"], flags].concat())?;
    let Role::Webhook(arguments) = line.arguments.role else {
        panic!("another role");
    };
    Ok(webhook(&arguments.settings(), None, &arguments.namespace).unwrap())
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn defaults() -> Vec<Value> {
    documents(&printed(&[]).unwrap())
}

/// Returns the object of a kind and name, parsed with its type. A field of a wrong type fails here.
fn only<T: DeserializeOwned>(objects: &[Value], kind: &str, name: &str) -> T {
    let of_kind = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
    let found: Vec<Value> = objects.iter().filter(of_kind).cloned().collect();
    assert_eq!(found.len(), 1, "{kind} {name}");
    serde_json::from_value(found.into_iter().next().unwrap()).unwrap()
}

fn object<T: DeserializeOwned>(kind: &str, name: &str) -> T {
    only(&defaults(), kind, name)
}

/// Returns kind, namespace and name of each object.
fn listed(objects: &[Value]) -> Vec<String> {
    let named = |it: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let metadata = &it["metadata"];
        [&it["kind"], &metadata["namespace"], &metadata["name"]]
            .map(text)
            .join(" ")
    };
    objects.iter().map(named).collect()
}

#[test]
fn the_objects_are_these_and_the_webhook_configuration_is_the_last() {
    assert_eq!(
        listed(&defaults()),
        [
            "ServiceAccount kyma-system rt-bootstrapper-controller-manager",
            "ClusterRole - rt-bootstrapper-manager-role",
            "ClusterRoleBinding - rt-bootstrapper-manager-rolebinding",
            "Role kyma-system rt-bootstrapper-manager-role",
            "RoleBinding kyma-system rt-bootstrapper-manager-rolebinding",
            "ClusterRole - rt-bootstrapper-pod-restarter-role",
            "RoleBinding kyma-system rt-bootstrapper-pod-restarter-rolebinding",
            "PriorityClass - rt-bootstrapper-priority-class",
            "Service kyma-system rt-bootstrapper-webhook-service",
            "Service kyma-system rt-bootstrapper-controller-manager-metrics-service",
            "NetworkPolicy kyma-system kyma-project.io--ingress-allow-webhook-traffic",
            "NetworkPolicy kyma-system kyma-project.io--rt-bootstrapper-allow-metrics-traffic",
            "NetworkPolicy kyma-system kyma-project.io--rt-bootstrapper--allow-egress-to-apiserver",
            "PodDisruptionBudget kyma-system rt-bootstrapper-controller-manager",
            "Deployment kyma-system rt-bootstrapper-controller-manager",
            "MutatingWebhookConfiguration - rt-bootstrapper-mutating-webhook-configuration",
        ]
    );
}

#[test]
fn an_installer_that_splits_at_dashes_gets_whole_documents() {
    let text = printed(&[]).unwrap();
    let parts: Vec<Value> = text
        .split("---")
        .map(|part| serde_saphyr::from_str(part).unwrap())
        .collect();
    assert_eq!(parts, defaults());
}

#[test]
fn the_entry_is_as_the_product_promises() {
    let configuration: MutatingWebhookConfiguration =
        object("MutatingWebhookConfiguration", WEBHOOK_CONFIGURATION);
    let [entry] = configuration.webhooks.unwrap().try_into().unwrap();
    assert_eq!(entry.name, WEBHOOK_ENTRY);
    assert_eq!(entry.admission_review_versions, ["v1"]);
    assert_eq!(entry.failure_policy.as_deref(), Some("Ignore"));
    assert_eq!(entry.timeout_seconds, Some(3));
    assert_eq!(entry.reinvocation_policy.as_deref(), Some("IfNeeded"));
    assert_eq!(entry.side_effects, "NoneOnDryRun");
    assert_eq!(entry.match_policy.as_deref(), Some("Equivalent"));
    // This field is written explicitly, because an omitted field would keep the value of an earlier installer.
    assert_eq!(entry.object_selector, Some(LabelSelector::default()));
    assert_eq!(entry.client_config.ca_bundle, None);
    let service = entry.client_config.service.unwrap();
    assert_eq!(service.path.as_deref(), Some(WEBHOOK_PATH));
    let [rule] = entry.rules.unwrap().try_into().unwrap();
    assert_eq!(rule.api_groups.unwrap(), [""]);
    assert_eq!(rule.api_versions.unwrap(), ["v1"]);
    assert_eq!(rule.operations.unwrap(), ["CREATE", "UPDATE"]);
    assert_eq!(
        rule.resources.unwrap(),
        ["pods", "pods/ephemeralcontainers"]
    );
    let [requirement] = entry
        .namespace_selector
        .unwrap()
        .match_expressions
        .unwrap()
        .try_into()
        .unwrap();
    assert_eq!(requirement.key, "kubernetes.io/metadata.name");
    assert_eq!(requirement.operator, "NotIn");
    assert_eq!(requirement.values.unwrap(), ["kube-system"]);
}

#[test]
fn the_match_conditions_test_a_field_before_they_read_it() {
    let configuration: MutatingWebhookConfiguration =
        object("MutatingWebhookConfiguration", WEBHOOK_CONFIGURATION);
    let conditions = configuration.webhooks.unwrap().remove(0).match_conditions;
    let conditions: BTreeMap<String, String> = conditions
        .unwrap()
        .into_iter()
        .map(|it| (it.name, it.expression))
        .collect();
    // `oldObject` is null except for UPDATE, and a map without the key is an error, so the guards are on the left side.
    let expected = [
        (
            "not-our-own-pod",
            "!(request.namespace == 'kyma-system' && has(object.metadata.labels) && 'app.kubernetes.io/name' in \
             object.metadata.labels && object.metadata.labels['app.kubernetes.io/name'] == 'rt-bootstrapper')",
        ),
        (
            "spec-changed",
            "request.operation != 'UPDATE' || object.spec != oldObject.spec",
        ),
    ];
    assert_eq!(
        conditions,
        expected
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into()
    );
}
