//! Tests of valid formats of manifests.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};

use super::runner::{CONFIG, Folder, POD, pods_of};

const KEY: &str = "rt-cfg.kyma-project.io/alter-img-registry";

fn template() -> Value {
    json!({
        "metadata": {"name": "ignored", "annotations": {KEY: "true"}, "brandNew": 1},
        "spec": {"containers": [{"name": "main", "image": "replace.me/x:1", "brandNew": {"a": [1.5]}}]},
        "brandNew": true,
    })
}

fn owner(version: &str, kind: &str, template_at: &[&str]) -> Value {
    let nested = template_at
        .iter()
        .rev()
        .fold(template(), |inner, key| json!({ *key: inner }));
    let mut owner = json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": "o", "namespace": "n"},
    });
    owner
        .as_object_mut()
        .unwrap()
        .extend(nested.as_object().unwrap().clone());
    owner
}

fn images(pods: &[Value]) -> Vec<&Value> {
    pods.iter()
        .map(|it| &it["pod"]["spec"]["containers"][0]["image"])
        .collect()
}

#[rstest]
#[case("apps/v1", "Deployment", &["spec", "template"])]
#[case("apps/v1", "StatefulSet", &["spec", "template"])]
#[case("apps/v1", "DaemonSet", &["spec", "template"])]
#[case("apps/v1", "ReplicaSet", &["spec", "template"])]
#[case("v1", "ReplicationController", &["spec", "template"])]
#[case("batch/v1", "Job", &["spec", "template"])]
#[case("batch/v1", "CronJob", &["spec", "jobTemplate", "spec", "template"])]
#[case("v1", "PodTemplate", &["template"])]
fn every_kind_gives_the_pod_of_its_template(
    #[case] version: &str,
    #[case] kind: &str,
    #[case] template_at: &[&str],
) {
    let pods = pods_of(&owner(version, kind, template_at).to_string());
    assert_eq!(pods.len(), 1);
    let source = json!({"kind": kind, "namespace": "n", "name": "o"});
    assert_eq!(pods[0]["source"], source);
    let marker = "rt-bootstrapper.kyma-project.io/defaulted";
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "o", "namespace": "n", "brandNew": 1,
            "annotations": {KEY: "true", marker: "true"},
        },
        "spec": {"containers": [{"name": "main", "image": "ghcr.io/x:1", "brandNew": {"a": [1.5]}}]},
        "brandNew": true,
    });
    assert_eq!(pods[0]["pod"], expected);
}

#[rstest]
#[case::service("v1", "Service")]
#[case::of_another_group("serving.test/v1", "Deployment")]
#[case::former_group("extensions/v1beta1", "Deployment")]
#[case::custom_workload("argoproj.io/v1alpha1", "Rollout")]
#[case::list_of_others("v1", "ConfigMapList")]
#[case::no_list_of_ours("example.test/v1", "AllowList")]
fn other_kinds_are_passed_over_by_name(#[case] version: &str, #[case] kind: &str) {
    let manifest =
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nitems: [1]\n");
    let ran = Folder::new().with("m.yaml", manifest).preview(&["m.yaml"]);
    assert_eq!(
        ran.out,
        format!(
            "# passed over  {kind} ({version}): a\n0 Pods, 0 would be changed; 1 other object passed over\n"
        )
    );
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn passed_over_objects_beyond_the_bound_are_counted() {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: shop}\n---\n";
    let ran = Folder::new()
        .with("m.yaml", service.repeat(12))
        .preview(&["m.yaml"]);
    let names = ["shop/s"; 10].join(", ");
    let expected = format!("# passed over  Service (v1): {names} and 2 more\n");
    assert!(ran.out.starts_with(&expected), "{}", ran.out);
}

fn three() -> [Value; 3] {
    ["a", "b", "c"].map(|name| {
        let mut pod = template();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = name.into();
        pod
    })
}

