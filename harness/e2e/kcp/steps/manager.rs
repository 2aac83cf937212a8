//! Today's manager, played by its double.

use std::time::Duration;

use anyhow::{bail, ensure};
use cucumber::{given, then};
use serde_json::json;

use crate::doubles::kim::{Kim, Obeys};
use crate::kcp::{PATIENCE, World};
use testkit::until::{holds, until};

#[given("the manager runs")]
async fn runs(world: &mut World) -> anyhow::Result<()> {
    start(world, Obeys::Label).await
}

#[given(regex = "^the manager obeys the (label|annotation)$")]
async fn obeys(world: &mut World, key: String) -> anyhow::Result<()> {
    let obeys = match key.as_str() {
        "label" => Obeys::Label,
        "annotation" => Obeys::Annotation,
        other => bail!("{other}: not in the vocabulary"),
    };
    start(world, obeys).await
}

async fn start(world: &mut World, obeys: Obeys) -> anyhow::Result<()> {
    let client = world.stage.plane.cluster.client();
    world.kim = Some(Kim::start(client, obeys));
    world.look().await
}

#[given("the manager is stopped")]
fn stopped(world: &mut World) {
    world.kim = None;
}

#[given("the manager is slow")]
fn slow(world: &mut World) -> anyhow::Result<()> {
    world.kim()?.hold();
    Ok(())
}

#[then("the manager reconciles the runtime")]
async fn reconciles(world: &mut World) -> anyhow::Result<()> {
    let name = &world.subject()?.name;
    let before = world.seen("reconciles")[name].as_u64().unwrap_or(0);
    let kim = world.kim()?;
    until("the manager reconciles it", PATIENCE, || async {
        let now = kim.counts().get(name).copied().unwrap_or(0);
        ensure!(now > before, "{now} times");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("the manager reconciles nobody")]
#[then("the manager reconciled nobody")]
async fn reconciles_nobody(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("reconciles");
    let kim = world.kim()?;
    holds("the manager reconciles nobody", QUIET, || async {
        let now = json!(kim.counts());
        ensure!(now == before, "{before}, then {now}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// Window in which the manager must not reconcile.
const QUIET: Duration = Duration::from_secs(5);
