//! Namespaces and what they ask for.

use cucumber::{given, when};
use serde_json::json;

use crate::world::{Feature, World};

#[given("a namespace that asks for nothing")]
async fn plain(world: &mut World) -> anyhow::Result<()> {
    world.namespace().await.map(drop)
}

#[given(expr = "a namespace that asks for {feature}")]
async fn asks(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    world.annotate_namespace(feature.key(), "true");
    world.namespace().await.map(drop)
}

#[given(expr = "a namespace that the configuration lists for {feature}")]
fn listed(world: &mut World, feature: Feature) {
    let name = match feature.each().as_slice() {
        [api::Feature::RegistryRewrite] => "listed-registry-rewrite",
        [api::Feature::TrustBundle] => "listed-trust-bundle",
        _ => "listed-everything",
    };
    world.borrow_namespace(name);
}

#[given("a namespace that the configuration lists for trust bundle, and that says \"false\" to it")]
fn refusing(world: &mut World) {
    world.borrow_namespace(crate::world::REFUSING);
}

#[given(expr = "a namespace with the label {string}")]
async fn labelled(world: &mut World, label: String) -> anyhow::Result<()> {
    let (key, value) = label.split_once('=').unwrap_or((&label, ""));
    world.label_namespace(key, value);
    world.namespace().await.map(drop)
}

#[given(expr = "the namespace {string}")]
fn existing(world: &mut World, name: String) {
    world.borrow_namespace(&name);
}

#[when(expr = "the namespace asks for {feature}")]
async fn asks_now(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    set(world, feature, json!("true")).await
}

#[when(expr = "the namespace asks for {feature} no longer")]
async fn asks_no_longer(world: &mut World, feature: Feature) -> anyhow::Result<()> {
    set(world, feature, json!(null)).await
}

async fn set(world: &mut World, feature: Feature, value: serde_json::Value) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let patch = json!({ "metadata": { "annotations": { (feature.key()): value } } });
    world
        .landscape()
        .dialogue()
        .patch(&format!("/api/v1/namespaces/{name}"), &patch)
        .await?;
    if feature.each().contains(&api::Feature::FipsMode) {
        world
            .landscape()
            .namespace_is_known(&name, value == "true")
            .await?;
    }
    Ok(())
}
