//! Tests of the manifests of the watcher: the names of the public chart, no permissions, and no value that changes the structure.

mod network;
mod values;
mod workload;

use std::path::PathBuf;

use clap::Parser as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Line, Role, documents, listed, only};
use crate::manifests::watcher::text;

/// A list of Watchers: the public one, and one of another manager for a subresource.
const WATCHERS: &str = r#"
- namespace: kcp-system
  name: klm-watcher
  manager: lifecycle-manager
  resource: {group: operator.kyma-project.io, version: "*", resource: kymas}
  field: spec
  labels: {operator.kyma-project.io/watched-by: kyma}
- namespace: kcp-system
  name: klm-watcher-status
  manager: lifecycle-manager
  resource: {group: operator.kyma-project.io, version: "*", resource: kymas}
  field: status
- namespace: other
  name: scales
  manager: scaler
  resource: {group: apps, version: v1, resource: deployments/scale}
  field: spec
"#;

/// A directory with files for flags.
struct Folder(TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn flag(&self, flag: &str, name: &str) -> String {
        format!("{flag}={}", self.path(name).display())
    }
}

fn printed(flags: &[&str]) -> anyhow::Result<String> {
    let line = [&["manifests", "watcher"], flags].concat();
    let Role::Watcher(arguments) = Line::try_parse_from(line)?.arguments.role else {
        panic!("another role");
    };
    text(&arguments)
}

fn objects(flags: &[&str]) -> Vec<Value> {
    let text = printed(&[&["--kcp-addr=kcp.example.com"], flags].concat()).unwrap();
    documents(&text)
}

/// The objects of the public chart with the same names. Additional objects are the ServiceAccount, the PodDisruptionBudget
/// and the permission for a late eviction.
#[test]
fn the_objects_are_these_and_the_webhook_configuration_is_the_last() {
    let folder = Folder::with(&[("w.yaml", WATCHERS)]);
    assert_eq!(
        listed(&objects(&[&folder.flag("--watchers-file", "w.yaml")])),
        [
            "ServiceAccount kyma-system skr-webhook",
            "PriorityClass - skr-webhook-priority",
            "Service kyma-system skr-webhook",
            "Service kyma-system skr-webhook-metrics",
            "NetworkPolicy kyma-system kyma-project.io--seed-to-watcher",
            "NetworkPolicy kyma-system kyma-project.io--metrics-to-watcher",
            "NetworkPolicy kyma-system kyma-project.io--watcher-to-apiserver",
            "NetworkPolicy kyma-system kyma-project.io--watcher-to-dns",
            "PodDisruptionBudget kyma-system skr-webhook",
            "Deployment kyma-system skr-webhook",
            "ValidatingWebhookConfiguration - skr-webhook",
        ]
    );
}

#[test]
fn an_installer_that_splits_at_dashes_gets_whole_documents() {
    let folder = Folder::with(&[("w.yaml", WATCHERS)]);
    let flags = [
        "--kcp-addr=kcp.example.com",
        &folder.flag("--watchers-file", "w.yaml"),
    ];
    let text = printed(&flags).unwrap();
    let parts: Vec<Value> = text
        .split("---")
        .map(|part| serde_saphyr::from_str(part).unwrap())
        .collect();
    assert_eq!(parts, documents(&text));
}

#[test]
fn the_watcher_may_do_nothing() {
    let objects = objects(&[]);
    for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
        assert!(objects.iter().all(|it| it["kind"] != kind), "{kind}");
    }
    let account: ServiceAccount = only(&objects, "ServiceAccount", "skr-webhook");
    assert_eq!(account.automount_service_account_token, Some(false));
}

fn registered(flags: &[&str]) -> ValidatingWebhookConfiguration {
    let folder = Folder::with(&[("w.yaml", WATCHERS)]);
    let watchers = folder.flag("--watchers-file", "w.yaml");
    let objects = objects(&[&[watchers.as_str()], flags].concat());
    only(&objects, "ValidatingWebhookConfiguration", "skr-webhook")
}

