//! Deployments: what users apply, and the Pods that come of it.

use anyhow::{Context as _, ensure};
use cucumber::{then, when};
use http::Method;
use serde_json::Value;

use crate::world::effects::items;
use crate::world::twin::comparable;
use crate::world::{Answer, PATIENCE, World};
use clusters::workspace;
use testkit::until::until;

/// A file of the example that `policy` has in its tests.
pub(super) fn example(file: &str) -> anyhow::Result<String> {
    let path = workspace::root()
        .join("src/policy/admission/tests/example")
        .join(file);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

#[when("the Deployment of the example is created")]
async fn created(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.namespace().await?;
    let deployment: Value = serde_saphyr::from_str(&example("deployment.yaml")?)?;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    world
        .landscape()
        .dialogue()
        .ask(Method::POST, &path, Some(&deployment))
        .await?
        .good()?;
    let dialogue = world.landscape().dialogue();
    let pods = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app=pause-test1");
    let pod = until("the Deployment has a Pod", PATIENCE, || async {
        let listed = dialogue.get(&pods).await?;
        items(listed.at("/items"))
            .next()
            .cloned()
            .context("none yet")
    })
    .await?;
    world.pod = Some(Answer {
        status: http::StatusCode::OK,
        object: pod,
        warnings: Vec::new(),
    });
    Ok(())
}

#[then("its Pod is the Pod of the example")]
async fn expected_pod(world: &mut World) -> anyhow::Result<()> {
    let expected: Value = serde_saphyr::from_str(&example("pod.yaml")?)?;
    // Where nobody intercepts it, the API server adds to the example's Pod what it adds to any.
    let expected = dry_run(world, "/api/v1/namespaces/kube-system/pods", &expected).await?;
    let (mut expected, mut seen) = (comparable(&expected), comparable(&world.pod()?.object));
    for pod in [&mut expected, &mut seen] {
        leave_out(
            pod,
            "/metadata",
            &["name", "generateName", "ownerReferences"],
        );
        leave_out(pod, "/metadata/labels", &["pod-template-hash"]);
        leave_out(pod, "/spec", &["nodeName"]);
        // The token's volume is put in by the API server, before or after ours.
        sort(pod, "/spec/volumes");
        sort(pod, "/spec/containers/0/volumeMounts");
        leave_out(pod, "", &["apiVersion", "kind"]);
    }
    ensure!(expected == seen, "expected {expected}\nseen {seen}");
    Ok(())
}

#[then("the stored Deployment is what was sent")]
async fn stored(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.namespace().await?;
    let sent: Value = serde_saphyr::from_str(&example("deployment.yaml")?)?;
    let twin = dry_run(
        world,
        "/apis/apps/v1/namespaces/kube-system/deployments",
        &sent,
    )
    .await?;
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/pause-test1");
    let stored = world.landscape().dialogue().get(&path).await?.object;
    ensure!(
        stored["metadata"]["generation"] == 1,
        "it was written again: {}",
        stored["metadata"]
    );
    let (twin, mut stored) = (comparable(&twin), comparable(&stored));
    leave_out(
        &mut stored,
        "/metadata/annotations",
        &["deployment.kubernetes.io/revision"],
    );
    let stored = comparable(&stored);
    ensure!(twin == stored, "sent {twin}\nstored {stored}");
    Ok(())
}

async fn dry_run(world: &World, path: &str, object: &Value) -> anyhow::Result<Value> {
    let path = format!("{path}?dryRun=All");
    Ok(world
        .landscape()
        .dialogue()
        .ask(Method::POST, &path, Some(object))
        .await?
        .good()?
        .object)
}

fn leave_out(object: &mut Value, pointer: &str, keys: &[&str]) {
    if let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

fn sort(object: &mut Value, pointer: &str) {
    if let Some(list) = object.pointer_mut(pointer).and_then(Value::as_array_mut) {
        list.sort_by_key(|item| item["name"].as_str().unwrap_or_default().to_owned());
    }
}
