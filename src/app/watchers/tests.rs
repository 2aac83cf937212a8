use rstest::rstest;

use super::*;

const GOOD: &str = r#"
- namespace: kcp-system
  name: klm-watcher
  manager: lifecycle-manager
  resource: {group: operator.kyma-project.io, version: "*", resource: kymas}
  field: spec
  labels: {operator.kyma-project.io/watched-by: kyma}
- namespace: kcp-system
  name: scales
  manager: scaler
  resource: {group: apps, version: v1, resource: deployments/scale}
  field: status
"#;

fn parsed(text: &str) -> anyhow::Result<Vec<Registration>> {
    parse(text, Path::new("w.yaml"))
}

#[test]
fn a_list_is_read_with_subresources_and_without_labels() {
    let [kymas, scales] = parsed(GOOD).unwrap().try_into().unwrap();
    assert_eq!(kymas.name, "klm-watcher");
    assert_eq!(kymas.watcher.manager.as_str(), "lifecycle-manager");
    assert_eq!(kymas.watcher.field, Field::Spec);
    assert_eq!(kymas.labels["operator.kyma-project.io/watched-by"], "kyma");
    assert_eq!(scales.watcher.field, Field::Status);
    assert_eq!(
        scales.watcher.resources,
        [ResourceRule {
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
            subresource: Some("scale".into()),
        }]
    );
    assert!(scales.labels.is_empty());
    assert_eq!(parsed("[]").unwrap(), []);
}

#[rstest]
#[case::no_yaml("w.yaml: not valid YAML", "a: [")]
#[case::empty("w.yaml: expected one list of Watchers", "")]
#[case::a_map("w.yaml: expected one list of Watchers", "watchers: []")]
#[case::two_documents("w.yaml: expected one list of Watchers", "[]\n---\n[]\n")]
#[case::misspelt("w.yaml: Watcher 1", &GOOD.replace("labels:", "label:"))]
#[case::field("w.yaml: Watcher 1", &GOOD.replace("field: spec", "field: metadata"))]
#[case::no_manager("w.yaml: Watcher 2", &GOOD.replace("  manager: scaler\n", ""))]
#[case::slash("Watcher \"scales\" in w.yaml has a manager that cannot be part of a path", &GOOD.replace("manager: scaler", "manager: a/b"))]
#[case::empty_manager("Watcher \"scales\" in w.yaml has a manager that cannot be part of a path", &GOOD.replace("manager: scaler", "manager: ''"))]
fn anything_else_is_an_error_with_the_files_name(#[case] expected: &str, #[case] text: &str) {
    assert_eq!(parsed(text).unwrap_err().to_string(), expected);
}

#[test]
fn a_missing_file_is_named() {
    let error = read(Path::new("/nowhere/w.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere/w.yaml");
}
