//! Objects of any kind: created, changed and deleted, with the clean-up that belongs to it.

use super::pod;
use super::prelude::*;
use crate::runner::root;

#[given(regex = r#"^Namespace "([^"]+)"(?: with (annotation|label) "([^"]+)")?$"#)]
async fn namespace(scenario: &mut Scenario, name: String, field: String, entry: String) -> Result {
    let mut text = json!({});
    if !field.is_empty() {
        let (key, value) = pair(&entry);
        text["metadata"][format!("{field}s")][key] = json!(value);
    }
    let name = scenario.name(&name);
    let object = ObjectRef::new("Namespace", None, &name);
    create(scenario, &object, text, Write::Create).await?;
    let client = scenario.client_of(&object)?;
    // Pods cannot be created before their ServiceAccount.
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    let exists = async || client.get(&account).await.map(drop);
    eventually("the ServiceAccount default exists", exists).await
}

/// Describes an object that a later step creates.
#[given(expr = "{object} with:")]
fn described(scenario: &mut Scenario, object: ObjectRef, step: &Step) -> Result {
    let text = document(scenario, step)?;
    let object = scenario.resolved(&object);
    scenario.observed.described.insert(object, text);
    Ok(())
}

/// The object comes from the step's document, from a file, from the step that described it, or (`again`) from the
/// cluster before the scenario deleted it.
#[given(regex = "^([A-Z].+) exists( with:)$")]
#[when(regex = r#"^([A-Z].+) is created( with:| with dry run| again| from file "[^"]+")?$"#)]
async fn created(scenario: &mut Scenario, object: ObjectRef, how: String, step: &Step) -> Result {
    let text = match how.trim() {
        "again" => {
            let object = scenario.resolved(&object);
            let client = scenario.client_of(&object)?;
            put(&client, &object, scenario.earlier(&object)?).await?;
            return scenario.environment()?.settle(&object).await;
        }
        "with:" => document(scenario, step)?,
        "" => scenario.sent(&object)?.clone(),
        "with dry run" => {
            let text = scenario.sent(&object)?.clone();
            return create(scenario, &object, text, Write::DryRun).await;
        }
        file => {
            let file = file.trim_start_matches("from file ").trim_matches('"');
            serde_saphyr::from_str(&file_of_project(file)?)?
        }
    };
    create(scenario, &object, text, Write::Create).await
}

