//! What is seen of objects of any kind: their fields, their life, Events about them.

use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use cucumber::gherkin::Step;
use cucumber::{given, then};
use serde_json::Value;

use super::object::{document, ensure_written, pair, read};
use super::pod::items;
use super::{A_WHILE, PATIENCE};
use crate::client::Write;
use crate::matching::differences;
use crate::scenario::{ObjectRef, Scenario};
use testkit::until::{holds, until};

/// "is deleted" waits and needs an earlier step that saw the object; "does not exist" looks for a while.
#[given(regex = "^(.+) (exists)$")]
#[then(regex = "^(.+) (exists|does not exist|is deleted)$")]
async fn exists(scenario: &mut Scenario, object: ObjectRef, state: String) -> anyhow::Result<()> {
    if state == "exists" {
        return expect(scenario, &object, |_| Ok(())).await;
    }
    let object = scenario.resolved(&object);
    let what = format!("{object} {state}");
    let is_absent = || async {
        ensure!(read(scenario, &object).await?.is_none(), "it exists");
        anyhow::Ok(())
    };
    if state == "does not exist" {
        holds(&what, A_WHILE, is_absent).await?;
        return Ok(());
    }
    ensure!(
        scenario.observed.before.contains_key(&object),
        "no earlier step saw {object}, so its absence shows nothing"
    );
    until(&what, PATIENCE, is_absent).await?;
    Ok(())
}

#[then(expr = "{object} matches:")]
async fn matches(scenario: &mut Scenario, object: ObjectRef, step: &Step) -> anyhow::Result<()> {
    let expected = document(scenario, step)?;
    expect(scenario, &object, |seen| {
        let found = differences(&expected, seen);
        ensure!(found.is_empty(), "{}", found.join("; "));
        Ok(())
    })
    .await
}

#[then(regex = r#"^(.+) has (no )?(annotation|label) "([^"]+)"$"#)]
async fn labelled(
    scenario: &mut Scenario,
    object: ObjectRef,
    no: String,
    field: String,
    entry: String,
) -> anyhow::Result<()> {
    let (key, value) = pair(&entry);
    let expected = no.is_empty().then(|| Value::from(value));
    expect(scenario, &object, |seen| {
        let found = &seen["metadata"][format!("{field}s")];
        ensure!(found.get(key) == expected.as_ref(), "{field}s: {found}");
        Ok(())
    })
    .await
}

