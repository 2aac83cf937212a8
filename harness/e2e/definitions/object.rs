//! Objects of any kind: created, changed and deleted, with the clean-up that belongs to it.

use anyhow::{Context as _, ensure};
use cucumber::gherkin::Step;
use cucumber::{given, when};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::observation::strip_server_fields;
use super::{PATIENCE, pod};
use crate::client::{Answer, Client, Write};
use crate::runner::root;
use crate::scenario::{ObjectRef, Scenario};
use testkit::until::until;

#[given(regex = r#"^Namespace "([^"]+)"(?: with (annotation|label) "([^"]+)")?$"#)]
async fn namespace(
    scenario: &mut Scenario,
    name: String,
    field: String,
    entry: String,
) -> anyhow::Result<()> {
    let mut metadata = json!({});
    if !field.is_empty() {
        let (key, value) = pair(&entry);
        metadata[format!("{field}s")] = json!({ (key): value });
    }
    let name = scenario.name(&name);
    let object = ObjectRef::new("Namespace", None, &name);
    create(
        scenario,
        &object,
        json!({ "metadata": metadata }),
        Write::Create,
    )
    .await?;
    let client = scenario.client_of(&object)?;
    // Pods cannot be created before their ServiceAccount.
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until("the ServiceAccount default exists", PATIENCE, || {
        client.get(&account)
    })
    .await?;
    Ok(())
}

/// Describes an object that a later step creates.
#[given(expr = "{object} with:")]
fn described(scenario: &mut Scenario, object: ObjectRef, step: &Step) -> anyhow::Result<()> {
    let text = document(scenario, step)?;
    let object = scenario.resolved(&object);
    scenario.observed.described.insert(object, text);
    Ok(())
}

#[given(expr = "{object} exists with:")]
async fn exists_with(
    scenario: &mut Scenario,
    object: ObjectRef,
    step: &Step,
) -> anyhow::Result<()> {
    let text = document(scenario, step)?;
    let object = scenario.resolved(&object);
    create(scenario, &object, text, Write::Create).await
}

/// The object comes from the step's document, from a file, from the step that described it, or (`again`) from the
/// cluster before the scenario deleted it.
#[when(regex = r#"^([A-Z].+) is created( with:| with dry run| again| from file "[^"]+")?$"#)]
async fn created(
    scenario: &mut Scenario,
    object: ObjectRef,
    how: String,
    step: &Step,
) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let text = match how.trim() {
        "again" => return create_again(scenario, &object).await,
        "with:" => document(scenario, step)?,
        "" | "with dry run" => {
            let text = scenario.observed.described.get(&object).cloned();
            text.with_context(|| format!("no step describes {object}"))?
        }
        file => {
            let file = file.trim_start_matches("from file ").trim_matches('"');
            serde_saphyr::from_str(&file_of_project(file)?)?
        }
    };
    let is_dry_run = how == " with dry run";
    let how = if is_dry_run {
        Write::DryRun
    } else {
        Write::Create
    };
    create(scenario, &object, text, how).await
}

/// Creates an object that the scenario deleted as it was.
async fn create_again(scenario: &mut Scenario, object: &ObjectRef) -> anyhow::Result<()> {
    let before = scenario.observed.before.get(object);
    let before = before
        .cloned()
        .with_context(|| format!("{object} was not deleted"))?;
    put(&scenario.client_of(object)?, object, &before).await?;
    scenario.environment()?.settle(object).await
}

/// A file of the project, by its path from the root.
pub(crate) fn file_of_project(file: &str) -> anyhow::Result<String> {
    let path = root().join(file);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

#[given(expr = "{object} is patched with:")]
#[when(expr = "{object} is patched with:")]
async fn patched(scenario: &mut Scenario, object: ObjectRef, step: &Step) -> anyhow::Result<()> {
    let text = document(scenario, step)?;
    let object = scenario.resolved(&object);
    change(scenario, &object, text, Write::Merge).await
}

#[given(regex = r#"^(annotation|label) "([^"]+)" of (.+) is (set to "[^"]*"|removed)$"#)]
#[when(regex = r#"^(annotation|label) "([^"]+)" of (.+) is (set to "[^"]*"|removed)$"#)]
async fn labelled(
    scenario: &mut Scenario,
    field: String,
    key: String,
    object: ObjectRef,
    effect: String,
) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let value = effect
        .strip_prefix("set to ")
        .map(|it| it.trim_matches('"'));
    let text = json!({ "metadata": { (format!("{field}s")): { (key): value } } });
    change(scenario, &object, text, Write::Merge).await
}

#[when(expr = "container {string} of {object} is set to image {string}")]
async fn image_set(
    scenario: &mut Scenario,
    container: String,
    object: ObjectRef,
    image: String,
) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let before = read(scenario, &object).await?;
    let mut containers = before.context("it does not exist")?["spec"]["containers"].take();
    let named = containers
        .as_array_mut()
        .and_then(|all| all.iter_mut().find(|it| it["name"] == container));
    named.context("no such container")?["image"] = json!(image);
    let text = json!({ "spec": { "containers": containers } });
    change(scenario, &object, text, Write::Merge).await
}

#[given(expr = "{object} is deleted")]
#[when(expr = "{object} is deleted")]
async fn deleted(scenario: &mut Scenario, object: ObjectRef) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let before = restore_later(scenario, &object).await?;
    scenario.observed.before.insert(object.clone(), before);
    let client = scenario.client_of(&object)?;
    let path = path(&client, &object).await?;
    let answer = client.ask(Method::DELETE, &path, None).await?.good()?;
    scenario.observed.last = Some(answer);
    scenario.environment()?.settle(&object).await
}

