//! Which documents can be read, and the shape of our own keys.

use rstest::rstest;

use super::*;

#[rstest]
#[case::only_overrides(r#"{"overrides":{"a.io":"b.io"}}"#)]
#[case::empty_overrides(r#"{"overrides":{}}"#)]
#[case::unknown_top_level_keys(
    r#"{"overrides":{},"imagePullSecretName":"x","secretSyncInterval":"1m"}"#
)]
#[case::null_means_absent(
    r#"{"overrides":{},"clusterTrustBundle":null,"namespaceFeatures":null,"availableFeatures":null}"#
)]
#[case::null_feature_list(r#"{"overrides":{},"namespaceFeatures":{"a":null}}"#)]
#[case::resync_interval(
    r#"{"overrides":{},"clusterTrustBundle":{"name":"n","certWritePath":"p","volumeMountPath":"/m","volumeName":"v","resyncInterval":"5m"}}"#
)]
fn loads(#[case] text: &str) {
    Document::parse(text).unwrap();
}

#[rstest]
#[case::missing("{}", "`overrides` is missing")]
#[case::null(r#"{"overrides":null}"#, "`overrides` is missing")]
#[case::no_json("overrides:", "cannot be read as JSON")]
#[case::empty("", "cannot be read as JSON")]
#[case::an_array("[]", "cannot be read as JSON")]
#[case::truncated(r#"{"overrides":{"#, "cannot be read as JSON")]
#[case::a_second_value(r#"{"overrides":{}} {"#, "cannot be read as JSON")]
#[case::wrong_type(r#"{"overrides":{"a":1}}"#, "cannot be read as JSON")]
#[case::wrong_inject(
    r#"{"overrides":{},"imagePullSecret":{"inject":"sometimes"}}"#,
    "cannot be read as JSON"
)]
#[case::wrong_operator(
    r#"{"overrides":{},"imagePullSecret":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Like"}]}}}"#,
    "cannot be read as JSON"
)]
fn refuses(#[case] text: &str, #[case] message: &str) {
    let error = Document::parse(text).unwrap_err();
    assert!(error.to_string().contains(message), "{error}");
}

#[rstest]
#[case("name")]
#[case("certWritePath")]
#[case("volumeMountPath")]
#[case("volumeName")]
fn a_trust_bundle_needs_all_four_strings(
    #[case] key: &str,
    #[values("absent", "null", "empty")] how: &str,
) {
    let mut bundle = serde_json::json!({
        "name": "n", "certWritePath": "p", "volumeMountPath": "/m", "volumeName": "v"
    });
    match how {
        "absent" => drop(bundle.as_object_mut().unwrap().remove(key)),
        "null" => bundle[key] = serde_json::Value::Null,
        _ => bundle[key] = "".into(),
    }
    let text = serde_json::json!({"overrides": {}, "clusterTrustBundle": bundle}).to_string();
    let error = Document::parse(&text).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&format!("clusterTrustBundle.{key}")),
        "{error}"
    );
}

#[test]
fn an_error_of_shape_knows_its_line() {
    let error = Document::parse("{\n\"overrides\": {\n\"a\": 1}}").unwrap_err();
    assert_eq!(error.line(), Some(3));
}

#[rstest]
#[case::empty_matches_all("{}", true)]
#[case::label_equal(r#"{"matchLabels":{"team":"a"}}"#, true)]
#[case::label_other(r#"{"matchLabels":{"team":"b"}}"#, false)]
#[case::is_in(
    r#"{"matchExpressions":[{"key":"team","operator":"In","values":["b","a"]}]}"#,
    true
)]
#[case::in_of_absent(
    r#"{"matchExpressions":[{"key":"x","operator":"In","values":["a"]}]}"#,
    false
)]
#[case::not_in(
    r#"{"matchExpressions":[{"key":"team","operator":"NotIn","values":["a"]}]}"#,
    false
)]
#[case::not_in_of_absent(
    r#"{"matchExpressions":[{"key":"x","operator":"NotIn","values":["a"]}]}"#,
    true
)]
#[case::exists(r#"{"matchExpressions":[{"key":"team","operator":"Exists"}]}"#, true)]
#[case::does_not_exist(
    r#"{"matchExpressions":[{"key":"team","operator":"DoesNotExist"}]}"#,
    false
)]
#[case::all_must_hold(
    r#"{"matchLabels":{"team":"a"},"matchExpressions":[{"key":"x","operator":"Exists"}]}"#,
    false
)]
fn a_selector_means_what_kubernetes_means(#[case] selector: &str, #[case] expected: bool) {
    let selector: LabelSelector = serde_json::from_str(selector).unwrap();
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    assert_eq!(selector.matches(&labels), expected);
}
