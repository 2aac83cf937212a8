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

fn parsed(text: &str) -> Result<Vec<Registration>, WatchersError> {
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
#[case::no_yaml("Yaml", "a: [")]
#[case::empty("Shape", "")]
#[case::a_map("Shape", "watchers: []")]
#[case::two_documents("Shape", "[]\n---\n[]\n")]
#[case::misspelt("Watcher", &GOOD.replace("labels:", "label:"))]
#[case::field("Watcher", &GOOD.replace("field: spec", "field: metadata"))]
#[case::no_manager("Watcher", &GOOD.replace("  manager: scaler\n", ""))]
#[case::slash("Manager", &GOOD.replace("manager: scaler", "manager: a/b"))]
#[case::empty_manager("Manager", &GOOD.replace("manager: scaler", "manager: ''"))]
fn anything_else_is_an_error_with_the_files_name(#[case] expected: &str, #[case] text: &str) {
    let error = parsed(text).unwrap_err();
    let kind = match &error {
        WatchersError::Read { .. } => "Read",
        WatchersError::Yaml { .. } => "Yaml",
        WatchersError::Shape { .. } => "Shape",
        WatchersError::Watcher { .. } => "Watcher",
        WatchersError::Manager { .. } => "Manager",
    };
    assert_eq!(kind, expected);
    assert!(error.to_string().contains("w.yaml"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let error = read(Path::new("/nowhere/w.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nowhere/w.yaml");
}
