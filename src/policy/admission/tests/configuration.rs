//! Tests of contradictory documents, and of overrides with chains, cycles or invalid results.

use std::error::Error;

use api::config::Document;
use api::{Feature, FeatureSet};
use rstest::rstest;
use serde_json::{Value, json};

use crate::admission::{Configuration, ConfigurationError, Notice, Reason, Settings, User};

const REWRITE: &str = "rt-cfg.kyma-project.io/alter-img-registry";
const FIPS: &str = "rt-cfg.kyma-project.io/set-fips-mode";
const ALL: &str = "rt-cfg.kyma-project.io/all";

fn load(document: &Value) -> Result<Configuration, ConfigurationError> {
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    Configuration::new(&Document::parse(&document.to_string()).unwrap(), &settings)
}

#[rstest]
#[case::all_with_a_catalogue(json!({"availableFeatures": [REWRITE], "namespaceFeatures": {"a": [ALL]}}))]
#[case::explicit_without_a_catalogue(json!({"namespaceFeatures": {"a": [REWRITE]}}))]
#[case::explicit_with_an_empty_catalogue(json!({"availableFeatures": [], "namespaceFeatures": {"a": [REWRITE]}}))]
#[case::all_without_a_catalogue(json!({"namespaceFeatures": {"a": [ALL]}}))]
#[case::opt_out_of_everything(json!({"optOut": [ALL]}))]
fn loads(#[case] mut document: Value) {
    document["overrides"] = json!({});
    load(&document).unwrap();
}

#[rstest]
#[case::unknown_available(json!({"availableFeatures": ["x"]}), "unknown feature \"x\"")]
#[case::all_available(json!({"availableFeatures": [ALL]}), "unknown feature")]
#[case::unknown_of_a_namespace(json!({"namespaceFeatures": {"a": ["x"]}}), "unknown feature \"x\"")]
#[case::unknown_of_a_namespace_beside_all(json!({"namespaceFeatures": {"a": [ALL, "x"]}}), "unknown feature \"x\"")]
#[case::outside_the_catalogue(
    json!({"availableFeatures": [REWRITE], "namespaceFeatures": {"a": [FIPS]}}),
    "not in availableFeatures"
)]
#[case::unknown_opt_out(json!({"optOut": ["x"]}), "unknown feature \"x\"")]
#[case::a_cycle(json!({"overrides": {"a.io": "b.io", "b.io": "a.io"}}), "cycle")]
#[case::a_cycle_of_three(json!({"overrides": {"a.io": "b.io/x", "b.io": "c.io", "c.io": "a.io"}}), "cycle")]
#[case::a_growing_cycle(json!({"overrides": {"a.io": "b.io", "b.io": "a.io/c"}}), "cycle")]
#[case::variable_without_a_name(json!({"fipsVariables": [""]}), "fipsVariables")]
#[case::variable_with_an_equals_sign(json!({"fipsVariables": ["A=B"]}), "fipsVariables")]
#[case::variable_that_is_taken(json!({"fipsVariables": ["KYMA_LANDSCAPE"]}), "fipsVariables")]
#[case::pull_secret_name(json!({"imagePullSecret": {"name": "Not A Name"}}), "imagePullSecret.name")]
fn refuses(#[case] mut document: Value, #[case] text: &str) {
    if document.get("overrides").is_none() {
        document["overrides"] = json!({});
    }
    let error = load(&document).unwrap_err();
    let chain = format!(
        "{error}: {}",
        error.source().map(ToString::to_string).unwrap_or_default()
    );
    assert!(chain.contains(text), "{chain}");
}

#[test]
fn without_a_catalogue_nothing_is_available_and_the_document_says_so() {
    let configuration = load(&json!({"overrides": {}, "namespaceFeatures": {"a": [ALL]}})).unwrap();
    assert_eq!(configuration.available(), FeatureSet::EMPTY);
    assert_eq!(
        configuration.notices(),
        [Notice::NothingAvailable, Notice::AllOfNothing("a".into())]
    );
}

fn notices(document: &Value) -> Vec<String> {
    let configuration = load(document).unwrap();
    let notices = configuration.notices().iter();
    notices.map(ToString::to_string).collect()
}

