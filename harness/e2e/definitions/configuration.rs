//! The configuration document of the webhook.

use super::pod::restarts;
use super::prelude::*;
use crate::admission::webhook::{NAMESPACE, Replica, Webhook};
use crate::scenario::Cluster;

/// Changes one field, or removes it, and waits until the document is active.
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

/// Replaces the whole document by a valid one, and waits until it is active.
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

/// Writes a text, valid or not.
#[when("the configuration document is:")]
async fn written(scenario: &mut Scenario, step: &Step) -> Result {
    restore_later(scenario, &config_map()).await?;
    let text = step.docstring.as_deref().context("no document")?.trim();
    let answer = webhook(scenario)?.write_configuration(text).await?;
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
        check(
            ready && is_explained && valid.is_some_and(|it| it < 0.5),
            seen,
        )
    };
    webhook(scenario)?
        .each("the configuration is rejected", probe)
        .await
}

#[then("no replica of component webhook was restarted")]
async fn not_restarted(scenario: &mut Scenario) -> Result {
    let now = starts(&webhook(scenario)?).await?;
    let before = scenario.observed.noted("starts")?;
    check(now == *before, format!("before {before}, now {now}"))
}

async fn starts(webhook: &Webhook) -> Result<Value> {
    Ok(json!(restarts(&webhook.pods().await?)))
}

/// The webhook of the cluster that the scenario is about.
pub(crate) fn webhook(scenario: &Scenario) -> Result<Webhook> {
    let client = scenario.environment()?.client(&Cluster::Runtime(None))?;
    Ok(Webhook::new(client))
}

fn config_map() -> ObjectRef {
    ObjectRef::new("ConfigMap", Some(NAMESPACE), api::names::CONFIG_MAP)
}
