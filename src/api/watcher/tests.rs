use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn watcher() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {"name": "klm-watcher"},
        "spec": {
            "manager": "lifecycle-manager",
            "labelsToWatch": {"operator.kyma-project.io/watched-by": "kyma"},
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "field": "spec",
            "serviceInfo": {"name": "klm-controller-manager-events", "port": 8082, "namespace": "kcp-system"},
            "gateway": {"selector": {"matchLabels": {"operator.kyma-project.io/watcher-gateway": "default"}}},
        },
    })
}

#[test]
fn the_definition_is_as_reviewed() {
    insta::assert_json_snapshot!(crd());
}

#[test]
fn the_definition_says_what_the_constants_say() {
    let crd = crd();
    assert_eq!(crd.spec.group, crate::bootstrapper::GROUP);
    assert_eq!(crd.spec.names.kind, KIND);
    assert_eq!(crd.spec.names.plural, PLURAL);
    let versions: Vec<_> = crd
        .spec
        .versions
        .iter()
        .map(|it| (it.name.as_str(), it.served, it.storage))
        .collect();
    assert_eq!(versions, [(VERSION, true, true), ("v1beta1", false, false)]);
}

/// Returns whether the schema accepts a text at a position of the specification, with the validation of an API server.
fn accepts(pointer: &str, text: &str) -> bool {
    let schema = serde_json::to_value(&crd().spec.versions[0].schema).unwrap();
    let mut place = &schema["openAPIV3Schema"]["properties"]["spec"];
    for name in pointer.split('.') {
        place = match name {
            "*" => &place["additionalProperties"],
            name => &place["properties"][name],
        };
    }
    let pattern = regex::Regex::new(place["pattern"].as_str().unwrap()).unwrap();
    let longest = usize::try_from(place["maxLength"].as_u64().unwrap()).unwrap();
    text.len() <= longest && pattern.is_match(text)
}

#[rstest]
#[case("manager", &["", "lifecycle-manager", "a.b_C"], &["a/b", "..", "-a", "a b", "a\n"])]
#[case("labelsToWatch.*", &["", "kyma", "A.b_c-1"], &["a b", "-a", "a/b"])]
#[case("serviceInfo.name", &["klm-events"], &["", "Klm", "a.b", "-a"])]
#[case("serviceInfo.namespace", &["kcp-system"], &["", "a/b"])]
#[case("resourceToWatch.group", &["", "*", "apps", "operator.kyma-project.io"], &["a/b", "Apps", "-a", "**"])]
#[case("resourceToWatch.version", &["*", "v1", "v1beta2"], &["", "v1/x", "V1"])]
#[case("resourceToWatch.resource", &["*", "pods", "deployments/scale", "*/*", "pods/*"], &["", "Pods", "a/b/c", "pods/"])]
fn the_schema_rejects_what_no_controller_could_use(
    #[case] place: &str,
    #[case] valid: &[&str],
    #[case] invalid: &[&str],
) {
    for text in valid {
        assert!(accepts(place, text), "{place}: {text:?}");
    }
    for text in invalid {
        assert!(!accepts(place, text), "{place}: {text:?}");
    }
}

/// The rules themselves are evaluated by an API server in `harness/testkit/tests/watcher_schema.rs`.
#[rstest]
#[case("app", true)]
#[case("operator.kyma-project.io/watched-by", true)]
#[case("a/A.b_c-1", true)]
#[case("", false)]
#[case("a b", false)]
#[case("-a", false)]
#[case("a/b/c", false)]
#[case("/a", false)]
#[case("a/", false)]
#[case("A.b/c", false)]
#[case("a..b/c", false)]
#[case(&"a".repeat(64), false)]
fn the_expression_of_a_label_key_is_that_of_the_controller(#[case] key: &str, #[case] valid: bool) {
    let expression = regex::Regex::new(LABEL_KEY).unwrap();
    assert_eq!(expression.is_match(key), valid);
    assert_eq!(crate::syntax::is_label_key(key), valid);
}

#[test]
fn a_public_watcher_is_read_and_written_unchanged() {
    let parsed: Watcher = serde_json::from_value(watcher()).unwrap();
    assert_eq!(parsed.manager(), Some("lifecycle-manager"));
    assert_eq!(serde_json::to_value(&parsed).unwrap(), watcher());
    let mut least = watcher();
    for optional in ["manager", "labelsToWatch"] {
        least["spec"].as_object_mut().unwrap().remove(optional);
    }
    let parsed: Watcher = serde_json::from_value(least).unwrap();
    assert_eq!(parsed.manager(), None);
}

#[rstest]
#[case::spec(Some("a"), Some("b"), Some("a"))]
#[case::label(None, Some("b"), Some("b"))]
#[case::empty_spec(Some(""), Some("b"), Some("b"))]
#[case::empty_label(None, Some(""), None)]
#[case::none(None, None, None)]
fn the_manager_is_that_of_the_spec_before_that_of_the_label(
    #[case] spec: Option<&str>,
    #[case] label: Option<&str>,
    #[case] expected: Option<&str>,
) {
    let mut object = watcher();
    object["spec"]["manager"] = json!(spec);
    object["metadata"]["labels"] = json!(label.map(|it| json!({ MANAGED_BY_LABEL: it })));
    let parsed: Watcher = serde_json::from_value(object).unwrap();
    assert_eq!(parsed.manager(), expected);
}
