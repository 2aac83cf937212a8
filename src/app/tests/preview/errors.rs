//! Tests of invalid manifests: exit code 1, no standard output, and a message with file, line and field.

use std::fmt::Write as _;
use std::fs::File;

use rstest::rstest;

use super::runner::{Folder, POD, Ran};

pub(crate) fn refused(ran: &Ran, expected: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    assert!(
        ran.err.starts_with(&format!("error: {expected}")),
        "{}",
        ran.err
    );
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
}

#[rstest]
#[case::yaml("a: b\nc: [d\n", "m.yaml:2: not valid YAML: ")]
#[case::json(
    "{\"a\": 1,\n \"b\" \"c\"}",
    "m.yaml:2: not valid JSON: expected `:`\n"
)]
#[case::second_of_a_json_stream(
    "{\"apiVersion\": \"v1\", \"kind\": \"X\"}\n\n{\"a\" 1}",
    "m.yaml:3: not valid JSON: "
)]
#[case::duplicate_key(
    "apiVersion: v1\nkind: Pod\nkind: Pod\n",
    "m.yaml:3: not valid YAML: duplicate key \"kind\"\n"
)]
#[case::duplicate_key_of_json(
    "{\"apiVersion\": \"v1\",\n \"kind\": \"Pod\",\n \"kind\": \"Pod\"}",
    "m.yaml:3: not valid JSON: duplicate key \"kind\"\n"
)]
#[case::duplicate_key_deep_in_json(
    "{\"apiVersion\": \"v1\", \"kind\": \"X\", \"spec\": [{\"a\": 1, \"b\": {}, \"a\": 2}]}",
    "m.yaml:1: not valid JSON: duplicate key \"a\"\n"
)]
#[case::scalar(
    "just text\n",
    "m.yaml:1: expected a Kubernetes object, got a string\n"
)]
#[case::no_kind("---\n---\napiVersion: v1\n", "m.yaml:3: kind: required\n")]
#[case::no_version("kind: Pod\n", "m.yaml:1: apiVersion: required\n")]
#[case::kind_is_no_text(
    "apiVersion: v1\nkind: yes\n",
    "m.yaml:2: kind: expected a string, got a boolean\n"
)]
#[case::no_name(
    "apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: {}\n",
    "m.yaml:3: Pod: metadata.name: required\n"
)]
#[case::name_is_no_text(
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: 007\nspec: {}\n",
    "m.yaml:4: Pod: metadata.name: expected a string, got a number\n"
)]
#[case::no_template(
    "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {jobTemplate: {}}\n",
    "m.yaml:4: CronJob default/c: spec.jobTemplate.spec.template.spec: required\n"
)]
#[case::no_spec(
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: null\n",
    "m.yaml:4: Pod default/p: spec: required\n"
)]
#[case::metadata_of_a_template(
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template:\n    metadata: 5\n    spec: {}\n",
    "m.yaml:6: Deployment default/d: spec.template.metadata: expected a mapping, got a number\n"
)]
#[case::template(
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  template: []\n",
    "m.yaml:5: Deployment default/d: spec.template.spec: required\n"
)]
#[case::annotation_of_a_workload(
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, annotations: {a: 1}}\nspec: {template: {spec: {}}}\n",
    "m.yaml:3: Deployment default/d: metadata.annotations.a: expected a string, got a number\n"
)]
#[case::items(
    "apiVersion: v1\nkind: List\nitems: {}\n",
    "m.yaml:3: items: expected a list, got a mapping\n"
)]
#[case::item(
    "apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n",
    "m.yaml:4: apiVersion: required\n"
)]
#[case::container_is_no_mapping(
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [5]}\n",
    "m.yaml:4: Pod default/p: spec.containers[0]: expected a mapping, got a number\n"
)]
#[case::image_is_no_text(
    "# first\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: 5}]}\n",
    "m.yaml:5: Pod default/p: spec.containers[0].image: expected a string, got a number\n"
)]
fn a_manifest_is_refused_with_its_place(#[case] manifest: &str, #[case] expected: &str) {
    let ran = Folder::new().with("m.yaml", manifest).preview(&["m.yaml"]);
    refused(&ran, expected);
}

#[rstest]
#[case::yaml(
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec:\n  containers:\n  - name: main\n    env: [{name: A, value: yes}]\n",
    7
)]
#[case::json(
    "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\":\n{\"name\": \"a\", \"namespace\": \"shop\"},\n\"spec\": {\n\"containers\": [\n{\"name\": \"main\",\n\"env\": [{\"name\": \"A\",\n\"value\": true}]}]}}",
    7
)]
fn wrong_type_in_a_pod_is_named_with_line_and_path(#[case] manifest: &str, #[case] line: u64) {
    let ran = Folder::new()
        .with("in.yaml", manifest)
        .preview(&["in.yaml"]);
    let expected = "Pod shop/a: spec.containers[0].env[0].value: expected a string, got a boolean";
    refused(&ran, &format!("in.yaml:{line}: {expected}\n"));
}

