//! The webhook: its configuration document, its admission endpoint, and the reports of its replicas.

use super::PATIENCE;
use super::pod::{env, restarts};
use super::prelude::*;
use crate::admission::webhook::{NAMESPACE, REVIEWS, Replica, Webhook, response, review};
use crate::scenario::Cluster;
use testkit::until::until;

/// Changes or removes one field, and waits until the document is active.
#[given(regex = r"^(\w+) (?:in the configuration is (.+)|is absent from the configuration)$")]
#[when(regex = r"^(\w+) in the configuration is set to (.+)$")]
async fn field(scenario: &mut Scenario, key: String, value: String) -> Result {
    restore_later(scenario, &config_map()).await?;
    let webhook = webhook(scenario)?;
    let mut document = webhook.configuration().await?;
    let fields = document.as_object_mut().context("not a JSON object")?;
    if value.is_empty() {
        fields.remove(&key);
    } else {
        fields.insert(key, scenario.yaml(&value)?);
    }
    scenario.observed.note("starts", starts(&webhook).await?);
    webhook.configure(document).await
}

/// Replaces the whole document with a valid one, and waits until it is active.
#[given(regex = r#"^the configuration is (?:(\{.+\})|file "([^"]+)")$"#)]
async fn replaced(scenario: &mut Scenario, document: String, file: String) -> Result {
    restore_later(scenario, &config_map()).await?;
    let document = if file.is_empty() {
        scenario.yaml(&document)?
    } else {
        serde_json::from_str(&file_of_project(&file)?)?
    };
    webhook(scenario)?.configure(document).await
}

/// Writes a text, which may be invalid. A replica that starts then uses the document before it, which the leader has stored.
#[when("the configuration document is:")]
async fn written(scenario: &mut Scenario, step: &Step) -> Result {
    restore_later(scenario, &config_map()).await?;
    let text = step.docstring.as_deref().context("no document")?.trim();
    let webhook = webhook(scenario)?;
    let valid = webhook.configuration().await?;
    eventually("the valid document is stored", async || {
        let stored = webhook.stored_configuration().await?;
        check(stored == valid, stored)
    })
    .await?;
    let answer = webhook.write_configuration(text).await?;
    scenario.observed.last = Some(answer);
    Ok(())
}

#[then(regex = r#"^the configuration is rejected with "(.+)"$"#)]
async fn rejected(scenario: &mut Scenario, reason: String) -> Result {
    let series = "rt_bootstrapper_configuration_last_reload_successful";
    let probe = async |replica: &Replica| {
        let valid = replica.metrics().await?.value(series);
        let (ready, text) = replica.health("/readyz").await?;
        let seen = format!("{series} {valid:?}, ready {ready}: {text}");
        let is_explained = text.contains(&reason) && text.contains("last valid one is active");
        let is_invalid = valid.is_some_and(|it| it < 0.5);
        check(ready && is_explained && is_invalid, seen)
    };
    webhook(scenario)?.each("it is rejected", probe).await
}

#[then(
    regex = "^no replica of component webhook (was restarted|left a client without an answer within 10 seconds after its deletion)$"
)]
async fn no_replica(scenario: &mut Scenario, did: String) -> Result {
    if did != "was restarted" {
        let wrong = scenario.observed.noted(NOT_ANSWERED)?;
        return check(*wrong == json!([]), wrong);
    }
    let now = starts(&webhook(scenario)?).await?;
    let before = scenario.observed.noted("starts")?;
    check(now == *before, format!("before {before}, now {now}"))
}

async fn starts(webhook: &Webhook) -> Result<Value> {
    Ok(json!(restarts(&webhook.pods().await?)))
}

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

/// Also checks that the webhook stays ready.
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

/// Waits until every replica has this readiness, with a message that contains a text.
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

/// Checks that the response allows the Pod, and has a warning and no patch.
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
    let mut wrong = Vec::new();
    for _ in 0..count {
        let created = client.write(Write::DryRun, &pod).await?.good()?;
        let is_adapted =
            env(created.at("/spec/containers/0"), api::names::FIPS_VARIABLE) == Some("true");
        wrong.extend((!is_adapted).then_some(created.object));
    }
    scenario.observed.note(NOT_MUTATED, json!(wrong));
    Ok(())
}

#[then("component webhook reviewed each of them without a request to the API server")]
async fn no_calls(scenario: &mut Scenario) -> Result {
    let [calls, reviews] = counts(scenario).await?;
    let noted = scenario.observed.noted("requests")?;
    let before = |place: usize| noted[place].as_f64().unwrap_or_default();
    let (called, reviewed) = (calls - before(0), reviews - before(1));
    ensure!(reviewed >= before(2), "only {reviewed} reviews");
    // Each watch is renewed every few minutes, independent of reviews. A request for each review would be as many requests as
    // reviews.
    let watches = before(2) / 10.0;
    let seen = format!("{called} requests to the API server");
    check(called < watches, seen)
}

