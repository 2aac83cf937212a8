//! Tests of the three formats of the result, and of the exit codes.

use rstest::rstest;
use serde_json::{Value, json};

use super::runner::{CONFIG, Folder, POD, pods_of};

const EXAMPLE_CONFIG: &str = include_str!("../../../policy/admission/tests/example/config.json");
const EXAMPLE_DEPLOYMENT: &str = include_str!("../../../../scenarios/fixtures/pause-test1.yaml");
const EXAMPLE_POD: &str = include_str!("../../../policy/admission/tests/example/pod.yaml");

fn example() -> Folder {
    Folder::new()
        .with("config.json", EXAMPLE_CONFIG)
        .with("m.yaml", EXAMPLE_DEPLOYMENT)
}

#[test]
fn documented_deployment_gives_the_documented_pod() {
    let expected: Value = serde_saphyr::from_str(EXAMPLE_POD).unwrap();
    let pods = example().preview(&["--output", "json", "m.yaml"]).pods();
    let [pod] = pods.as_slice() else {
        panic!("{pods:?}")
    };
    assert_eq!(pod["pod"], expected);
    assert_eq!(pod["changed"], true);
    let source = json!({"kind": "Deployment", "namespace": "default", "name": "pause-test1"});
    assert_eq!(pod["source"], source);
    let yaml = example().preview(&["--output", "yaml", "m.yaml"]);
    assert_eq!(
        serde_saphyr::from_str::<Value>(&yaml.out).unwrap(),
        expected
    );
}

#[test]
fn the_patch_makes_the_pod_of_what_was_written() {
    let pods = example().preview(&["--output", "json", "m.yaml"]).pods();
    let deployment: Value = serde_saphyr::from_str(EXAMPLE_DEPLOYMENT).unwrap();
    let mut pod = deployment["spec"]["template"].clone();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "pause-test1".into();
    let patch: json_patch::Patch = serde_json::from_value(pods[0]["patch"].clone()).unwrap();
    json_patch::patch(&mut pod, &patch).unwrap();
    assert_eq!(pod, pods[0]["pod"]);
}

fn finding(feature: &str, applied: bool, reason: &str, message: &str) -> Value {
    json!({"feature": feature, "applied": applied, "reason": reason, "message": message})
}

/// Returns the reasons of a Pod for which at most the registry rewrite has a message.
fn reasons(rewrite: Option<&str>) -> Vec<Value> {
    let silent = |feature| {
        let why = "not requested by the configuration, the Namespace or the Pod";
        finding(feature, false, "NotRequested", why)
    };
    let first = match rewrite {
        Some(message) => finding("alter-img-registry", true, "ImageRewritten", message),
        None => silent("alter-img-registry"),
    };
    let others = [
        "add-img-pull-secret",
        "add-cluster-trust-bundle",
        "set-fips-mode",
        "set-landscape",
    ];
    [vec![first], others.map(silent).into()].concat()
}

/// The format is stable for programs: each key, and no other.
#[test]
fn the_report_has_this_shape_and_no_other() {
    let unchanged = "apiVersion: v1\nkind: Pod\nmetadata: {name: b, namespace: ns, labels: \
        {rt-cfg.kyma-project.io/alter-img-registry: \"true\"}}\nspec: {}\n";
    let skipped = "apiVersion: v1\nkind: Service\nmetadata: {name: c, namespace: ns}\n";
    let ran = Folder::new()
        .with("m.yaml", format!("{POD}---\n{unchanged}---\n{skipped}"))
        .preview(&["--output", "json", "m.yaml"]);
    let (marker, key) = (
        "rt-bootstrapper.kyma-project.io/defaulted",
        "rt-cfg.kyma-project.io/alter-img-registry",
    );
    let expected = json!({"pods": [
        {
            "source": {"kind": "Pod", "namespace": "default", "name": "a"},
            "changed": true,
            "pod": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "a", "annotations": {marker: "true", key: "true"}},
                "spec": {"containers": [{"name": "main", "image": "ghcr.io/x:1"}]},
            },
            "patch": [
                {"op": "replace", "path": "/spec/containers/0/image", "value": "ghcr.io/x:1"},
                {
                    "op": "add",
                    "path": "/metadata/annotations/rt-bootstrapper.kyma-project.io~1defaulted",
                    "value": "true",
                },
            ],
            "reasons": reasons(Some("container main: replace.me/x:1 → ghcr.io/x:1")),
            "nearMisses": [],
        },
        {
            "source": {"kind": "Pod", "namespace": "ns", "name": "b"},
            "changed": false,
            "pod": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "b", "namespace": "ns", "labels": {key: "true"}},
                "spec": {},
            },
            "patch": [],
            "reasons": reasons(None),
            "nearMisses": [{
                "object": "Pod ns/b",
                "field": format!("metadata.labels[\"{key}\"]"),
                "value": "true",
                "place": "m.yaml:13",
                "reason": "NotAnAnnotation",
                "message": format!("expected the annotation {key}: labels do not opt in"),
            }],
        },
    ], "skipped": [{"apiVersion": "v1", "kind": "Service", "namespace": "ns", "name": "c"}]});
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), expected);
}

