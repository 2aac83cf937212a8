use kube_core::cel::validate_cel;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::bootstrapper::{
    Condition, ConditionStatus, ConfigurationStatus, GROUP, KIND, PLURAL, READY, VERSION,
    WebhookStatus,
};

#[test]
fn the_definition_is_as_reviewed() {
    insta::assert_json_snapshot!(crd());
}

#[test]
fn the_definition_says_what_the_constants_say() {
    let crd = crd();
    assert_eq!(crd.spec.group, GROUP);
    assert_eq!(crd.spec.names.kind, KIND);
    assert_eq!(crd.spec.names.plural, PLURAL);
    assert_eq!(crd.spec.versions[0].name, VERSION);
    assert_eq!(crd.metadata.name.unwrap(), format!("{PLURAL}.{GROUP}"));
    let columns: Vec<String> = crd.spec.versions[0]
        .additional_printer_columns
        .iter()
        .flatten()
        .map(|column| column.name.clone())
        .collect();
    assert_eq!(
        columns,
        [
            "Ready",
            "Reason",
            "Synchronized",
            "Reachable",
            "Watcher",
            "Version",
            "Message",
            "Runtime ID",
            "Shoot",
            "Age"
        ]
    );
}

/// The API server rejects CEL rules whose cost has no limit, and a client must not be able to fill the store.
#[rstest]
#[case::runtime_bootstrapper(crd())]
#[case::rollout(crate::rollout::crd())]
#[case::watcher(crate::watcher::crd())]
fn every_text_and_list_of_the_schema_is_bounded(#[case] crd: CustomResourceDefinition) {
    fn unbounded(path: &str, schema: &Value, found: &mut Vec<String>) {
        let bounded = ["maxLength", "enum", "maxItems"]
            .iter()
            .any(|key| schema.get(key).is_some());
        if matches!(schema["type"].as_str(), Some("string" | "array")) && !bounded {
            found.push(path.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            unbounded(&format!("{path}.{name}"), property, found);
        }
        if let Some(items) = schema.get("items") {
            unbounded(&format!("{path}[]"), items, found);
        }
    }
    let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
    let mut found = Vec::new();
    unbounded("", &schema["openAPIV3Schema"], &mut found);
    assert_eq!(found, Vec::<String>::new());
}

fn resource(name: &str, image: Option<&str>) -> RuntimeBootstrapper {
    RuntimeBootstrapper::new(
        name,
        RuntimeBootstrapperSpec {
            webhook: image.map(|image| WebhookSettings {
                image: Some(image.to_owned()),
                ..WebhookSettings::default()
            }),
            ..RuntimeBootstrapperSpec::default()
        },
    )
}

#[rstest]
#[case::plain("4f8e1b7c-3b1f-4c11-9a52-90d38a6ad70f", None, true)]
#[case::long(&"a".repeat(64), None, false)]
#[case::longest(&"a".repeat(63), None, true)]
#[case::tag("a", Some("registry.example:5000/webhook:0.1.0"), true)]
#[case::digest(
    "a",
    Some(
        "ghcr.io/x/webhook@sha256:0000000000000000000000000000000000000000000000000000000000000000"
    ),
    true
)]
#[case::untagged("a", Some("ghcr.io/x/webhook"), false)]
#[case::a_port_is_no_tag("a", Some("registry:5000/webhook"), false)]
#[case::spaces("a", Some("ghcr.io/x/webhook:1 --flag"), false)]
#[case::a_second_line("a", Some("ghcr.io/x/webhook:1\nevil"), false)]
fn rules(#[case] name: &str, #[case] image: Option<&str>, #[case] valid: bool) {
    assert_eq!(validate_cel(&resource(name, image)).is_ok(), valid);
}