#[test]
fn all_errors_of_a_run_are_reported_in_the_order_of_the_input() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: 1}, annotations: {b: yes}}\n\
        spec:\n  containers:\n  - {name: [], image: 5}\n  - 7\n  volumes: {}\n";
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n- 5\n---\n{pod}---\nkind: Pod\napiVersion: v1\n"
    );
    let ran = Folder::new()
        .with("config.json", "{}")
        .with("s", "kind: ConfigMap\napiVersion: v1\n")
        .with("m.yaml", list)
        .with("n.yaml", "a: [")
        .with("o.yaml", "kind: Service\n")
        .preview(&["--pull-secret", "s", "m.yaml", "n.yaml", "absent", "o.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
    let expected = "\
error: config.json:1: overrides: required ({} for none)
error: s: expected a Secret, or a docker config with the key auths
error: m.yaml:4: apiVersion: required
error: m.yaml:5: expected a Kubernetes object, got a number
error: m.yaml:9: Pod default/p: metadata.annotations.b: expected a string, got a boolean
error: m.yaml:9: Pod default/p: metadata.labels.a: expected a string, got a number
error: m.yaml:12: Pod default/p: spec.containers[0].image: expected a string, got a number
error: m.yaml:12: Pod default/p: spec.containers[0].name: expected a string, got a list
error: m.yaml:13: Pod default/p: spec.containers[1]: expected a mapping, got a number
error: m.yaml:14: Pod default/p: spec.volumes: expected a list, got a mapping
error: m.yaml:16: Pod: metadata.name: required
error: m.yaml:16: Pod: spec: required
error: n.yaml:1: not valid YAML: ";
    assert!(ran.err.starts_with(expected), "{}", ran.err);
    assert!(
        ran.err.ends_with("error: absent: cannot be read: No such file or directory (os error 2)\nerror: o.yaml:1: apiVersion: required\n"),
        "{}",
        ran.err
    );
}

#[test]
fn errors_beyond_the_bound_are_counted() {
    let ran = Folder::new()
        .with("m.yaml", "kind: Pod\n---\n".repeat(25))
        .preview(&["m.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 21);
    assert_eq!(lines[20], "error: 5 more errors");
}

#[rstest]
#[case::null_key("~: 1\n")]
#[case::duplicate("a: 1\na: 1\n")]
#[case::not_a_number("a: .nan\n")]
#[case::anchor("a: *b\n")]
#[case::tag("a: !!int x\n")]
fn error_of_yaml_has_one_position_and_no_advice_to_programmers(#[case] manifest: &str) {
    let ran = Folder::new().with("m.yaml", manifest).preview(&["m.yaml"]);
    refused(&ran, "m.yaml:");
    for word in [
        "Option",
        "policy",
        "Policy",
        "column",
        "at line",
        "deserialize",
        "serde",
    ] {
        assert!(!ran.err.contains(word), "{}", ran.err);
    }
}

#[rstest]
#[case::boolean(
    "true",
    "m.yaml:6: Pod default/a: metadata.annotations[\"rt-cfg.kyma-project.io/alter-img-registry\"]: expected a string, got a boolean\n"
)]
#[case::number(
    "1",
    "m.yaml:6: Pod default/a: metadata.annotations[\"rt-cfg.kyma-project.io/alter-img-registry\"]: expected a string, got a number\n"
)]
#[case::list(
    "[]",
    "m.yaml:6: Pod default/a: metadata.annotations[\"rt-cfg.kyma-project.io/alter-img-registry\"]: expected a string, got a list\n"
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
        "m.yaml:6: Namespace shop: metadata.labels.team: expected a string, got a number\n",
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
    refused(
        &ran,
        "n.yaml:8: Deployment default/d: spec.template.metadata.annotations.a: expected a string, got a boolean\n",
    );
}

#[test]
fn one_invalid_input_among_valid_ones_leaves_nothing() {
    let folder = Folder::new().with("m.yaml", POD).with("n.yaml", "kind: x");
    for form in ["diff", "yaml", "json"] {
        let ran = folder.preview(&["--output", form, "m.yaml", "n.yaml"]);
        refused(&ran, "n.yaml:1: apiVersion: required\n");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    let problem = "cannot be read: ";
    refused(
        &folder.preview(&["absent.yaml"]),
        &format!("absent.yaml: {problem}"),
    );
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    refused(
        &folder.preview(&["-f", "d"]),
        "d: no files *.yaml, *.yml or *.json\n",
    );
}

#[test]
fn a_file_that_is_no_text_is_named_with_the_line() {
    let ran = Folder::new()
        .with("m.yaml", b"a: b\nc: \xff\n")
        .preview(&["m.yaml"]);
    refused(&ran, "m.yaml:2: not UTF-8\n");
}

#[test]
fn an_oversized_file_is_refused_before_it_is_read() {
    let folder = Folder::new();
    let file = File::create(folder.path().join("m.yaml")).unwrap();
    // The file is sparse, and uses no blocks of the disk.
    file.set_len(1 << 40).unwrap();
    refused(&folder.preview(&["m.yaml"]), "m.yaml: larger than 64 MiB\n");
}

#[test]
fn standard_input_is_read_once() {
    refused(
        &Folder::new().preview(&["-", "-"]),
        "-: standard input can be read only once\n",
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

/// The file contains few aliases, but of a long text.
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
        refused(&ran, "m.yaml:1: not valid ");
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
        "m.yaml:7: Pod default/a: metadata.annotations[\"\\u{1b}[31m\"]: expected a string, got a number\n",
    );
}
