//! Tests of valid documents, and of the structure of the keys of this project.

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
#[case::null_of_the_pull_secret(
    r#"{"overrides":{},"imagePullSecret":{"inject":null,"namespaceSelector":{"matchLabels":null,"matchExpressions":null}}}"#
)]
#[case::null_values(
    r#"{"overrides":{},"imagePullSecret":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":null}]}}}"#
)]
#[case::null_feature_list(r#"{"overrides":{},"namespaceFeatures":{"a":null}}"#)]
#[case::resync_interval(
    r#"{"overrides":{},"clusterTrustBundle":{"name":"n","certWritePath":"p","volumeMountPath":"/m","volumeName":"v","resyncInterval":"5m"}}"#
)]
fn document_of_the_right_shape_loads(#[case] text: &str) {
    Document::parse(text).unwrap();
}

#[rstest]
#[case::missing("{}", "overrides: required ({} for none)")]
#[case::null(r#"{"overrides":null}"#, "overrides: required")]
#[case::no_json("overrides:", "line 1, column 1: expected value")]
#[case::empty("", "line 1, column 0: unexpected end of a value")]
#[case::a_list("[]", "column 2: expected a mapping, got a list")]
#[case::truncated(r#"{"overrides":{"#, "unexpected end of an object")]
#[case::a_second_value(r#"{"overrides":{}} {"#, "trailing characters")]
#[case::wrong_type(
    r#"{"overrides":{"replace.me":1}}"#,
    r#"line 1, column 28: overrides["replace.me"]: expected a string, got a number"#
)]
#[case::wrong_list(
    "{\"overrides\":{},\n\"optOut\":\"all\"}",
    "line 2, column 14: optOut: expected a list, got a string"
)]
#[case::wrong_item(
    r#"{"overrides":{},"namespaceFeatures":{"a":["b", null]}}"#,
    "namespaceFeatures.a[1]: expected a string, got null"
)]
#[case::wrong_inject(
    r#"{"overrides":{},"imagePullSecret":{"inject":"sometimes"}}"#,
    "imagePullSecret.inject: unknown variant `sometimes`, expected `needed` or `always`"
)]
#[case::wrong_operator(
    r#"{"overrides":{},"imagePullSecret":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Like"}]}}}"#,
    "imagePullSecret.namespaceSelector.matchExpressions[0].operator: unknown variant `Like`"
)]
#[case::unknown_key_of_a_selector(
    r#"{"overrides":{},"imagePullSecret":{"namespaceSelector":{"matchLabel":{}}}}"#,
    "imagePullSecret.namespaceSelector.matchLabel: unknown field `matchLabel`"
)]
#[case::in_without_values(
    r#"{"overrides":{},"imagePullSecret":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}}"#,
    "imagePullSecret.namespaceSelector.matchExpressions[0].values: required with operator In or NotIn"
)]
#[case::exists_with_values(
    r#"{"overrides":{},"imagePullSecret":{"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}}"#,
    "imagePullSecret.namespaceSelector.matchExpressions[0].values: must be empty with operator Exists or DoesNotExist"
)]
fn document_of_another_shape_is_refused(#[case] text: &str, #[case] message: &str) {
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

fn paths(paths: &[FieldPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_keys_load_and_are_named() {
    let document = Document::parse(
        r#"{"overrides":{},"namespaceFeature":{"a":[]},"imagePullSecret":{"injekt":"always"},
            "clusterTrustBundle":{"name":"n","certWritePath":"p","volumeMountPath":"/m","volumeName":"v","resyncInterval":"5m"}}"#,
    )
    .unwrap();
    assert_eq!(
        paths(&document.unknown_keys),
        [
            "namespaceFeature",
            "imagePullSecret.injekt",
            "clusterTrustBundle.resyncInterval"
        ]
    );
}

#[test]
fn duplicate_keys_load_and_are_named() {
    let document = Document::parse(
        r#"{"overrides":{"a.io":"b.io","a.io":"c.io"},"namespaceFeatures":{"x":[],"y":[],"x":null}}"#,
    )
    .unwrap();
    assert_eq!(document.overrides["a.io"], "c.io");
    assert_eq!(
        paths(&document.duplicate_keys),
        [r#"overrides["a.io"]"#, "namespaceFeatures.x"]
    );
}

/// The list of keys equals the keys that are parsed.
#[test]
fn keys_are_those_that_are_read() {
    let text = r#"{"overrides":{},"availableFeatures":[],"namespaceFeatures":{},"clusterTrustBundle":{"name":"n",
        "certWritePath":"p","volumeMountPath":"/m","volumeName":"v"},"fipsVariables":[],
        "imagePullSecret":{"name":"n","inject":"always","namespaceSelector":{}},"optOut":[]}"#;
    assert_eq!(Document::parse(text).unwrap().unknown_keys, []);
    let document: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut written = Vec::new();
    for (key, value) in document.as_object().unwrap() {
        written.push(key.clone());
        let inner = value.as_object().into_iter().flat_map(|it| it.keys());
        written.extend(inner.map(|inner| format!("{key}.{inner}")));
    }
    written.sort();
    let mut keys = KEYS.to_vec();
    keys.sort_unstable();
    assert_eq!(written, keys);
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