#[rstest]
#[case::list(json!({"apiVersion": "v1", "kind": "List", "items": three()}).to_string())]
#[case::list_of_lists(json!({"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "List", "items": three()},
    {"apiVersion": "v1", "kind": "List", "items": null},
]}).to_string())]
#[case::typed_list(json!({"apiVersion": "v1", "kind": "PodList", "items": three().map(|mut pod| {
    pod.as_object_mut().unwrap().retain(|key, _| key != "kind" && key != "apiVersion");
    pod
})}).to_string())]
#[case::json_stream(three().map(|it| it.to_string()).join(""))]
#[case::json_lines(three().map(|it| it.to_string()).join("\n"))]
#[case::json_pretty(three().map(|it| serde_json::to_string_pretty(&it).unwrap()).join("\n\n"))]
#[case::json_with_separators(three().map(|it| it.to_string()).join("\n---\n"))]
#[case::yaml_stream(three().map(|it| serde_saphyr::to_string(&it).unwrap()).join("---\n"))]
#[case::with_empty_documents(format!("---\n---\n# nothing\n---\n{}\n---\n", three().map(|it| it.to_string()).join("\n---\n")))]
#[case::windows(three().map(|it| serde_saphyr::to_string(&it).unwrap()).join("---\n").replace('\n', "\r\n"))]
#[case::byte_order_mark(format!("\u{feff}{}", three().map(|it| it.to_string()).join("\n")))]
fn streams_and_lists_are_read_to_their_end(#[case] manifest: String) {
    let pods = pods_of(&manifest);
    let names: Vec<&Value> = pods.iter().map(|it| &it["source"]["name"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(images(&pods), ["ghcr.io/x:1"; 3]);
}

#[test]
fn an_empty_file_holds_no_pods() {
    assert_eq!(pods_of(""), Vec::<Value>::new());
    assert_eq!(pods_of("# a comment\n"), Vec::<Value>::new());
}

#[test]
fn a_name_that_the_api_server_would_make_is_shown_as_written() {
    let pods = pods_of(&POD.replace("name: a\n", "generateName: a-\n"));
    assert_eq!(pods[0]["source"]["name"], "a-");
}

const UNANNOTATED: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\n\
    spec: {containers: [{name: main, image: replace.me/x}]}\n";
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  annotations: \
    {rt-cfg.kyma-project.io/alter-img-registry: \"true\"}\n";

#[rstest]
#[case::before(&["n.yaml", "p.yaml"], true)]
#[case::after(&["p.yaml", "n.yaml"], true)]
#[case::absent(&["p.yaml"], false)]
fn a_namespace_counts_wherever_it_is_described(#[case] files: &[&str], #[case] changed: bool) {
    let folder = Folder::new()
        .with("n.yaml", NAMESPACE)
        .with("p.yaml", UNANNOTATED);
    let pods = folder
        .preview(&[&["--output", "json"], files].concat())
        .pods();
    assert_eq!(pods[0]["changed"], changed);
}

#[test]
fn the_last_description_of_a_namespace_counts() {
    let silent = NAMESPACE.replace("\"true\"", "\"false\"");
    let pods = pods_of(&format!("{NAMESPACE}---\n{UNANNOTATED}---\n{silent}"));
    assert_eq!(pods[0]["changed"], false);
}

/// The API server labels each Namespace with its name, so a selector may use this label.
#[rstest]
#[case::by_name("kubernetes.io/metadata.name", "shop", "PullSecretNotObserved")]
#[case::by_other_name("kubernetes.io/metadata.name", "other", "NamespaceNotSelected")]
#[case::by_label("team", "red", "PullSecretNotObserved")]
#[case::by_other_label("team", "blue", "NamespaceNotSelected")]
fn labels_decide_where_credentials_may_go(
    #[case] key: &str,
    #[case] value: &str,
    #[case] reason: &str,
) {
    let feature = "rt-cfg.kyma-project.io/add-img-pull-secret";
    let config = json!({
        "overrides": {},
        "availableFeatures": [feature],
        "namespaceFeatures": {"shop": [feature]},
        "imagePullSecret": {"namespaceSelector": {"matchLabels": {key: value}}},
    });
    let namespace =
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: red}}\n";
    let ran = Folder::new()
        .with("config.json", config.to_string())
        .with("m.yaml", format!("{UNANNOTATED}---\n{namespace}"))
        .preview(&["--output", "json", "m.yaml"]);
    assert_eq!(ran.pods()[0]["reasons"][1]["reason"], reason);
}

#[test]
fn a_dash_is_standard_input() {
    let arguments = [
        "preview",
        "--config",
        "config.json",
        "--output",
        "json",
        "n.yaml",
        "-",
    ];
    let folder = Folder::new().with("n.yaml", NAMESPACE);
    let pods = folder.run(&arguments, UNANNOTATED).pods();
    assert_eq!(pods[0]["changed"], true);
}

fn names(pods: &[Value]) -> Vec<&str> {
    let names = pods.iter().map(|it| it["source"]["name"].as_str().unwrap());
    names.collect()
}

fn pod_named(name: &str) -> String {
    POD.replace("name: a\n", &format!("name: {name}\n"))
}

#[test]
fn filename_is_a_repeatable_flag_beside_positional_manifests() {
    let folder = Folder::new()
        .with("a.yaml", pod_named("a"))
        .with("b.yaml", pod_named("b"))
        .with("c.yaml", pod_named("c"));
    let ran = folder.preview(&[
        "-o",
        "json",
        "c.yaml",
        "-f",
        "a.yaml",
        "--filename",
        "b.yaml",
    ]);
    assert_eq!(names(&ran.pods()), ["a", "b", "c"]);
    let arguments = ["preview", "--config", "config.json", "-ojson", "-f-"];
    assert_eq!(names(&folder.run(&arguments, POD).pods()), ["a"]);
}

#[test]
fn no_manifest_at_all_is_a_usage_error() {
    let ran = Folder::new().preview(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("--filename <MANIFEST>"), "{}", ran.err);
}

#[test]
fn directory_is_read_by_name_without_other_files_and_directories() {
    let folder = Folder::new();
    let path = folder.path().join("d");
    fs::create_dir_all(path.join("sub.yaml")).unwrap();
    let folder = folder
        .with("d/2.yml", pod_named("b"))
        .with("d/1.yaml", pod_named("a"))
        .with("d/3.json", "")
        .with("d/notes.txt", "a: [")
        .with("d/sub.yaml/c.yaml", "a: [");
    let ran = folder.preview(&["-o", "json", "-f", "d"]);
    assert_eq!(names(&ran.pods()), ["a", "b"]);
}

#[test]
fn namespace_is_that_of_manifests_without_one() {
    let folder = Folder::new().with("m.yaml", format!("{POD}---\n{UNANNOTATED}"));
    for flag in ["-n", "--namespace"] {
        let pods = folder
            .preview(&[flag, "team", "-o", "json", "m.yaml"])
            .pods();
        let namespaces: Vec<&Value> = pods.iter().map(|it| &it["source"]["namespace"]).collect();
        assert_eq!(namespaces, ["team", "shop"]);
    }
    let refused = folder.preview(&["-n", "No Namespace", "m.yaml"]);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""));
}

