//! Tests that the memory for one review is bounded, independent of the content of its Pod.

use std::borrow::Cow;

use api::Feature;
use api::config::Document;
use rstest::rstest;
use serde_json::{Value, json};
use testkit::growth::assert_proportional;

use crate::admission::review::{self, MAX_LIST_ITEMS, Review, ReviewError, Subject};
use crate::admission::{
    Code, Configuration, Context, Decision, PullSecret, Settings, TrustBundlePresence, decide,
};

/// Returns a review whose Pod is the text `pod`.
fn review(pod: &str) -> String {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u-1","resource":{{"group":"","version":"v1","resource":"pods"}},"operation":"CREATE","namespace":"shop","object":{pod}}}}}"#
    )
}

/// Returns a JSON array with `count` copies of `item`.
fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

fn is_pod(review: &Review<'_>) -> bool {
    assert_eq!(&*review.uid, "u-1");
    match review.subject {
        Subject::Pod(_) => true,
        Subject::Unreadable(_) => false,
        Subject::Foreign => panic!("the review is about a Pod"),
    }
}

#[rstest]
#[case::containers(r#"{"spec":{"containers":LIST}}"#, 0)]
#[case::init_containers(r#"{"spec":{"initContainers":LIST}}"#, 0)]
#[case::ephemeral_containers(r#"{"spec":{"ephemeralContainers":LIST}}"#, 0)]
#[case::volumes(r#"{"spec":{"volumes":LIST}}"#, 0)]
#[case::pull_secrets(r#"{"spec":{"imagePullSecrets":LIST}}"#, 0)]
#[case::variables(r#"{"spec":{"containers":[{"env":LIST}]}}"#, 1)]
#[case::mounts(r#"{"spec":{"containers":[{"volumeMounts":LIST}]}}"#, 1)]
#[case::devices(r#"{"spec":{"containers":[{"volumeDevices":LIST}]}}"#, 1)]
#[case::projections(r#"{"spec":{"volumes":[{"projected":{"sources":LIST}}]}}"#, 1)]
#[case::lists_together(r#"{"spec":{"containers":[{},{}],"volumes":LIST}}"#, 2)]
#[case::stored_pod(r#"{},"oldObject":{"spec":{"containers":LIST}}"#, 0)]
fn pod_with_more_list_items_than_the_limit_is_not_read(#[case] pod: &str, #[case] others: usize) {
    let body = |count| review(&pod.replace("LIST", &list("{}", count - others)));
    let at_limit = body(MAX_LIST_ITEMS);
    assert!(is_pod(&review::parse(at_limit.as_bytes()).unwrap()));
    let above = body(MAX_LIST_ITEMS + 1);
    assert!(!is_pod(&review::parse(above.as_bytes()).unwrap()));
}

/// `serde_json` reads an array as a struct, and the fast parser does not. The limit applies to both.
#[rstest]
#[case::empty_containers(r#"{"metadata":[null,null],"spec":{"containers":LIST}}"#, "{}")]
#[case::containers_as_arrays(r#"{"spec":{"containers":LIST}}"#, r#"["",null,null,null,null]"#)]
fn pod_that_only_serde_json_reads_is_bounded_too(#[case] pod: &str, #[case] item: &str) {
    let body = |count| review(&pod.replace("LIST", &list(item, count)));
    assert!(is_pod(&review::parse(body(9).as_bytes()).unwrap()));
    let above = body(MAX_LIST_ITEMS + 1);
    assert!(!is_pod(&review::parse(above.as_bytes()).unwrap()));
}

#[rstest]
#[case::annotations(format!(r#"{{"metadata":{{"annotations":{{{}}}}}}}"#, vec![r#""a":"b""#; 100_000].join(",")))]
#[case::one_annotation(format!(r#"{{"metadata":{{"annotations":{{"a":"{}"}}}}}}"#, "x".repeat(2_000_000)))]
#[case::unknown_lists(format!(r#"{{"spec":{{"tolerations":{}}}}}"#, list("{}", 100_000)))]
#[case::nesting(format!(r#"{{"spec":{{"x":{}{}}}}}"#, "[".repeat(1_000_000), "]".repeat(1_000_000)))]
fn content_that_no_decision_reads_is_not_limited(#[case] pod: String) {
    assert!(is_pod(&review::parse(review(&pod).as_bytes()).unwrap()));
}

