//! Workloads: what users apply, and the Pods that controllers create from it.

use super::pod::{baseline, comparable};
use super::prelude::*;
use crate::matching::walk;

/// Compares with the same object in a Namespace that the webhook's rules leave out: what was sent, with defaults.
#[then(expr = "{object} is stored as it was sent")]
async fn as_sent(scenario: &mut Scenario, object: ObjectRef) -> Result {
    let sent = scenario.sent(&object)?;
    let mut expected = baseline(&scenario.client_of(&object)?, sent).await?["spec"].take();
    let mut seen = existing(scenario, &object).await?;
    let version = &seen["metadata"]["generation"];
    ensure!(*version == 1, "it was written again: generation {version}");
    let mut seen = seen["spec"].take();
    // The API server labels a Job's Pods with the Job's random UID.
    for spec in [&mut expected, &mut seen] {
        walk(spec, &|value| {
            if let Some(map) = value.as_object_mut() {
                map.retain(|key, _| !key.ends_with("controller-uid"));
            }
        });
    }
    equal(&expected, &seen)
}

/// "matches" compares the fields of the step's document, "equals" the whole Pod.
#[then(
    regex = r#"^the Pod with label "(.+)" in Namespace "(.+)" (?:matches:|equals file "(.+)")$"#
)]
async fn pod_matches(
    scenario: &mut Scenario,
    label: String,
    namespace: String,
    file: String,
    step: &Step,
) -> Result {
    let client = webhook(scenario)?.client;
    let (namespace, (key, value)) = (scenario.resolve(&namespace), pair(&label));
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={key}={value}");
    let pod = eventually(&format!("a Pod with label {label}"), async || {
        client.items(&path).await?.pop().context("no Pod yet")
    })
    .await?;
    if !file.is_empty() {
        let file: Value = serde_saphyr::from_str(&file_of_project(&file)?)?;
        return equals(&pod, &baseline(&client, &file).await?);
    }
    has_all(&document(scenario, step)?, &pod)
}

/// Compares with what the API server makes of the file itself.
fn equals(pod: &Value, baseline: &Value) -> Result {
    let [expected, seen] = [baseline, pod].map(|pod| {
        let mut pod = comparable(pod);
        let own = ["name", "generateName", "ownerReferences"];
        remove_fields(&mut pod["metadata"], &own);
        remove_fields(&mut pod["metadata"]["labels"], &["pod-template-hash"]);
        remove_fields(&mut pod["spec"], &["nodeName"]);
        remove_fields(&mut pod, &["apiVersion", "kind"]);
        // The token's volume is added before or after those of the webhook.
        sort(&mut pod["spec"]["volumes"]);
        sort(&mut pod["spec"]["containers"][0]["volumeMounts"]);
        pod
    });
    equal(&expected, &seen)
}

fn sort(list: &mut Value) {
    if let Some(all) = list.as_array_mut() {
        all.sort_by_key(|it| it["name"].to_string());
    }
}
