//! The sources on the control plane.

use anyhow::ensure;
use cucumber::{given, when};
use http::Method;
use serde_json::json;

use crate::kcp::source::{Source, opening_also, unusable};
use crate::kcp::{Changed, World};
use crate::world::random;

#[when(expr = "the {source} changes on KCP")]
#[when(expr = "the {source} is created on KCP")]
async fn changes(world: &mut World, source: Source) -> anyhow::Result<()> {
    world.look().await?;
    world.source = Some(source);
    world.stage.plane.renew(source).await?;
    // Whatever was wrong with it.
    world.changed.remove(&Changed::Source(source));
    Ok(())
}

#[given("the three sources belong together")]
async fn together(world: &mut World) -> anyhow::Result<()> {
    all_change(world).await?;
    world.stage.is_settled(world.subject()?).await?;
    super::copy::decides_by_all(world).await
}

#[when("the three sources change on KCP")]
async fn all_change(world: &mut World) -> anyhow::Result<()> {
    world.look().await?;
    let mark = random();
    for source in Source::ALL {
        let mut object = source.marked(&mark)?;
        if source == Source::PullSecret {
            let earlier = world.stage.plane.source(source).await?;
            object = opening_also(&object, &earlier)?;
        }
        world.stage.plane.write(source, &object).await?;
    }
    Ok(())
}

#[when(expr = "the {source} changes on KCP again before the manager took the signal")]
async fn changes_again(world: &mut World, source: Source) -> anyhow::Result<()> {
    super::signal::carried(world).await?;
    world.stage.plane.renew(source).await?;
    world.kim()?.go_on();
    Ok(())
}

#[when(expr = "the {source} is deleted on KCP")]
async fn deleted(world: &mut World, source: Source) -> anyhow::Result<()> {
    world.look().await?;
    world.changed.insert(Changed::Source(source));
    world.stage.plane.delete(source).await
}

#[when(regex = "^the (pull Secret|trust bundle|configuration) on KCP becomes (.+)$")]
async fn becomes(world: &mut World, source: Source, content: String) -> anyhow::Result<()> {
    world.look().await?;
    world.changed.insert(Changed::Source(source));
    let object = unusable(source, &content)?;
    world.stage.plane.write(source, &object).await
}

#[when("somebody writes a trust bundle to KCP that is no PEM")]
async fn no_pem(world: &mut World) -> anyhow::Result<()> {
    world.look().await?;
    let change = json!({ "spec": { "trustBundle": "no PEM" } });
    let path = Source::TrustBundle.on_kcp();
    let dialogue = &world.stage.plane.dialogue;
    let answer = dialogue.ask(Method::PATCH, &path, Some(&change)).await?;
    let seen = json!([answer.status.as_u16(), answer.message()]);
    world.seen.insert("answer".to_owned(), seen);
    Ok(())
}

#[given("the configuration on KCP has a second key")]
async fn second_key(world: &mut World) -> anyhow::Result<()> {
    let mut object = Source::Configuration.fresh()?;
    object["data"]["second.json"] = json!("{}");
    world
        .stage
        .plane
        .write(Source::Configuration, &object)
        .await?;
    world.skr()?.has(Source::Configuration, &object).await
}

#[when("the configuration on KCP loses its second key")]
async fn loses_key(world: &mut World) -> anyhow::Result<()> {
    world.look().await?;
    world.source = Some(Source::Configuration);
    let live = world.stage.plane.source(Source::Configuration).await?;
    ensure!(live["data"]["second.json"].is_string(), "it has none");
    let change = json!({ "data": { "second.json": null } });
    let path = Source::Configuration.on_kcp();
    world
        .stage
        .plane
        .dialogue
        .patch(&path, &change)
        .await
        .map(drop)
}

#[when(expr = "somebody labels the {source} on KCP")]
async fn labelled(world: &mut World, source: Source) -> anyhow::Result<()> {
    world.look().await?;
    let change = json!({ "metadata": { "labels": { "touched": random() } } });
    let path = source.on_kcp();
    world
        .stage
        .plane
        .dialogue
        .patch(&path, &change)
        .await
        .map(drop)
}

#[when("another Secret changes on KCP")]
async fn neighbour(world: &mut World) -> anyhow::Result<()> {
    world.look().await?;
    let object = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "neighbour", "namespace": api::runtimes::KCP_NAMESPACE },
        "stringData": { "mark": random() },
    });
    let cluster = &world.stage.plane.cluster;
    cluster.apply(&object.to_string()).await?;
    Ok(())
}
