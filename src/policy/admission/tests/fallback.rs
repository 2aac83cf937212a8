//! Tests of the fallback policy without an API server: its regular expressions, its bounds, and the reasons for its
//! changes. The golden cases run through the policy itself in `harness/e2e/suites/fallback_policy.rs`.

use std::sync::LazyLock;

use proptest::prelude::*;
use regex::Regex;
use rstest::rstest;
use serde_json::{Value, json};

use super::case::{Given, configuration, decide_on};
use crate::admission::*;
use crate::image::{Keyring, Reference, reference_pattern};

static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new(&reference_pattern()).unwrap());

/// Texts from which the test builds references.
const PIECES: [&str; 24] = [
    "a",
    "B",
    "0",
    "a.io",
    "b.io:5000",
    "localhost",
    "[::1]",
    "/",
    "/",
    "/",
    ".",
    "..",
    "-",
    "--",
    "_",
    "__",
    "___",
    ":",
    ":1.2",
    ":-",
    "@",
    "@sha256:",
    "x",
    "library",
];

fn text() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..8);
    let digest = prop::sample::select(vec![
        String::new(),
        format!("@sha256:{}", "a".repeat(64)),
        "a".repeat(64),
    ]);
    (pieces, digest).prop_map(|(pieces, digest)| pieces.concat() + &digest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn the_pattern_of_references_is_the_grammar(text in text()) {
        let is_id = text.len() == 64 && text.bytes().all(|it| it.is_ascii_hexdigit());
        prop_assert_eq!(PATTERN.is_match(&text) && !is_id, Reference::parse(&text).is_ok(), "{}", text);
    }
}

const KEYS: [&str; 14] = [
    "a.io",
    "*.a.io",
    "a.*",
    "a.io:5000",
    "a.io/team",
    "a.io/team/",
    "https://a.io/v2/",
    "https://index.docker.io/v1/",
    "docker.io",
    "docker.io/library/nginx",
    "index.docker.io/x",
    "[::1]:5000",
    "*",
    "a*b.io",
];

const IMAGES: [&str; 18] = [
    "a.io/x",
    "b.a.io/x",
    "a.io:5000/x",
    "a.io/team/x:1",
    "a.io/teams",
    "a.io/other",
    "nginx",
    "x/y",
    "docker.io/nginx",
    "index.docker.io/x/y",
    "localhost/x",
    "localhost:5000/x",
    "[::1]:5000/x",
    "a-b.io/x",
    "ab.io/x",
    "c.a.io:5000/x",
    "A/x",
    "aXio/x",
];

/// Matches as the policy does: against the normalized registry and path.
#[test]
fn the_pattern_of_a_keyring_covers_what_the_keyring_covers() {
    for key in KEYS {
        let document = json!({"auths": {key: {"auth": "dTpw"}}}).to_string();
        let keyring = Keyring::parse(document.as_bytes()).unwrap();
        let pattern = Regex::new(&keyring.pattern().unwrap()).unwrap();
        for image in IMAGES {
            let reference = Reference::parse(image).unwrap();
            let name = format!("{}/{}", reference.domain(), reference.full_path());
            assert_eq!(
                pattern.is_match(&name),
                keyring.covers(&reference),
                "{key}: {image}"
            );
        }
    }
    assert_eq!(Keyring::default().pattern(), None);
}

fn document(overrides: usize) -> Value {
    let hosts = (0..overrides).map(|it| {
        (
            format!("registry-{it}.example.com"),
            json!("mirror.example.com"),
        )
    });
    json!({
        "overrides": Value::Object(hosts.collect()), "availableFeatures": api::Feature::ALL.map(api::Feature::key),
    })
}

fn keyring(registries: usize) -> PullSecret {
    let auths = (0..registries).map(|it| {
        (
            format!("registry-{it}.example.com"),
            json!({"auth": "dTpw"}),
        )
    });
    let document = json!({"auths": Value::Object(auths.collect())}).to_string();
    PullSecret::Known(Keyring::parse(document.as_bytes()).unwrap())
}