#[test]
fn the_diff_shows_what_and_why() {
    let manifest = format!(
        "{POD}---\n{{apiVersion: v1, kind: Pod, metadata: {{name: b}}, spec: {{}}}}\n---\n\
         {{apiVersion: v1, kind: Service, metadata: {{name: c}}}}\n"
    );
    let ran = Folder::new().with("m.yaml", manifest).preview(&["m.yaml"]);
    let expected = "\
# Pod default/a: changed
#   applied  alter-img-registry: ImageRewritten: container main: replace.me/x:1 → ghcr.io/x:1
#   skipped  add-img-pull-secret, add-cluster-trust-bundle, set-fips-mode, set-landscape: NotRequested: not requested \
by the configuration, the Namespace or the Pod
--- Pod default/a (before)
+++ Pod default/a (after)
@@ -2,9 +2,10 @@
 kind: Pod
 metadata:
   annotations:
+    rt-bootstrapper.kyma-project.io/defaulted: \"true\"
     rt-cfg.kyma-project.io/alter-img-registry: \"true\"
   name: a
 spec:
   containers:
-  - image: replace.me/x:1
+  - image: ghcr.io/x:1
     name: main

# Pod default/b: unchanged
#   skipped  all features: NotRequested: not requested by the configuration, the Namespace or the Pod

# passed over  Service (v1): c
2 Pods, 1 would be changed; 1 other object passed over
";
    assert_eq!((ran.out.as_str(), ran.code), (expected, 0), "{}", ran.err);
}

#[test]
fn what_stands_against_a_wish_is_a_warning() {
    let pod = POD.replace("alter-img-registry", "set-fips-mode");
    let ran = Folder::new().with("m.yaml", pod).preview(&["m.yaml"]);
    let line =
        "#   warning  set-fips-mode: NotAvailable: requested, but not in availableFeatures\n";
    assert!(ran.out.contains(line), "{}", ran.out);
}

#[test]
fn several_pods_are_several_yaml_documents() {
    let ran = Folder::new()
        .with(
            "m.yaml",
            format!("{POD}---\n{}", POD.replace("name: a", "name: b")),
        )
        .preview(&["--output", "yaml", "m.yaml"]);
    let pods: Vec<Value> = serde_saphyr::from_multiple(&ran.out).unwrap();
    let names: Vec<&Value> = pods.iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b"]);
}

/// A long text, or a text that could be parsed as another type, is unchanged in the YAML output.
#[rstest]
#[case::boolean("yes")]
#[case::number("012")]
#[case::null("~")]
#[case::time("12:30:45")]
#[case::separator("a\n---\nb\n")]
#[case::long(&"word ".repeat(60))]
#[case::lines("a\n\n  b \n\n")]
#[case::control("\u{1b}[31m\u{7}\t")]
#[case::comment("a # b: c")]
#[case::unicode("Größe\u{2028}🦀")]
fn yaml_gives_back_what_json_gave(#[case] text: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "annotations": {"note": text}}, "spec": {"unknown": [text]},
    });
    let folder = Folder::new().with("m.json", pod.to_string());
    let ran = folder.preview(&["--output", "yaml", "m.json"]);
    let again = folder.with("again.yaml", &ran.out);
    let pods = again.preview(&["--output", "json", "again.yaml"]).pods();
    assert_eq!(pods[0]["pod"], pod);
}

#[rstest]
#[case::would_change(POD, &["--exit-code"], 3)]
#[case::would_not_change("kind: Namespace\napiVersion: v1\nmetadata: {name: a}\n", &["--exit-code"], 0)]
#[case::not_asked(POD, &[], 0)]
#[case::invalid("a: [", &["--exit-code"], 1)]
#[case::usage(POD, &["--output", "xml"], 2)]
fn the_exit_code_depends_on_the_result(
    #[case] manifest: &str,
    #[case] flags: &[&str],
    #[case] code: i32,
) {
    let folder = Folder::new().with("m.yaml", manifest);
    for form in ["diff", "yaml", "json"] {
        let form = if flags.contains(&"--output") {
            vec![]
        } else {
            vec!["--output", form]
        };
        let ran = folder.preview(&[flags, &form, &["m.yaml"]].concat());
        assert_eq!(ran.code, code, "{}", ran.err);
    }
}

