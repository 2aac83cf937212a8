//! Conditions of objects, and requests that the API server denies.

use anyhow::{Context as _, ensure};
use cucumber::gherkin::Step;
use cucumber::then;
use serde_json::json;

use super::object::document;
use super::observation::expect;
use crate::client::Write;
use crate::scenario::{ObjectRef, Scenario};

#[then(
    regex = r#"^([A-Z]\w+ "[^"]+"(?: on runtime "[^"]+")?) has condition (\w+=\w+)(?: with reason "([^"]*)")?(?: and message containing "([^"]*)")?$"#
)]
async fn condition(
    scenario: &mut Scenario,
    object: ObjectRef,
    wanted: String,
    reason: String,
    message: String,
) -> anyhow::Result<()> {
    let (kind, status) = super::object::pair(&wanted);
    expect(scenario, &object, |seen| {
        let conditions = seen["status"]["conditions"].as_array();
        let found = conditions
            .into_iter()
            .flatten()
            .find(|it| it["type"] == kind);
        let found = found.context("the condition does not exist")?;
        let text = |key: &str| found[key].as_str().unwrap_or_default();
        ensure!(
            text("status") == status
                && (reason.is_empty() || text("reason") == reason)
                && text("message").contains(&message),
            "{found}"
        );
        Ok(())
    })
    .await
}

/// A dry run, so nothing has to be deleted if the object is accepted.
#[then(expr = "the API server denies {object} with message containing {string}:")]
async fn denied(
    scenario: &mut Scenario,
    object: ObjectRef,
    text: String,
    step: &Step,
) -> anyhow::Result<()> {
    let mut fields = document(scenario, step)?;
    fields["kind"] = json!(object.kind);
    fields["metadata"] = json!({ "name": object.name, "namespace": object.namespace });
    let client = scenario.client_of(&object)?;
    let namespace = object.namespace.as_deref();
    let answer = client.write(Write::DryRun, namespace, &fields).await?;
    ensure!(
        answer.status.is_client_error() && answer.message().contains(&text),
        "{}: {}",
        answer.status,
        answer.message()
    );
    Ok(())
}
