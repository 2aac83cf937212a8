//! Runtimes: how they are kept, and what their customers do to them.

use anyhow::{Context as _, bail, ensure};
use api::names::{CONFIG_KEY, DOCKER_CONFIG_KEY};
use api::runtimes::{MODE_DIRECT, OWNER_MARKER, SUSPEND_RECONCILIATION};
use cucumber::gherkin::Step;
use cucumber::{given, then, when};
use http::Method;
use serde_json::{Value, json};

use crate::doubles::kim::Destination;
use crate::kcp::objects::{delete, found};
use crate::kcp::runtime::Runtime;
use crate::kcp::source::Source;
use crate::kcp::{Changed, PATIENCE, World};
use testkit::until::until;

#[given("a runtime in direct mode")]
async fn direct(world: &mut World) -> anyhow::Result<()> {
    world.subject = Some(world.stage.direct(0, None).await?);
    world.look().await
}

#[given("a runtime kept by signals")]
async fn by_signals(world: &mut World) -> anyhow::Result<()> {
    let runtime = world.stage.signalled(Some(1)).await?;
    world.guests.push(runtime.clone());
    let destination = Destination {
        client: world.stage.skrs[1].cluster.client(),
        manifests: Vec::new(),
    };
    world.kim()?.serve(&runtime.name, destination);
    world.subject = Some(runtime);
    world.look().await
}

#[given("a Runtime without a cluster")]
pub(super) async fn without_cluster(world: &mut World) -> anyhow::Result<()> {
    let runtime = world.stage.signalled(None).await?;
    world.guests.push(runtime.clone());
    world.subject = Some(runtime);
    world.look().await
}

#[given("a Runtime without a cluster in direct mode")]
async fn without_cluster_direct(world: &mut World) -> anyhow::Result<()> {
    let runtime = Runtime::fresh(None);
    world.guests.push(runtime.clone());
    let object = runtime.object(Some(MODE_DIRECT), None);
    world.stage.plane.put_runtime(&object).await?;
    world.subject = Some(runtime);
    world.look().await
}

#[given("a Runtime without a cluster that is being deleted")]
async fn being_deleted(world: &mut World) -> anyhow::Result<()> {
    without_cluster(world).await?;
    let name = world.subject()?.name.clone();
    let held = json!({ "metadata": { "finalizers": ["harness.test/held"] } });
    let plane = &world.stage.plane;
    plane.patch_runtime(&name, &held).await?;
    delete(&plane.dialogue, &crate::kcp::plane::runtime_path(&name)).await?;
    world.look().await
}

#[given("50 Runtimes without a cluster")]
async fn fifty(world: &mut World) -> anyhow::Result<()> {
    for _ in 0..50 {
        let runtime = world.stage.signalled(None).await?;
        world.guests.push(runtime);
    }
    world.subject = world.guests.first().cloned();
    Ok(())
}

#[given("a runtime without a webhook")]
pub(super) async fn bare(world: &mut World) -> anyhow::Result<()> {
    let runtime = world.stage.signalled(Some(1)).await?;
    world.guests.push(runtime.clone());
    let kubeconfig = world.stage.skrs[1].kubeconfig.to_string();
    world
        .stage
        .plane
        .put_kubeconfig(&runtime, &kubeconfig)
        .await?;
    world.subject = Some(runtime);
    world.look().await
}

#[given("a runtime without a webhook that names another control plane")]
async fn foreign(world: &mut World) -> anyhow::Result<()> {
    bare(world).await?;
    let marker = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": OWNER_MARKER, "namespace": api::names::SKR_NAMESPACE },
        "data": { "runtimeID": "somebody-else", "controlPlaneID": "another" },
    });
    world.skr()?.cluster.apply(&marker.to_string()).await?;
    world.look().await
}

#[given("a Runtime without a runtime id")]
async fn without_id(world: &mut World) -> anyhow::Result<()> {
    let runtime = Runtime {
        id: String::new(),
        ..Runtime::fresh(None)
    };
    world.guests.push(runtime.clone());
    world
        .stage
        .plane
        .put_runtime(&runtime.object(None, None))
        .await?;
    world.subject = Some(runtime);
    Ok(())
}

#[when("another Runtime carries the same runtime id")]
async fn same_id(world: &mut World) -> anyhow::Result<()> {
    let runtime = Runtime {
        id: world.subject()?.id.clone(),
        ..Runtime::fresh(None)
    };
    world.guests.push(runtime.clone());
    world
        .stage
        .plane
        .put_runtime(&runtime.object(None, None))
        .await?;
    world.other = Some(runtime);
    Ok(())
}

#[when("an operator suspends the Runtime")]
async fn suspended(world: &mut World) -> anyhow::Result<()> {
    annotated(world, &json!("true")).await
}

#[when("an operator resumes the Runtime")]
async fn resumed(world: &mut World) -> anyhow::Result<()> {
    annotated(world, &Value::Null).await
}

async fn annotated(world: &mut World, value: &Value) -> anyhow::Result<()> {
    let change = json!({ "metadata": { "annotations": { (SUSPEND_RECONCILIATION): value } } });
    let name = &world.subject()?.name;
    world.stage.plane.patch_runtime(name, &change).await
}

