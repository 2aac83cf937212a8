//! Two replicas of the controller, and the work that only one of them does.

use anyhow::{Context as _, ensure};
use cucumber::{given, then, when};
use serde_json::json;

use crate::kcp::controller::Controller;
use crate::kcp::source::Source;
use crate::kcp::{A_WHILE, Changed, PATIENCE, World};
use testkit::until::{holds, until};

#[given("the runtime takes its time over the configuration")]
async fn slow(world: &mut World) -> anyhow::Result<()> {
    let number = skr_number(world)?;
    world.changed.insert(Changed::Obstacle(number));
    world.stage.stall(number).await?;
    count(world).await
}

#[given("one replica of two leads")]
async fn one_of_two(world: &mut World) -> anyhow::Result<()> {
    one_leads(world).await?;
    count(world).await
}

async fn count(world: &mut World) -> anyhow::Result<()> {
    for resource in COUNTED {
        let count = world.skr()?.applied(resource).await?;
        world.seen.insert(resource.to_owned(), json!(count));
    }
    Ok(())
}

#[when("the controller is killed in the middle of its pass")]
async fn killed(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("writes to subject");
    let skr = world.skr()?;
    until("the pass has begun", PATIENCE, || async {
        ensure!(skr.writes().await? != before, "nothing is written yet");
        anyhow::Ok(())
    })
    .await?;
    Controller::kill(&world.stage.plane).await?;
    let last = Source::Configuration.on_skr();
    let now = skr.writes().await?;
    ensure!(now[&last] == before[&last], "the pass was over");
    Ok(())
}

#[when("the runtime is quick again")]
async fn quick(world: &mut World) -> anyhow::Result<()> {
    world.stage.clear_obstacles(skr_number(world)?).await
}

fn skr_number(world: &World) -> anyhow::Result<usize> {
    world.subject()?.skr.context("it has no cluster")
}

#[then("one replica leads")]
async fn one_leads(world: &mut World) -> anyhow::Result<()> {
    Controller::resume(&world.stage.plane).await
}

#[then("its trust bundle and its configuration were applied once, whoever led")]
async fn applied_once(world: &mut World) -> anyhow::Result<()> {
    let skr = world.skr()?;
    holds("nothing is applied in vain", A_WHILE, || async {
        for resource in COUNTED {
            let before = world.seen(resource).as_u64().unwrap_or_default();
            let applied = skr.applied(resource).await? - before;
            ensure!(applied == 1, "{resource}: {applied} times");
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// What only the controller applies there. Secrets are left out, for the webhook applies copies of its own.
const COUNTED: [&str; 2] = ["clustertrustbundles", "configmaps"];
