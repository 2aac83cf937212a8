//! What happens to a stored Pod later, by the hand of `kubectl` as users have it.

use anyhow::{Context as _, ensure};
use cucumber::{then, when};
use http::Method;
use serde_json::{Value, json};

use crate::world::World;
use crate::world::twin::comparable;

#[when(expr = "kubectl sets its image to {string}")]
async fn set_image(world: &mut World, image: String) -> anyhow::Result<()> {
    let pod = format!("pod/{}", name(world)?);
    kubectl(world, &["set", "image", &pod, &format!("app={image}")]).await
}

#[when(expr = "kubectl debugs it with the image {string}")]
async fn debug(world: &mut World, image: String) -> anyhow::Result<()> {
    let pod = format!("pod/{}", name(world)?);
    let image = format!("--image={image}");
    kubectl(
        world,
        &[
            "debug",
            &pod,
            &image,
            "--container=debugger",
            "--profile=general",
        ],
    )
    .await
}

#[when("kubectl edits a label of it")]
async fn label(world: &mut World) -> anyhow::Result<()> {
    let pod = format!("pod/{}", name(world)?);
    kubectl(world, &["label", &pod, "edited=true"]).await
}

#[when("it is on its way out")]
async fn terminating(world: &mut World) -> anyhow::Result<()> {
    let path = path(world).await?;
    world
        .landscape()
        .dialogue()
        .ask(Method::DELETE, &path, None)
        .await?
        .good()?;
    let pod = read(world).await?;
    ensure!(
        !pod["metadata"]["deletionTimestamp"].is_null(),
        "it has no finalizer"
    );
    Ok(())
}

#[then(expr = "nothing of it changed but its image, which is {string}")]
fn only_image(world: &mut World, image: String) -> anyhow::Result<()> {
    let mut expected = comparable(world.seen.get("stored").context("no earlier Pod")?);
    expected["spec"]["containers"][0]["image"] = json!(image);
    let now = comparable(&world.pod()?.object);
    ensure!(expected == now, "expected {expected}\nnow {now}");
    Ok(())
}

#[then("nothing of it changed but that label")]
fn only_label(world: &mut World) -> anyhow::Result<()> {
    let mut expected = comparable(world.seen.get("stored").context("no earlier Pod")?);
    expected["metadata"]["labels"]["edited"] = json!("true");
    let now = comparable(&world.pod()?.object);
    ensure!(expected == now, "expected {expected}\nnow {now}");
    Ok(())
}

async fn kubectl(world: &mut World, args: &[&str]) -> anyhow::Result<()> {
    let before = read(world).await?;
    let namespace = world.namespace().await?;
    let all = [&["--namespace", &namespace], args].concat();
    let output = world.landscape().cluster().kubectl(&all).await?;
    ensure!(output.code == 0, "kubectl {args:?}: {}", output.stderr);
    world.seen.insert("stored".to_owned(), before);
    read(world).await.map(drop)
}

/// Reads the Pod again.
pub(super) async fn read(world: &mut World) -> anyhow::Result<Value> {
    let path = path(world).await?;
    let pod = world.landscape().dialogue().get(&path).await?;
    let object = pod.object.clone();
    world.pod = Some(pod);
    Ok(object)
}

pub(super) fn name(world: &World) -> anyhow::Result<String> {
    world
        .pod()?
        .at("/metadata/name")
        .as_str()
        .map(str::to_owned)
        .context("a name")
}

pub(super) async fn path(world: &mut World) -> anyhow::Result<String> {
    let (namespace, name) = (world.namespace().await?, name(world)?);
    Ok(format!("/api/v1/namespaces/{namespace}/pods/{name}"))
}
