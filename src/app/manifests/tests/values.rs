//! Tests of values from a user, including hostile values.

use api::bootstrapper::{RestartCause, WebhookSettings};
use component_base::telemetry::Filter;
use policy::repairs::EvictionSettings;
use rstest::rstest;
use serde_json::{Value, json};

use super::{WEBHOOK_IMAGE, defaults, documents, printed};
use crate::cli::webhook::WebhookArgs;
use crate::manifests::flags::Flags;
use crate::manifests::webhook_objects;

fn deployment(documents: &[Value]) -> &Value {
    documents
        .iter()
        .find(|it| it["kind"] == "Deployment")
        .unwrap()
}

#[rstest]
#[case::tag("registry.test:5000/a/webhook:1.2.3")]
#[case::digest("r.test/w@sha256:0123456789012345678901234567890123456789012345678901234567890123")]
#[case::looks_like_a_number("1234")]
#[case::looks_like_a_boolean("yes")]
#[case::ipv6("[2001:db8::1]:5000/w:1")]
fn the_image_is_put_in_as_text_and_nothing_else_changes(#[case] image: &str) {
    let mut changed = documents(&printed(&["--image", image]).unwrap());
    let place = "/spec/template/spec/containers/0/image";
    assert_eq!(deployment(&changed).pointer(place).unwrap(), image);
    let deployment = changed.iter_mut().find(|it| it["kind"] == "Deployment");
    *deployment.unwrap().pointer_mut(place).unwrap() = WEBHOOK_IMAGE.into();
    assert_eq!(changed, defaults());
}

#[test]
fn the_pull_secret_is_put_in_and_nothing_else_changes() {
    let mut changed = documents(&printed(&["--webhook-image-pull-secret", "our.own-1"]).unwrap());
    let deployment = changed.iter_mut().find(|it| it["kind"] == "Deployment");
    let pod = deployment.unwrap().pointer_mut("/spec/template/spec");
    let secrets = pod
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("imagePullSecrets");
    assert_eq!(secrets, Some(json!([{"name": "our.own-1"}])));
    assert_eq!(changed, defaults());
}

/// Returns the arguments of the container, as the webhook parses them.
fn read_by_the_webhook(objects: &[Value]) -> WebhookArgs {
    let place = "/spec/template/spec/containers/0/args";
    let arguments = deployment(objects).pointer(place).unwrap();
    let arguments: Vec<String> = serde_json::from_value(arguments.clone()).unwrap();
    let flags = Flags::<WebhookArgs>::read("webhook", &arguments, &[]).unwrap();
    flags.arguments
}

/// Returns the `resourceNames` of each rule about a resource, in all roles of a kind.
fn named(objects: &[Value], kind: &str, resource: &str) -> Vec<Value> {
    let of_kind = objects.iter().filter(|it| it["kind"] == kind);
    let rules = of_kind.flat_map(|it| it["rules"].as_array().unwrap());
    rules
        .filter(|it| it["resources"] == json!([resource]))
        .map(|it| it["resourceNames"].clone())
        .collect()
}

#[test]
fn settings_arrive_at_the_webhook_and_in_its_rights() {
    let objects = documents(
        &printed(&[
            "--landscape=eu-1",
            "--config-map-name=our-config",
            "--image-pull-secret-name=our.own-1",
            "--log-filter=warn,kube=info",
            "--evict-missed-pods",
            "--restart-pods-on-change=pull-secret",
            "--mutating-admission-policy=on",
        ])
        .unwrap(),
    );
    let read = read_by_the_webhook(&objects);
    let evictions = EvictionSettings {
        missed: true,
        outdated: vec![RestartCause::PullSecret],
    };
    assert_eq!(read.evictions(), evictions);
    assert!(read.mutating_admission_policy);
    assert_eq!(read.landscape, "eu-1");
    assert_eq!(read.config_map_name, "our-config");
    assert_eq!(read.image_pull_secret_name, "our.own-1");
    let filter: Filter = "warn,kube=info".parse().unwrap();
    assert_eq!(
        format!("{:?}", read.process.log_filter),
        format!("{filter:?}")
    );
    let config_maps = named(&objects, "Role", "configmaps");
    assert_eq!(config_maps, [json!(["our-config"])]);
    // The default name stays, because the document may change to it while the webhook runs.
    let secrets = named(&objects, "ClusterRole", "secrets");
    assert_eq!(secrets, [json!(["registry-credentials", "our.own-1"])]);
}

#[test]
fn without_settings_the_webhook_has_its_own_defaults() {
    let read = read_by_the_webhook(&defaults());
    assert!(read.evictions().is_empty());
    assert!(!read.mutating_admission_policy);
    let bare = Flags::<WebhookArgs>::read("webhook", &[], &[]).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", bare.arguments));
}

#[test]
fn replicas_and_resources_are_put_in_and_nothing_else_changes() {
    let flags = [
        "--replicas=3",
        "--requests=cpu=1000m,memory=64Mi",
        "--limits=cpu=2,memory=1024Mi",
    ];
    let mut changed = documents(&printed(&flags).unwrap());
    let deployment = changed.iter_mut().find(|it| it["kind"] == "Deployment");
    let spec = &mut deployment.unwrap()["spec"];
    assert_eq!(spec["replicas"], 3);
    spec["replicas"] = json!(2);
    let resources = spec.pointer_mut("/template/spec/containers/0/resources");
    // The format in which the API server stores amounts. Another format would be a permanent difference.
    let expected = json!({
        "requests": {"cpu": "1", "memory": "64Mi"},
        "limits": {"cpu": "2", "memory": "1Gi"},
    });
    let defaults_are = json!({
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"memory": "128Mi"},
    });
    let resources = resources.unwrap();
    assert_eq!(std::mem::replace(resources, defaults_are), expected);
    assert_eq!(changed, defaults());
}

