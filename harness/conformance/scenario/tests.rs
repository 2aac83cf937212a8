use super::*;

const GOOD: &str = "name: x\ndescription: y\nconfig: {overrides: {}}\nworkloads: []\n";
const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: elsewhere}\nspec: {containers: []}\n";

/// Loads a scenario file beside a manifest `pod.yaml`.
fn loaded(text: &str, manifest: &str) -> Result<Scenario, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.path().join("pod.yaml"), manifest).unwrap();
    Scenario::load(&file).map_err(|error| {
        let text = format!("{error:#}");
        text.replace(&format!("{}/", folder.path().display()), "")
    })
}

fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn with_workload(expect: &str) -> String {
    GOOD.replace("[]", &format!("[{{manifest: pod.yaml, expect: {expect}}}]"))
}

#[test]
fn published_schema_is_current() {
    let file = scenarios().join("schema.json");
    let published = std::fs::read_to_string(&file).unwrap_or_default();
    let command = "cargo harness landscape schema > scenarios/schema.json";
    assert!(published == crate::schema(), "{command}");
}

#[test]
fn every_scenario_can_be_loaded() {
    let mut count = 0;
    for entry in std::fs::read_dir(scenarios()).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|it| it == "yaml") {
            Scenario::load(&file).unwrap_or_else(|error| panic!("{error:#}"));
            count += 1;
        }
    }
    assert_eq!(count, 8);
}

#[test]
fn first_workload_of_eu_sovereign_is_the_documented_example() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/policy/admission/tests/example");
    let scenario = Scenario::load(&scenarios().join("eu-sovereign.yaml")).unwrap();
    let manifest = scenario
        .manifest(&scenario.landscape.workloads[0].manifest)
        .unwrap();
    let example = std::fs::read_to_string(folder.join("deployment.yaml")).unwrap();
    assert_eq!(manifest.text, example);
}

#[test]
fn host_of_a_registry_takes_the_place_of_its_name() {
    let text = format!("{GOOD}registries: {{r: {{host: 'r.test:5000'}}}}\n");
    let text = text.replace("{overrides: {}}", "{overrides: {a.test: '${r}/x'}}");
    let text = text.replace(
        "[]",
        "[{manifest: pod.yaml, expect: {pod: {spec: {nodeName: '${r}'}}}}]",
    );
    let scenario = loaded(&text, &POD.replace("[]", "[{image: '${r}/a'}]")).unwrap();
    let landscape = &scenario.landscape;
    assert_eq!(landscape.config["overrides"]["a.test"], "r.test:5000/x");
    assert_eq!(
        landscape.workloads[0].expect.pod["spec"]["nodeName"],
        "r.test:5000"
    );
    let manifest = scenario.manifest("pod.yaml").unwrap();
    assert_eq!(
        manifest.object["spec"]["containers"][0]["image"],
        "r.test:5000/a"
    );
    assert!(
        manifest.object["metadata"]["namespace"].is_null(),
        "the run has its own"
    );
}

#[rstest::rstest]
#[case::another_name(&GOOD.replace("name: x", "name: z"), "x.yaml:1: name is \"z\", expected \"x\"")]
#[case::an_unknown_key(&format!("{GOOD}trusst: 1\n"), "x.yaml:5: expected a scenario")]
#[case::a_wrong_type(&GOOD.replace("[]", "7"), "x.yaml:4: expected a scenario")]
#[case::no_yaml("name: [", "x.yaml:1: expected a scenario")]
#[case::no_config(&GOOD.replace("overrides", "overridden"), "x.yaml:3: config: overrides: required")]
#[case::no_manifest(
    &GOOD.replace("[]", "[{manifest: none.yaml, expect: {unchanged: true}}]"),
    "x.yaml:4: manifest none.yaml does not exist: expected a file"
)]
#[case::an_unknown_registry(
    &GOOD.replace("{overrides: {}}", "{overrides: {a: '${other}'}}"),
    "x.yaml:3: config: ${other}: expected a name of `registries`: []"
)]
#[case::no_host(&format!("{GOOD}registries: {{r: {{host: 'https://r'}}}}\n"), "x.yaml:5: registries.r.host is \"https://r\"")]
#[case::an_unknown_runtime(
    &with_workload("{unchanged: true}").replace("[{", "[{runtimes: [b], "),
    "x.yaml:4: runtime \"b\": expected one of [\"skr\"]"
)]
#[case::a_runtime_twice(&format!("{GOOD}runtimes: [{{name: a}}, {{name: a}}]\n"), "x.yaml:5: runtimes: expected at least one")]
#[case::no_runtime(&format!("{GOOD}runtimes: []\n"), "x.yaml:5: runtimes: expected at least one")]
#[case::no_expectation(&with_workload("{runs: true}"), "x.yaml:4: pod.yaml: expect: either `pod`")]
#[case::two_expectations(&with_workload("{unchanged: true, pod: {spec: {}}}"), "x.yaml:4: pod.yaml: expect: either `pod`")]
#[case::too_large(&format!("{GOOD}#{}", "x".repeat(1 << 20)), "x.yaml: 1048")]
fn bad_file_is_named_with_its_line(#[case] text: &str, #[case] said: &str) {
    let error = loaded(text, POD).unwrap_err();
    assert!(error.starts_with(said), "{error}");
}

#[rstest::rstest]
#[case::no_yaml("a: [", "x.yaml:4: pod.yaml:1: expected a YAML stream")]
#[case::no_object("- a", "x.yaml:4: pod.yaml: /apiVersion: expected a string")]
#[case::makes_no_pods(&POD.replace("kind: Pod", "kind: ConfigMap"), "x.yaml:4: pod.yaml: expected one of")]
#[case::two_of_them(&format!("{POD}---\n{POD}"), "x.yaml:4: pod.yaml: expected one object that makes Pods")]
fn bad_manifest_is_named_with_its_place(#[case] manifest: &str, #[case] said: &str) {
    let error = loaded(&with_workload("{unchanged: true}"), manifest).unwrap_err();
    assert!(error.starts_with(said), "{error}");
}
