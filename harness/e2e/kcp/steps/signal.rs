//! The signal on Runtimes.

use anyhow::ensure;
use api::runtimes::FORCE_RECONCILIATION;
use cucumber::{given, then};
use serde_json::{Value, json};

use crate::kcp::stage::signals;
use crate::kcp::{A_WHILE, PATIENCE, World};
use testkit::until::{holds, until};

#[then("the Runtime carries the signal")]
pub(super) async fn carried(world: &mut World) -> anyhow::Result<()> {
    let name = world.subject()?.name.clone();
    is_carried(world, &name).await
}

#[then("every Runtime carries the signal")]
async fn all_carry(world: &mut World) -> anyhow::Result<()> {
    for guest in &world.guests {
        is_carried(world, &guest.name).await?;
    }
    Ok(())
}

async fn is_carried(world: &World, name: &str) -> anyhow::Result<()> {
    until("the Runtime carries the signal", PATIENCE, || async {
        let runtime = world.stage.plane.runtime(name).await?;
        ensure!(signals(&runtime) == both(), "{}", runtime["metadata"]);
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[given("a Runtime without a cluster that carries the signal")]
async fn carries_already(world: &mut World) -> anyhow::Result<()> {
    super::runtime::without_cluster(world).await?;
    let keys = json!({ (FORCE_RECONCILIATION): "true" });
    let change = json!({ "metadata": { "labels": keys, "annotations": keys } });
    let name = world.subject()?.name.clone();
    world.stage.plane.patch_runtime(&name, &change).await?;
    world.look().await
}

#[then("nothing of the signal is left")]
async fn left_nothing(world: &mut World) -> anyhow::Result<()> {
    world.stage.is_unsignalled(&world.subject()?.name).await
}

#[then("the Runtime is not written")]
#[then("the Runtime carries no signal")]
async fn unwritten(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen("Runtime of subject");
    let name = world.subject()?.name.clone();
    holds("nobody writes the Runtime", A_WHILE, || async {
        let now = world.stage.plane.runtime(&name).await?;
        ensure!(version(&now) == version(&before), "{}", now["metadata"]);
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

fn version(runtime: &Value) -> &Value {
    &runtime["metadata"]["resourceVersion"]
}

#[then("its spec, status, generation and other keys are as before")]
async fn as_before(world: &mut World) -> anyhow::Result<()> {
    let name = &world.subject()?.name;
    let now = world.stage.plane.runtime(name).await?;
    let before = world.seen("Runtime of subject");
    let (now, before) = (without_signal(now), without_signal(before));
    ensure!(now == before, "before {before}\nnow {now}");
    Ok(())
}

fn without_signal(mut runtime: Value) -> Value {
    let metadata = &mut runtime["metadata"];
    for bookkeeping in ["resourceVersion", "managedFields"] {
        metadata[bookkeeping].take();
    }
    for place in ["labels", "annotations"] {
        let mut keys = metadata[place].as_object().cloned().unwrap_or_default();
        keys.remove(FORCE_RECONCILIATION);
        metadata[place] = Value::Object(keys);
    }
    runtime
}

fn both() -> Value {
    json!(["true", "true"])
}
