//! What a manager on KCP hears, and whom it believes to be alive.

use anyhow::ensure;
use cucumber::{given, then, when};

use crate::watching::stranger::STRANGER;
use crate::watching::{A_WHILE, Changed, PATIENCE, RUNTIME, World};
use testkit::until::{holds, until};

#[then(regex = r"^([\w-]+-manager) hears of it$")]
async fn hears(world: &mut World, manager: String) -> anyhow::Result<()> {
    let news = 1;
    told(world, &manager, news, RUNTIME).await
}

#[then(regex = r"^([\w-]+-manager) hears of it twice$")]
async fn hears_twice(world: &mut World, manager: String) -> anyhow::Result<()> {
    told(world, &manager, 2, RUNTIME).await
}

#[then(regex = r"^([\w-]+-manager) hears of it from the other runtime alone$")]
async fn hears_from_other(world: &mut World, manager: String) -> anyhow::Result<()> {
    told(world, &manager, 1, STRANGER).await
}

/// Waits until it heard that often of the object since it was marked, and always from the same runtime.
async fn told(world: &World, manager: &str, times: usize, runtime: &str) -> anyhow::Result<()> {
    let (name, before) = (world.name()?, before(world, manager));
    let manager = world.stage.manager(manager)?;
    until("the manager hears of it", PATIENCE, || async {
        let heard = manager.heard.of(&name);
        let news = heard.len().saturating_sub(before);
        ensure!(news >= times, "{news} times of {name:?}");
        anyhow::Ok(())
    })
    .await?;
    let heard = manager.heard.of(&name);
    ensure!(heard.iter().all(|it| it == runtime), "from {heard:?}");
    Ok(())
}

#[then(regex = r"^([\w-]+-manager) does not hear of it$")]
async fn does_not_hear(world: &mut World, manager: String) -> anyhow::Result<()> {
    let (name, before) = (world.name()?, before(world, &manager));
    let manager = world.stage.manager(&manager)?;
    holds("the manager hears nothing", A_WHILE, || async {
        let news = manager.heard.of(&name).len().saturating_sub(before);
        ensure!(news == 0, "{news} events");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

fn before(world: &World, manager: &str) -> usize {
    let before = world.seen[manager].as_u64().unwrap_or_default();
    usize::try_from(before).unwrap_or_default()
}

#[then(regex = r"^([\w-]+-manager) has heard of none of them$")]
async fn none(world: &mut World, manager: String) -> anyhow::Result<()> {
    let manager = world.stage.manager(&manager)?;
    holds("the manager hears nothing", A_WHILE, || async {
        let heard = manager.heard.names_in(&world.namespace);
        ensure!(heard.is_empty(), "of {heard:?}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then(regex = r"^([\w-]+-manager) hears of all of them$")]
async fn all(world: &mut World, manager: String) -> anyhow::Result<()> {
    if let Some(stream) = world.stream.take() {
        world.crowd = stream.end().await?;
    }
    let manager = world.stage.manager(&manager)?;
    until("the manager hears of all", PATIENCE, || async {
        let heard = manager.heard.names_in(&world.namespace);
        let mut missing = world.crowd.names.clone();
        missing.retain(|name| !heard.contains(name));
        let of = world.crowd.names.len();
        ensure!(missing.is_empty(), "not of {missing:?}, of {of}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[given("KCP knows another domain for the runtime")]
fn other_domain(world: &mut World) {
    world.changed.insert(Changed::Domain);
    world.stage.set_domain("two.skr.landscape.test");
}

#[when("KCP knows the runtime's domain")]
fn own_domain(world: &mut World) {
    world.stage.set_domain(crate::watching::DOMAIN);
}

#[given(regex = r"^([\w-]+-manager) has heartbeats of (\d+) watchers$")]
#[then(regex = r"^([\w-]+-manager) has heartbeats of (\d+) watchers$")]
async fn watchers(world: &mut World, manager: String, count: usize) -> anyhow::Result<()> {
    world.stage.every_replica_reports(&manager, count).await
}
