//! Objects of any kind, which steps create, change and delete, with their clean-up.

use super::observation::expect;
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
    // Pods cannot be created before their ServiceAccount exists.
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

/// The object is from the step's document, from a file, from the step that described it, or (`again`) the object on the cluster
/// before the scenario deleted it.
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
    create(scenario, &object, text, Write::Create).await?;
    if object.kind == "ResourceQuota" {
        // The API server enforces a quota as soon as its controller has counted the objects.
        return expect(scenario, &object, |seen| {
            check(seen["status"]["hard"].is_object(), "no status.hard")
        })
        .await;
    }
    Ok(())
}

/// Reads a file of the project by its path from the root.
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
    client.apply_at(&manager, &path, &text).await.map(drop)
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

/// Changes an object with a merge patch, and registers its restoration.
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

/// Stores the current object for later steps, null if it is absent, and registers its restoration unless the scenario created
/// it.
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
            // The controller has created the ConfigMap again, and does not read it any more.
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

/// Restores all fields of an object, not only the different ones.
async fn put(client: &Client, object: &ObjectRef, state: &Value) -> Result {
    let path = path(client, object).await?;
    let mut state = state.clone();
    strip_server_fields(&mut state);
    // The replacement of a custom resource needs the resource version, which other clients may change meanwhile.
    eventually(&format!("{object} is restored"), async || {
        let live = client.find(&path).await?;
        if live.is_null() {
            return client.write(Write::Create, &state).await?.good().map(drop);
        }
        // A write to an object that is being deleted would be lost.
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

/// Deletes an object even if it has finalizers. An object that does not exist is not an error.
pub(crate) async fn remove(client: &Client, object: &ObjectRef) -> Result {
    let path = path(client, object).await?;
    let found = client.find(&path).await?;
    if !found["metadata"]["finalizers"].is_null() {
        let free = json!({ "metadata": { "finalizers": null } });
        client.ask(Method::PATCH, &path, Some(&free)).await?;
    }
    client.delete(&path).await
}

/// Reads an object; null if it does not exist.
pub(crate) async fn read(scenario: &Scenario, object: &ObjectRef) -> Result<Value> {
    let (client, path) = at(scenario, object).await?;
    client.find(&path).await
}

pub(crate) async fn existing(scenario: &Scenario, object: &ObjectRef) -> Result<Value> {
    let found = read(scenario, object).await?;
    ensure!(!found.is_null(), "it does not exist");
    Ok(found)
}

/// Returns the client of an object's cluster, and the object's path.
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

/// Splits `KEY=VALUE`.
pub(crate) fn pair(entry: &str) -> (&str, &str) {
    entry.split_once('=').unwrap_or((entry, ""))
}

/// Returns the document with the kind and the name of an object.
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

/// Removes the fields of metadata that the API server sets on every object, and those that it assigns to a Service.
pub(crate) fn strip_server_fields(object: &mut Value) {
    let [version, time] = ["resourceVersion", "creationTimestamp"];
    let fields = ["uid", version, time, "managedFields", "generation"];
    remove_fields(&mut object["metadata"], &fields);
    remove_fields(&mut object["spec"], &["clusterIP", "clusterIPs"]);
}
