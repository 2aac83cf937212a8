//! What became of a Pod: effects, the marker, warnings.

use anyhow::{Context as _, ensure};
use cucumber::then;

use crate::world::effects::effects;
use crate::world::twin::comparable;
use crate::world::{Feature, World};

#[then(expr = "{feature} is applied")]
fn applied(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    let pod = world.pod()?;
    let effects = effects(&pod.object);
    for wanted in feature.each() {
        let applied = effects
            .iter()
            .any(|effect| effect.feature == wanted && effect.everywhere);
        ensure!(applied, "{wanted} is not in {}", pod.object);
    }
    Ok(())
}

#[then(expr = "only {feature} is applied")]
fn only(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    applied(world, feature)?;
    let wanted = feature.each();
    for effect in effects(&world.pod()?.object) {
        ensure!(
            !effect.somewhere || wanted.contains(&effect.feature),
            "{} too",
            effect.feature
        );
    }
    Ok(())
}

#[then(expr = "{feature} is not applied")]
fn not_applied(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    let effects = effects(&world.pod()?.object);
    let wanted = feature.each();
    let found = effects
        .iter()
        .find(|effect| wanted.contains(&effect.feature) && effect.somewhere);
    ensure!(found.is_none(), "{found:?}");
    Ok(())
}

#[then("it is what it would be without us")]
async fn untouched(world: &mut World) -> anyhow::Result<()> {
    let draft = world.draft.clone().context("no Pod yet")?;
    let twin = world.twin(&draft).await?;
    let ours = comparable(&world.pod()?.object);
    ensure!(twin == ours, "without us {twin}\nwith us {ours}");
    Ok(())
}

#[then("nothing changes any more")]
fn settled(world: &mut World) -> anyhow::Result<()> {
    let now = comparable(&world.pod()?.object);
    let before = world
        .seen
        .get("before")
        .context("nothing to compare with")?;
    ensure!(*before == now, "before {before}\nnow {now}");
    Ok(())
}

#[then(expr = "it carries the marker")]
fn marked(world: &mut World) -> anyhow::Result<()> {
    let annotations = world.pod()?.at("/metadata/annotations");
    ensure!(annotations[api::names::MARKER] == "true", "{annotations}");
    let ours = annotations.as_object().into_iter().flatten();
    let ours = ours
        .filter(|(key, _)| key.starts_with("rt-bootstrapper.kyma-project.io/"))
        .count();
    ensure!(
        ours == 1,
        "one annotation of ours and no other: {annotations}"
    );
    Ok(())
}

#[then(expr = "it carries no marker")]
fn unmarked(world: &mut World) -> anyhow::Result<()> {
    let annotations = world.pod()?.at("/metadata/annotations");
    ensure!(annotations[api::names::MARKER].is_null(), "{annotations}");
    Ok(())
}

#[then(expr = "the owner is warned that {string}")]
fn warned(world: &mut World, text: String) -> anyhow::Result<()> {
    let warnings = &world.pod()?.warnings;
    ensure!(
        warnings.iter().any(|warning| warning.contains(&text)),
        "{warnings:?}"
    );
    Ok(())
}

#[then("the owner is warned of nothing")]
fn not_warned(world: &mut World) -> anyhow::Result<()> {
    let warnings = &world.pod()?.warnings;
    ensure!(warnings.is_empty(), "{warnings:?}");
    Ok(())
}