#[test]
fn the_landscape_is_set_where_it_is_known() {
    let folder = Folder::new().with("m.yaml", POD.replace("alter-img-registry", "set-landscape"));
    let code = |flags: &[&str]| {
        let pods = folder
            .preview(&[flags, &["--output", "json", "m.yaml"]].concat())
            .pods();
        let reasons = pods[0]["reasons"].as_array().unwrap().clone();
        let found = reasons.iter().find(|it| it["feature"] == "set-landscape");
        found.unwrap()["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(code(&[]), "LandscapeNotConfigured");
    assert_eq!(code(&["--landscape", "eu"]), "EnvVarAdded");
}

/// The cases equal the selector and the match condition of the webhook.
#[rstest]
#[case::system("kube-system", "x", "NamespaceExcluded")]
#[case::ours("kyma-system", "rt-bootstrapper", "OwnPod")]
#[case::dodger("default", "rt-bootstrapper", "ImageRewritten")]
#[case::neighbour("kyma-system", "x", "ImageRewritten")]
fn pod_that_is_never_sent_stays_with_its_true_reason(
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] reason: &str,
) {
    let metadata = format!(
        "metadata:\n  namespace: {namespace}\n  labels: {{app.kubernetes.io/name: {name}}}\n"
    );
    let pods = pods_of(&POD.replace("metadata:\n", &metadata));
    assert_eq!(pods[0]["reasons"][0]["reason"], reason);
}

#[test]
fn a_hostile_name_cannot_steer_the_terminal() {
    let pod = POD.replace("name: a\n", "name: \"\\e]0;x\\a\"\n");
    let ran = Folder::new().with("m.yaml", pod).preview(&["m.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        !ran.out.contains(|it: char| it.is_control() && it != '\n'),
        "{:?}",
        ran.out
    );
}

#[test]
fn there_is_no_colour_in_a_pipe() {
    let ran = Folder::new().with("m.yaml", POD).preview(&["m.yaml"]);
    assert!(!ran.out.contains('\u{1b}'));
}

#[test]
fn an_odd_configuration_is_remarked_on_but_not_in_the_result() {
    let ran = Folder::new()
        .with("config.json", r#"{"overrides": {}}"#)
        .with("m.yaml", POD)
        .preview(&["--output", "json", "m.yaml"]);
    assert_eq!(ran.pods()[0]["changed"], false);
    let remark = "warning: config.json: availableFeatures: empty: no Pod is changed\n";
    assert_eq!(ran.err, remark);
}

#[test]
fn parts_of_the_configuration_without_effect_are_warnings() {
    let config = r#"{
        "overrides": {"https://replace.me": "m.io", "a.io": "b.io", "a.io": "c.io"},
        "availableFeatures": ["rt-cfg.kyma-project.io/set-fips-mode"],
        "namespaceFeatures": {"kube-system": ["rt-cfg.kyma-project.io/all"]},
        "namespaceFeature": {},
        "imagePullSecret": {"injekt": "always"}
    }"#;
    let ran = Folder::new()
        .with("config.json", config)
        .with("m.yaml", POD)
        .preview(&["m.yaml"]);
    let expected = "\
warning: config.json: namespaceFeatures.kube-system: no effect: Pods of namespace kube-system are never changed
warning: config.json: overrides[\"https://replace.me\"]: not a registry host such as docker.io or localhost:5000: matches \
no image
warning: config.json: namespaceFeature: unknown key, ignored (did you mean namespaceFeatures?)
warning: config.json: imagePullSecret.injekt: unknown key, ignored (did you mean imagePullSecret.inject?)
warning: config.json: overrides[\"a.io\"]: duplicate key: the last value is used
";
    assert_eq!((ran.code, ran.err.as_str()), (0, expected));
}

#[rstest]
#[case::bare("c.json", CONFIG.to_owned())]
#[case::config_map_yaml("c.yaml", config_map("|\n", CONFIG))]
#[case::config_map_folded("c.yaml", config_map(">-\n", CONFIG))]
#[case::config_map_json("c.json", json!({
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rt-bootstrapper-config"},
    "data": {"rt-bootstrapper-config.json": CONFIG},
}).to_string())]
#[case::in_a_list("c.json", json!({"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"other": "x"}},
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"rt-bootstrapper-config.json": CONFIG}},
]}).to_string())]
#[case::in_a_typed_list("c.json", json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": [
    {"data": {"rt-bootstrapper-config.json": CONFIG}},
]}).to_string())]
#[case::among_others("c.yaml", format!("kind: Secret\napiVersion: v1\n---\n{}", config_map("|\n", CONFIG)))]
fn the_configuration_comes_in_several_wrappings(#[case] name: &str, #[case] content: String) {
    let ran = Folder::new().with(name, content).with("m.yaml", POD).run(
        &["preview", "--config", name, "--output", "json", "m.yaml"],
        "",
    );
    assert_eq!(ran.pods()[0]["changed"], true);
}

pub(crate) fn config_map(style: &str, document: &str) -> String {
    let indented = document.replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  rt-bootstrapper-config.json: {style}    {indented}\n"
    )
}
