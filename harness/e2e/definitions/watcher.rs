//! The path from the watcher on the runtime to KCP: its replicas and reviews, the gateway, and faults between them.

use testkit::pki::Authority;

use super::event::event_about;
use super::flow::{changed_under_load, lossless};
use super::object::restore_later;
use super::prelude::*;
use crate::rollout::count;
use crate::watching::{GROUP, LIFECYCLE, REPLICAS, VERSION, kyma};

pub(super) async fn component(scenario: &mut Scenario, change: &str) -> Result {
    let env = scenario.environment_of::<View>()?;
    let handle = env.clone();
    scenario.undo("start the watcher", async move {
        handle.runtime.watcher.start(REPLICAS).await?;
        handle.has_heartbeats(LIFECYCLE, REPLICAS).await?;
        handle.runtime.has_delivered().await
    });
    match change {
        "restarted" => env.runtime.watcher.restart().await,
        "stopped" => env.runtime.watcher.stop().await,
        "started" => env.runtime.watcher.start(REPLICAS).await,
        _ => env.runtime.kill().await,
    }
}

#[then("no replica of component watcher was restarted")]
async fn not_restarted(scenario: &mut Scenario) -> Result {
    let env = scenario.environment_of::<View>()?;
    let (before, now) = (&env.before.restarts, env.runtime.restarts().await?);
    check(*before == now, format!("{before:?}, then {now:?}"))
}

/// Without the name of a fault, the step ends the last one.
#[when(regex = "^KCP becomes (?:reachable again|unreachable: (.+))$")]
async fn fault_changed(scenario: &mut Scenario, fault: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    if fault.is_empty() {
        let injected = scenario.observed.noted("fault")?.as_str();
        return env.change_fault(injected.unwrap_or_default(), false).await;
    }
    scenario.observed.note("fault", json!(fault));
    // Otherwise events about deletions of an earlier scenario would precede those of this scenario.
    env.runtime.is_idle().await?;
    let (handle, injected) = (env.clone(), fault.clone());
    scenario.undo(format!("end the fault: {fault}"), async move {
        handle.change_fault(&injected, false).await?;
        handle.runtime.has_delivered().await
    });
    env.change_fault(&fault, true).await
}

#[when(
    regex = r#"^a client with "(.+)" posts (?:to the gateway|an event for (.+) to manager "(.+)" through the gateway)$"#
)]
async fn client_posts(
    scenario: &mut Scenario,
    client: String,
    object: String,
    manager: String,
) -> Result {
    let env = scenario.environment_of::<View>()?;
    if object.is_empty() {
        let error = env.rejection(&client).await?;
        scenario
            .observed
            .note("connection", json!({ "error": error }));
        return Ok(());
    }
    let is_known = client == "the certificate of another runtime";
    ensure!(is_known, "unknown client: {client}");
    let object: ObjectRef = object.parse()?;
    let about = event_about(scenario, &object).await?;
    env.post_as_other(&manager, about).await
}

/// Compares with the state before the first step of the scenario. For the gateway, the value is the sum of Envoy's counters of
/// rejected TLS handshakes.
#[then(
    regex = r#"^metric "(.+)" of (?:the gateway|(?:manager|Service) "(.+)") increases by (at least )?(\d+)$"#
)]
async fn increases(
    scenario: &mut Scenario,
    metric: String,
    manager: String,
    at_least: String,
    by: u64,
) -> Result {
    let of_gateway = metric == "listener.ssl.handshake_errors";
    if let Ok(flow) = scenario.environment_of::<crate::flow::View>() {
        if !of_gateway {
            let is_of_flow = !at_least.is_empty() && !manager.is_empty();
            ensure!(is_of_flow, "not a step of the flow");
            return super::flow::is_scraped(&flow, &manager, &metric, by).await;
        }
        let delivery = scenario.observed.noted("delivery")?;
        return equal(
            &by,
            &delivery["handshake_errors"].as_u64().unwrap_or(u64::MAX),
        );
    }
    let env = scenario.environment_of::<View>()?;
    let increase = async || {
        let (before, now) = if of_gateway {
            let now = env.gateway.handshake_errors().await?;
            (env.before.handshake_errors, now)
        } else {
            let before = env.before.managers.get(manager.as_str());
            let now = env.manager(&manager)?.metrics().count_of_known(&metric)?;
            (before.map_or(0, |it| it.count(&metric)), now)
        };
        now.checked_sub(before).context("it was restarted")
    };
    if at_least.is_empty() {
        return equal(&by, &increase().await?);
    }
    eventually(&format!("{metric} increases"), async || {
        let now = increase().await?;
        check(now >= by, format!("it increased by {now}"))
    })
    .await
}

#[when("the caBundle of the watcher is replaced by another CA")]
async fn distrusted(scenario: &mut Scenario) -> Result {
    let configuration = ObjectRef::new("ValidatingWebhookConfiguration", None, "skr-webhook");
    restore_later(scenario, &configuration).await?;
    let env = scenario.environment_of::<View>()?;
    let other = Authority::new("another CA")?;
    env.runtime.trust(other.pem()).await
}

/// In the flow suite, cert-manager rotates the CA by issuing another one.
#[when(
    regex = r#"^the (CA of both sides is rotated(?: twice| during an outage of the runtime)?|lifecycle-manager takes over the watcher|controller takes over the watcher)(?: while Kymas are created on Runtime "([^"]+)" continuously)?$"#
)]
async fn rotated(scenario: &mut Scenario, what: String, name: String) -> Result {
    if let Ok(flow) = scenario.environment_of::<crate::flow::View>() {
        return changed_under_load(scenario, &flow, &what, &name).await;
    }
    let env = scenario.environment_of::<View>()?;
    let old = env.authority();
    let shared = env.clone();
    scenario.undo("restore the certificates", async move {
        let is_complete = shared.authority().pem() != old.pem();
        if !is_complete {
            shared.restore_certificates().await?;
        }
        shared.runtime.has_delivered().await
    });
    env.rotate().await
}

