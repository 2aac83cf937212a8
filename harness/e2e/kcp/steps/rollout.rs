//! Rollouts: two runtimes in two waves, versions that start and versions that do not, and an operator who pauses.
//!
//! Invariant: the runtime of the first wave is the subject, that of the second one the other.

use anyhow::{Context as _, ensure};
use api::runtimes::{KCP_NAMESPACE, MODE_DIRECT, ROLLOUT};
use cucumber::{given, then, when};
use serde_json::Value;

use crate::kcp::objects::{found, named_config_map};
use crate::kcp::runtime::Runtime;
use crate::kcp::{A_WHILE, Changed, PATIENCE, World};
use testkit::until::{holds, until};

#[given("two runtimes in direct mode, one in the wave before the other")]
async fn two(world: &mut World) -> anyhow::Result<()> {
    let second = Runtime::fresh(Some(1));
    world.guests.push(second.clone());
    let stage = &world.stage;
    stage
        .put_directly(&second, &second.object(Some(MODE_DIRECT), Some(2)))
        .await?;
    let first = stage.direct(0, Some(1)).await?;
    stage.is_settled(&second).await?;
    world.subject = Some(first);
    world.other = Some(second);
    world.look().await
}

#[when("a version of the webhook that never starts is rolled out")]
async fn broken(world: &mut World) -> anyhow::Result<()> {
    super::bootstrapper::hurry(world).await?;
    world.changed.insert(Changed::Controller);
    let stage = &world.stage;
    stage.controller.install_webhook(&stage.plane, NEVER).await
}

#[when("a version of the webhook that works is rolled out")]
async fn working(world: &mut World) -> anyhow::Result<()> {
    let stage = &world.stage;
    stage.controller.install(&stage.plane).await
}

#[then(expr = "the first one's condition {word} is False with the reason {string}")]
async fn first_says(world: &mut World, kind: String, reason: String) -> anyhow::Result<()> {
    let name = &world.subject()?.name;
    let plane = &world.stage.plane;
    plane.says(name, (&kind, "False"), &[&reason]).await
}

#[then(expr = "the rollout has stopped, for {string}")]
async fn stopped(world: &mut World, why: String) -> anyhow::Result<()> {
    until("the rollout has stopped", PATIENCE, || async {
        let progress = progress(world).await?;
        ensure!(progress["stopped"] == why.as_str(), "{progress}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[when("an operator pauses the rollout")]
async fn paused(world: &mut World) -> anyhow::Result<()> {
    world.changed.insert(Changed::Pause);
    world.stage.pause(true).await?;
    stopped(world, "paused".to_owned()).await
}

#[when("an operator resumes the rollout")]
async fn resumed(world: &mut World) -> anyhow::Result<()> {
    world.stage.pause(false).await
}

#[then("the other one is not written to")]
async fn other_unwritten(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("writes to other");
    let number = world.other()?.skr.context("it has no cluster")?;
    holds("nobody writes to it", A_WHILE, || async {
        let now = world.stage.skrs[number].writes().await?;
        ensure!(now == before, "before {before}\nnow {now}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("both become Ready")]
async fn both_ready(world: &mut World) -> anyhow::Result<()> {
    world.stage.is_settled(world.subject()?).await?;
    world.stage.is_settled(world.other()?).await
}

async fn progress(world: &World) -> anyhow::Result<Value> {
    let path = named_config_map(KCP_NAMESPACE, ROLLOUT);
    let published = found(&world.stage.plane.dialogue, &path).await?;
    let published = published.context("nothing is published")?;
    let text = published["data"]["progress"].as_str().context("progress")?;
    Ok(serde_json::from_str(text)?)
}

/// Nobody has it, so that its Pods wait for ever.
pub(super) const NEVER: &str = "localhost/never:1";
