//! The values that a user may give, hostile ones among them.

use rstest::rstest;
use serde_json::Value;

use super::{WEBHOOK_IMAGE, defaults, documents, printed};

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
    let mut changed = documents(&printed(&["--pull-secret", "our.own-1"]).unwrap());
    let deployment = changed.iter_mut().find(|it| it["kind"] == "Deployment");
    let pod = deployment.unwrap().pointer_mut("/spec/template/spec");
    let secrets = pod
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("imagePullSecrets");
    assert_eq!(secrets, Some(serde_json::json!([{"name": "our.own-1"}])));
    assert_eq!(changed, defaults());
}

#[test]
fn another_copied_secret_is_a_right_more_and_nothing_else_changes() {
    let mut changed = documents(&printed(&["--copied-secret", "our.own-1"]).unwrap());
    let role = changed.iter_mut().find(|it| it["kind"] == "ClusterRole");
    let mut widened = Vec::new();
    for rule in role.unwrap()["rules"].as_array_mut().unwrap() {
        if rule["resources"] == serde_json::json!(["secrets"]) {
            let names = rule["resourceNames"].take();
            widened.push(names);
            rule["resourceNames"] = serde_json::json!(["registry-credentials"]);
        }
    }
    assert_eq!(
        widened,
        [serde_json::json!(["registry-credentials", "our.own-1"])]
    );
    assert_eq!(changed, defaults());
}

#[test]
fn the_copied_secret_of_the_default_configuration_is_no_change() {
    let text = printed(&["--copied-secret", "registry-credentials"]).unwrap();
    assert_eq!(documents(&text), defaults());
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
#[case::separator("--pull-secret", "a---b")]
#[case::line_break("--pull-secret", "a\n- name: b")]
#[case::slash("--pull-secret", "a/b")]
#[case::long("--pull-secret", &"a".repeat(254))]
#[case::list("--copied-secret", "a, b")]
#[case::quote("--copied-secret", "a\"]")]
#[case::separator("--copied-secret", "a---b")]
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
    let flags = ["--image", "a:1", "--pull-secret", "b", "--namespace", "c"];
    assert_eq!(comments(&printed(&flags).unwrap()), written);
}
