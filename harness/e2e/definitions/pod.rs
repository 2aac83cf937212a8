//! Pods: how steps describe them, and what a feature changes in them.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};
use cucumber::{given, then, when};
use serde_json::{Value, json};

use super::object::{create, pair, path};
use super::observation::expect;
use crate::admission::webhook::Webhook;
use crate::client::{Client, Write};
use crate::scenario::{ObjectRef, Scenario};

/// Image that every node has.
const IMAGE: &str = "localhost/probe:1";

#[given(regex = r#"^Pod "([^"]+)"(?: with image "([^"]*)")?(?: and annotation "([^"]+)")?$"#)]
fn described(
    scenario: &mut Scenario,
    name: String,
    image: String,
    annotation: String,
) -> anyhow::Result<()> {
    let pod = scenario.resolved(&pod(&name)?);
    let mut text = plain();
    if !image.is_empty() {
        text["spec"]["containers"][0]["image"] = json!(image);
    }
    if !annotation.is_empty() {
        let (key, value) = pair(&annotation);
        text["metadata"]["annotations"][key] = json!(value);
    }
    scenario.observed.described.insert(pod, text);
    Ok(())
}

/// A Pod with one container `app` whose image every node has.
pub(crate) fn plain() -> Value {
    complete(json!({}))
}

/// The same with a name, for requests without a step's document.
pub(crate) fn named(name: &str) -> Value {
    let mut pod = plain();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"] = json!({ "app": name });
    pod
}

/// Adds what a Pod needs and a step left out: a container `app`, its image, a short end.
pub(crate) fn complete(mut pod: Value) -> Value {
    if pod["metadata"]["annotations"].is_null() {
        pod["metadata"]["annotations"] = json!({});
    }
    let spec = &mut pod["spec"];
    if spec["terminationGracePeriodSeconds"].is_null() {
        spec["terminationGracePeriodSeconds"] = json!(0);
    }
    if spec["containers"].is_null() {
        spec["containers"] = json!([{ "name": "app" }]);
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if container["image"].is_null() {
            container["image"] = json!(IMAGE);
        }
        if container["imagePullPolicy"].is_null() {
            // What another scenario has pulled says nothing about this one.
            let is_loaded = container["image"] == IMAGE;
            container["imagePullPolicy"] = json!(if is_loaded { "IfNotPresent" } else { "Always" });
        }
    }
    pod
}

/// The mutated Pod is sent once more, as another mutating webhook would cause it.
#[when(expr = "the admitted Pod {string} is created again with dry run")]
async fn again(scenario: &mut Scenario, name: String) -> anyhow::Result<()> {
    let pod = scenario.resolved(&pod(&name)?);
    let mut text = scenario.observed.object(&pod)?.object.clone();
    text["status"] = Value::Null;
    if let Some(metadata) = text["metadata"].as_object_mut() {
        metadata.retain(|key, _| ["labels", "annotations"].contains(&key.as_str()));
    }
    create(scenario, &pod, text, Write::DryRun).await
}

/// Compares with the same Pod in a Namespace that the webhook's rules leave out. To show that the webhook was asked
/// ("unchanged"), the request is sent again between two readings of the counters; "without review" is for Pods that the
/// API server does not send to the webhook.
#[then(regex = r#"^Pod "([^"]+)" is admitted (unchanged|without review)$"#)]
async fn unchanged(scenario: &mut Scenario, name: String, how: String) -> anyhow::Result<()> {
    let pod = scenario.resolved(&pod(&name)?);
    let admitted = comparable(&scenario.observed.object(&pod)?.object);
    let client = scenario.client_of(&pod)?;
    let sent = sent(scenario, &pod)?;
    let baseline = baseline(&client, &sent).await?;
    ensure!(
        admitted == baseline,
        "expected {baseline}\nseen     {admitted}"
    );
    if how == "without review" {
        return Ok(());
    }
    let webhook = Webhook::new(client.clone());
    let before = webhook.counts().await?;
    let mut copy = sent;
    copy["metadata"]["name"] = json!(format!("again-{:016x}", fastrand::u64(..)));
    let namespace = pod.namespace.as_deref();
    client
        .write(Write::DryRun, namespace, &copy)
        .await?
        .good()?;
    let after = webhook.counts().await?;
    ensure!(
        after.unchanged > before.unchanged && after.failed_open <= before.failed_open,
        "the webhook was not asked about the Pod: {before:?}, then {after:?}"
    );
    Ok(())
}

/// The text that the scenario sent last to create a Pod.
pub(crate) fn sent(scenario: &Scenario, pod: &ObjectRef) -> anyhow::Result<Value> {
    let sent = scenario.observed.described.get(pod).cloned();
    sent.with_context(|| format!("{pod} was not sent by this scenario"))
}

