//! Tests of annotations that look like an opt-in or opt-out and have no effect: the reason, the position, and the expected value.

use rstest::rstest;
use serde_json::{Value, json};

use super::runner::{Folder, POD, pods_of};

const REWRITE: &str = "rt-cfg.kyma-project.io/alter-img-registry";

/// Returns object, field, value, place, reason and message of each near miss in a report, separated by a bar.
fn near_misses(pod: &Value) -> Vec<String> {
    let misses = pod["nearMisses"].as_array().unwrap().iter();
    let told = misses.map(|it| {
        let keys = ["object", "field", "value", "place", "reason", "message"];
        keys.map(|key| it[key].as_str().unwrap()).join("|")
    });
    told.collect()
}

fn pod_with(annotation: &str) -> String {
    POD.replace(
        "rt-cfg.kyma-project.io/alter-img-registry: \"true\"",
        annotation,
    )
}

#[rstest]
#[case::upper_case("True")]
#[case::yes("yes")]
#[case::number("1")]
#[case::blank(" true")]
#[case::upper_case_no("False")]
#[case::nothing("")]
fn value_that_is_neither_true_nor_false_is_a_near_miss(
    #[case] value: &str,
    #[values("alter-img-registry", "all")] key: &str,
) {
    let pods = pods_of(&pod_with(&format!(
        "rt-cfg.kyma-project.io/{key}: \"{value}\""
    )));
    assert_eq!(pods[0]["changed"], false);
    assert_eq!(
        near_misses(&pods[0]),
        [format!(
            "Pod default/a|metadata.annotations[\"rt-cfg.kyma-project.io/{key}\"]|{value}|m.yaml:6|\
             InvalidAnnotationValue|expected \"true\" or \"false\""
        )]
    );
}

#[rstest]
#[case::spelling("rt-cfg.kyma-project.io/alter-image-registry", REWRITE)]
#[case::case("rt-cfg.kyma-project.io/Alter-Img-Registry", REWRITE)]
#[case::without_domain("alter-img-registry", REWRITE)]
#[case::domain("rt-config.kyma-project.io/alter-img-registry", REWRITE)]
#[case::alias("rt-cfg.kyma-project.io/ALL", "rt-cfg.kyma-project.io/all")]
fn misspelt_key_is_a_near_miss_with_the_key_that_was_meant(#[case] key: &str, #[case] meant: &str) {
    let pods = pods_of(&pod_with(&format!("{key}: \"true\"")));
    let [miss] = near_misses(&pods[0]).try_into().unwrap();
    let expected = format!("|UnknownAnnotationKey|unknown key (did you mean {meant}?)");
    assert!(miss.ends_with(&expected), "{miss}");
}

#[test]
fn unknown_key_of_our_domain_is_a_near_miss_with_the_keys_that_exist() {
    let pods = pods_of(&pod_with("rt-cfg.kyma-project.io/something: \"true\""));
    let [miss] = near_misses(&pods[0]).try_into().unwrap();
    assert!(
        miss.contains("unknown key: expected rt-cfg.kyma-project.io/all, rt-cfg"),
        "{miss}"
    );
}

#[rstest]
#[case::another_product("sidecar.istio.io/inject: \"true\"")]
#[case::marker("rt-bootstrapper.kyma-project.io/defaulted: \"true\"")]
#[case::opted_out_of_what_is_not_requested("rt-cfg.kyma-project.io/alter-img-registry: \"false\"")]
#[case::opted_in("rt-cfg.kyma-project.io/alter-img-registry: \"true\"")]
fn annotation_with_its_effect_is_no_near_miss(#[case] annotation: &str) {
    let pods = pods_of(&pod_with(annotation));
    assert_eq!(near_misses(&pods[0]), Vec::<String>::new());
}

fn workload(kind: &str, version: &str, path: &[&str], metadata: &Value) -> String {
    let template = json!({"metadata": metadata, "spec": {"containers": []}});
    let nested = path
        .iter()
        .rev()
        .fold(template, |inner, key| json!({ *key: inner }));
    let mut workload = json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": "o", "namespace": "shop", "annotations": {REWRITE: "true"}},
    });
    let fields = nested.as_object().unwrap().clone();
    workload.as_object_mut().unwrap().extend(fields);
    workload.to_string()
}

#[rstest]
#[case::deployment("Deployment", "apps/v1", &["spec", "template"])]
#[case::cron_job("CronJob", "batch/v1", &["spec", "jobTemplate", "spec", "template"])]
#[case::pod_template("PodTemplate", "v1", &["template"])]
fn annotation_on_the_workload_instead_of_its_template_is_a_near_miss(
    #[case] kind: &str,
    #[case] version: &str,
    #[case] path: &[&str],
) {
    let pods = pods_of(&workload(kind, version, path, &json!({})));
    assert_eq!(pods[0]["changed"], false);
    let expected = format!(
        "{kind} shop/o|metadata.annotations[\"{REWRITE}\"]|true|m.yaml:1|NotOnPodTemplate|expected the annotation \
         {REWRITE} at {}.metadata.annotations: Pods do not get those of the workload",
        path.join(".")
    );
    assert_eq!(near_misses(&pods[0]), [expected]);
    let both = json!({"annotations": {REWRITE: "true"}});
    let pods = pods_of(&workload(kind, version, path, &both));
    assert_eq!(near_misses(&pods[0]), Vec::<String>::new());
}

