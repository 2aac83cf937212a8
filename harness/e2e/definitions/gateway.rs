//! The gateway of KCP: its faults, its clients, its certificates, and metrics on KCP.

use super::manager::event_about;
use super::prelude::*;

/// Without a fault, the last one ends.
#[when(regex = "^KCP becomes (?:reachable again|unreachable: (.+))$")]
async fn fault_changed(scenario: &mut Scenario, fault: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    if fault.is_empty() {
        let injected = scenario.observed.noted("fault")?.as_str();
        return env.change_fault(injected.unwrap_or_default(), false).await;
    }
    scenario.observed.note("fault", json!(fault));
    let (handle, injected) = (env.clone(), fault.clone());
    scenario.undo(format!("end the fault: {fault}"), async move {
        handle.change_fault(&injected, false).await?;
        handle.runtime.has_delivered().await
    });
    env.change_fault(&fault, true).await
}

#[when(
    regex = r#"^a client with "([^"]+)" posts (?:to the gateway|an event for (.+) to the gateway)$"#
)]
async fn posts(scenario: &mut Scenario, client: String, object: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    if object.is_empty() {
        let error = env.rejection(&client).await?;
        let outcome = json!({ "error": error });
        scenario.observed.note("connection", outcome);
        return Ok(());
    }
    let is_known = client == "the certificate of another runtime";
    ensure!(is_known, "unknown client: {client}");
    let object: ObjectRef = object.parse().map_err(anyhow::Error::msg)?;
    let about = event_about(scenario, &object).await?;
    env.post_as_other(about).await
}

/// Compares with the state before the first step of the scenario.
#[then(
    regex = r#"^metric "([^"]+)" of (?:the gateway|manager "([^"]+)") increases by (at least )?(\d+)$"#
)]
async fn metric_increases(
    scenario: &mut Scenario,
    metric: String,
    manager: String,
    at_least: String,
    by: u64,
) -> Result {
    let env = scenario.environment_of::<View>()?;
    let increase = async || {
        if manager.is_empty() {
            ensure!(metric == HANDSHAKE_ERRORS, "unknown metric: {metric}");
            let now = env.gateway.handshake_errors().await?;
            let increase = now.checked_sub(env.before.handshake_errors);
            return increase.context("the gateway was restarted");
        }
        let before = env.before.managers.get(manager.as_str());
        let before = before.map_or(0, |it| it.count(&metric));
        let now = env.manager(&manager)?.metrics().count(&metric);
        let increase = now.checked_sub(before);
        increase.context("the listener was restarted")
    };
    if at_least.is_empty() {
        let now = increase().await?;
        ensure!(now == by, "it increased by {now}");
        return Ok(());
    }
    eventually(&format!("{metric} increases"), async || {
        let now = increase().await?;
        check(now >= by, format!("it increased by {now}"))
    })
    .await
}

#[when("the CA of both sides is rotated")]
async fn rotated(scenario: &mut Scenario) -> Result {
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

/// Sum of Envoy's counters of rejected TLS handshakes.
const HANDSHAKE_ERRORS: &str = "listener.ssl.handshake_errors";