/// Creates an object and registers its deletion.
pub(crate) async fn create(
    scenario: &mut Scenario,
    object: &ObjectRef,
    mut text: Value,
    how: Write,
) -> anyhow::Result<()> {
    if object.kind == "Pod" {
        text = pod::complete(text);
    }
    let text = named(object, text);
    let client = scenario.client_of(object)?;
    if how != Write::DryRun {
        let (client, object) = (client.clone(), object.clone());
        scenario.undo(format!("delete {object}"), async move {
            remove(&client, &object).await
        });
    }
    let answer = client
        .write(how, object.namespace.as_deref(), &text)
        .await?
        .good_for(format_args!("create {object}"))?;
    scenario.observed.described.insert(object.clone(), text);
    scenario.observed.wrote(object, answer, how);
    Ok(())
}

/// Changes an object that exists, or applies one that may not, and registers how to restore it.
pub(crate) async fn change(
    scenario: &mut Scenario,
    object: &ObjectRef,
    text: Value,
    how: Write,
) -> anyhow::Result<()> {
    let before = restore_later(scenario, object).await?;
    scenario.observed.before.insert(object.clone(), before);
    let client = scenario.client_of(object)?;
    let answer = client
        .write(how, object.namespace.as_deref(), &named(object, text))
        .await?
        .good_for(format_args!("change {object}"))?;
    scenario.observed.wrote(object, answer, how);
    scenario.environment()?.settle(object).await
}

/// Registers the restoration of an object that the scenario did not create; gives it as it is now, null if it is absent.
pub(crate) async fn restore_later(
    scenario: &mut Scenario,
    object: &ObjectRef,
) -> anyhow::Result<Value> {
    let before = read(scenario, object).await?;
    let namespace = object.namespace.as_deref().unwrap_or(&object.name);
    if scenario.owns(namespace) || scenario.observed.written.contains_key(object) {
        return Ok(before.unwrap_or(Value::Null));
    }
    let client = scenario.client_of(object)?;
    let environment = scenario.environment_handle()?;
    let (object, state) = (object.clone(), before.clone());
    scenario.undo(format!("restore {object}"), async move {
        match state {
            Some(state) => put(&client, &object, &state).await?,
            None => remove(&client, &object).await?,
        }
        environment.settle(&object).await
    });
    Ok(before.unwrap_or(Value::Null))
}

/// Makes an object what it was: its fields, not only those that differ.
async fn put(client: &Client, object: &ObjectRef, state: &Value) -> anyhow::Result<()> {
    let path = path(client, object).await?;
    let mut state = state.clone();
    strip_server_fields(&mut state);
    super::observation::remove_assigned(&mut state);
    let answer = client.ask(Method::GET, &path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        let namespace = object.namespace.as_deref();
        client
            .write(Write::Create, namespace, &state)
            .await?
            .good()?;
        return Ok(());
    }
    // Custom resources are not replaced without their version, which others may change in between.
    let (path, state) = (&path, &state);
    until(&format!("{object} is restored"), PATIENCE, || async move {
        let mut state = state.clone();
        let live = client.get(path).await?;
        state["metadata"]["resourceVersion"] = live.at("/metadata/resourceVersion").clone();
        let answer = client.ask(Method::PUT, path, Some(&state)).await?;
        answer.good().map(drop)
    })
    .await?;
    Ok(())
}

/// Deletes an object, whatever finalizers it has; one that is gone is fine.
pub(crate) async fn remove(client: &Client, object: &ObjectRef) -> anyhow::Result<()> {
    let path = path(client, object).await?;
    let answer = client.ask(Method::GET, &path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(());
    }
    if !answer.at("/metadata/finalizers").is_null() {
        let free = json!({ "metadata": { "finalizers": null } });
        client.ask(Method::PATCH, &path, Some(&free)).await?;
    }
    let answer = client.ask(Method::DELETE, &path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(());
    }
    answer.good().map(drop)
}

/// Reads an object; `None` when it does not exist.
pub(crate) async fn read(scenario: &Scenario, object: &ObjectRef) -> anyhow::Result<Option<Value>> {
    let client = scenario.client_of(object)?;
    let path = path(&client, object).await?;
    let answer: Answer = client.ask(Method::GET, &path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(Some(answer.good()?.object))
}

/// Path of an object in the API.
pub(crate) async fn path(client: &Client, object: &ObjectRef) -> anyhow::Result<String> {
    let collection = client
        .collection(&object.kind, object.namespace.as_deref())
        .await?;
    Ok(format!("{collection}/{}", object.name))
}

/// The YAML document of a step.
pub(crate) fn document(scenario: &Scenario, step: &Step) -> anyhow::Result<Value> {
    let text = step.docstring.as_deref();
    scenario.yaml(text.context("the step has no document")?)
}

/// `KEY=VALUE`.
pub(crate) fn pair(entry: &str) -> (&str, &str) {
    entry.split_once('=').unwrap_or((entry, ""))
}

fn named(object: &ObjectRef, mut text: Value) -> Value {
    text["kind"] = json!(object.kind);
    text["metadata"]["name"] = json!(object.name);
    if let Some(namespace) = &object.namespace {
        text["metadata"]["namespace"] = json!(namespace);
    }
    text
}

/// Fails unless the object has changed since `before`.
pub(crate) fn ensure_written(before: &Value, now: &Value) -> anyhow::Result<()> {
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    ensure!(version(before) != version(now), "not written yet");
    Ok(())
}
