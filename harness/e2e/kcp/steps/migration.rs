//! A runtime moves between the two modes.

use anyhow::{Context as _, ensure};
use api::names::SKR_NAMESPACE;
use api::runtimes::{
    CONTROLLER_MANAGER, INSTALLER_MANAGER, MODE, MODE_DIRECT, MODE_SIGNAL, OWNER_MARKER,
};
use cucumber::{given, then, when};
use serde_json::{Value, json};

use crate::admission::webhook::Webhook;
use crate::doubles::kim::Destination;
use crate::kcp::objects::{found, named_config_map};
use crate::kcp::skr::{deployment_path, webhook_path};
use crate::kcp::source::Source;
use crate::kcp::{PATIENCE, World};
use crate::world::Dialogue;
use crate::world::effects::items;
use testkit::until::until;

#[given("a runtime on which the manager installed the webhook")]
async fn installed(world: &mut World) -> anyhow::Result<()> {
    super::runtime::bare(world).await?;
    let name = world.subject()?.name.clone();
    let destination = Destination {
        client: world.stage.skrs[1].cluster.client(),
        manifests: world.stage.controller.webhook().await?,
    };
    world.kim()?.serve(&name, destination);
    let asked = json!({ "metadata": { "labels": {
        (api::runtimes::FORCE_RECONCILIATION): "true",
    } } });
    world.stage.plane.patch_runtime(&name, &asked).await?;
    for source in Source::ALL {
        let original = world.stage.plane.source(source).await?;
        world.skr()?.has(source, &original).await?;
        world.skr()?.decides_by(source, &original).await?;
    }
    let pods = webhook_pods(&world.skr()?.dialogue).await?;
    world.seen.insert("webhook's Pods".to_owned(), pods);
    world.look().await
}

#[given("the Runtime has moved to direct mode")]
async fn moved(world: &mut World) -> anyhow::Result<()> {
    to_direct(world).await?;
    world.stage.is_settled(world.subject()?).await
}

#[when("the Runtime is labelled for direct mode")]
async fn to_direct(world: &mut World) -> anyhow::Result<()> {
    label(world, MODE_DIRECT).await
}

#[when("the Runtime is labelled for signals")]
async fn to_signals(world: &mut World) -> anyhow::Result<()> {
    label(world, MODE_SIGNAL).await
}

async fn label(world: &World, mode: &str) -> anyhow::Result<()> {
    let change = json!({ "metadata": { "labels": { (MODE): mode } } });
    let name = &world.subject()?.name;
    world.stage.plane.patch_runtime(name, &change).await
}

#[then("the runtime is handed back")]
async fn handed_back(world: &mut World) -> anyhow::Result<()> {
    let name = world.subject()?.name.clone();
    let skr = world.skr()?;
    let marker = named_config_map(SKR_NAMESPACE, OWNER_MARKER);
    until("the runtime is handed back", PATIENCE, || async {
        let left = world.stage.plane.bootstrapper(&name).await?;
        ensure!(left.is_null(), "{}", left["status"]["conditions"]);
        ensure!(found(&skr.dialogue, &marker).await?.is_none(), "the marker");
        for path in objects() {
            let object = found(&skr.dialogue, &path).await?.context("it is gone")?;
            ensure!(!is_of(&object, CONTROLLER_MANAGER), "{path} is ours");
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("the webhook's Pods are still those of the manager")]
async fn same_pods(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("webhook's Pods");
    let now = webhook_pods(&world.skr()?.dialogue).await?;
    ensure!(before == now, "before {before}, now {now}");
    Ok(())
}

#[then("the objects have no field of the manager any more")]
async fn taken_over(world: &mut World) -> anyhow::Result<()> {
    let skr = world.skr()?;
    for path in objects() {
        let object = found(&skr.dialogue, &path).await?.context("it is gone")?;
        ensure!(
            !is_of(&object, INSTALLER_MANAGER),
            "{path} is the manager's"
        );
    }
    Ok(())
}

fn objects() -> Vec<String> {
    let mut paths = Source::ALL.map(Source::on_skr).to_vec();
    paths.extend([deployment_path(), webhook_path()]);
    paths
}

fn is_of(object: &Value, manager: &str) -> bool {
    items(&object["metadata"]["managedFields"]).any(|entry| entry["manager"] == manager)
}

async fn webhook_pods(dialogue: &Dialogue) -> anyhow::Result<Value> {
    let replicas = Webhook::new(dialogue.clone()).replicas().await?;
    let mut names: Vec<String> = replicas.into_iter().map(|it| it.pod).collect();
    names.sort();
    Ok(json!(names))
}
