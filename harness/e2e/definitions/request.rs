//! Requests to the admission endpoint: its protocol, and what it answers to anything else.

use anyhow::{Context as _, bail, ensure};
use cucumber::gherkin::Step;
use cucumber::{then, when};
use serde_json::{Value, json};

use super::configuration::webhook;
use super::object::document;
use super::pod::plain;
use crate::admission::webhook::{Replica, response, review};
use crate::client::Write;
use crate::scenario::Scenario;

#[when("an AdmissionReview is posted to the webhook with request:")]
async fn posted(scenario: &mut Scenario, step: &Step) -> anyhow::Result<()> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": document(scenario, step)?,
    });
    post(scenario, review.to_string().into_bytes()).await
}

#[when(regex = r"^body (.+) is posted to the webhook$")]
async fn body_posted(scenario: &mut Scenario, name: String) -> anyhow::Result<()> {
    let of = |pod: Value| review("probe", "default", &pod).to_string();
    let body = match name.as_str() {
        "\"invalid UTF-8\"" => b"{\"apiVersion\": \"\xff\xfe\"}".to_vec(),
        "\"truncated AdmissionReview\"" => of(json!({})).as_bytes()[..60].to_vec(),
        "\"AdmissionReview of 8 MiB\"" => of(json!({ "x": "x".repeat(8 << 20) })).into_bytes(),
        "\"containers nested 10,000 deep\"" => {
            let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
            let review = of(json!({ "spec": { "containers": "DEEP" } }));
            review.replace("\"DEEP\"", &deep).into_bytes()
        }
        literal => {
            let text = literal
                .strip_prefix('\'')
                .and_then(|it| it.strip_suffix('\''));
            let Some(text) = text else {
                bail!("unknown body {name}; a literal one stands in single quotes")
            };
            text.as_bytes().to_vec()
        }
    };
    post(scenario, body).await
}

async fn post(scenario: &mut Scenario, body: Vec<u8>) -> anyhow::Result<()> {
    let replica = webhook(scenario)?.replicas().await?.into_iter().next();
    let replica = replica.context("the webhook has no replica")?;
    let answer = replica.post(api::names::WEBHOOK_PATH, body).await?;
    scenario.observed.last = Some(answer);
    Ok(())
}

/// The webhook answers and stays ready.
#[then(expr = "the response has status {int}")]
async fn has_status(scenario: &mut Scenario, status: u16) -> anyhow::Result<()> {
    let answer = scenario.observed.last()?;
    ensure!(
        answer.status.as_u16() == status,
        "{} {}",
        answer.status,
        answer.object
    );
    let ready = |replica: Replica| async move {
        ensure!(replica.health("/readyz").await?.0, "not ready");
        Ok(())
    };
    webhook(scenario)?.each("it is ready", ready).await
}

#[then(
    regex = r#"^the AdmissionReview is allowed (?:without patch and with warning "([^"]+)"|with a JSON patch of operations "([^"]+)")$"#
)]
fn allowed(scenario: &mut Scenario, warning: String, operations: String) -> anyhow::Result<()> {
    let response = response(scenario.observed.last()?)?;
    if !warning.is_empty() {
        return unchanged(&response, &warning);
    }
    let patch = response["patch"].as_array().cloned().unwrap_or_default();
    let known = |it: &Value| operations.split(", ").any(|known| it["op"] == known);
    ensure!(
        response["allowed"] == true
            && response["patchType"] == "JSONPatch"
            && !patch.is_empty()
            && patch.iter().all(known),
        "{response}"
    );
    Ok(())
}

/// The response allows the Pod, has no patch and warns.
fn unchanged(response: &Value, warning: &str) -> anyhow::Result<()> {
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
    count: usize,
    annotation: String,
    namespace: String,
) -> anyhow::Result<()> {
    let webhook = webhook(scenario)?;
    let counts = json!([calls(scenario).await?, reviews(scenario).await?, count]);
    scenario.observed.noted.insert("requests", counts);
    let namespace = scenario.resolve(&namespace);
    let (key, value) = super::object::pair(&annotation);
    let mut pod = plain();
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("one-of-many");
    pod["metadata"]["annotations"][key] = json!(value);
    for _ in 0..count {
        let client = webhook.client();
        client
            .write(Write::DryRun, Some(&namespace), &pod)
            .await?
            .good()?;
    }
    Ok(())
}

#[then("component webhook reviewed each of them without a request to the API server")]
async fn no_calls(scenario: &mut Scenario) -> anyhow::Result<()> {
    let (calls, reviews) = (calls(scenario).await?, reviews(scenario).await?);
    let noted = scenario.observed.noted("requests")?;
    let before = |place: usize| noted[place].as_f64().unwrap_or_default();
    let reviewed = reviews - before(1);
    ensure!(reviewed >= before(2), "only {reviewed} reviews");
    let called = calls - before(0);
    ensure!(called < 0.5, "{called} requests to the API server");
    Ok(())
}

/// Requests of all replicas but the renewals of their Lease, which depend on time alone.
async fn calls(scenario: &Scenario) -> anyhow::Result<f64> {
    let of_reviews = |line: &str| !line.contains("\"leases\"");
    total(scenario, "rest_client_requests_total", of_reviews).await
}

async fn reviews(scenario: &Scenario) -> anyhow::Result<f64> {
    total(scenario, "admission_reviews_total", |_| true).await
}

async fn total(
    scenario: &Scenario,
    metric: &str,
    filter: impl Fn(&str) -> bool + Copy,
) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for replica in webhook(scenario)?.replicas().await? {
        sum += replica.sum(metric, filter).await?;
    }
    Ok(sum)
}

#[then(regex = r#"^component webhook reports readiness (true|false) with message "(.*)"$"#)]
async fn readiness(scenario: &mut Scenario, expected: String, text: String) -> anyhow::Result<()> {
    let is = |replica: Replica| {
        let (expected, text) = (expected == "true", text.clone());
        async move {
            let (ready, message) = replica.health("/readyz").await?;
            ensure!(
                ready == expected && message.contains(&text),
                "{ready}: {message}"
            );
            Ok(())
        }
    };
    webhook(scenario)?.each("its readiness", is).await
}

#[then(expr = "metric {string} of component webhook is at least {int}")]
async fn has_metric(scenario: &mut Scenario, metric: String, least: u32) -> anyhow::Result<()> {
    let (name, label) = metric.split_once(' ').unwrap_or((&metric, ""));
    let is = |replica: Replica| async move {
        let sum = replica.sum(name, |line| line.contains(label)).await?;
        ensure!(sum >= f64::from(least), "{name} is {sum}");
        Ok(())
    };
    webhook(scenario)?.each("its metric", is).await
}

/// A webhook without configuration answers, lets every Pod pass and tells why.
#[then(expr = "every replica of component webhook admits a Pod unchanged with warning {string}")]
async fn serves(scenario: &mut Scenario, warning: String) -> anyhow::Result<()> {
    let serves = |replica: Replica| {
        let warning = warning.clone();
        async move {
            let response = replica.review("default", &plain()).await?;
            unchanged(&response, &warning)
        }
    };
    webhook(scenario)?.each("it serves", serves).await
}