#[test]
fn each_watcher_has_its_entry() {
    let entries = registered(&["--namespace=elsewhere"]).webhooks.unwrap();
    let shown: Vec<Value> = entries
        .iter()
        .map(|entry| {
            let service = entry.client_config.service.as_ref().unwrap();
            let rule = &entry.rules.as_ref().unwrap()[0];
            assert_eq!(entry.admission_review_versions, ["v1"]);
            assert_eq!(entry.failure_policy.as_deref(), Some("Ignore"));
            assert_eq!(entry.side_effects, "NoneOnDryRun");
            assert_eq!(entry.timeout_seconds, Some(3));
            assert_eq!(entry.namespace_selector, Some(LabelSelector::default()));
            assert_eq!(entry.match_conditions, None);
            assert_eq!(
                (service.name.as_str(), service.namespace.as_str()),
                ("skr-webhook", "elsewhere")
            );
            assert_eq!(
                rule.operations.as_ref().unwrap(),
                &["CREATE", "UPDATE", "DELETE"]
            );
            json!([entry.name, service.path, rule.resources])
        })
        .collect();
    let expected = json!([
        [
            "kcp-system.klm-watcher.operator.kyma-project.io",
            "/validate/lifecycle-manager",
            ["kymas"]
        ],
        [
            "kcp-system.klm-watcher-status.operator.kyma-project.io",
            "/validate/lifecycle-manager",
            ["kymas/status"]
        ],
        [
            "other.scales.operator.kyma-project.io",
            "/validate/scaler",
            ["deployments/scale"]
        ],
    ]);
    assert_eq!(Value::from(shown), expected);
    let selectors: Vec<bool> = entries
        .iter()
        .map(|it| it.object_selector != Some(LabelSelector::default()))
        .collect();
    assert_eq!(selectors, [true, false, false]);
}

#[test]
fn a_review_that_waits_for_kcp_has_the_public_time_limit() {
    let entries = registered(&["--delivery-mode=sync"]).webhooks.unwrap();
    assert!(entries.iter().all(|it| it.timeout_seconds == Some(15)));
}

/// An empty configuration would overwrite the configuration of another installer.
#[test]
fn without_watchers_no_webhook_configuration_is_printed() {
    let kinds = objects(&[]);
    let kinds = kinds.iter().filter_map(|it| it["kind"].as_str());
    assert!(
        !kinds
            .into_iter()
            .any(|it| it == "ValidatingWebhookConfiguration")
    );
}

#[test]
fn certificates_become_the_secret_and_the_ca_bundle() {
    let folder = Folder::with(&[
        ("w.yaml", WATCHERS),
        ("ca.crt", "authorities"),
        ("tls.crt", "certificate"),
        ("tls.key", "key"),
    ]);
    let watchers = folder.flag("--watchers-file", "w.yaml");
    let objects = objects(&[
        &watchers,
        &folder.flag("--cert-dir", "."),
        "--namespace=elsewhere",
    ]);
    let secret: Secret = only(&objects, "Secret", "skr-webhook-tls");
    assert_eq!(
        objects[0]["kind"], "Secret",
        "before the Pods that mount it"
    );
    assert_eq!(secret.metadata.namespace.as_deref(), Some("elsewhere"));
    let data = secret.data.unwrap();
    let held: Vec<(&str, &[u8])> = data
        .iter()
        .map(|(key, value)| (key.as_str(), &value.0[..]))
        .collect();
    let expected: [(&str, &[u8]); 3] = [
        ("ca.crt", b"authorities"),
        ("tls.crt", b"certificate"),
        ("tls.key", b"key"),
    ];
    assert_eq!(held, expected);
    let configuration: ValidatingWebhookConfiguration =
        only(&objects, "ValidatingWebhookConfiguration", "skr-webhook");
    for entry in configuration.webhooks.unwrap() {
        assert_eq!(entry.client_config.ca_bundle.unwrap().0, b"authorities");
    }
}

#[rstest]
#[case::no_file("--watchers-file=/nowhere", "cannot read /nowhere")]
#[case::no_folder("--cert-dir=/nowhere", "cannot read /nowhere/ca.crt")]
fn a_file_that_is_not_there_is_named(#[case] flag: &str, #[case] expected: &str) {
    let error = printed(&["--kcp-addr=kcp.example.com", flag]).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

/// The error names the invalid Watcher. In one object with the others, the API server would reject all of them.
#[rstest]
#[case::twice(&WATCHERS.replace("name: klm-watcher-status", "name: klm-watcher"), ": duplicate")]
#[case::label(&WATCHERS.replace("watched-by: kyma", "watched-by: 'a b'"), "labels: not a valid label")]
#[case::separator(&WATCHERS.replace("resource: kymas}", "resource: a---b}"), "must not contain `---`")]
fn a_watcher_that_cannot_be_registered_is_an_error(#[case] watchers: &str, #[case] expected: &str) {
    let folder = Folder::with(&[("w.yaml", watchers)]);
    let flags = [
        "--kcp-addr=kcp.example.com",
        &folder.flag("--watchers-file", "w.yaml"),
    ];
    let error = printed(&flags).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}