/// Any client may send an UPDATE with thousands of containers whose long names have the same prefix. The time must be
/// proportional to their number, and would not be if each container were compared with each.
#[rstest]
#[case::containers("UPDATE", r#"{"containers":LIST}"#)]
#[case::ephemeral_containers(
    "UPDATE\",\"subResource\":\"ephemeralcontainers",
    r#"{"ephemeralContainers":LIST}"#
)]
fn time_for_an_update_grows_with_the_number_of_containers(
    #[case] operation: &str,
    #[case] spec: &str,
) {
    let body = |count: usize| {
        let named = |end: char| {
            let names =
                (0..count).map(|it| format!(r#"{{"name":"{}{it:05}{end}"}}"#, "x".repeat(500)));
            let list = format!("[{}]", names.collect::<Vec<_>>().join(","));
            format!(r#"{{"spec":{}}}"#, spec.replace("LIST", &list))
        };
        let pods = format!(r#"{},"oldObject":{}"#, named('n'), named('o'));
        review(&pods).replace("CREATE", operation)
    };
    assert_proportional(300, body, |body| with_decision(body, 1, |_| ()));
}

/// The error of `serde_json` repeats the text, which is six times as long if its characters are escaped.
#[test]
fn error_of_a_long_invalid_pod_does_not_repeat_it() {
    let body = review(&format!(r#"{{"spec":"{}"}}"#, "\u{7f}".repeat(1_000_000)));
    let review = review::parse(body.as_bytes()).unwrap();
    assert!(!is_pod(&review));
    let length = format!("{:?}", review.subject).len();
    assert!(length < 200, "{length} bytes");
}

#[test]
fn error_of_a_long_malformed_review_does_not_repeat_it() {
    let text = "\u{7f}".repeat(1_000_000);
    let body = review("{}").replace("\"CREATE\"", &format!(r#""CREATE","dryRun":"{text}""#));
    let error = review::parse(body.as_bytes()).unwrap_err();
    assert!(matches!(error, ReviewError::NoReview), "{error}");
}

#[rstest]
#[case::of_the_limit(128, true)]
#[case::above_the_limit(129, false)]
fn uid_above_the_limit_is_rejected(#[case] length: usize, #[case] accepted: bool) {
    let body = review("{}").replace("u-1", &"u".repeat(length));
    match review::parse(body.as_bytes()) {
        Ok(review) => assert!(accepted && review.uid.len() == length),
        Err(error) => assert!(
            !accepted && matches!(error, ReviewError::UidTooLong),
            "{error}"
        ),
    }
}

/// Returns a configuration with all features except the landscape, and with this number of FIPS variables.
fn configuration(variables: usize) -> Configuration {
    let mut document: Value = serde_json::from_str(include_str!("example/config.json")).unwrap();
    let names: Vec<_> = (0..variables).map(|it| format!("FIPS_{it}")).collect();
    document["fipsVariables"] = json!(names);
    document["namespaceFeatures"] = json!({"shop": ["rt-cfg.kyma-project.io/all"]});
    let settings = Settings {
        landscape: None,
        pull_secret: "registry-credentials".to_owned(),
    };
    Configuration::new(&Document::parse(&document.to_string()).unwrap(), &settings).unwrap()
}

fn with_decision(body: &str, variables: usize, check: impl FnOnce(&Decision<'_>)) {
    let configuration = configuration(variables);
    let context = Context {
        configuration: &configuration,
        namespace: None,
        pull_secret: &PullSecret::Unknown,
        trust_bundle: TrustBundlePresence::Present,
        fallback_policy: false,
    };
    let review = review::parse(body.as_bytes()).unwrap();
    let Subject::Pod(request) = &review.subject else {
        panic!("the Pod is within the limits: {:?}", review.subject);
    };
    check(&decide(request, &context));
}

#[rstest]
#[case::many_containers("{}", 9_000, 1)]
#[case::many_containers_and_variables("{}", 9_000, 300)]
#[case::few_containers_and_many_variables("{}", 10, 9_000)]
#[case::environment_is_present(r#"{"env":[]}"#, 500, 300)]
#[case::variables_are_replaced(r#"{"env":[{"name":"FIPS_0"},{"name":"FIPS_0"}]}"#, 3_000, 1)]
fn pod_whose_patch_is_too_large_is_left_unchanged(
    #[case] container: &str,
    #[case] count: usize,
    #[case] variables: usize,
) {
    let pod = format!(r#"{{"spec":{{"containers":{}}}}}"#, list(container, count));
    with_decision(&review(&pod), variables, |decision| {
        assert!(!decision.changed());
        let found: Vec<_> = (decision.findings.iter())
            .map(|it| (it.feature, it.reason.code()))
            .collect();
        let expected: Vec<_> = (Feature::ALL.into_iter())
            .map(|feature| match feature {
                Feature::Landscape => (feature, Code::NotRequested),
                _ => (feature, Code::PatchTooLarge),
            })
            .collect();
        assert_eq!(found, expected);
        assert!(
            decision
                .findings
                .iter()
                .all(|it| it.reason.code() != Code::PatchTooLarge || it.reason.warns())
        );
    });
}

/// A container as the API server sends it: with defaults, and the mount of the token of the ServiceAccount.
const DEFAULTED: &str = r#"{"name":"a","image":"replace.me/shop/cart:1.2.3","resources":{},"volumeMounts":[{"name":"kube-api-access-x2x4x","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}"#;

#[rstest]
#[case::one(1, 200)]
#[case::hundred(100, 5)]
#[case::thousand(1_000, 1)]
fn pod_as_the_api_server_sends_it_is_within_the_limits(
    #[case] containers: usize,
    #[case] variables: usize,
) {
    let pod = format!(
        r#"{{"spec":{{"containers":{}}}}}"#,
        list(DEFAULTED, containers)
    );
    with_decision(&review(&pod), variables, |decision| {
        let patch = decision.patch.json().map(String::from_utf8_lossy);
        let rewritten = patch.map_or(0, |patch: Cow<'_, str>| patch.matches("/image\"").count());
        assert_eq!(rewritten, containers);
    });
}