#[then(regex = r"^(.+) is not modified(?: for (\d+) seconds)?$")]
async fn not_modified(
    scenario: &mut Scenario,
    object: ObjectRef,
    seconds: String,
) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let duration = seconds.parse().map_or(A_WHILE, Duration::from_secs);
    let before = scenario.observed.before.get(&object);
    let before = before.with_context(|| format!("no earlier step saw {object}"))?;
    let version = &before["metadata"]["resourceVersion"];
    holds(&format!("{object} is not modified"), duration, || async {
        let now = read(scenario, &object)
            .await?
            .context("it does not exist")?;
        let metadata = &now["metadata"];
        ensure!(metadata["resourceVersion"] == *version, "{metadata}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// Compares with the object before the scenario's last change of it.
#[then(regex = r"^(.+) differs only by field ([\w.]+)$")]
async fn differs(scenario: &mut Scenario, object: ObjectRef, field: String) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let before = scenario.observed.before.get(&object);
    let before = before.with_context(|| format!("no earlier step changed {object}"))?;
    let now = read(scenario, &object)
        .await?
        .context("it does not exist")?;
    let (mut was, mut is) = (content(before), content(&now));
    let pointer = format!("/{}", field.replace('.', "/"));
    let old = was.pointer_mut(&pointer).map(Value::take);
    let new = is.pointer_mut(&pointer).map(Value::take);
    ensure!(old != new, "{field} is still {new:?}");
    for object in [&mut was, &mut is] {
        if let Some((parent, key)) = pointer.rsplit_once('/')
            && let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut)
        {
            fields.remove(key);
        }
    }
    ensure!(was == is, "it was {was}\nit is {is}");
    Ok(())
}

#[then(expr = "{object} is eventually restored")]
async fn restored(scenario: &mut Scenario, object: ObjectRef) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let before = scenario.observed.before.get(&object).cloned();
    let before = before.with_context(|| format!("no earlier step changed {object}"))?;
    until(&format!("{object} is restored"), PATIENCE, || async {
        let now = read(scenario, &object)
            .await?
            .context("it does not exist")?;
        ensure_written(&before, &now)?;
        let (was, is) = (content(&before), content(&now));
        ensure!(was == is, "it was {was}, it is {is}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// Removes what the cluster assigns to a Service.
pub(crate) fn remove_assigned(object: &mut Value) {
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.retain(|key, _| !["clusterIP", "clusterIPs"].contains(&key.as_str()));
    }
}

/// An object without what the API server writes into it.
pub(crate) fn content(object: &Value) -> Value {
    let mut object = object.clone();
    object["status"] = Value::Null;
    remove_assigned(&mut object);
    strip_server_fields(&mut object);
    object
}

/// Removes what the API server writes into the metadata of every object.
pub(crate) fn strip_server_fields(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "generation",
        ] {
            metadata.remove(key);
        }
    }
}

#[then(regex = r"^field ([\w.]+) of (.+) is ([^ ].*)$")]
async fn has_field(
    scenario: &mut Scenario,
    field: String,
    object: ObjectRef,
    value: String,
) -> anyhow::Result<()> {
    let expected = scenario.yaml(&value)?;
    let pointer = format!("/{}", field.replace('.', "/"));
    expect(scenario, &object, |seen| {
        let found = seen.pointer(&pointer).unwrap_or(&Value::Null);
        ensure!(*found == expected, "{field} is {found}");
        Ok(())
    })
    .await
}

#[then(expr = "field manager {string} owns only field {string} of {object}")]
async fn owner(
    scenario: &mut Scenario,
    manager: String,
    field: String,
    object: ObjectRef,
) -> anyhow::Result<()> {
    expect(scenario, &object, |seen| {
        let entries = items(&seen["metadata"]["managedFields"]);
        let mut owned = Vec::new();
        for entry in entries.filter(|it| it["manager"] == manager) {
            leaves(&entry["fieldsV1"], &mut owned);
        }
        ensure!(owned == [format!("f:{field}")], "{owned:?}");
        Ok(())
    })
    .await
}

/// Names of the fields without fields below them.
fn leaves(fields: &Value, found: &mut Vec<String>) {
    for (name, below) in fields.as_object().into_iter().flatten() {
        match below.as_object() {
            Some(map) if map.is_empty() && name != "." => found.push(name.clone()),
            _ => leaves(below, found),
        }
    }
}

#[then(expr = "{object} has the data of {object}")]
async fn same_data(
    scenario: &mut Scenario,
    copy: ObjectRef,
    source: ObjectRef,
) -> anyhow::Result<()> {
    let source = scenario.resolved(&source);
    let source = read(scenario, &source).await?;
    let source = source.context("the source does not exist")?;
    expect(scenario, &copy, |seen| {
        ensure!(
            seen["data"] == source["data"] && seen["type"] == source["type"],
            "type {} and other data",
            seen["type"]
        );
        ensure!(
            seen["metadata"]["deletionTimestamp"].is_null(),
            "it is being deleted"
        );
        Ok(())
    })
    .await
}

#[then(regex = r#"^(.+) has Event "(\w+)" with message containing "(.+)"$"#)]
async fn event(
    scenario: &mut Scenario,
    object: ObjectRef,
    reason: String,
    text: String,
) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let client = scenario.client_of(&object)?;
    // An Event of an earlier scenario has an older revision.
    let since = revision(scenario.observed.last()?.at("/metadata/resourceVersion"));
    let namespace = object.namespace.as_deref().unwrap_or("default");
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let what = format!("{object} has Event {reason}");
    until(&what, PATIENCE, || async {
        let events = client.get(&path).await?;
        let events = events.at("/items").as_array().cloned().unwrap_or_default();
        let of_object = events.iter().filter(|event| {
            event["regarding"]["kind"] == object.kind
                && event["regarding"]["name"] == object.name
                && event["reason"] == reason
                && revision(&event["metadata"]["resourceVersion"]) > since
        });
        let notes: Vec<&str> = of_object.filter_map(|it| it["note"].as_str()).collect();
        ensure!(
            notes.iter().any(|note| note.contains(&text)),
            "Events: {notes:?}"
        );
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

fn revision(version: &Value) -> u64 {
    let text = version.as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Waits until the object exists and `is` accepts it. An object of a dry run is the one that was answered.
pub(crate) async fn expect(
    scenario: &mut Scenario,
    object: &ObjectRef,
    is: impl Fn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    expect_within(scenario, object, PATIENCE, is).await
}

/// The same with another limit.
pub(crate) async fn expect_within(
    scenario: &mut Scenario,
    object: &ObjectRef,
    limit: Duration,
    is: impl Fn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let object = scenario.resolved(object);
    if let Some(written) = scenario.observed.written.get(&object)
        && written.how == Write::DryRun
    {
        return is(&written.answer.object).map_err(|error| anyhow!("{object}: {error:#}"));
    }
    let seen = until(&format!("{object} is as expected"), limit, || async {
        let seen = read(scenario, &object)
            .await?
            .context("it does not exist")?;
        is(&seen)?;
        anyhow::Ok(seen)
    })
    .await?;
    scenario.observed.before.insert(object, seen);
    Ok(())
}