/// Returns the numbers of requests to the API server and of reviews by all replicas. Renewals of the Lease are excluded,
/// because they depend only on time.
async fn counts(scenario: &Scenario) -> Result<[f64; 2]> {
    let webhook = webhook(scenario)?;
    let calls = "rest_client_requests_total";
    let renewals = "rest_client_requests_total{resource=\"leases\"}";
    let calls = webhook.sum(calls).await? - webhook.sum(renewals).await?;
    Ok([calls, webhook.sum(REVIEWS).await?])
}

/// The metric is given without its prefix, and with its reason or another label if it has one. The value is that of each
/// replica, or with "in one replica" or the name of a runtime the sum of all replicas. It increases since an earlier step recorded
/// it; a replica that has started since then counts from zero.
#[given(
    regex = r#"^metric "(.+)" of component webhook (is recorded|(?:is|increases by) at least \d+)( in one replica| on runtime "[^"]+")?(?: within (\d+) seconds)?$"#
)]
#[then(
    regex = r#"^metric "(.+)" of component webhook (is recorded|(?:is|increases by) at least \d+)( in one replica| on runtime "[^"]+")?(?: within (\d+) seconds)?$"#
)]
async fn has_metric(
    scenario: &mut Scenario,
    metric: String,
    condition: String,
    place: String,
    seconds: String,
) -> Result {
    let runtime = place.split('"').nth(1).map(str::to_owned);
    let client = scenario.environment()?.client(&Cluster::Runtime(runtime))?;
    let (series, webhook) = (series(&metric), Webhook { client });
    let Some((change, least)) = condition.split_once(" at least ") else {
        let values = eventually(&series, || webhook.values(&series)).await?;
        scenario.observed.note(RECORDED, json!({ series: values }));
        return Ok(());
    };
    let before = if change == "is" {
        &Value::Null
    } else {
        let recorded = scenario.observed.noted(RECORDED)?.get(&series);
        recorded.with_context(|| format!("no earlier step recorded {series}"))?
    };
    let (least, limit) = (
        least.parse()?,
        seconds.parse().map_or(PATIENCE, Duration::from_secs),
    );
    let is_enough = || async {
        let now = webhook.values(&series).await?.into_iter();
        let change = |(pod, now)| now - before[&pod].as_f64().unwrap_or_default();
        let seen: Vec<f64> = now.map(change).collect();
        let value = match place.as_str() {
            "" => seen.iter().copied().fold(f64::INFINITY, f64::min),
            _ => seen.iter().sum(),
        };
        check(
            value >= least,
            format!("{series} of each replica: {seen:?}"),
        )
    };
    Ok(until("its metric", limit, is_enough).await?)
}

/// Returns the series of a metric that a step names without its prefix.
fn series(metric: &str) -> String {
    match metric.split_once(' ') {
        Some((name, label)) => {
            let (key, value) = label.split_once('=').unwrap_or(("reason", label));
            format!("rt_bootstrapper_{name}{{{key}=\"{value}\"}}")
        }
        None => format!("rt_bootstrapper_{metric}"),
    }
}

/// A webhook without a configuration admits every Pod unchanged, with a warning.
#[then(expr = "every replica of component webhook admits a Pod unchanged with warning {string}")]
async fn serves(scenario: &mut Scenario, warning: String) -> Result {
    let probe = async |replica: &Replica| {
        let response = replica.review("default", &plain()).await?;
        unchanged(&response, &warning)
    };
    webhook(scenario)?.each("it serves", probe).await
}

/// Returns a Pod that opts in to one feature, as the cluster would store it.
pub(super) async fn would_be(client: &Client) -> Result<Value> {
    let mut pod = named("dry-run");
    pod["metadata"]["annotations"][api::Feature::FipsMode.key()] = json!("true");
    let answer = client.write(Write::DryRun, &pod).await?;
    Ok(answer.good()?.object)
}

/// Waits until the webhook itself adapts such a Pod. If the fallback policy has already adapted it, the webhook does not add
/// its annotation.
pub(super) async fn adapts(client: &Client) -> Result {
    eventually("the webhook adapts a Pod that opts in", async || {
        let pod = would_be(client).await?;
        let annotations = &pod["metadata"]["annotations"];
        check(annotations[api::names::MARKER] == "true", annotations)
    })
    .await
}

/// Returns the webhook of the scenario's cluster.
pub(crate) fn webhook(scenario: &Scenario) -> Result<Webhook> {
    let client = scenario.environment()?.client(&Cluster::Runtime(None))?;
    Ok(Webhook { client })
}

fn config_map() -> ObjectRef {
    ObjectRef::new("ConfigMap", Some(NAMESPACE), api::names::CONFIG_MAP)
}

/// Key of the recorded values of a metric, by replica.
const RECORDED: &str = "recorded metric";
/// Key of a result of a scenario: errors of all Pods that are not mutated.
pub(super) const NOT_MUTATED: &str = "Pods that are not mutated";
/// Key of a result of a scenario: errors of replicas that did not respond.
pub(super) const NOT_ANSWERED: &str = "replicas that did not answer";
