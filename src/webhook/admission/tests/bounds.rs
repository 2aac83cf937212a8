//! A review that exceeds a limit of the webhook is allowed unchanged, with a short response, and is counted.

use policy::admission::review::MAX_LIST_ITEMS;

use super::*;

/// Returns the valid review with this number of containers.
fn review_of(containers: usize) -> Value {
    let mut review = review();
    let container = json!({"name": "a", "image": "replace.me/x"});
    review["request"]["object"]["spec"]["containers"] = vec![container; containers].into();
    review
}

/// Returns the warnings. Checks that none is longer than the API server repeats, and that their total does not exceed the
/// limit of the API server.
fn warnings(answer: &Value) -> Vec<&str> {
    let warnings = answer["response"]["warnings"].as_array().unwrap();
    let warnings: Vec<_> = warnings.iter().map(|it| it.as_str().unwrap()).collect();
    let lengths = warnings.iter().map(|it| it.chars().count());
    assert!(lengths.clone().all(|it| it <= 256));
    assert!(lengths.sum::<usize>() <= 4096);
    warnings
}

#[tokio::test]
async fn pod_with_too_many_list_items_is_admitted_unchanged_with_a_warning() {
    let fixture = configured();
    let answer = fixture.ask(&review_of(MAX_LIST_ITEMS + 1)).await;
    assert_eq!(answer["response"]["patch"], Value::Null);
    let warning = "runtime-bootstrapper: invalid Pod, Pod not mutated";
    assert_eq!(warnings(&answer), [warning]);
    assert!(fixture.shows(r#"rt_admission_internal_errors_total{reason="InvalidPod"} 1"#));
}

#[tokio::test]
async fn pod_with_a_patch_above_the_limit_is_admitted_unchanged_with_a_warning() {
    let fixture = configured();
    let answer = fixture.ask(&review_of(MAX_LIST_ITEMS)).await;
    assert_eq!(answer["response"]["patch"], Value::Null);
    assert!(
        warnings(&answer)
            .iter()
            .any(|it| it.ends_with("the Pod is unchanged"))
    );
    let metric =
        r#"rt_admission_decisions_total{feature="set-fips-mode",reason="PatchTooLarge"} 1"#;
    assert!(fixture.shows(metric));
    let metric = r#"rt_admission_reviews_total{operation="create",result="unchanged"} 1"#;
    assert!(fixture.shows(metric));
}

#[tokio::test]
async fn warnings_about_many_containers_are_bounded() {
    let mut review = review_of(100);
    for container in review["request"]["object"]["spec"]["containers"]
        .as_array_mut()
        .unwrap()
    {
        container["image"] = json!("\u{7f}".repeat(1_000));
    }
    let answer = configured().ask(&review).await;
    assert_eq!(warnings(&answer).len(), 16);
}

/// The limit of a patch is 48 KiB plus three times the review, and the patch is encoded as base64.
#[tokio::test]
async fn answer_is_never_longer_than_a_small_multiple_of_its_review() {
    let fixture = configured();
    let mut patched = 0;
    for containers in (0..4_000).step_by(250) {
        let review = review_of(containers).to_string();
        let limit = 80 * 1024 + 4 * review.len();
        let (status, answer) = fixture.post(review).await;
        assert_eq!(status, StatusCode::OK);
        let limit = limit.min(1024 * 1024 + 16 * 1024);
        assert!(
            answer.len() <= limit,
            "{containers}: {} bytes",
            answer.len()
        );
        patched += usize::from(answer.contains("JSONPatch"));
    }
    assert!(patched > 0, "no review has a patch within the limit");
}
