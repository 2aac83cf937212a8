//! Test of the documented example: the Pod of `scenarios/fixtures/pause-test1.yaml` is stored as `example/pod.yaml`.

use serde_json::{Value, json};

use super::case::{Case, Given};

const DEPLOYMENT: &str = include_str!("../../../../scenarios/fixtures/pause-test1.yaml");

#[test]
fn pod_of_the_documented_deployment_is_mutated_as_documented() {
    let deployment: Value = serde_saphyr::from_str(DEPLOYMENT).unwrap();
    let expected: Value = serde_saphyr::from_str(include_str!("example/pod.yaml")).unwrap();
    let config: Value = serde_json::from_str(include_str!("example/config.json")).unwrap();

    let template = &deployment["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = deployment["metadata"]["name"].clone();
    let case = Case {
        shows: "the documented example".into(),
        config,
        given: Given::default(),
        object: pod,
        old_object: Value::Null,
        gives: None,
        because: Vec::new(),
        warnings: None,
    };
    let outcome = case.run(&case.object);
    assert_eq!(outcome.pod, expected);
    assert_eq!(case.run(&outcome.pod).patch, None);
}
