use api::names::{EXCLUDED_NAMESPACE, OWN_LABEL, SKR_NAMESPACE};
use serde_json::{Value, json};

/// The assumptions here equal the installed configuration.
#[test]
fn the_pods_that_are_never_sent_are_those_of_the_manifest() {
    let manifest = include_str!("../../../../deploy/webhook/mutatingwebhookconfiguration.yaml");
    let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
    let entry = &manifest["webhooks"][0];
    assert_eq!(
        entry["namespaceSelector"],
        json!({"matchExpressions": [{
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": [EXCLUDED_NAMESPACE],
        }]})
    );
    let (label, value) = OWN_LABEL;
    let own = format!(
        "!(request.namespace == '{SKR_NAMESPACE}' && has(object.metadata.labels) && '{label}' in \
         object.metadata.labels && object.metadata.labels['{label}'] == '{value}')"
    );
    let conditions = entry["matchConditions"].as_array().unwrap();
    assert!(conditions.iter().any(|it| it["expression"] == own.as_str()));
}