#[rstest]
#[case::scheme("https://replace.me")]
#[case::slash("replace.me/")]
#[case::path("replace.me/x")]
#[case::wildcard("*.me")]
#[case::empty("")]
#[case::tag("replace.me:latest")]
#[case::blank(" replace.me")]
#[case::first_part_of_a_hub_path("mirror")]
fn override_of_what_is_no_registry_is_noticed(#[case] key: &str) {
    let document = json!({"overrides": {key: "m.io"}, "availableFeatures": [REWRITE]});
    let expected = format!(
        "overrides[{key:?}]: not a registry host such as docker.io or localhost:5000: matches no image"
    );
    assert_eq!(notices(&document), [expected]);
}

#[rstest]
#[case("docker.io")]
#[case("index.docker.io")]
#[case("replace.me:5000")]
#[case("localhost")]
#[case("REPLACE.ME")]
#[case("10.0.0.1")]
#[case("[::1]:5000")]
fn override_of_a_registry_is_not_noticed(#[case] key: &str) {
    let document = json!({"overrides": {key: "m.io"}, "availableFeatures": [REWRITE]});
    assert_eq!(notices(&document), Vec::<String>::new());
}

#[rstest]
#[case::plural("namespaceFeature", " (did you mean namespaceFeatures?)")]
#[case::case("OptOut", " (did you mean optOut?)")]
#[case::letter("fipsVariabels", " (did you mean fipsVariables?)")]
#[case::another("secretSyncInterval", "")]
fn unknown_key_is_noticed_with_what_was_meant(#[case] key: &str, #[case] meant: &str) {
    let document = json!({"overrides": {}, "availableFeatures": [REWRITE], key: {}});
    assert_eq!(
        notices(&document),
        [format!("{key}: unknown key, ignored{meant}")]
    );
}

#[test]
fn unknown_key_inside_another_is_noticed_with_its_path() {
    let document = json!({
        "overrides": {}, "availableFeatures": [REWRITE], "imagePullSecret": {"injekt": "always"},
    });
    let expected =
        "imagePullSecret.injekt: unknown key, ignored (did you mean imagePullSecret.inject?)";
    assert_eq!(notices(&document), [expected]);
}

#[test]
fn features_of_kube_system_are_noticed() {
    let document = json!({
        "overrides": {}, "availableFeatures": [REWRITE], "namespaceFeatures": {"kube-system": [REWRITE]},
    });
    let expected =
        "namespaceFeatures.kube-system: no effect: Pods of namespace kube-system are never changed";
    assert_eq!(notices(&document), [expected]);
}

#[test]
fn override_that_is_written_twice_is_noticed() {
    let text = format!(
        r#"{{"overrides": {{"a.io": "b.io", "a.io": "c.io"}}, "availableFeatures": ["{REWRITE}"]}}"#
    );
    let settings = Settings {
        landscape: None,
        pull_secret: api::names::PULL_SECRET.to_owned(),
    };
    let configuration = Configuration::new(&Document::parse(&text).unwrap(), &settings).unwrap();
    let notices: Vec<String> = configuration
        .notices()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        notices,
        [r#"overrides["a.io"]: duplicate key: the last value is used"#]
    );
}

#[test]
fn all_of_a_namespace_is_the_catalogue() {
    let configuration = load(
        &json!({"overrides": {}, "availableFeatures": [REWRITE, FIPS], "namespaceFeatures": {"a": [ALL, FIPS]}}),
    )
    .unwrap();
    let expected = FeatureSet::from_iter([Feature::RegistryRewrite, Feature::FipsMode]);
    assert_eq!(configuration.namespace_features("a"), expected);
    assert_eq!(configuration.namespace_features("b"), FeatureSet::EMPTY);
}

