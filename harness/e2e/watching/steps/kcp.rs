//! KCP as a whole: away and back, its certificates.

use anyhow::{bail, ensure};
use cucumber::{given, then, when};
use serde_json::json;

use crate::watching::trouble::Trouble;
use crate::watching::{Changed, World};

#[given(
    regex = r"^KCP (refuses connections|does not answer|has no listener|is busy|answers late)$"
)]
async fn away(world: &mut World, words: String) -> anyhow::Result<()> {
    let trouble = match words.as_str() {
        "refuses connections" => Trouble::Refuses,
        "does not answer" => Trouble::Silent,
        "has no listener" => Trouble::Headless,
        "is busy" => Trouble::Busy,
        "answers late" => Trouble::Slow,
        other => bail!("{other}: not in the vocabulary"),
    };
    world.changed.insert(Changed::Kcp(trouble));
    world.stage.trouble(trouble).await
}

#[when("KCP is well again")]
async fn well(world: &mut World) -> anyhow::Result<()> {
    world.ended_trouble = true;
    let changed = std::mem::take(&mut world.changed);
    for changed in &changed {
        world.stage.put_back(*changed).await?;
    }
    Ok(())
}

#[when("the certificates of both sides are replaced by those of another authority")]
async fn rotated(world: &mut World) -> anyhow::Result<()> {
    world.seen = json!({
        "refused": world.stage.refused_handshakes().await?,
        "starts": world.stage.skr.starts().await?,
        "unanswered": world.stage.skr.unanswered().await?,
    });
    world.ended_trouble = true;
    world.stage.rotate().await
}

#[then("no handshake failed on either side")]
async fn refused_none(world: &mut World) -> anyhow::Result<()> {
    let refused = world.stage.refused_handshakes().await?;
    let before = &world.seen["refused"];
    ensure!(
        *before == json!(refused),
        "the gateway refused {refused}, {before} before"
    );
    super::watcher::answered_all(world).await
}