/// A file of the project, by its path from the root.
pub(crate) fn file_of_project(file: &str) -> Result<String> {
    let path = root().join(file);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

#[when(regex = r#"^(.+) is applied by field manager "([^"]+)" with:$"#)]
async fn applied(
    scenario: &mut Scenario,
    object: ObjectRef,
    manager: String,
    step: &Step,
) -> Result {
    let mut text = named(&object, document(scenario, step)?);
    restore_later(scenario, &object).await?;
    let (client, path) = at(scenario, &object).await?;
    text["apiVersion"] = client.api_version(&object.kind).await?.into();
    client.apply(&manager, &path, &text).await
}

#[given(regex = r"^(?:subresource (\w+) of )?(.+) is patched with:$")]
#[when(regex = r"^(?:subresource (\w+) of )?(.+) is patched with:$")]
async fn patched(scenario: &mut Scenario, name: String, object: ObjectRef, step: &Step) -> Result {
    let text = document(scenario, step)?;
    if name.is_empty() {
        return change(scenario, &object, text).await;
    }
    let (client, path) = at(scenario, &object).await?;
    let path = format!("{path}/{name}");
    client.patch(&path, &text).await.map(drop)
}

#[given(regex = r#"^(annotation|label) "([^"]+)" of (.+) is (set to "[^"]*"|removed)$"#)]
#[when(regex = r#"^(annotation|label) "([^"]+)" of (.+) is (set to "[^"]*"|removed)$"#)]
async fn labelled(
    scenario: &mut Scenario,
    field: String,
    key: String,
    object: ObjectRef,
    effect: String,
) -> Result {
    let value = effect.split('"').nth(1);
    let text = json!({ "metadata": { (format!("{field}s")): { (key): value } } });
    change(scenario, &object, text).await
}

#[when(expr = "container {string} of {object} is set to image {string}")]
async fn image_set(scenario: &mut Scenario, name: String, pod: ObjectRef, image: String) -> Result {
    let mut containers = existing(scenario, &pod).await?["spec"]["containers"].take();
    let mut all = containers.as_array_mut().into_iter().flatten();
    let named = all.find(|it| it["name"] == name);
    named.context("no such container")?["image"] = json!(image);
    let text = json!({ "spec": { "containers": containers } });
    change(scenario, &pod, text).await
}

#[when(expr = "an ephemeral container {string} with image {string} is added to {object}")]
async fn debugged(scenario: &mut Scenario, name: String, image: String, pod: ObjectRef) -> Result {
    let (client, path) = at(scenario, &pod).await?;
    let path = format!("{path}/ephemeralcontainers");
    let added = json!({ "name": name, "image": image, "imagePullPolicy": "Always" });
    let change = json!({ "spec": { "ephemeralContainers": [added] } });
    let answer = client.patch(&path, &change).await?;
    let pod = scenario.resolved(&pod);
    scenario.observed.wrote(&pod, answer, Write::Merge);
    Ok(())
}

#[given(expr = "{object} is deleted")]
#[when(expr = "{object} is deleted")]
async fn deleted(scenario: &mut Scenario, object: ObjectRef) -> Result {
    let object = scenario.resolved(&object);
    restore_later(scenario, &object).await?;
    let (client, path) = at(scenario, &object).await?;
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
) -> Result {
    if object.kind == "Pod" {
        text = pod::complete(text);
    }
    let object = scenario.resolved(object);
    let text = named(&object, text);
    let client = scenario.client_of(&object)?;
    if how != Write::DryRun {
        let (client, object) = (client.clone(), object.clone());
        scenario.undo(format!("delete {object}"), async move {
            remove(&client, &object).await
        });
    }
    let answer = client.write(how, &text).await?;
    let answer = answer.good_for(format_args!("create {object}"))?;
    scenario.observed.described.insert(object.clone(), text);
    scenario.observed.wrote(&object, answer, how);
    Ok(())
}

/// Changes an object by a merge patch, and registers how to restore it.
pub(crate) async fn change(scenario: &mut Scenario, object: &ObjectRef, text: Value) -> Result {
    let object = scenario.resolved(object);
    restore_later(scenario, &object).await?;
    let client = scenario.client_of(&object)?;
    let text = named(&object, text);
    let answer = client.write(Write::Merge, &text).await?;
    let answer = answer.good_for(format_args!("change {object}"))?;
    scenario.observed.wrote(&object, answer, Write::Merge);
    scenario.environment()?.settle(&object).await
}

/// Keeps an object as it is now for later steps, null if it is absent, and registers its restoration unless the scenario
/// created it.
pub(crate) async fn restore_later(scenario: &mut Scenario, object: &ObjectRef) -> Result {
    let state = read(scenario, object).await?;
    let before = &mut scenario.observed.before;
    before.insert(object.clone(), state.clone());
    let namespace = object.namespace.as_deref().unwrap_or(&object.name);
    if scenario.owns(namespace) || scenario.observed.written.contains_key(object) {
        return Ok(());
    }
    let client = scenario.client_of(object)?;
    let environment = scenario.environment()?;
    let object = object.clone();
    scenario.undo(format!("restore {object}"), async move {
        if state.is_null() {
            remove(&client, &object).await?;
        } else if is_state(&object) && !client.find(&path(&client, &object).await?).await?.is_null()
        {
            // The controller has created it again, and does not read it any more.
            return Ok(());
        } else {
            put(&client, &object, &state).await?;
        }
        environment.settle(&object).await
    });
    Ok(())
}

/// Whether an object is a state ConfigMap of the controller.
fn is_state(object: &ObjectRef) -> bool {
    object.kind == "ConfigMap" && object.name.ends_with("-state")
}

/// Makes an object what it was: its fields, not only those that differ.
async fn put(client: &Client, object: &ObjectRef, state: &Value) -> Result {
    let path = path(client, object).await?;
    let mut state = state.clone();
    strip_server_fields(&mut state);
    // Custom resources are not replaced without their version, which others may change in between.
    eventually(&format!("{object} is restored"), async || {
        let live = client.find(&path).await?;
        if live.is_null() {
            return client.write(Write::Create, &state).await?.good().map(drop);
        }
        // What is written to an object that is being deleted is deleted with it.
        let metadata = &live["metadata"];
        ensure!(
            metadata["deletionTimestamp"].is_null(),
            "it is being deleted"
        );
        let mut state = state.clone();
        state["metadata"]["resourceVersion"] = metadata["resourceVersion"].clone();
        let put = client.ask(Method::PUT, &path, Some(&state)).await?;
        put.good().map(drop)
    })
    .await
}

/// Deletes an object, whatever finalizers it has; one that is gone is fine.
pub(crate) async fn remove(client: &Client, object: &ObjectRef) -> Result {
    let path = path(client, object).await?;
    let found = client.find(&path).await?;
    if !found["metadata"]["finalizers"].is_null() {
        let free = json!({ "metadata": { "finalizers": null } });
        client.ask(Method::PATCH, &path, Some(&free)).await?;
    }
    client.delete(&path).await
}

/// Reads an object; null when it does not exist.
pub(crate) async fn read(scenario: &Scenario, object: &ObjectRef) -> Result<Value> {
    let (client, path) = at(scenario, object).await?;
    client.find(&path).await
}

pub(crate) async fn existing(scenario: &Scenario, object: &ObjectRef) -> Result<Value> {
    let found = read(scenario, object).await?;
    ensure!(!found.is_null(), "it does not exist");
    Ok(found)
}

/// Client of the cluster that holds an object, and its path there.
pub(crate) async fn at(scenario: &Scenario, object: &ObjectRef) -> Result<(Client, String)> {
    let object = scenario.resolved(object);
    let client = scenario.client_of(&object)?;
    let path = path(&client, &object).await?;
    Ok((client, path))
}

pub(crate) async fn path(client: &Client, object: &ObjectRef) -> Result<String> {
    let namespace = object.namespace.as_deref();
    let collection = client.collection(&object.kind, namespace).await?;
    Ok(format!("{collection}/{}", object.name))
}

pub(crate) fn document(scenario: &Scenario, step: &Step) -> Result<Value> {
    let text = step.docstring.as_deref();
    scenario.yaml(text.context("the step has no document")?)
}

/// `KEY=VALUE`.
pub(crate) fn pair(entry: &str) -> (&str, &str) {
    entry.split_once('=').unwrap_or((entry, ""))
}

/// The document with the kind and the name of an object.
pub(crate) fn named(object: &ObjectRef, mut text: Value) -> Value {
    text["kind"] = json!(object.kind);
    text["metadata"]["name"] = json!(object.name);
    if let Some(namespace) = &object.namespace {
        text["metadata"]["namespace"] = json!(namespace);
    }
    text
}

/// Fails unless the object has changed since `before`.
pub(crate) fn ensure_written(before: &Value, now: &Value) -> Result {
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    check(version(before) != version(now), "not written yet")
}

pub(crate) fn remove_fields(object: &mut Value, fields: &[&str]) {
    if let Some(map) = object.as_object_mut() {
        map.retain(|key, _| !fields.contains(&key.as_str()));
    }
}

/// Removes what the API server writes into the metadata of every object, and what it assigns to a Service.
pub(crate) fn strip_server_fields(object: &mut Value) {
    let [version, time] = ["resourceVersion", "creationTimestamp"];
    let fields = ["uid", version, time, "managedFields", "generation"];
    remove_fields(&mut object["metadata"], &fields);
    remove_fields(&mut object["spec"], &["clusterIP", "clusterIPs"]);
}
