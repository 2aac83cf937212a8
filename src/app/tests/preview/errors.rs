//! Invalid inputs: exit code 1, nothing on standard output, and a message that names file, line and remedy.

use std::fmt::Write as _;
use std::fs::File;

use rstest::rstest;

use super::forms::config_map;
use super::runner::{Folder, POD, Ran};

fn refused(ran: &Ran, expected: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    assert!(
        ran.err.starts_with(&format!("error: {expected}")),
        "{}",
        ran.err
    );
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[rstest]
#[case::yaml("a: b\nc: [d\n", "m.yaml:2: no valid YAML; correct the text there: ")]
#[case::json(
    "{\"a\": 1,\n \"b\" \"c\"}",
    "m.yaml:2: no valid JSON; correct the text there: "
)]
#[case::second_of_a_json_stream(
    "{\"apiVersion\": \"v1\", \"kind\": \"X\"}\n\n{\"a\" 1}",
    "m.yaml:3: no valid JSON"
)]
#[case::duplicate_key("apiVersion: v1\nkind: Pod\nkind: Pod\n", "m.yaml:3: no valid YAML")]
#[case::scalar("just text\n", "m.yaml:1: not a Kubernetes object; give a mapping")]
#[case::no_kind(
    "---\n---\napiVersion: v1\n",
    "m.yaml:3: `kind` is missing or no text; say what the object is"
)]
#[case::no_version("kind: Pod\n", "m.yaml:1: `apiVersion` is missing or no text")]
#[case::kind_is_no_text(
    "apiVersion: v1\nkind: yes\n",
    "m.yaml:1: `kind` is missing or no text"
)]
#[case::no_name(
    "apiVersion: v1\nkind: Pod\nmetadata: {}\n",
    "m.yaml:1: Pod without `metadata.name` or"
)]
#[case::name_is_no_text(
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: 007\n",
    "m.yaml:4: `metadata.name` is no text; put it in quotes"
)]
#[case::no_template(
    "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {jobTemplate: {}}\n",
    "m.yaml:1: CronJob c: `spec.jobTemplate.spec.template.spec` is missing or no mapping; write it"
)]
#[case::no_spec(
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: null\n",
    "m.yaml:1: Pod p: `spec` is missing or no mapping; write it"
)]
#[case::items(
    "apiVersion: v1\nkind: List\nitems: {}\n",
    "m.yaml:1: `items` of List is no list; make it one"
)]
#[case::item(
    "apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n",
    "m.yaml:4: `apiVersion` is missing"
)]
#[case::container_is_no_mapping(
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [5]}\n",
    "m.yaml:1: Pod default/p is no valid Pod: `containers`: invalid type: integer `5`"
)]
#[case::image_is_no_text(
    "# first\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: 5}]}\n",
    "m.yaml:2: Pod default/p is no valid Pod: `image`: invalid type: integer `5`, expected a string; correct it"
)]
fn a_manifest_is_refused_with_its_place(#[case] manifest: &str, #[case] expected: &str) {
    let ran = Folder::new().with("m.yaml", manifest).preview(&["m.yaml"]);
    refused(&ran, expected);
}

#[rstest]
#[case::boolean(
    "true",
    "m.yaml:6: `metadata.annotations.rt-cfg.kyma-project.io/alter-img-registry` is a boolean, not text; put the value in quotes"
)]
#[case::number(
    "1",
    "m.yaml:6: `metadata.annotations.rt-cfg.kyma-project.io/alter-img-registry` is a number"
)]
#[case::list(
    "[]",
    "m.yaml:6: `metadata.annotations.rt-cfg.kyma-project.io/alter-img-registry` is a list"
)]
fn an_annotation_that_is_no_text_is_named(#[case] value: &str, #[case] expected: &str) {
    let pod = POD.replace("\"true\"", value);
    let ran = Folder::new().with("m.yaml", pod).preview(&["m.yaml"]);
    refused(&ran, expected);
}

#[test]
fn a_namespace_label_that_is_no_text_is_named() {
    let manifest =
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels:\n    team: 1\n";
    let ran = Folder::new().with("m.yaml", manifest).preview(&["m.yaml"]);
    refused(
        &ran,
        "m.yaml:6: `metadata.labels.team` is a number, not text; put the value in quotes",
    );
}

