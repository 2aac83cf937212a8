//! The watcher's own life.

use anyhow::{Context as _, ensure};
use cucumber::{then, when};

use crate::until::until;
use crate::watching::objects::LIFECYCLE;
use crate::watching::{Changed, HEARTBEAT, PATIENCE, RUNTIME, World};

#[when("every watcher is killed with kill -9")]
async fn killed(world: &mut World) -> anyhow::Result<()> {
    world.stage.skr.kill().await
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
async fn not_silent(world: &mut World) -> anyhow::Result<()> {
    ensure!(!silent(world).await?, "it is");
    Ok(())
}

/// Its last heartbeat is up to one interval older than its end, and the listener says it at the third one that is due.
#[then("the runtime is found silent when the third heartbeat is due")]
async fn found_silent(world: &mut World) -> anyhow::Result<()> {
    until("the runtime is silent", PATIENCE, || async {
        ensure!(silent(world).await?, "it is not");
        anyhow::Ok(())
    })
    .await?;
    let since = runtime(world)?.context("it was never heard of")?;
    let since = since.since_heartbeat.context("no heartbeat")?;
    ensure!(since >= HEARTBEAT * 3, "after {since:?}");
    ensure!(since < HEARTBEAT * 4, "only after {since:?}");
    Ok(())
}

/// What the listener says at the same distance from its own limit. Listeners count in minutes, and watchers here send
/// heartbeats more often, so the question is put as many intervals' difference later: by a clock that is ahead.
async fn silent(world: &World) -> anyhow::Result<bool> {
    let liveness = world.stage.manager(LIFECYCLE)?.liveness()?;
    let ahead = listener::wire::HEARTBEAT_INTERVAL.saturating_sub(HEARTBEAT) * 3;
    let snapshot = tokio::task::spawn_blocking(move || {
        let later = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        anyhow::Ok(later.block_on(async {
            tokio::time::advance(ahead).await;
            liveness.snapshot()
        }))
    });
    let snapshot = snapshot.await??;
    let runtime = snapshot.iter().find(|it| it.runtime_id.as_str() == RUNTIME);
    Ok(runtime.context("it was never heard of")?.silent)
}

fn runtime(world: &World) -> anyhow::Result<Option<listener::RuntimeLiveness>> {
    let snapshot = world.stage.manager(LIFECYCLE)?.liveness()?.snapshot();
    Ok(snapshot
        .into_iter()
        .find(|it| it.runtime_id.as_str() == RUNTIME))
}