#[rstest]
#[case::usual(10, 10, None)]
#[case::many_overrides(1500, 10, Some("expressions"))]
#[case::many_registries(10, 500, Some("registries of the pull Secret"))]
fn a_policy_that_costs_too_much_is_an_error(
    #[case] overrides: usize,
    #[case] registries: usize,
    #[case] expected: Option<&str>,
) {
    let configuration = configuration(&document(overrides), None);
    let spec = fallback_spec(
        &configuration,
        &keyring(registries),
        TrustBundlePresence::Absent,
        "kyma-system",
    );
    match (spec, expected) {
        (Ok(spec), None) => assert!(spec.is_some()),
        (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{error}"),
        (other, _) => panic!("{other:?}"),
    }
}

#[rstest]
#[case::nothing_available(json!({"overrides": {"a.io": "b.io"}}))]
#[case::nothing_to_do(json!({"overrides": {}, "availableFeatures": [api::Feature::RegistryRewrite.key()]}))]
#[case::bundle_absent(json!({"overrides": {}, "availableFeatures": [api::Feature::TrustBundle.key()]}))]
fn a_document_that_changes_no_pod_has_no_policy(#[case] document: Value) {
    assert_eq!(with_an_invalid_secret(&document), Ok(None));
}

/// Returns the policy of a document whose pull Secret is invalid, and whose trust bundle is absent.
fn with_an_invalid_secret(document: &Value) -> Result<Option<FallbackSpec>, PolicyTooLarge> {
    fallback_spec(
        &configuration(document, None),
        &PullSecret::Invalid,
        TrustBundlePresence::Absent,
        "kyma-system",
    )
}

/// Where the pull Secret itself is, no kubelet can parse it. Pods of other Namespaces use copies of its last valid content.
#[rstest]
#[case::needed("needed")]
#[case::always("always")]
fn an_invalid_pull_secret_is_named_outside_its_own_namespace(#[case] inject: &str) {
    let document = json!({
        "overrides": {}, "availableFeatures": [api::Feature::PullSecret.key()], "imagePullSecret": {"inject": inject},
    });
    let spec = with_an_invalid_secret(&document);
    let spec = spec.unwrap().expect("a policy").spec;
    let expression = spec["mutations"][0]["jsonPatch"]["expression"].as_str();
    let expression = expression.unwrap();
    assert!(
        expression.contains(r#"!(request.namespace != "kyma-system") ? []"#)
            && expression.contains(r#""name": "registry-credentials""#),
        "{expression}"
    );
}

/// A different spec has a different revision, and an equal spec has the same revision in every process.
#[test]
fn a_revision_changes_with_the_spec_alone() {
    let spec = |overrides, known| {
        let configuration = configuration(&document(overrides), None);
        fallback_spec(
            &configuration,
            &known,
            TrustBundlePresence::Absent,
            "kyma-system",
        )
        .unwrap()
        .unwrap()
    };
    let one = spec(20, keyring(20));
    assert_eq!(one, spec(20, keyring(20)));
    for other in [
        spec(21, keyring(20)),
        spec(20, keyring(21)),
        spec(20, PullSecret::Unknown),
    ] {
        assert_ne!(one.spec, other.spec);
        assert_ne!(one.revision, other.revision);
    }
}

const ADAPTED: &str = "alter-img-registry AppliedByPolicy";

/// Checks the findings for a Pod whose first image the policy has rewritten.
#[rstest]
#[case::all_in_place("CREATE", &["mirror.io/x"], true, &[ADAPTED])]
#[case::beside_a_foreign_image("CREATE", &["mirror.io/x", "c.io/x"], true, &["alter-img-registry NoMatchingOverride", ADAPTED])]
#[case::something_left("CREATE", &["mirror.io/x", "a.io/x"], true, &["alter-img-registry NoMatchingOverride", "alter-img-registry ImageRewritten"])]
#[case::without_a_policy("CREATE", &["mirror.io/x"], false, &["alter-img-registry NoMatchingOverride"])]
#[case::nothing_in_place("CREATE", &["c.io/x"], true, &["alter-img-registry NoMatchingOverride"])]
fn what_the_policy_applied_is_said(
    #[case] operation: &str,
    #[case] images: &[&str],
    #[case] fallback_policy: bool,
    #[case] expected: &[&str],
) {
    let document = json!({
        "overrides": {"a.io": "mirror.io"}, "availableFeatures": [api::Feature::RegistryRewrite.key()],
        "namespaceFeatures": {"shop": [api::ALL_KEY]},
    });
    let configuration = configuration(&document, None);
    let context = Context {
        configuration: &configuration,
        namespace: None,
        pull_secret: &PullSecret::Unknown,
        trust_bundle: TrustBundlePresence::Unknown,
        fallback_policy,
    };
    let containers = images.iter().enumerate();
    let containers =
        containers.map(|(index, image)| json!({"name": format!("c{index}"), "image": image}));
    let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": containers.collect::<Vec<_>>()}});
    let given = Given {
        operation: operation.to_owned(),
        ..Given::default()
    };
    let body = given.review(&pod, &Value::Null).to_string();
    assert_eq!(decide_on(&body, &context, &pod).because, expected);
}