#[test]
fn namespace_of_the_flag_gets_its_features() {
    let folder = Folder::new().with(
        "m.yaml",
        POD.replace("name: a\n", "name: a\n  labels: {}\n"),
    );
    let reason = |flags: &[&str]| {
        let pods = folder
            .preview(&[flags, &["-o", "json", "m.yaml"]].concat())
            .pods();
        pods[0]["reasons"][0]["reason"].clone()
    };
    assert_eq!(reason(&[]), "ImageRewritten");
    assert_eq!(reason(&["-n", "kube-system"]), "NamespaceExcluded");
}

/// The expected values are from `kubectl label --local -f FILE -o json a=b`.
#[rstest]
#[case("yes", json!(true))]
#[case("On", json!(true))]
#[case("y", json!(true))]
#[case("n", json!(false))]
#[case("off", json!(false))]
#[case("012", json!(10))]
#[case("0o12", json!(10))]
#[case("-012", json!(-10))]
#[case("089", json!(89))]
#[case("0x1F", json!(31))]
#[case("0b11", json!(3))]
#[case("1_000", json!(1000))]
#[case("1e3", json!(1000))]
#[case("0.50", json!(0.5))]
#[case("12345678901234567890", json!(12_345_678_901_234_567_890_u64))]
#[case("12:30:45", json!("12:30:45"))]
#[case("2001-01-01", json!("2001-01-01"))]
#[case("~", json!(null))]
#[case("\"012\"", json!("012"))]
fn yaml_means_what_kubectl_makes_of_it(#[case] written: &str, #[case] meant: Value) {
    let pods = pods_of(&POD.replace("spec:\n", &format!("spec:\n  field: {written}\n")));
    assert_eq!(pods[0]["pod"]["spec"]["field"], meant);
}

