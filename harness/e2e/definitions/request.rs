//! Requests to the admission endpoint: its protocol, and what it answers to anything else.

use super::prelude::*;
use crate::admission::webhook::{Replica, response, review};
use crate::client::Write;

#[when("an AdmissionReview is posted to the webhook with request:")]
async fn posted(scenario: &mut Scenario, step: &Step) -> Result {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": document(scenario, step)?,
    });
    post(scenario, review.to_string().into_bytes()).await
}

#[when(regex = r"^body (.+) is posted to the webhook$")]
async fn body_posted(scenario: &mut Scenario, name: String) -> Result {
    let of = |pod: Value| review("probe", "default", &pod).to_string();
    let body = match name.trim_matches('"') {
        "invalid UTF-8" => b"{\"apiVersion\": \"\xff\xfe\"}".to_vec(),
        "truncated AdmissionReview" => of(json!({})).as_bytes()[..60].to_vec(),
        "AdmissionReview of 8 MiB" => of(json!({ "x": "x".repeat(8 << 20) })).into_bytes(),
        "containers nested 10,000 deep" => {
            let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
            let review = of(json!({ "spec": { "containers": "DEEP" } }));
            review.replace("\"DEEP\"", &deep).into_bytes()
        }
        literal => {
            let text = literal.strip_prefix('\'');
            let text = text.and_then(|it| it.strip_suffix('\''));
            let text = text.context("a literal body is in single quotes")?;
            text.as_bytes().to_vec()
        }
    };
    post(scenario, body).await
}

async fn post(scenario: &mut Scenario, body: Vec<u8>) -> Result {
    let replicas = webhook(scenario)?.replicas().await?;
    let replica = replicas.first().context("the webhook has no replica")?;
    let answer = replica.post(api::names::WEBHOOK_PATH, body).await?;
    scenario.observed.last = Some(answer);
    Ok(())
}

/// The webhook answers and stays ready.
#[then(expr = "the response has status {int}")]
async fn has_status(scenario: &mut Scenario, status: u16) -> Result {
    let answer = scenario.observed.last()?;
    let is_expected = answer.status.as_u16() == status;
    check(is_expected, format!("{answer:?}"))?;
    is_ready(scenario, true, "").await
}

#[then(regex = r#"^component webhook reports readiness (true|false) with message "(.*)"$"#)]
async fn readiness(scenario: &mut Scenario, expected: String, text: String) -> Result {
    is_ready(scenario, expected == "true", &text).await
}

/// Every replica has this readiness, with a message that contains a text.
async fn is_ready(scenario: &Scenario, expected: bool, text: &str) -> Result {
    let probe = async |replica: &Replica| {
        let (ready, message) = replica.health("/readyz").await?;
        let is_expected = ready == expected && message.contains(text);
        check(is_expected, format!("{ready}: {message}"))
    };
    webhook(scenario)?.each("its readiness", probe).await
}

#[then(
    regex = r#"^the AdmissionReview is allowed (?:without patch and with warning "([^"]+)"|with a JSON patch of operations "([^"]+)")$"#
)]
fn allowed(scenario: &mut Scenario, warning: String, operations: String) -> Result {
    let response = response(scenario.observed.last()?)?;
    if !warning.is_empty() {
        return unchanged(&response, &warning);
    }
    let mut patch = items(&response["patch"]).peekable();
    let is_patch = patch.peek().is_some() && response["patchType"] == "JSONPatch";
    let is_known = |it: &Value| operations.split(", ").any(|known| it["op"] == known);
    let is_expected = is_patch && patch.all(is_known) && response["allowed"] == true;
    check(is_expected, &response)
}

/// The response allows the Pod, has no patch and warns.
fn unchanged(response: &Value, warning: &str) -> Result {
    let is_unchanged = response["allowed"] == true && response["patch"].is_null();
    let warns = response["warnings"].to_string().contains(warning);
    check(is_unchanged && warns, response)
}

#[when(expr = "{int} Pods with annotation {string} are created with dry run in Namespace {string}")]
async fn many(scenario: &mut Scenario, count: u32, entry: String, namespace: String) -> Result {
    let [calls, reviews] = counts(scenario).await?;
    let noted = json!([calls, reviews, count]);
    scenario.observed.note("requests", noted);
    let client = webhook(scenario)?.client;
    let (key, value) = pair(&entry);
    let mut pod = named("one-of-many");
    pod["metadata"]["annotations"][key] = json!(value);
    pod["metadata"]["namespace"] = json!(scenario.resolve(&namespace));
    for _ in 0..count {
        client.write(Write::DryRun, &pod).await?.good()?;
    }
    Ok(())
}

#[then("component webhook reviewed each of them without a request to the API server")]
async fn no_calls(scenario: &mut Scenario) -> Result {
    let [calls, reviews] = counts(scenario).await?;
    let noted = scenario.observed.noted("requests")?;
    let before = |place: usize| noted[place].as_f64().unwrap_or_default();
    let (called, reviewed) = (calls - before(0), reviews - before(1));
    ensure!(reviewed >= before(2), "only {reviewed} reviews");
    check(called < 0.5, format!("{called} requests to the API server"))
}

/// Requests to the API server and reviews of all replicas. Renewals of the Lease depend on time alone.
async fn counts(scenario: &Scenario) -> Result<[f64; 2]> {
    let webhook = webhook(scenario)?;
    let calls = "rest_client_requests_total";
    let renewals = "rest_client_requests_total{resource=\"leases\"}";
    let reviews = "rt_bootstrapper_admission_reviews_total";
    let calls = webhook.sum(calls).await? - webhook.sum(renewals).await?;
    Ok([calls, webhook.sum(reviews).await?])
}

/// The metric without its prefix, and its reason if it has one.
#[then(expr = "metric {string} of component webhook is at least {int}")]
async fn has_metric(scenario: &mut Scenario, metric: String, least: u32) -> Result {
    let series = match metric.split_once(' ') {
        Some((name, reason)) => format!("rt_bootstrapper_{name}{{reason=\"{reason}\"}}"),
        None => format!("rt_bootstrapper_{metric}"),
    };
    let probe = async |replica: &Replica| {
        let sum = replica.metrics().await?.sum(&series);
        check(sum >= f64::from(least), format!("{series} is {sum}"))
    };
    webhook(scenario)?.each("its metric", probe).await
}

/// A webhook without configuration answers, admits every Pod unchanged and warns.
#[then(expr = "every replica of component webhook admits a Pod unchanged with warning {string}")]
async fn serves(scenario: &mut Scenario, warning: String) -> Result {
    let probe =
        async |replica: &Replica| unchanged(&replica.review("default", &plain()).await?, &warning);
    webhook(scenario)?.each("it serves", probe).await
}
