//! Objects on the runtime, and what users do to them.

use std::time::Duration;

use anyhow::ensure;
use cucumber::{given, then, when};
use serde_json::json;

use crate::watching::objects::{LIFECYCLE, MODULE};
use crate::watching::subject::{Kind, Stream, Subject};
use crate::watching::{PATIENCE, World};
use testkit::until::until;

#[given(regex = r"^a (\w+) that KCP knows$")]
async fn known(world: &mut World, kind: String) -> anyhow::Result<()> {
    let kind = Kind::of(&kind)?;
    create(world, kind, Some("kyma")).await?;
    let manager = if kind == Kind::Kyma {
        LIFECYCLE
    } else {
        MODULE
    };
    let (name, manager) = (world.name()?, world.stage.manager(manager)?);
    until("it is told of", PATIENCE, || async {
        !manager.heard.of(&name).is_empty()
    })
    .await?;
    // How often it will have been told of is the watcher's to say: once if it was late, more often if an answer was lost.
    world.stage.skr.is_calm().await?;
    mark(world)
}

#[given(regex = r"^a (\w+) that nobody watches$")]
async fn unwatched(world: &mut World, kind: String) -> anyhow::Result<()> {
    create(world, Kind::of(&kind)?, None).await
}

#[when(regex = r"^a user creates a (\w+)$")]
async fn created(world: &mut World, kind: String) -> anyhow::Result<()> {
    create(world, Kind::of(&kind)?, Some("kyma")).await
}

#[when(regex = r#"^a user creates a (\w+) watched by "(.+)"$"#)]
async fn created_for(world: &mut World, kind: String, by: String) -> anyhow::Result<()> {
    create(world, Kind::of(&kind)?, Some(&by)).await
}

#[when(regex = r"^a user ((?:changes|would|scales|deletes) .+)$")]
async fn write(world: &mut World, words: String) -> anyhow::Result<()> {
    mark(world)?;
    let dialogue = &world.stage.skr.dialogue;
    world.subject()?.write(dialogue, &words).await
}

#[when(expr = "a user creates {int} Kymas")]
async fn crowd(world: &mut World, count: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        let dialogue = &world.stage.skr.dialogue;
        world.crowd.add_kyma(dialogue, &world.namespace).await?;
    }
    Ok(())
}

#[given("a user creates Kymas all the while")]
fn stream(world: &mut World) {
    world.stream = Some(Stream::of_kymas(&world.stage.skr, &world.namespace));
}

/// Who waits for KCP waits until the API server gives up, which it does after three seconds in each of these troubles. Less
/// is the cluster's own: one of a hundred writes on a busy machine has taken 1.7 s while the watcher's hundred answers took
/// 14 ms together.
#[then("no write was held up")]
fn quick(world: &mut World) -> anyhow::Result<()> {
    let slowest = world.crowd.slowest;
    ensure!(slowest < HELD_UP, "one took {slowest:?}");
    Ok(())
}

const HELD_UP: Duration = Duration::from_millis(2_500);

async fn create(world: &mut World, kind: Kind, watched_by: Option<&str>) -> anyhow::Result<()> {
    let subject = Subject::fresh(kind, &world.namespace);
    subject
        .create(&world.stage.skr.dialogue, watched_by)
        .await?;
    world.subject = Some(subject);
    world.seen = json!({});
    Ok(())
}

/// Remembers how often each manager has heard of the object.
fn mark(world: &mut World) -> anyhow::Result<()> {
    let name = world.name()?;
    for manager in &world.stage.managers {
        world.seen[manager.name()] = json!(manager.heard.of(&name).len());
    }
    Ok(())
}