#[then("these changes on the runtime are reverted:")]
async fn reverted(world: &mut World, step: &Step) -> anyhow::Result<()> {
    let table = step.table.as_ref().context("a table")?;
    for row in table.rows.iter().skip(1) {
        let [object, change] = row.as_slice() else {
            bail!("expected object and change, got {row:?}");
        };
        let source: Source = object.parse().map_err(anyhow::Error::msg)?;
        match change.as_str() {
            "edited" => edited(world, source).await?,
            "deleted" => delete(&world.skr()?.dialogue, &source.on_skr()).await?,
            other => bail!("expected edited or deleted, got {other}"),
        }
        let original = world.stage.plane.source(source).await?;
        world.skr()?.has(source, &original).await?;
    }
    Ok(())
}

async fn edited(world: &mut World, source: Source) -> anyhow::Result<()> {
    let change = match source {
        // Base64 of {"auths":{}}
        Source::PullSecret => json!({ "data": { (DOCKER_CONFIG_KEY): "eyJhdXRocyI6e319" } }),
        Source::TrustBundle => Source::TrustBundle.fresh()?["spec"]["trustBundle"].clone(),
        Source::Configuration => json!({ "data": { (CONFIG_KEY): "{}" } }),
    };
    let change = match source {
        Source::TrustBundle => json!({ "spec": { "trustBundle": change } }),
        _ => change,
    };
    let path = source.on_skr();
    world.skr()?.dialogue.patch(&path, &change).await.map(drop)
}

#[when(expr = "{word} of the webhook is deleted on the runtime")]
async fn part_deleted(world: &mut World, kind: String) -> anyhow::Result<()> {
    let path = part(world, &kind).await?.0;
    delete(&world.skr()?.dialogue, &path).await
}

#[when(expr = "the rules of {word} of the webhook are removed on the runtime")]
async fn rules_removed(world: &mut World, kind: String) -> anyhow::Result<()> {
    let path = part(world, &kind).await?.0;
    let change = json!({ "rules": [] });
    world.skr()?.dialogue.patch(&path, &change).await.map(drop)
}

#[then(expr = "{word} of the webhook is restored")]
async fn part_is_back(world: &mut World, kind: String) -> anyhow::Result<()> {
    let (path, printed) = part(world, &kind).await?;
    let dialogue = &world.skr()?.dialogue;
    until("it is as installed", PATIENCE, || async {
        let live = found(dialogue, &path).await?.context("it is gone")?;
        for field in ["rules", "spec"] {
            let differences = crate::landscape::differences(&printed[field], &live[field]);
            ensure!(differences.is_empty(), "{}", differences.join("; "));
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// The path of a part of the webhook, and the part as printed.
async fn part(world: &World, kind: &str) -> anyhow::Result<(String, Value)> {
    let namespace = api::names::SKR_NAMESPACE;
    let folder = match kind {
        "Service" => format!("/api/v1/namespaces/{namespace}/services"),
        "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        "MutatingWebhookConfiguration" => {
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations".to_owned()
        }
        other => bail!("{other}: not in the vocabulary"),
    };
    let printed = world.stage.controller.webhook().await?;
    let found = printed.into_iter().find(|object| object["kind"] == kind);
    let found = found.with_context(|| format!("no {kind} is printed"))?;
    let name = found["metadata"]["name"].as_str().context("a name")?;
    Ok((format!("{folder}/{name}"), found.clone()))
}

#[when("its cluster is away")]
async fn away(world: &mut World) -> anyhow::Result<()> {
    let number = world.subject()?.skr.context("it has no cluster")?;
    world.changed.insert(Changed::Away(number));
    world.stage.shut_out(number).await
}

#[when("its cluster is back")]
async fn back(world: &mut World) -> anyhow::Result<()> {
    let number = world.subject()?.skr.context("it has no cluster")?;
    world.stage.admit(number).await
}

#[when("on the runtime an admission policy denies our Secret")]
async fn denied(world: &mut World) -> anyhow::Result<()> {
    let number = world.subject()?.skr.context("it has no cluster")?;
    world.changed.insert(Changed::Obstacle(number));
    world.stage.deny_secret(number).await?;
    let path = format!("{}?dryRun=All", Source::PullSecret.on_skr());
    let touch = json!({ "metadata": { "labels": { "touched": "x" } } });
    let dialogue = &world.skr()?.dialogue;
    until("the policy is in force", PATIENCE, || async {
        let answer = dialogue.ask(Method::PATCH, &path, Some(&touch)).await?;
        ensure!(!answer.status.is_success(), "{}", answer.status);
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[when("on the runtime a quota leaves no room for our Secret")]
async fn crowded(world: &mut World) -> anyhow::Result<()> {
    let number = world.subject()?.skr.context("it has no cluster")?;
    world.changed.insert(Changed::Obstacle(number));
    world.stage.crowd(number).await
}

#[when("on the runtime the obstacle is removed")]
async fn freed(world: &mut World) -> anyhow::Result<()> {
    let number = world.subject()?.skr.context("it has no cluster")?;
    world.stage.clear_obstacles(number).await?;
    let runtime = world.subject()?;
    let kubeconfig = world.skr()?.kubeconfig.to_string();
    world.stage.plane.put_kubeconfig(runtime, &kubeconfig).await
}
