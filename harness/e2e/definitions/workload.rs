//! Workloads: what users apply, and the Pods that controllers create from it.

use anyhow::{Context as _, ensure};
use cucumber::gherkin::Step;
use cucumber::then;
use serde_json::Value;

use super::PATIENCE;
use super::configuration::webhook;
use super::object::{document, file_of_project, pair, read};
use super::pod::{comparable, items};
use crate::client::Write;
use crate::matching::differences;
use crate::scenario::{ObjectRef, Scenario};
use testkit::until::until;

/// Compares with the same object in a Namespace that the webhook's rules leave out: what was sent, with defaults.
#[then(expr = "{object} is stored as it was sent")]
async fn as_sent(scenario: &mut Scenario, object: ObjectRef) -> anyhow::Result<()> {
    let object = scenario.resolved(&object);
    let sent = scenario.observed.described.get(&object);
    let mut sent = sent.cloned().context("it was not sent by this scenario")?;
    if let Some(metadata) = sent["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    let client = scenario.client_of(&object)?;
    let baseline = client
        .write(Write::DryRun, Some("kube-system"), &sent)
        .await?
        .good()?;
    let stored = read(scenario, &object)
        .await?
        .context("it does not exist")?;
    let version = &stored["metadata"]["generation"];
    ensure!(*version == 1, "it was written again: generation {version}");
    let (mut expected, mut seen) = (baseline.at("/spec").clone(), stored["spec"].clone());
    // The API server labels a Job's Pods with the Job's random UID.
    for spec in [&mut expected, &mut seen] {
        remove_keys(spec, "controller-uid");
    }
    ensure!(expected == seen, "expected {expected}\nseen     {seen}");
    Ok(())
}

/// "matches" compares the fields of the step's document, "equals" the whole Pod.
#[then(
    regex = r#"^the Pod with label "([^"]+)" in Namespace "([^"]+)" (?:matches:|equals file "([^"]+)")$"#
)]
async fn pod_matches(
    scenario: &mut Scenario,
    label: String,
    namespace: String,
    file: String,
    step: &Step,
) -> anyhow::Result<()> {
    let pod = pod_of(scenario, &label, &namespace).await?;
    if !file.is_empty() {
        return equals(scenario, &pod, &file).await;
    }
    let expected = document(scenario, step)?;
    let found = differences(&expected, &pod);
    ensure!(found.is_empty(), "{}", found.join("; "));
    Ok(())
}

async fn equals(scenario: &Scenario, pod: &Value, file: &str) -> anyhow::Result<()> {
    let mut seen = comparable(pod);
    let file: Value = serde_saphyr::from_str(&file_of_project(file)?)?;
    // What the API server adds to any Pod.
    let client = webhook(scenario)?.client().clone();
    let expected = client
        .write(Write::DryRun, Some("kube-system"), &file)
        .await?
        .good()?;
    let mut expected = comparable(&expected.object);
    for pod in [&mut expected, &mut seen] {
        for key in ["name", "generateName", "ownerReferences"] {
            remove(&mut pod["metadata"], key);
        }
        remove(&mut pod["metadata"]["labels"], "pod-template-hash");
        remove(&mut pod["spec"], "nodeName");
        remove(pod, "apiVersion");
        remove(pod, "kind");
        // The token's volume is added before or after those of the webhook.
        sort(&mut pod["spec"]["volumes"]);
        sort(&mut pod["spec"]["containers"][0]["volumeMounts"]);
    }
    ensure!(expected == seen, "expected {expected}\nseen     {seen}");
    Ok(())
}

async fn pod_of(scenario: &Scenario, label: &str, namespace: &str) -> anyhow::Result<Value> {
    let namespace = scenario.resolve(namespace);
    let (key, value) = pair(label);
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={key}={value}");
    let client = webhook(scenario)?.client().clone();
    let what = format!("a Pod with label {label}");
    Ok(until(&what, PATIENCE, || async {
        let listed = client.get(&path).await?;
        let first = items(listed.at("/items")).next().cloned();
        first.context("no Pod yet")
    })
    .await?)
}

fn remove(object: &mut Value, key: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(key);
    }
}

fn remove_keys(value: &mut Value, end: &str) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|it| remove_keys(it, end)),
        Value::Object(map) => {
            map.retain(|key, _| !key.ends_with(end));
            map.values_mut().for_each(|it| remove_keys(it, end));
        }
        _ => {}
    }
}

fn sort(list: &mut Value) {
    if let Some(all) = list.as_array_mut() {
        all.sort_by_key(|it| it["name"].to_string());
    }
}
