//! Requests to the admission endpoint: its protocol, and what it answers to anything else.

use super::configuration::{every_replica, webhook};
use super::object::{document, pair};
use super::pod::{named, plain};
use super::prelude::*;
use crate::admission::webhook::{response, review};
use crate::client::Write;

#[when("an AdmissionReview is posted to the webhook with request:")]
async fn posted(scenario: &mut Scenario, step: &Step) -> Result<()> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": document(scenario, step)?,
    });
    post(scenario, review.to_string().into_bytes()).await
}

#[when(regex = r"^body (.+) is posted to the webhook$")]
async fn body_posted(scenario: &mut Scenario, name: String) -> Result<()> {
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
            let text = literal
                .strip_prefix('\'')
                .and_then(|it| it.strip_suffix('\''));
            let Some(text) = text else {
                bail!("unknown body {name}; a literal one is in single quotes")
            };
            text.as_bytes().to_vec()
        }
    };
    post(scenario, body).await
}

async fn post(scenario: &mut Scenario, body: Vec<u8>) -> Result<()> {
    let replicas = webhook(scenario)?.replicas().await?;
    let replica = replicas.first().context("the webhook has no replica")?;
    let answer = replica.post(api::names::WEBHOOK_PATH, body).await?;
    scenario.observed.last = Some(answer);
    Ok(())
}

/// The webhook answers and stays ready.
#[then(expr = "the response has status {int}")]
async fn has_status(scenario: &mut Scenario, status: u16) -> Result<()> {
    let answer = scenario.observed.last()?;
    let seen = answer.status.as_u16();
    ensure!(seen == status, "{seen} {}", answer.object);
    is_ready(scenario, true, "").await
}

#[then(regex = r#"^component webhook reports readiness (true|false) with message "(.*)"$"#)]
async fn readiness(scenario: &mut Scenario, expected: String, text: String) -> Result<()> {
    is_ready(scenario, expected == "true", &text).await
}

/// Every replica has this readiness, with a message that contains a text.
async fn is_ready(scenario: &Scenario, expected: bool, text: &str) -> Result<()> {
    every_replica(scenario, "its readiness", async |replica| {
        let (ready, message) = replica.health("/readyz").await?;
        ensure!(
            ready == expected && message.contains(text),
            "{ready}: {message}"
        );
        Ok(())
    })
    .await
}

#[then(
    regex = r#"^the AdmissionReview is allowed (?:without patch and with warning "([^"]+)"|with a JSON patch of operations "([^"]+)")$"#
)]
fn allowed(scenario: &mut Scenario, warning: String, operations: String) -> Result<()> {
    let response = response(scenario.observed.last()?)?;
    if !warning.is_empty() {
        return unchanged(&response, &warning);
    }
    let mut patch = items(&response["patch"]).peekable();
    ensure!(
        response["allowed"] == true
            && response["patchType"] == "JSONPatch"
            && patch.peek().is_some()
            && patch.all(|it| operations.split(", ").any(|known| it["op"] == known)),
        "{response}"
    );
    Ok(())
}

/// The response allows the Pod, has no patch and warns.
fn unchanged(response: &Value, warning: &str) -> Result<()> {
    let warnings = response["warnings"].to_string();
    ensure!(
        response["allowed"] == true && response["patch"].is_null() && warnings.contains(warning),
        "{response}"
    );
    Ok(())
}

#[when(expr = "{int} Pods with annotation {string} are created with dry run in Namespace {string}")]
async fn many(
    scenario: &mut Scenario,
    count: u32,
    annotation: String,
    namespace: String,
) -> Result<()> {
    let [calls, reviews] = counts(scenario).await?;
    let noted = json!([calls, reviews, count]);
    scenario.observed.note("requests", noted);
    let client = webhook(scenario)?.client;
    let (key, value) = pair(&annotation);
    let mut pod = named("one-of-many");
    pod["metadata"]["annotations"][key] = json!(value);
    pod["metadata"]["namespace"] = json!(scenario.resolve(&namespace));
    for _ in 0..count {
        client.write(Write::DryRun, &pod).await?.good()?;
    }
    Ok(())
}

#[then("component webhook reviewed each of them without a request to the API server")]
async fn no_calls(scenario: &mut Scenario) -> Result<()> {
    let [calls, reviews] = counts(scenario).await?;
    let noted = scenario.observed.noted("requests")?;
    let before = |place: usize| noted[place].as_f64().unwrap_or_default();
    let (called, reviewed) = (calls - before(0), reviews - before(1));
    ensure!(reviewed >= before(2), "only {reviewed} reviews");
    ensure!(called < 0.5, "{called} requests to the API server");
    Ok(())
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
async fn has_metric(scenario: &mut Scenario, metric: String, least: u32) -> Result<()> {
    let series = match metric.split_once(' ') {
        Some((name, reason)) => format!("rt_bootstrapper_{name}{{reason=\"{reason}\"}}"),
        None => format!("rt_bootstrapper_{metric}"),
    };
    every_replica(scenario, "its metric", async |replica| {
        let sum = replica.metrics().await?.sum(&series);
        ensure!(sum >= f64::from(least), "{series} is {sum}");
        Ok(())
    })
    .await
}

/// A webhook without configuration answers, admits every Pod unchanged and warns.
#[then(expr = "every replica of component webhook admits a Pod unchanged with warning {string}")]
async fn serves(scenario: &mut Scenario, warning: String) -> Result<()> {
    every_replica(scenario, "it serves", async |replica| {
        unchanged(&replica.review("default", &plain()).await?, &warning)
    })
    .await
}
