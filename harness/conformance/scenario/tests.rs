use super::*;

const GOOD: &str = "name: x\ndescription: y\nconfig: {overrides: {}}\nworkloads: []\n";
const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: elsewhere}\nspec: {containers: []}\n";

/// Loads a scenario file next to a manifest `pod.yaml`.
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

fn scenario_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(scenarios()).unwrap();
    let files = entries.map(|it| it.unwrap().path());
    files
        .filter(|it| it.extension().is_some_and(|it| it == "yaml"))
        .collect()
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
    let files = scenario_files();
    assert_eq!(files.len(), 8);
    for file in files {
        Scenario::load(&file).unwrap_or_else(|error| panic!("{error:#}"));
    }
}

#[test]
fn first_workload_of_eu_sovereign_is_the_documented_example() {
    let scenario = Scenario::load(&scenarios().join("eu-sovereign.yaml")).unwrap();
    let first = &scenario.landscape.workloads[0];
    // The golden case of the webhook (`src/policy/admission/tests/example.rs`) is about the same file.
    assert_eq!(first.manifest, "fixtures/pause-test1.yaml");
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
    let expected = &landscape.workloads[0].expect.pod;
    assert_eq!(expected["spec"]["nodeName"], "r.test:5000");
    let pod = &scenario.manifest("pod.yaml").unwrap().object;
    assert_eq!(pod["spec"]["containers"][0]["image"], "r.test:5000/a");
    let namespace = &pod["metadata"]["namespace"];
    assert!(namespace.is_null(), "the run has its own");
}

#[rstest::rstest]
#[case::another_name(&GOOD.replace("name: x", "name: z"), "x.yaml:1: name is \"z\", expected \"x\"")]
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
#[case::no_host_of_the_second(
    &format!("{GOOD}registries:\n  q: {{host: q}}\n  r: {{host: 'https://r'}}\n"),
    "x.yaml:7: registries.r.host is \"https://r\""
)]
#[case::an_unknown_runtime_that_is_a_part_of_words(
    &with_workload("{unchanged: true}").replace("[{", "[{runtimes: [r], "),
    "x.yaml:4: runtime \"r\": expected one of [\"skr\"]"
)]
#[case::an_unknown_runtime(
    &with_workload("{unchanged: true}").replace("[{", "[{runtimes: [b], "),
    "x.yaml:4: runtime \"b\": expected one of [\"skr\"]"
)]
#[case::a_runtime_twice(&format!("{GOOD}runtimes: [{{name: a}}, {{name: a}}]\n"), "x.yaml:5: runtimes: expected at least one")]
#[case::no_runtime(&format!("{GOOD}runtimes: []\n"), "x.yaml:5: runtimes: expected at least one")]
#[case::no_expectation(&with_workload("{runs: true}"), "x.yaml:4: pod.yaml: expect: either `pod`")]
#[case::an_empty_expectation(&with_workload("{pod: {spec: {}}}"), "x.yaml:4: pod.yaml: expect: either `pod`")]
#[case::two_expectations(&with_workload("{unchanged: true, pod: {spec: {}}}"), "x.yaml:4: pod.yaml: expect: either `pod`")]
#[case::inside_of_a_pod_that_does_not_run(
    &with_workload("{unchanged: true, runs: false, inside: {variables: {A: b}}}"),
    "x.yaml:4: pod.yaml: expect.inside: expected `runs: true`"
)]
#[case::certificates_without_a_bundle(
    &with_workload("{unchanged: true, inside: {trust: /a.pem}}"),
    "x.yaml:4: pod.yaml: expect.inside.trust: expected `trust`"
)]
#[case::watchers_without_a_control_plane(
    &format!("{GOOD}watchers: [{{namespace: n, name: a, manager: m, field: spec, resource: {{group: g, version: v, resource: r}}}}]\n"),
    "x.yaml:5: watchers: expected `controlPlane`"
)]
#[case::a_change_of_nothing(
    &format!("{GOOD}events:\n- {{name: e, manifest: pod.yaml, change: {{patch: {{}}}}, reported: false}}\n"),
    "x.yaml:6: e: change.patch: expected at least one field"
)]
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