/// The Pod as the API server would store it where no webhook is asked.
async fn baseline(client: &Client, sent: &Value) -> anyhow::Result<Value> {
    let mut sent = sent.clone();
    if let Some(metadata) = sent["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let answer = client
        .write(Write::DryRun, Some("kube-system"), &sent)
        .await?
        .good()?;
    Ok(comparable(&answer.object))
}

/// A Pod without what differs from request to request.
pub(crate) fn comparable(pod: &Value) -> Value {
    let mut pod = super::observation::content(pod);
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("namespace");
        if metadata.get("annotations") == Some(&json!({})) {
            metadata.remove("annotations");
        }
    }
    rename_token(&mut pod);
    pod
}

/// The volume of the ServiceAccount's token has a random name.
fn rename_token(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("kube-api-access-") => {
            "kube-api-access".clone_into(text);
        }
        Value::Array(items) => items.iter_mut().for_each(rename_token),
        Value::Object(fields) => fields.values_mut().for_each(rename_token),
        _ => {}
    }
}

#[then(expr = "image of container {string} in Pod {string} is {string}")]
async fn has_image(
    scenario: &mut Scenario,
    container: String,
    name: String,
    image: String,
) -> anyhow::Result<()> {
    expect(scenario, &pod(&name)?, |seen| {
        let found = containers(seen).find(|it| it["name"] == container);
        let found = &found.context("no such container")?["image"];
        ensure!(*found == image, "{found}");
        Ok(())
    })
    .await
}

#[then(expr = "Pod {string} has imagePullSecrets {string}")]
async fn secrets(scenario: &mut Scenario, name: String, names: String) -> anyhow::Result<()> {
    expect(scenario, &pod(&name)?, |seen| {
        let found = pull_secrets(seen).join(", ");
        ensure!(found == names, "{found:?}");
        Ok(())
    })
    .await
}

#[then(expr = "every container of Pod {string} has env {string}")]
async fn variables(scenario: &mut Scenario, name: String, entry: String) -> anyhow::Result<()> {
    let (key, value) = pair(&entry);
    expect(scenario, &pod(&name)?, |seen| {
        for container in containers(seen) {
            let entries = items(&container["env"]).filter(|it| it["name"] == key);
            ensure!(
                env(container, key) == Some(value) && entries.count() == 1,
                "{container}"
            );
        }
        Ok(())
    })
    .await
}

#[then(expr = "containers {string} of Pod {string} mount ClusterTrustBundle {string} at {string}")]
async fn mounts(
    scenario: &mut Scenario,
    names: String,
    name: String,
    bundle: String,
    path: String,
) -> anyhow::Result<()> {
    expect(scenario, &pod(&name)?, |seen| {
        let volume = items(&seen["spec"]["volumes"]).find(|volume| {
            items(&volume["projected"]["sources"])
                .any(|source| source["clusterTrustBundle"]["name"] == bundle)
        });
        let volume = &volume.context("no volume of the bundle")?["name"];
        let expected = json!({ "name": volume, "mountPath": path, "readOnly": true });
        let mut found = String::new();
        for container in containers(seen) {
            if items(&container["volumeMounts"]).any(|mount| *mount == expected) {
                let name = container["name"].as_str().unwrap_or_default();
                let separator = if found.is_empty() { "" } else { ", " };
                write!(found, "{separator}{name}")?;
            }
        }
        ensure!(found == names, "mounted in {found:?}");
        Ok(())
    })
    .await
}

#[then(regex = r#"^(?:the warning contains "([^"]+)"|there is no warning)$"#)]
fn warned(scenario: &mut Scenario, text: String) -> anyhow::Result<()> {
    let warnings = &scenario.observed.last()?.warnings;
    let is_expected = if text.is_empty() {
        warnings.is_empty()
    } else {
        warnings.iter().any(|warning| warning.contains(&text))
    };
    ensure!(is_expected, "{warnings:?}");
    Ok(())
}

/// The Pod `namespace/name`.
pub(crate) fn pod(name: &str) -> anyhow::Result<ObjectRef> {
    let (namespace, name) = name.split_once('/').context("expected namespace/name")?;
    Ok(ObjectRef::new("Pod", Some(namespace), name))
}

/// Containers of every kind, init containers first, ephemeral ones last.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| items(&pod["spec"][list]))
}

/// Items of a list; none when it is absent.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Value of a variable of a container.
pub(crate) fn env<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    items(&container["env"]).find(|entry| entry["name"] == name)?["value"].as_str()
}

/// Names of the pull Secrets of a Pod.
pub(crate) fn pull_secrets(pod: &Value) -> Vec<&str> {
    let entries = items(&pod["spec"]["imagePullSecrets"]);
    entries.filter_map(|it| it["name"].as_str()).collect()
}

#[when(expr = "an ephemeral container {string} with image {string} is added to {object}")]
async fn debugged(
    scenario: &mut Scenario,
    container: String,
    image: String,
    object: ObjectRef,
) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let client = scenario.client_of(&object)?;
    let path = format!("{}/ephemeralcontainers", path(&client, &object).await?);
    let added = json!({ "name": container, "image": image, "imagePullPolicy": "Always" });
    let change = json!({ "spec": { "ephemeralContainers": [added] } });
    let answer = client.patch(&path, &change).await?;
    scenario.observed.wrote(&object, answer, Write::Merge);
    Ok(())
}
