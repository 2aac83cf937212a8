use super::*;

const GOOD: &str = "name: x\ndescription: y\nconfig: {overrides: {}}\nworkloads: []\n";

fn loaded(text: &str) -> Result<Scenario, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    std::fs::write(&file, text).unwrap();
    Scenario::load(&file).map_err(|error| {
        let text = format!("{error:#}");
        text.replace(&format!("{}/", folder.path().display()), "")
    })
}

#[test]
fn the_published_schema_is_current() {
    let file = workspace::root().join("scenarios/schema.json");
    let published = std::fs::read_to_string(&file).unwrap_or_default();
    let command = "cargo harness landscape schema > scenarios/schema.json";
    assert!(published == schema(), "{command}");
}

#[test]
fn every_scenario_can_be_loaded() {
    for file in files().unwrap() {
        let scenario = Scenario::load(&file).unwrap();
        for workload in &scenario.landscape.workloads {
            assert!(!scenario.manifest(workload).unwrap().is_empty());
        }
    }
}

#[test]
fn the_demo_shows_the_seeds_deployment_verbatim() {
    let example = workspace::root().join("src/policy/admission/tests/example/deployment.yaml");
    let scenario = Scenario::first().unwrap();
    let manifest = scenario.manifest(&scenario.landscape.workloads[0]).unwrap();
    assert_eq!(manifest, std::fs::read_to_string(example).unwrap());
}

#[test]
fn the_registrys_host_takes_the_place_of_its_name() {
    let scenario = Scenario::first().unwrap();
    let stream = objects(&scenario.landscape, "kyma-system", "r.test:5000", "{}").unwrap();
    assert!(!stream.contains(model::REGISTRY), "{stream}");
    let objects: Vec<Value> = serde_saphyr::from_multiple(&stream).unwrap();
    let kinds = objects.iter().map(|object| &object["kind"]);
    let expected = ["Namespace", "ConfigMap", "Secret", "ClusterTrustBundle"];
    assert!(kinds.eq(expected), "{stream}");
    let document = &objects[1]["data"]["rt-bootstrapper-config.json"];
    let document = document.as_str().unwrap();
    let document = api::config::Document::parse(document).unwrap();
    assert_eq!(document.overrides["replace.me"], "r.test:5000");
}

#[rstest::rstest]
#[case::another_name(&GOOD.replace("name: x", "name: z"), "x.yaml: `name` is not the file's: z")]
#[case::an_unknown_key(&format!("{GOOD}trusst: 1\n"), "x.yaml:5: no landscape")]
#[case::a_wrong_type(&GOOD.replace("[]", "7"), "x.yaml:4: no landscape")]
#[case::no_yaml("name: [", "x.yaml:1: no landscape")]
#[case::no_config(&GOOD.replace("overrides", "overridden"), "x.yaml: `config` is no configuration document: overrides: required")]
#[case::no_manifest(
    &GOOD.replace("[]", "[{manifest: fixtures/none.yaml, expect: {runs: true, pod: {}}}]"),
    "x.yaml: fixtures/none.yaml does not exist"
)]
#[case::another_registry(&format!("{GOOD}pullSecret: {{name: x, registry: docker.io}}\n"), "x.yaml:5: no landscape")]
fn a_bad_file_is_named(#[case] text: &str, #[case] said: &str) {
    let error = loaded(text).unwrap_err();
    assert!(error.starts_with(said), "{error}");
}

#[test]
fn an_authority_is_generated_once() {
    let folder = tempfile::tempdir().unwrap();
    let trust = Trust {
        name: "x".to_owned(),
        signer: None,
        authorities: vec![Authority::Generate("Root R1".to_owned())],
    };
    let pem = certificates(&trust, folder.path()).unwrap();
    assert_eq!(certificates(&trust, folder.path()).unwrap(), pem);
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
    assert!(pem.ends_with("-----END CERTIFICATE-----\n"), "{pem}");
}
