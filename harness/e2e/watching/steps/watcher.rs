//! The watcher's own life.

use anyhow::{Context as _, ensure};
use cucumber::{then, when};
use serde_json::json;

use crate::watching::objects::LIFECYCLE;
use crate::watching::{Changed, HEARTBEAT, PATIENCE, RUNTIME, World};
use testkit::until::until;

#[when("every watcher is killed with kill -9")]
async fn killed(world: &mut World) -> anyhow::Result<()> {
    world.stage.skr.kill().await
}

#[when("the watcher is rolled out")]
async fn rolled_out(world: &mut World) -> anyhow::Result<()> {
    world.seen = json!({ "unanswered": world.stage.skr.unanswered().await? });
    world.ended_trouble = true;
    world.stage.skr.roll_out().await
}

#[then("no change went on without the watcher's answer")]
pub(super) async fn answered_all(world: &mut World) -> anyhow::Result<()> {
    let now = world.stage.skr.unanswered().await?;
    let before = &world.seen["unanswered"];
    ensure!(
        *before == json!(now),
        "the API server had no answer {now} times, {before} before"
    );
    Ok(())
}

#[then("the watcher was not restarted")]
async fn same(world: &mut World) -> anyhow::Result<()> {
    let (before, now) = (&world.seen["starts"], world.stage.skr.starts().await?);
    ensure!(*before == now, "{now}, {before} before");
    Ok(())
}

#[when("the watcher is down")]
async fn down(world: &mut World) -> anyhow::Result<()> {
    world.changed.insert(Changed::Watcher);
    world.stage.skr.stop().await
}

#[then("the runtime is not silent")]
fn not_silent(world: &mut World) -> anyhow::Result<()> {
    ensure!(!silent(world)?, "it is");
    Ok(())
}

/// Its last heartbeat is up to one interval older than its end, and the listener says it at the third one that is due.
#[then("the runtime is found silent when the third heartbeat is due")]
async fn found_silent(world: &mut World) -> anyhow::Result<()> {
    until("the runtime is silent", PATIENCE, || async {
        ensure!(silent(world)?, "it is not");
        anyhow::Ok(())
    })
    .await?;
    let since = runtime(world)?.context("it was never heard of")?;
    let since = since.since_heartbeat.context("no heartbeat")?;
    ensure!(since >= HEARTBEAT * 3, "after {since:?}");
    ensure!(since < HEARTBEAT * 4, "only after {since:?}");
    Ok(())
}

fn silent(world: &World) -> anyhow::Result<bool> {
    Ok(runtime(world)?.context("it was never heard of")?.silent)
}

fn runtime(world: &World) -> anyhow::Result<Option<listener::RuntimeLiveness>> {
    let snapshot = world.stage.manager(LIFECYCLE)?.liveness()?.snapshot();
    Ok(snapshot
        .into_iter()
        .find(|it| it.runtime_id.as_str() == RUNTIME))
}