#[rstest]
#[case::everything(
    json!({
        "imagePullSecret": "own.pull-1", "landscape": "eu-1", "configMapName": "config", "pullSecretName": "pulls",
        "replicas": 3, "logFilter": "info,kube_client=warn",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
    }),
    true
)]
#[case::pull_secret(json!({"imagePullSecret": "a/b"}), false)]
#[case::landscape_with_blanks(json!({"landscape": "eu 1"}), false)]
#[case::landscape_with_a_reference(json!({"landscape": "$(POD_NAME)"}), false)]
#[case::config_map(json!({"configMapName": "Config"}), false)]
#[case::copied_secret(json!({"pullSecretName": "a..b"}), false)]
#[case::no_cpu(json!({"resources": {"requests": {"cpu": "0"}}}), false)]
#[case::half_a_core(json!({"resources": {"requests": {"cpu": "0.5"}}}), false)]
#[case::memory_without_suffix(json!({"resources": {"limits": {"memory": "128"}}}), false)]
#[case::log_filter(json!({"logFilter": "info --more"}), false)]
fn rules_of_webhook_settings(#[case] webhook: Value, #[case] valid: bool) {
    let mut resource = resource("a", None);
    let settings: WebhookSettings = serde_json::from_value(webhook.clone()).unwrap();
    assert_eq!(serde_json::to_value(&settings).unwrap(), webhook);
    resource.spec.webhook = Some(settings);
    assert_eq!(validate_cel(&resource).is_ok(), valid);
}

/// A setting of the runtime has priority over the setting of the controller, separately for each setting and each amount.
#[test]
fn own_settings_come_before_others_one_by_one() {
    let settings = |value: Value| serde_json::from_value::<WebhookSettings>(value).unwrap();
    let own =
        json!({"landscape": "own", "replicas": 4, "resources": {"limits": {"memory": "1Gi"}}});
    let others = json!({
        "image": "r.test/w:1", "imagePullSecret": "pull", "landscape": "theirs", "configMapName": "c",
        "pullSecretName": "p", "replicas": 2, "logFilter": "warn",
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "2Gi", "cpu": "1"}},
    });
    let expected = json!({
        "image": "r.test/w:1", "imagePullSecret": "pull", "landscape": "own", "configMapName": "c",
        "pullSecretName": "p", "replicas": 4, "logFilter": "warn",
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi", "cpu": "1"}},
    });
    let both = settings(own).or(&settings(others.clone()));
    assert_eq!(both, settings(expected));
    assert_eq!(
        WebhookSettings::default().or(&settings(others.clone())),
        settings(others)
    );
}

#[test]
fn an_empty_spec_has_the_documented_defaults() {
    let spec: RuntimeBootstrapperSpec = serde_json::from_value(json!({})).unwrap();
    assert_eq!(spec, RuntimeBootstrapperSpec::default());
    assert_eq!(spec.deletion_policy, DeletionPolicy::Delete);
    assert_eq!(spec.deletion_timeout(), Duration::from_hours(1));
    assert!(
        serde_json::from_value::<RuntimeBootstrapperSpec>(json!({"deletionPolicy": "Keep"}))
            .is_err()
    );
}

/// In a server-side apply a null value sets a field.
#[rstest]
#[case(json!(RuntimeBootstrapperSpec { webhook: Some(WebhookSettings::default()), ..RuntimeBootstrapperSpec::default() }))]
#[case(json!(RuntimeBootstrapperStatus {
    conditions: vec![Condition {
        kind: READY.to_owned(),
        status: ConditionStatus::Unknown,
        observed_generation: None,
        last_transition_time: "2026-11-21T00:00:00Z".to_owned(),
        reason: "Unreachable".to_owned(),
        message: String::new(),
    }],
    configuration: Some(ConfigurationStatus::default()),
    webhook: Some(WebhookStatus::default()),
    ..RuntimeBootstrapperStatus::default()
}))]
fn what_is_absent_is_not_serialised(#[case] value: Value) {
    assert!(!value.to_string().contains("null"), "{value}");
}
