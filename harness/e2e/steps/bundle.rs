//! The ClusterTrustBundle, and where a Pod has it.

use anyhow::ensure;
use cucumber::{given, then, when};
use serde_json::json;

use crate::world::effects::{VOLUME, items, started};
use crate::world::{Shared, World, bundle};

#[given("the trust bundle does not exist")]
async fn absent(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::TrustBundle);
    world
        .landscape()
        .dialogue()
        .ask(http::Method::DELETE, bundle::PATH, None)
        .await?;
    known(world, false).await
}

#[given(
    "a cluster without the API for trust bundles, whose node pulled the product from the private registry"
)]
async fn unserved(world: &mut World) -> anyhow::Result<()> {
    let own = Box::pin(world.landscape().without_trust_bundles()).await?;
    world.move_to(own);
    let landscape = world.landscape();
    let images = landscape.replica_images().await?;
    let from = landscape.registry().host();
    ensure!(
        !images.is_empty() && images.iter().all(|image| image.starts_with(&from)),
        "{images:?}"
    );
    Ok(())
}

#[when("the trust bundle is created")]
async fn appears(world: &mut World) -> anyhow::Result<()> {
    world.landscape().write_bundle().await?;
    known(world, true).await
}

async fn known(world: &World, there: bool) -> anyhow::Result<()> {
    let probe =
        |replica: crate::world::Replica| async move { replica.mounts_the_bundle(there).await };
    world
        .landscape()
        .each_replica("the bundle's presence is known", probe)
        .await
}

#[then("its volume is the projected bundle")]
fn projected(world: &mut World) -> anyhow::Result<()> {
    let pod = world.pod()?;
    let volume = items(pod.at("/spec/volumes")).find(|volume| volume["name"] == VOLUME);
    let expected = json!({ "name": VOLUME, "projected": { "defaultMode": 420, "sources": [
        { "clusterTrustBundle": { "name": bundle::NAME, "path": bundle::FILE } },
    ] } });
    ensure!(volume == Some(&expected), "{volume:?}");
    Ok(())
}

#[then(regex = r#"^it is mounted read-only at "([^"]+)" in (.+)$"#)]
fn mounted(world: &mut World, path: String, containers: String) -> anyhow::Result<()> {
    let expected = json!({ "name": VOLUME, "mountPath": path, "readOnly": true });
    let with_mount = started(&world.pod()?.object)
        .filter(|container| items(&container["volumeMounts"]).any(|mount| *mount == expected));
    let seen: Vec<&str> = with_mount
        .filter_map(|container| container["name"].as_str())
        .collect();
    ensure!(seen.join(", ") == containers, "mounted in {seen:?}");
    Ok(())
}