#[test]
fn annotation_on_the_job_of_a_cron_job_is_a_near_miss() {
    let manifest = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: c}}\nspec:\n  jobTemplate:\n    metadata:\n      \
         annotations:\n        {REWRITE}: \"true\"\n    spec: {{template: {{spec: {{}}}}}}\n"
    );
    let [miss] = near_misses(&pods_of(&manifest)[0]).try_into().unwrap();
    let expected = format!(
        "CronJob default/c|spec.jobTemplate.metadata.annotations[\"{REWRITE}\"]|true|m.yaml:8|NotOnPodTemplate|"
    );
    assert!(miss.starts_with(&expected), "{miss}");
}

const SHOP: &str = r#"{
    "overrides": {"replace.me": "ghcr.io"},
    "availableFeatures": ["rt-cfg.kyma-project.io/alter-img-registry"],
    "namespaceFeatures": {"shop": ["rt-cfg.kyma-project.io/alter-img-registry"]}
}"#;

fn pods_of_shop(config: &str, manifest: &str) -> Vec<Value> {
    Folder::new()
        .with("config.json", config)
        .with("m.yaml", manifest)
        .preview(&["-n", "shop", "-o", "json", "m.yaml"])
        .pods()
}

#[rstest]
#[case::not_in_opt_out("alter-img-registry", "optOut of the configuration does not list it")]
#[case::alias(
    "all",
    "expected \"false\" at the keys of features: it has no effect here"
)]
fn false_without_effect_is_a_near_miss(#[case] key: &str, #[case] expected: &str) {
    let manifest = pod_with(&format!("rt-cfg.kyma-project.io/{key}: \"false\""));
    let pods = pods_of_shop(SHOP, &manifest);
    assert_eq!(pods[0]["changed"], true);
    let [miss] = near_misses(&pods[0]).try_into().unwrap();
    assert!(miss.contains("|false|m.yaml:6|OptOutNotEnabled|"), "{miss}");
    assert!(miss.contains(expected), "{miss}");
}

#[test]
fn false_on_a_namespace_whose_pods_get_the_feature_is_a_near_miss() {
    let namespace = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, annotations: {{{REWRITE}: \"false\"}}}}\n"
    );
    let pods = pods_of_shop(SHOP, &format!("{namespace}---\n{}", pod_with("a: b")));
    assert_eq!(pods[0]["changed"], true);
    let expected = format!(
        "Namespace shop|metadata.annotations[\"{REWRITE}\"]|false|m.yaml:3|OptOutNotEnabled|the feature is applied all \
         the same: on a Namespace, \"false\" only makes an exception of all in the same annotations"
    );
    assert_eq!(near_misses(&pods[0]), [expected]);
}

#[test]
fn false_with_effect_is_no_near_miss() {
    let config = SHOP.replacen(
        '{',
        "{\"optOut\": [\"rt-cfg.kyma-project.io/alter-img-registry\"],",
        1,
    );
    let manifest = pod_with("rt-cfg.kyma-project.io/alter-img-registry: \"false\"");
    let pods = pods_of_shop(&config, &manifest);
    assert_eq!(pods[0]["changed"], false);
    assert_eq!(near_misses(&pods[0]), Vec::<String>::new());
}

#[rstest]
#[case::value("annotations", "True", "InvalidAnnotationValue")]
#[case::label("labels", "true", "NotAnAnnotation")]
fn a_near_miss_of_the_namespace_is_reported_for_its_pods(
    #[case] map: &str,
    #[case] value: &str,
    #[case] reason: &str,
) {
    let namespace = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: default\n  {map}:\n    {REWRITE}: \"{value}\"\n"
    );
    let pods = pods_of(&format!("{namespace}---\n{}", pod_with("a: b")));
    let [miss] = near_misses(&pods[0]).try_into().unwrap();
    let expected =
        format!("Namespace default|metadata.{map}[\"{REWRITE}\"]|{value}|m.yaml:6|{reason}|");
    assert!(miss.starts_with(&expected), "{miss}");
}

#[rstest]
#[case::excluded_namespace("namespace: kube-system")]
#[case::own_pod("namespace: kyma-system\n  labels: {app.kubernetes.io/name: rt-bootstrapper}")]
fn pod_that_is_never_sent_has_no_near_misses(#[case] metadata: &str) {
    let manifest = pod_with("rt-cfg.kyma-project.io/all: \"True\"");
    let pods = pods_of(&manifest.replace("name: a\n", &format!("name: a\n  {metadata}\n")));
    assert_eq!(near_misses(&pods[0]), Vec::<String>::new());
}

#[test]
fn mirror_pod_has_its_reason_and_no_near_misses() {
    let annotations = "kubernetes.io/config.mirror: x\n    rt-cfg.kyma-project.io/all: \"True\"";
    let pods = pods_of(&pod_with(annotations));
    assert_eq!(pods[0]["reasons"][0]["reason"], "MirrorPod");
    assert_eq!(near_misses(&pods[0]), Vec::<String>::new());
}

#[test]
fn diff_shows_near_misses_between_the_reasons_and_the_hunks() {
    let manifest = POD.replace(
        "spec:\n",
        "    rt-cfg.kyma-project.io/set-landscape: \"on\"\nspec:\n",
    );
    let ran = Folder::new().with("m.yaml", manifest).preview(&["m.yaml"]);
    let line = "#   no effect  m.yaml:7: Pod default/a: \
        metadata.annotations[\"rt-cfg.kyma-project.io/set-landscape\"]=\"on\": InvalidAnnotationValue: expected \"true\" \
        or \"false\"\n--- Pod default/a (before)\n";
    assert!(ran.out.contains(line), "{}", ran.out);
}
