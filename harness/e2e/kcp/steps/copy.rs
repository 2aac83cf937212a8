//! What is on a runtime, and what the webhook there makes of it.

use anyhow::{Context as _, ensure};
use cucumber::then;

use crate::kcp::source::Source;
use crate::kcp::{A_WHILE, PATIENCE, World};
use testkit::until::{holds, until};

#[then(expr = "the runtime has the new {source}")]
async fn has(world: &mut World, source: Source) -> anyhow::Result<()> {
    let original = world.stage.plane.source(source).await?;
    ensure!(!original.is_null(), "there is no {source:?} on KCP");
    world.skr()?.has(source, &original).await
}

#[then("the runtime has the three sources of KCP")]
async fn has_all(world: &mut World) -> anyhow::Result<()> {
    for source in Source::ALL {
        has(world, source).await?;
    }
    Ok(())
}

#[then(expr = "the runtime has no {source} any more")]
async fn has_none(world: &mut World, source: Source) -> anyhow::Result<()> {
    let skr = world.skr()?;
    until("the copy is gone", PATIENCE, || async {
        let copy = skr.copy(source).await?;
        ensure!(copy.is_null(), "{}", copy["metadata"]);
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then(expr = "the runtime keeps its {source}")]
async fn keeps(world: &mut World, source: Source) -> anyhow::Result<()> {
    let before = world.seen("writes to subject")[source.on_skr()].clone();
    ensure!(before[0].is_string(), "it has none");
    let skr = world.skr()?;
    holds("nobody writes it", A_WHILE, || async {
        let now = &skr.writes().await?[source.on_skr()];
        ensure!(*now == before, "before {before}, now {now}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("the webhook on the runtime decides by it")]
async fn decides(world: &mut World) -> anyhow::Result<()> {
    let source = world.source.context("no source changed")?;
    let original = world.stage.plane.source(source).await?;
    world.skr()?.decides_by(source, &original).await
}

#[then("the webhook on the runtime decides by them")]
pub(super) async fn decides_by_all(world: &mut World) -> anyhow::Result<()> {
    for source in Source::ALL {
        let original = world.stage.plane.source(source).await?;
        world.skr()?.decides_by(source, &original).await?;
    }
    Ok(())
}

#[then("the runtime is not written to")]
async fn unwritten(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("writes to subject");
    let skr = world.skr()?;
    holds("nobody writes to the runtime", A_WHILE, || async {
        let now = skr.writes().await?;
        ensure!(now == before, "before {before}\nnow {now}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}
