//! Pods: admitted (a dry run) or created, and what became of them.

use cucumber::gherkin::Step;
use cucumber::{given, when};
use http::Method;
use serde_json::json;

use super::update;
use crate::world::twin::comparable;
use crate::world::{Draft, Feature, World, random};

#[when(expr = "a Pod is admitted")]
async fn admitted(world: &mut World, step: &Step) -> anyhow::Result<()> {
    submit(world, draft().with(step)?, true).await
}

#[when(expr = "a Pod is admitted with")]
async fn admitted_with(world: &mut World, step: &Step) -> anyhow::Result<()> {
    submit(world, draft().with(step)?, true).await
}

#[when(expr = "a Pod that asks for {feature} is admitted")]
async fn asking_admitted(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    submit(world, asking(feature, "true"), true).await
}

#[when(expr = "a Pod that asks for {feature} is admitted with")]
async fn asking_admitted_with(
    world: &mut World,
    feature: Feature,
    step: &Step,
) -> anyhow::Result<()> {
    submit(world, asking(feature, "true").with(step)?, true).await
}

#[when(expr = "a Pod that says {string} to {feature} is admitted")]
async fn saying_admitted(world: &mut World, value: String, feature: Feature) -> anyhow::Result<()> {
    submit(world, asking(feature, &value), true).await
}

#[when(expr = "a Pod with the image {string} that asks for {feature} is admitted")]
async fn image_admitted(world: &mut World, image: String, feature: Feature) -> anyhow::Result<()> {
    let mut draft = asking(feature, "true");
    draft.0["spec"]["containers"][0]["image"] = json!(image);
    submit(world, draft, true).await
}

#[when("it is admitted again")]
async fn again(world: &mut World) -> anyhow::Result<()> {
    let mut object = world.pod()?.object.clone();
    object["status"] = serde_json::Value::Null;
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| ["name", "labels", "annotations"].contains(&key.as_str()));
    }
    world
        .seen
        .insert("before".to_owned(), comparable(&world.pod()?.object));
    submit(world, Draft(object), true).await
}

#[given(expr = "a stored Pod")]
#[given(expr = "a stored Pod with")]
async fn stored(world: &mut World, step: &Step) -> anyhow::Result<()> {
    let mut draft = draft();
    // It is stored and never started: these scenarios are about the API alone.
    draft.0["spec"]["nodeSelector"] = json!({ "nowhere": "true" });
    submit(world, draft.with(step)?, false).await
}

#[given(expr = "a Pod that asks for {feature}")]
#[when(expr = "a Pod that asks for {feature} is created")]
async fn created(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    let mut draft = asking(feature, "true");
    draft.0["spec"]["nodeSelector"] = json!({ "nowhere": "true" });
    submit(world, draft, false).await
}

#[when("the Pod is deleted")]
async fn deleted(world: &mut World) -> anyhow::Result<()> {
    let path = update::path(world).await?;
    world
        .landscape()
        .dialogue()
        .ask(Method::DELETE, &path, None)
        .await?
        .good()
        .map(drop)
}

pub(super) async fn submit(world: &mut World, draft: Draft, dry_run: bool) -> anyhow::Result<()> {
    let namespace = world.namespace().await?;
    let query = if dry_run { "?dryRun=All" } else { "" };
    let path = format!("/api/v1/namespaces/{namespace}/pods{query}");
    let answer = world
        .landscape()
        .dialogue()
        .ask(Method::POST, &path, Some(&draft.0))
        .await?;
    world.pod = Some(answer.good()?);
    if !dry_run {
        let path = update::path(world).await?;
        world.stored.push(path);
    }
    world.draft = Some(draft);
    Ok(())
}

fn draft() -> Draft {
    Draft::plain(&format!("pod-{}", random()))
}

/// A Pod that every feature would change.
fn asking(feature: Feature, value: &str) -> Draft {
    let mut draft = draft();
    // Credentials are for one registry, replacements for another, so that each can be seen alone.
    let host = if feature.each() == [api::Feature::PullSecret] {
        "private.me"
    } else {
        "replace.me"
    };
    draft.0["spec"]["containers"][0]["image"] = json!(format!("{host}/harness/probe:1"));
    draft.say(feature, value);
    draft
}

#[when("a mirror Pod is admitted")]
async fn mirror(world: &mut World) -> anyhow::Result<()> {
    let mut draft = draft();
    draft.0["metadata"]["annotations"][api::names::MIRROR_POD] = json!("a-hash");
    // The API server wants mirror Pods to say where they are, and to use no account.
    draft.0["spec"]["nodeName"] = json!("any-node");
    draft.0["spec"]["containers"][0]["image"] = json!("replace.me/harness/probe:1");
    submit(world, draft, true).await
}