#[test]
fn aliases_and_merges_are_expanded() {
    let pods = pods_of(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  common: &c {name: x, image: img}\n  \
         containers:\n  - <<: *c\n    name: z\n",
    );
    assert_eq!(
        pods[0]["pod"]["spec"]["containers"],
        json!([{"name": "z", "image": "img"}])
    );
}

#[test]
fn a_template_without_metadata_is_completed() {
    let pods = pods_of(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {}}}\n",
    );
    assert_eq!(pods[0]["pod"]["metadata"], json!({"name": "j"}));
}

#[test]
fn an_annotation_without_a_value_is_an_empty_text() {
    let pods = pods_of(&POD.replace(": \"true\"", ":"));
    assert_eq!(pods[0]["changed"], false);
}

fn secret(data: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\ntype: kubernetes.io/dockerconfigjson\n{data}\n")
}

const AUTHS: &str = r#"{"auths": {"replace.me": {"auth": "dTpw"}}}"#;
// The same text as base64.
const ENCODED: &str = "eyJhdXRocyI6IHsicmVwbGFjZS5tZSI6IHsiYXV0aCI6ICJkVHB3In19fQ==";

#[rstest]
#[case::data(secret(&format!("data: {{.dockerconfigjson: {ENCODED}}}")), "PullSecretRequired")]
#[case::data_in_lines(
    secret(&format!("data:\n  .dockerconfigjson: |\n    {}\n    {}", &ENCODED[..20], &ENCODED[20..])),
    "PullSecretRequired"
)]
#[case::string_data(secret(&format!("stringData: {{.dockerconfigjson: '{AUTHS}'}}")), "PullSecretRequired")]
#[case::string_data_wins(
    secret(&format!("data: {{.dockerconfigjson: e30=}}\nstringData: {{.dockerconfigjson: '{AUTHS}'}}")),
    "PullSecretRequired"
)]
#[case::in_a_list(
    json!({"apiVersion": "v1", "kind": "SecretList", "items": [
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": ENCODED}},
    ]}).to_string(),
    "PullSecretRequired"
)]
#[case::bare(AUTHS.to_owned(), "PullSecretRequired")]
#[case::of_another_registry(AUTHS.replace("replace.me", "other.test"), "PullSecretNotRequired")]
fn registries_of_the_pull_secret_decide_the_reason(#[case] content: String, #[case] reason: &str) {
    let ran = Folder::new()
        .with(
            "m.yaml",
            POD.replace("alter-img-registry", "add-img-pull-secret"),
        )
        .with("s", content)
        .preview(&["--pull-secret", "s", "--output", "json", "m.yaml"]);
    assert_eq!(ran.pods()[0]["reasons"][1]["reason"], reason);
}

/// Editors support documents that name their JSON Schema, so this key is not an error.
#[test]
fn schema_key_of_the_document_is_accepted_silently() {
    let document = CONFIG.replacen('{', "{\"$schema\": \"./schema.json\",", 1);
    let folder = Folder::new()
        .with("config.json", document)
        .with("m.yaml", POD);
    let ran = folder.preview(&["m.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// The process prints the schema of the document that it parses.
#[test]
fn schema_is_printed_as_json() {
    let ran = Folder::new().run(&["schema"], "");
    let schema: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    assert!(schema["properties"]["overrides"].is_object());
}

#[rstest]
#[case::configured("registry-credentials", "")]
#[case::another(
    "other",
    "warning: s: Secret other: the configuration names registry-credentials\n"
)]
fn pull_secret_of_another_name_is_a_warning(#[case] name: &str, #[case] warning: &str) {
    let content = secret(&format!(
        "metadata: {{name: {name}}}\ndata: {{.dockerconfigjson: {ENCODED}}}"
    ));
    let ran = Folder::new()
        .with("m.yaml", POD)
        .with("s", content)
        .preview(&["--pull-secret", "s", "m.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, warning));
}