#[test]
fn secret_that_the_document_names_is_a_right_more_and_nothing_else_changes() {
    let settings = WebhookSettings::default();
    let plain = webhook_objects(&settings, None, "kyma-system").unwrap();
    let mut changed = webhook_objects(&settings, Some("theirs"), "kyma-system").unwrap();
    let secrets = named(&changed, "ClusterRole", "secrets");
    assert_eq!(secrets, [json!(["registry-credentials", "theirs"])]);
    let role = changed.iter_mut().find(|it| it["kind"] == "ClusterRole");
    for rule in role.unwrap()["rules"].as_array_mut().unwrap() {
        if rule["resources"] == json!(["secrets"]) {
            rule["resourceNames"] = json!(["registry-credentials"]);
        }
    }
    assert_eq!(changed, plain);
}

/// The API server would reject the Deployment, or its Pods would not start.
#[rstest]
#[case::filter(json!({"logFilter": "a=b=c"}), "log filter")]
#[case::above_the_limit(json!({"resources": {"requests": {"memory": "1Gi"}}}), "memory")]
#[case::amount(json!({"resources": {"limits": {"memory": "lots"}}}), "lots")]
#[case::name(json!({"configMapName": "a b"}), "config-map-name")]
fn settings_that_cannot_work_have_no_manifests(#[case] settings: Value, #[case] reason: &str) {
    let settings: WebhookSettings = serde_json::from_value(settings).unwrap();
    let error = webhook_objects(&settings, None, "kyma-system").unwrap_err();
    assert!(format!("{error:#}").contains(reason), "{error:#}");
}

#[test]
fn names_that_are_the_defaults_are_no_change() {
    let flags = [
        "--image-pull-secret-name=registry-credentials",
        "--config-map-name=rt-bootstrapper-config",
    ];
    assert_eq!(documents(&printed(&flags).unwrap()), defaults());
}

#[test]
fn another_namespace_is_meant_everywhere() {
    let text = printed(&["--namespace", "elsewhere"]).unwrap();
    assert!(!text.contains("kyma-system"));
    let before = serde_json::to_string(&defaults()).unwrap();
    let after = serde_json::to_string(&documents(&text)).unwrap();
    assert_eq!(after, before.replace("kyma-system", "elsewhere"));
}

#[rstest]
#[case::line_break("--image", "a\nkind: Secret")]
#[case::quote("--image", "a\" , evil: \"b")]
#[case::comment("--image", "a #")]
#[case::upper_case("--image", "Registry/A")]
#[case::separator("--image", "r.test/a---b:1")]
#[case::empty("--image", "")]
#[case::separator("--webhook-image-pull-secret", "a---b")]
#[case::line_break("--webhook-image-pull-secret", "a\n- name: b")]
#[case::slash("--webhook-image-pull-secret", "a/b")]
#[case::long("--webhook-image-pull-secret", &"a".repeat(254))]
#[case::list("--image-pull-secret-name", "a, b")]
#[case::quote("--image-pull-secret-name", "a\"]")]
#[case::separator("--image-pull-secret-name", "a---b")]
#[case::separator("--config-map-name", "a---b")]
#[case::upper_case("--config-map-name", "Config")]
#[case::blank("--landscape", "eu 1")]
#[case::expansion("--landscape", "$(POD_NAME)")]
#[case::too_few("--replicas", "1")]
#[case::no_number("--replicas", "two")]
#[case::amount("--limits", "memory=1")]
#[case::filter("--log-filter", "a=b=c")]
#[case::unknown("--restart-pods-on-change", "trust-bundle,reboot")]
#[case::unknown("--mutating-admission-policy", "auto")]
#[case::blank("--pod-restart-namespaces", "a, b")]
#[case::separator("--pod-restart-namespaces", "a---b")]
#[case::line_break("--pod-restart-namespaces", "a\nkind: Secret")]
#[case::separator("--namespace", "a---b")]
#[case::dots("--namespace", "a.b")]
#[case::edge("--namespace", "a-")]
#[case::long("--namespace", &"a".repeat(64))]
#[case::quote("--namespace", "a' || true || '")]
fn a_hostile_value_is_a_usage_error(#[case] flag: &str, #[case] value: &str) {
    let error = printed(&[flag, value]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn the_files_name_the_version_that_they_belong_to() {
    let version = env!("CARGO_PKG_VERSION");
    let documents = defaults();
    let deployment = deployment(&documents);
    for place in ["/metadata", "/spec/template/metadata"] {
        let labels = &deployment.pointer(place).unwrap()["labels"];
        assert_eq!(labels["app.kubernetes.io/version"], version);
    }
    assert_eq!(
        deployment
            .pointer("/spec/template/spec/containers/0/image")
            .unwrap(),
        WEBHOOK_IMAGE
    );
}

#[test]
fn every_comment_of_the_files_is_printed() {
    let comments = |text: &str| text.lines().filter(|it| it.trim().starts_with('#')).count();
    let written: usize = super::super::WEBHOOK.iter().map(|it| comments(it)).sum();
    assert!(written > 0);
    let flags = [
        "--image",
        "a:1",
        "--webhook-image-pull-secret",
        "b",
        "--namespace",
        "c",
    ];
    assert_eq!(comments(&printed(&flags).unwrap()), written);
}