/// The error ends with the expected values, from which a reader can choose.
#[rstest::rstest]
#[case::of_a_scenario(
    &format!("{GOOD}trusst: 1\n"),
    "x.yaml:5: expected a scenario",
    "unknown field `trusst`, expected one of name, description, registries, config, trust, pullSecret, controlPlane, runtimes, watchers, workloads, events"
)]
#[case::of_an_expectation(
    &with_workload("{unchanged: true, run: false}"),
    "x.yaml:4: expected a scenario",
    "unknown field `run`, expected one of runs, unchanged, pod, inside"
)]
fn unknown_key_is_named_with_the_known_ones(
    #[case] text: &str,
    #[case] place: &str,
    #[case] said: &str,
) {
    let error = loaded(text, POD).unwrap_err();
    assert!(error.starts_with(place) && error.contains(said), "{error}");
}

/// As in docs/scenarios.md, a new landscape is a copy with few changed lines.
#[test]
fn copy_of_a_scenario_describes_another_landscape_after_few_changes() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = folder.path().join("fixtures");
    std::fs::create_dir(&fixtures).unwrap();
    for name in ["statefulset", "job", "cronjob", "init-container-pod"] {
        let name = format!("{name}.yaml");
        let original = scenarios().join("fixtures").join(&name);
        std::fs::copy(original, fixtures.join(&name)).unwrap();
    }
    let original = std::fs::read_to_string(scenarios().join("private-registry.yaml")).unwrap();
    let copy = original
        .replace("name: private-registry", "name: mine")
        .replace("registry.landscape.test:5000", "images.example.com")
        .replace("registry-credentials", "pull-secret");
    let changed = original.lines().zip(copy.lines());
    assert!(changed.filter(|(before, after)| before != after).count() <= 10);
    let file = folder.path().join("mine.yaml");
    std::fs::write(&file, copy).unwrap();
    let scenario = Scenario::load(&file).unwrap();
    let secret = scenario.landscape.pull_secret.as_ref().unwrap();
    assert_eq!(secret.name, "pull-secret");
    assert_eq!(secret.registries, ["images.example.com"]);
    assert_eq!(scenario.landscape.workloads.len(), 4);
}

/// Returns the error of the published schema for a text: the locations of invalid values, as an editor shows them.
fn schema_error(text: &str) -> Option<String> {
    let file = scenarios().join("schema.json");
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    let schema = compiler.compile(file.to_str().unwrap(), &mut schemas);
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: Value = serde_saphyr::from_str_with_options(text, options).unwrap();
    let invalid = schemas.validate(&file, schema.unwrap()).err();
    invalid.map(|error| format!("{error:#}"))
}

#[test]
fn every_scenario_is_valid_by_the_published_schema() {
    for file in scenario_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(schema_error(&text), None, "{}", file.display());
    }
}

#[rstest::rstest]
#[case::an_unknown_key(&format!("{GOOD}trusst: 1\n"), "at ''", "trusst")]
#[case::an_unknown_key_within(
    &with_workload("{unchanged: true, run: false}"),
    "at '/workloads/0/expect'",
    "'run'"
)]
#[case::a_wrong_type(&GOOD.replace("[]", "7"), "at '/workloads'", "array")]
#[case::an_absent_key(&GOOD.replace("name: x\n", ""), "at ''", "'name'")]
#[case::an_unknown_mode(
    &format!("{GOOD}controlPlane: {{mode: both}}\n"),
    "at '/controlPlane/mode'",
    "'direct'"
)]
fn bad_file_is_invalid_by_the_published_schema(
    #[case] text: &str,
    #[case] place: &str,
    #[case] what: &str,
) {
    assert_eq!(schema_error(GOOD), None);
    let error = schema_error(text).unwrap();
    let mut lines = error.lines();
    let is_said = lines.any(|it| it.contains(place) && it.contains(what));
    assert!(is_said, "{error}");
}