/// The step reads the histogram of the watcher, which has a bucket for the limit, and the API server's counter of reviews
/// without a response. One of ten may take longer, because the node of a test may be busy.
#[then(regex = r"^nine of ten AdmissionReviews took at most (\d+)ms$")]
async fn not_delayed(scenario: &mut Scenario, limit: u64) -> Result {
    let env = scenario.environment_of::<View>()?;
    let kymas = env.created_kymas().await?;
    let now = env.runtime.metrics().await?;
    let limit = Duration::from_millis(limit).as_secs_f64();
    let quick = format!("watcher_admission_duration_seconds_bucket{{le=\"{limit}\"}}");
    let has_bucket = now.values().all(|it| it.value(&quick).is_some());
    ensure!(has_bucket, "the histogram has no bucket {limit}");
    let increase = |series: &str| {
        let (before, now) = (count(&env.before.watcher, series)?, count(&now, series)?);
        now.checked_sub(before).context("a replica was restarted")
    };
    let all = increase("watcher_admission_duration_seconds_count")?;
    let quick = increase(&quick)?;
    let created = u64::try_from(kymas.names.len())?;
    ensure!(all >= created, "{all} reviews of {created} Kymas");
    ensure!(10 * quick >= 9 * all, "{} of {all} reviews", all - quick);
    let failed = failed_open(&env).await?;
    check(failed == 0, format!("{failed} had no answer"))
}

/// Returns how many reviews the API server allowed because the watcher did not respond in time.
async fn failed_open(env: &View) -> Result<u64> {
    api_server_increase(env, "apiserver_admission_webhook_fail_open_count").await
}

/// Returns the increase of a counter of the API server since the first step of the scenario.
async fn api_server_increase(env: &View, series: &str) -> Result<u64> {
    let now = env.runtime.watcher.client.metrics().await?;
    let before = env.before.api_server.count_of_known(series)?;
    let increase = now.count_of_known(series)?.checked_sub(before);
    increase.context("the API server was restarted")
}

#[then("the API server got an answer to every AdmissionReview")]
async fn answered(scenario: &mut Scenario) -> Result {
    if scenario.environment_of::<crate::flow::View>().is_ok() {
        return lossless(scenario);
    }
    let env = scenario.environment_of::<View>()?;
    let asked = api_server_increase(&env, "apiserver_admission_webhook_request_total").await?;
    ensure!(asked > 0, "the API server sent no AdmissionReview");
    let failed = failed_open(&env).await?;
    check(failed == 0, format!("{failed} of {asked} had no answer"))
}

#[when(
    regex = r#"^an AdmissionReview for (\w+) of (Kyma "[^"]+") with (no change|a changed spec|a changed status|no spec) is posted to the watcher$"#
)]
async fn posted(scenario: &mut Scenario, verb: String, of: ObjectRef, change: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let actual = scenario.resolved(&of);
    let review = review(&actual, &verb, &change);
    let answer = env.runtime.review(LIFECYCLE, &review).await?;
    scenario.observed.last = Some(answer);
    let [named, actual] = [&of, &actual].map(|it| it.to_string().replace("Kyma ", ""));
    let noted = json!([review["request"]["uid"], named, actual]);
    scenario.observed.note("posted AdmissionReview", noted);
    Ok(())
}

/// Compares the whole response. The message `event queued` has one of two endings, which depend on the node's disk.
#[then(expr = "the AdmissionReview is allowed with message {string}")]
fn allowed(scenario: &mut Scenario, message: String) -> Result {
    let noted = scenario.observed.noted("posted AdmissionReview")?;
    let text = |place: usize| noted[place].as_str().unwrap_or_default();
    let message = message.replace(text(1), text(2));
    let messages = match message.as_str() {
        "event queued" => vec!["event queued for KCP", "event queued in memory only"],
        other => vec![other],
    };
    let response = scenario.observed.last()?.at("/response");
    let is_expected = messages.iter().any(|message| {
        let status = json!({ "metadata": {}, "status": "Success", "message": message });
        *response == json!({ "uid": noted[0], "allowed": true, "status": status })
    });
    check(is_expected, format!("not {messages:?}: {response}"))
}

fn review(object: &ObjectRef, operation: &str, change: &str) -> Value {
    let mut old = kyma();
    old["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
    old["metadata"]["name"] = json!(object.name);
    old["metadata"]["namespace"] = json!(object.namespace);
    old["status"] = json!({ "state": "Processing" });
    if change == "no spec" {
        old["spec"] = Value::Null;
    }
    let mut new = old.clone();
    match change {
        "a changed spec" => new["spec"] = json!({ "channel": "fast" }),
        "a changed status" => new["status"] = json!({ "state": "Ready" }),
        _ => {}
    }
    match operation {
        "CREATE" => old = Value::Null,
        "DELETE" => new = Value::Null,
        _ => {}
    }
    let mut request = json!({
        "uid": random(), "operation": operation,
        "kind": { "group": GROUP, "version": VERSION, "kind": "Kyma" },
        "resource": { "group": GROUP, "version": VERSION, "resource": "kymas" },
        "name": object.name, "namespace": object.namespace,
        "object": new, "oldObject": old, "dryRun": false,
    });
    if change == "a changed status" {
        request["subResource"] = json!("status");
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
}
