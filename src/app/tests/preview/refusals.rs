//! Tests of invalid configurations and pull Secrets: exit code 1, no standard output, and the position of the error.

use rstest::rstest;

use super::errors::refused;
use super::forms::config_map;
use super::runner::{Folder, POD};

#[rstest]
#[case::syntax("{\n \"overrides\": {},\n}", "config.json:3: trailing comma\n")]
#[case::no_overrides("{}", "config.json:1: overrides: required ({} for none)")]
#[case::null_overrides("{\n \"overrides\":\n  null\n}", "config.json:3: overrides: required")]
#[case::half_a_bundle(
    "{\n \"overrides\": {},\n \"clusterTrustBundle\": {\n  \"name\": \"a\",\n  \"certWritePath\": \"\"}\n}",
    "config.json:5: clusterTrustBundle.certWritePath: required"
)]
#[case::tabs(
    "{\n\t\"overrides\": {},\n\t\"availableFeatures\": [\n\t\t\"x\"\n\t]\n}",
    "config.json:4: availableFeatures: unknown feature \"x\""
)]
#[case::wrong_type(
    "{\n \"overrides\": []}",
    "config.json:2: overrides: expected a mapping, got a list\n"
)]
#[case::unknown_feature(
    "{\"overrides\": {}, \"availableFeatures\": [\n \"rt-cfg.kyma-project.io/set-fips-mode\",\n \"x\"]}",
    "config.json:3: availableFeatures: unknown feature \"x\""
)]
#[case::unknown_feature_of_a_namespace(
    "{\"overrides\": {},\n \"namespaceFeatures\": {\n  \"a\": [],\n  \"b\": [\"x\"]}}",
    "config.json:4: namespaceFeatures.b: unknown feature \"x\""
)]
#[case::not_available(
    "{\"overrides\": {}, \"availableFeatures\": [\"rt-cfg.kyma-project.io/set-fips-mode\"],\n \"namespaceFeatures\":\n {\"a\": [\"rt-cfg.kyma-project.io/set-landscape\"]}}",
    "config.json:3: namespaceFeatures.a: rt-cfg.kyma-project.io/set-landscape is not in availableFeatures"
)]
#[case::unknown_opt_out(
    "{\"overrides\": {},\n\"optOut\": [\"set-fips-mode\"]}",
    "config.json:2: optOut: unknown feature \"set-fips-mode\" (did you mean rt-cfg.kyma-project.io/set-fips-mode?)\n"
)]
#[case::variable(
    "{\"overrides\": {},\n\"fipsVariables\": [\"A=B\"]}",
    "config.json:2: fipsVariables: \"A=B\": not a valid name of a variable"
)]
#[case::pull_secret_name(
    "{\"overrides\": {}, \"imagePullSecret\": {\n\"inject\": \"always\",\n\"name\": \"A B\"}}",
    "config.json:3: imagePullSecret.name: \"A B\": not a valid object name"
)]
#[case::cycle(
    "{\n \"overrides\": {\n  \"x.y\": \"z.z\",\n  \"a.b\": \"c.d\",\n  \"c.d\": \"a.b\"}}",
    "config.json:4: overrides: cycle: a.b → c.d → a.b"
)]
#[case::no_config_map(
    "kind: Secret\napiVersion: v1\n",
    "config.json: expected the JSON document of the configuration, or a ConfigMap with the key rt-bootstrapper-config.json\n"
)]
#[case::config_map_without_key(
    r#"{"kind": "ConfigMap", "data": {}}"#,
    "config.json: expected the JSON document"
)]
#[case::duplicate_key_of_a_config_map(
    "{\"kind\": \"ConfigMap\",\n\"data\": {},\n\"data\": {}}",
    "config.json:3: not valid JSON: duplicate key \"data\"\n"
)]
#[case::in_a_block(&config_map("|\n", "{\n \"overrides\": {},\n \"a\": b\n}"), "config.json:8: expected value\n")]
#[case::in_a_kept_block(&config_map("|-\n", "{\n \"overrides\": {},\n \"a\": b\n}"), "config.json:8: expected value\n")]
#[case::contradiction_in_a_block(
    &config_map("|\n", "{\n \"overrides\": {},\n \"availableFeatures\": [\"x\"]\n}"),
    "config.json:8: availableFeatures: unknown feature"
)]
#[case::in_quotes(&config_map("\"{\\n b\"\n", ""), "config.json:5: key must be a string\n")]
fn a_configuration_is_refused_with_its_place(#[case] config: &str, #[case] expected: &str) {
    let folder = Folder::new()
        .with("config.json", config)
        .with("m.yaml", POD);
    refused(&folder.preview(&["m.yaml"]), expected);
}

#[rstest]
#[case::no_secret(
    "kind: ConfigMap\napiVersion: v1\n",
    "s: expected a Secret, or a docker config with the key auths\n"
)]
#[case::type_of_the_secret(
    "kind: Secret\nmetadata: {}\ntype: Opaque\n",
    "s:3: Secret: type: expected kubernetes.io/dockerconfigjson\n"
)]
#[case::no_type("kind: Secret\n", "s:1: Secret: type: expected")]
#[case::no_key(
    "kind: Secret\ntype: kubernetes.io/dockerconfigjson\n",
    "s:1: Secret: data[\".dockerconfigjson\"]: required\n"
)]
#[case::no_base64(
    "kind: Secret\ntype: kubernetes.io/dockerconfigjson\ndata:\n  .dockerconfigjson: hunter2!\n",
    "s:4: Secret: data[\".dockerconfigjson\"]: not base64\n"
)]
#[case::no_docker_config(
    "kind: Secret\ntype: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: hunter2\n",
    "s:1: Secret: not a valid docker config: not JSON (line 1, column 1)\n"
)]
#[case::no_yaml(
    "kind: Secret\nstringData: hunter2: [hunter2\n",
    "s:2: not valid YAML or JSON\n"
)]
#[case::no_json("{\"auths\": {\"hunter2\" hunter2", "s:1: not valid YAML or JSON\n")]
fn a_pull_secret_is_refused_without_a_word_of_it(#[case] secret: &str, #[case] expected: &str) {
    let folder = Folder::new().with("s", secret).with("m.yaml", POD);
    let ran = folder.preview(&["--pull-secret", "s", "m.yaml"]);
    refused(&ran, expected);
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
}
