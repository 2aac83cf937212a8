//! The configuration document of the webhook.

use anyhow::{Context as _, ensure};
use cucumber::gherkin::Step;
use cucumber::{given, then, when};
use serde_json::{Value, json};

use super::object::{file_of_project, restore_later};
use crate::admission::webhook::{NAMESPACE, Replica, Webhook};
use crate::scenario::{Cluster, ObjectRef, Scenario};

/// Changes one field, or removes it, and waits until the document is active.
#[given(regex = r"^(\w+) (?:in the configuration is (.+)|is absent from the configuration)$")]
#[when(regex = r"^(\w+) in the configuration is set to (.+)$")]
async fn field(scenario: &mut Scenario, key: String, value: String) -> anyhow::Result<()> {
    restore_later(scenario, &config_map()).await?;
    let webhook = webhook(scenario)?;
    let mut document = webhook.configuration().await?;
    let fields = document.as_object_mut().context("not a JSON object")?;
    if value.is_empty() {
        fields.remove(&key);
    } else {
        fields.insert(key, scenario.yaml(&value)?);
    }
    note_starts(scenario).await?;
    webhook.configure(document).await
}

/// Replaces the whole document by a valid one, and waits until it is active.
#[given(regex = r#"^the configuration is (?:(\{.+\})|file "([^"]+)")$"#)]
async fn replaced(scenario: &mut Scenario, document: String, file: String) -> anyhow::Result<()> {
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
async fn written(scenario: &mut Scenario, step: &Step) -> anyhow::Result<()> {
    restore_later(scenario, &config_map()).await?;
    let text = step.docstring.as_deref().context("no document")?.trim();
    let answer = webhook(scenario)?.write_configuration(text).await?;
    scenario.observed.last = Some(answer);
    Ok(())
}

#[then(regex = r#"^the configuration is rejected with "(.+)"$"#)]
async fn rejected(scenario: &mut Scenario, reason: String) -> anyhow::Result<()> {
    let says_why = |replica: Replica| {
        let reason = reason.clone();
        async move {
            let valid = replica
                .sum("configuration_last_reload_successful", |_| true)
                .await?;
            let (ready, text) = replica.health("/readyz").await?;
            ensure!(
                valid < 0.5 && ready && text.contains(&reason),
                "configuration_last_reload_successful {valid}, ready {ready}: {text}"
            );
            ensure!(text.contains("last valid one is active"), "{text}");
            Ok(())
        }
    };
    webhook(scenario)?
        .each("the configuration is rejected", says_why)
        .await
}

/// Remembers how often each replica was started.
async fn note_starts(scenario: &mut Scenario) -> anyhow::Result<()> {
    let starts = starts(&webhook(scenario)?).await?;
    scenario.observed.noted.insert("starts", starts);
    Ok(())
}

#[then("no replica of component webhook was restarted")]
async fn not_restarted(scenario: &mut Scenario) -> anyhow::Result<()> {
    let now = starts(&webhook(scenario)?).await?;
    let before = scenario.observed.noted("starts")?;
    ensure!(now == *before, "before {before}, now {now}");
    Ok(())
}

async fn starts(webhook: &Webhook) -> anyhow::Result<Value> {
    let pods = webhook.pods().await?;
    let starts = pods.iter().map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let count = &pod["status"]["containerStatuses"][0]["restartCount"];
        (name.to_owned(), count.clone())
    });
    Ok(json!(starts.collect::<serde_json::Map<_, _>>()))
}

/// The webhook of the cluster that the scenario is about.
pub(crate) fn webhook(scenario: &Scenario) -> anyhow::Result<Webhook> {
    let client = scenario.environment()?.client(&Cluster::Runtime(None))?;
    Ok(Webhook::new(client))
}

pub(crate) fn config_map() -> ObjectRef {
    ObjectRef::new("ConfigMap", Some(NAMESPACE), api::names::CONFIG_MAP)
}
