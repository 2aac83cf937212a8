//! With a list of Watchers, only the changes that the Watchers select are sent (the fourth message).

use policy::change::{Field, ResourceRule, Watcher};

use super::*;

fn watcher(manager: &str, field: Field, resource: &str) -> Watcher {
    Watcher {
        manager: named(manager),
        field,
        resources: vec![ResourceRule::new("operator.kyma-project.io", "*", resource)],
    }
}

fn listed(watchers: &[Watcher]) -> Fixture {
    with(DeliveryMode::Async, Watchers::listed(watchers.to_vec()))
}

fn on(subresource: &str) -> Value {
    let mut review = changed("a");
    review["request"]["subResource"] = subresource.into();
    review
}

#[tokio::test]
async fn another_subresource_is_said_to_be_invalid() {
    let fixture = listed(&[watcher("kyma", Field::Spec, "kymas")]);
    assert_eq!(
        fixture.message(&on("scale")).await,
        "invalid subresource: watched resource kyma-system/a"
    );
    assert_eq!(fixture.bodies(), Vec::<Value>::new());
    let series = r#"watcher_failed_kcp_total{error_reason="invalid-subresource"}"#;
    assert_eq!(fixture.metric(series), Some(1.0));
    assert_eq!(fixture.metric("watcher_kcp_requests_total"), Some(0.0));
    assert_eq!(fixture.message(&changed("a")).await, "event queued for KCP");
}

#[tokio::test]
async fn without_a_list_whatever_comes_is_looked_at() {
    let fixture = fixture();
    assert_eq!(fixture.message(&on("scale")).await, "event queued for KCP");
    assert_eq!(fixture.bodies(), [event("a")]);
}

#[tokio::test]
async fn of_a_managers_watchers_one_that_sends_is_enough_whatever_their_order() {
    let other = watcher("kyma", Field::Spec, "manifests");
    let status = watcher("kyma", Field::Status, "kymas");
    let spec = watcher("kyma", Field::Spec, "kymas");
    for order in [
        [other.clone(), status.clone(), spec.clone()],
        [spec, status, other],
    ] {
        let fixture = listed(&order);
        assert_eq!(fixture.message(&changed("a")).await, "event queued for KCP");
        let same = kyma("a", &json!({"channel": "fast"}), &json!({}));
        // The Watcher of manifests does not match the review.
        assert_eq!(
            fixture.message(&review("UPDATE", &same, &same)).await,
            "no change detected on watched resource kyma-system/a"
        );
    }
}

#[tokio::test]
async fn a_manager_without_a_watcher_is_not_found() {
    let fixture = listed(&[watcher("lifecycle-manager", Field::Spec, "kymas")]);
    let answered = fixture
        .send("/validate/kyma", changed("a").to_string())
        .await;
    assert_eq!(answered.status, StatusCode::NOT_FOUND);
    assert_eq!(answered.body, "the manager in the path is not configured\n");
    let answered = fixture
        .send("/validate/lifecycle-manager", "no review")
        .await;
    assert_eq!(answered.status, StatusCode::BAD_REQUEST);
}
