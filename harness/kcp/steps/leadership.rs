//! Two replicas of the controller, and the work that only one of them does.

use anyhow::ensure;
use cucumber::{then, when};
use serde_json::Value;

use crate::kcp::controller::Controller;
use crate::kcp::source::Source;
use crate::kcp::{A_WHILE, PATIENCE, World};
use crate::until::{holds, until};

#[when("the controller is killed in the middle of its pass")]
async fn killed(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("writes to subject");
    let skr = world.skr()?;
    until("the pass has begun", PATIENCE, || async {
        ensure!(skr.writes().await? != before, "nothing is written yet");
        anyhow::Ok(())
    })
    .await?;
    Controller::kill(&world.stage.plane).await
}

#[then(expr = "the {source} on the runtime was written once")]
async fn once(world: &mut World, source: Source) -> anyhow::Result<()> {
    let skr = world.skr()?;
    let written = skr.copy(source).await?;
    // A second replica at work would write what the first one wrote.
    holds("nobody writes it again", A_WHILE, || async {
        let now = skr.copy(source).await?;
        ensure!(version(&now) == version(&written), "{}", now["metadata"]);
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("one replica leads")]
async fn one_leads(world: &mut World) -> anyhow::Result<()> {
    Controller::resume(&world.stage.plane).await
}

fn version(object: &Value) -> &Value {
    &object["metadata"]["resourceVersion"]
}