#[rstest]
#[case::plain(json!({"a.io": "b.io"}), "a.io/x/y:1", Some("b.io/x/y:1"))]
#[case::prefix_with_a_path(json!({"a.io": "b.io/proxy"}), "a.io/x", Some("b.io/proxy/x"))]
#[case::host_with_port(json!({"a.io:5000": "b.io"}), "a.io:5000/x", Some("b.io/x"))]
#[case::port_must_match(json!({"a.io": "b.io"}), "a.io:5000/x", None)]
#[case::digest_is_kept(
    json!({"a.io": "b.io"}),
    "a.io/x:1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    Some("b.io/x:1@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
)]
#[case::chain(json!({"a.io": "b.io", "b.io": "c.io"}), "a.io/x", Some("c.io/x"))]
#[case::chain_through_paths(json!({"a.io": "b.io/p", "b.io": "c.io/q"}), "a.io/x", Some("c.io/q/p/x"))]
#[case::chain_that_ends_in_itself(json!({"a.io": "b.io", "b.io": "b.io/q"}), "a.io/x", Some("b.io/q/x"))]
#[case::itself_below(json!({"a.io": "a.io/cache"}), "a.io/x", Some("a.io/cache/x"))]
#[case::itself_below_again(json!({"a.io": "a.io/cache"}), "a.io/cache/x", None)]
#[case::itself(json!({"a.io": "a.io"}), "a.io/x", None)]
#[case::short_name(json!({"docker.io": "m.io"}), "nginx", Some("m.io/library/nginx"))]
#[case::short_name_with_a_tag(json!({"docker.io": "m.io"}), "nginx:1.29", Some("m.io/library/nginx:1.29"))]
#[case::short_name_of_a_user(json!({"docker.io": "m.io"}), "bitnami/redis", Some("m.io/bitnami/redis"))]
#[case::one_part_after_the_hub(json!({"docker.io": "m.io"}), "docker.io/bash", Some("m.io/library/bash"))]
#[case::hub_in_full(json!({"docker.io": "m.io"}), "docker.io/library/nginx", Some("m.io/library/nginx"))]
#[case::hub_by_its_old_name(json!({"docker.io": "m.io"}), "index.docker.io/library/nginx", Some("m.io/library/nginx"))]
#[case::hub_not_listed(json!({"a.io": "m.io"}), "nginx", None)]
#[case::localhost_is_a_host(json!({"localhost": "m.io"}), "localhost/x", Some("m.io/x"))]
#[case::localhost_with_port(json!({"localhost:5001": "m.io"}), "localhost:5001/x", Some("m.io/x"))]
#[case::onto_a_hub_path(json!({"a.io": "mirror"}), "a.io/x", Some("mirror/x"))]
#[case::onto_a_hub_path_and_on(json!({"a.io": "mirror", "docker.io": "m.io"}), "a.io/x", Some("m.io/mirror/x"))]
#[case::hub_onto_its_own_path(json!({"docker.io": "mirror/hub"}), "nginx", Some("mirror/hub/library/nginx"))]
#[case::hub_onto_its_own_path_again(json!({"docker.io": "mirror/hub"}), "mirror/hub/library/nginx", None)]
#[case::result_is_no_reference(json!({"a.io": "b.io/UPPER"}), "a.io/x", None)]
#[case::empty_replacement(json!({"a.io": ""}), "a.io/x", None)]
#[case::scheme_in_the_replacement(json!({"a.io": "https://b.io"}), "a.io/x", None)]
fn rewrites(#[case] overrides: Value, #[case] image: &str, #[case] expected: Option<&str>) {
    let configuration = load(&json!({ "overrides": overrides })).unwrap();
    let once = |image: &str| match configuration.overrides.rewrite(User::Volume("a"), image) {
        Reason::ImageRewritten { to, .. } => Some(to),
        Reason::InvalidImageReference { .. } => panic!("{image}"),
        _ => None,
    };
    assert_eq!(once(image).as_deref(), expected);
    if let Some(rewritten) = expected {
        assert_eq!(once(rewritten), None, "the second pass changes it again");
    }
}

#[rstest]
#[case("name", "Not A Name")]
#[case("certWritePath", "/absolute.pem")]
#[case("certWritePath", "../up.pem")]
#[case("certWritePath", "..reserved.pem")]
#[case("volumeMountPath", "relative")]
#[case("volumeMountPath", "/a:b")]
#[case("volumeMountPath", "/")]
#[case("volumeName", "Upper")]
#[case("volumeName", "has.dot")]
fn a_bundle_that_no_pod_could_mount_is_known_at_load(
    #[case] key: &'static str,
    #[case] value: &str,
) {
    let mut bundle = json!({
        "name": "signer.test:ctb:1", "certWritePath": "a.pem", "volumeMountPath": "/etc/ssl/certs", "volumeName": "v"
    });
    bundle[key] = json!(value);
    let configuration =
        load(&json!({"overrides": {}, "availableFeatures": [FIPS], "clusterTrustBundle": bundle}))
            .unwrap();
    assert_eq!(configuration.notices(), [Notice::UnusableTrustBundle(key)]);
}