#[test]
fn an_annotation_in_a_template_is_found_in_its_file() {
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    metadata:\n      \
        annotations:\n        a: no\n    spec: {}\n";
    let ran = Folder::new()
        .with("m.yaml", POD)
        .with("n.yaml", manifest)
        .preview(&["m.yaml", "n.yaml"]);
    refused(&ran, "n.yaml:8: `metadata.annotations.a` is a boolean");
}

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
    "config.json: neither the JSON document nor a ConfigMap with the key `rt-bootstrapper-config.json`; name the file that holds one"
)]
#[case::config_map_without_key(
    r#"{"kind": "ConfigMap", "data": {}}"#,
    "config.json: neither the JSON document"
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
    "s: neither a Secret nor a docker config with `auths`"
)]
#[case::type_of_the_secret(
    "kind: Secret\nmetadata: {}\ntype: Opaque\n",
    "s:3: the Secret's type is not `kubernetes.io/dockerconfigjson`"
)]
#[case::no_type("kind: Secret\n", "s:1: the Secret's type is not")]
#[case::no_key(
    "kind: Secret\ntype: kubernetes.io/dockerconfigjson\n",
    "s:1: the Secret has no text under `.dockerconfigjson`"
)]
#[case::no_base64(
    "kind: Secret\ntype: kubernetes.io/dockerconfigjson\ndata:\n  .dockerconfigjson: hunter2!\n",
    "s:4: `.dockerconfigjson` in `data` of the Secret is not base64"
)]
#[case::no_docker_config(
    "kind: Secret\ntype: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: hunter2\n",
    "s:1: the pull Secret holds no usable docker config, please correct it: not JSON"
)]
#[case::no_yaml(
    "kind: Secret\nstringData: hunter2: [hunter2\n",
    "s:2: no valid YAML or JSON; correct the text there\n"
)]
#[case::no_json(
    "{\"auths\": {\"hunter2\" hunter2",
    "s:1: no valid YAML or JSON; correct the text there\n"
)]
fn a_pull_secret_is_refused_without_a_word_of_it(#[case] secret: &str, #[case] expected: &str) {
    let folder = Folder::new().with("s", secret).with("m.yaml", POD);
    let ran = folder.preview(&["--pull-secret", "s", "m.yaml"]);
    refused(&ran, expected);
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
}

#[test]
fn one_invalid_input_among_valid_ones_leaves_nothing() {
    let folder = Folder::new().with("m.yaml", POD).with("n.yaml", "kind: x");
    for form in ["diff", "yaml", "json"] {
        let ran = folder.preview(&["--output", form, "m.yaml", "n.yaml"]);
        refused(&ran, "n.yaml:1: `apiVersion`");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    let remedy = "cannot be read; check the path and the permissions: ";
    refused(
        &folder.preview(&["absent.yaml"]),
        &format!("absent.yaml: {remedy}"),
    );
    refused(&folder.preview(&["."]), &format!(".: {remedy}"));
}

#[test]
fn a_file_that_is_no_text_is_named_with_the_line() {
    let ran = Folder::new()
        .with("m.yaml", b"a: b\nc: \xff\n")
        .preview(&["m.yaml"]);
    refused(&ran, "m.yaml:2: not UTF-8; save the file as UTF-8\n");
}

#[test]
fn an_oversized_file_is_refused_before_it_is_read() {
    let folder = Folder::new();
    let file = File::create(folder.path().join("m.yaml")).unwrap();
    // Sparse: it takes no room on the disk.
    file.set_len(1 << 40).unwrap();
    refused(
        &folder.preview(&["m.yaml"]),
        "m.yaml: larger than 64 MiB; split it\n",
    );
}

#[test]
fn standard_input_is_read_once() {
    refused(
        &Folder::new().preview(&["-", "-"]),
        "standard input can be read only once",
    );
}

#[test]
fn aliases_cannot_fill_the_memory() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let inner = format!("*a{}, ", level - 1).repeat(10);
        writeln!(bomb, "a{level}: &a{level} [{inner}]").unwrap();
    }
    let ran = Folder::new().with("m.yaml", bomb).preview(&["m.yaml"]);
    refused(&ran, "m.yaml:");
}

/// Few aliases, but of a long text.
#[test]
fn copies_of_a_long_text_cannot_fill_the_memory() {
    let long = "x".repeat(8 * 1024 * 1024);
    let copies = "- *a\n".repeat(90);
    let ran = Folder::new()
        .with("m.yaml", format!("- &a {long}\n{copies}"))
        .preview(&["m.yaml"]);
    refused(&ran, "m.yaml:");
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let text = format!("{}1{}", open.repeat(10_000), close.repeat(10_000));
        let ran = Folder::new().with("m.yaml", text).preview(&["m.yaml"]);
        refused(&ran, "m.yaml:1: no valid ");
    }
}

#[test]
fn control_characters_of_an_error_are_escaped() {
    let ran = Folder::new()
        .with(
            "m.yaml",
            POD.replace("\"true\"", "\"true\"\n    \"\\e[31m\": 1"),
        )
        .preview(&["m.yaml"]);
    refused(
        &ran,
        "m.yaml:7: `metadata.annotations.\\u{1b}[31m` is a number",
    );
}
