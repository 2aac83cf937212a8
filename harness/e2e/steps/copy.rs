//! Copies of the pull Secret in the namespaces that need it.

use std::time::Duration;

use anyhow::ensure;
use cucumber::{given, then, when};
use http::Method;
use serde_json::json;

use crate::world::effects::items;
use crate::world::{A_WHILE, Answer, PATIENCE, PRODUCT_NAMESPACE, World};
use testkit::until::{holds, until};

#[given("the namespace has its copy")]
#[then("the namespace gets the pull Secret")]
#[then("it comes back")]
async fn arrives(world: &mut World) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let dialogue = world.landscape().dialogue();
    until("the copy is the pull Secret", PATIENCE, || async {
        let master = dialogue.get(&path(PRODUCT_NAMESPACE)).await?;
        let copy = dialogue.get(&path(&name)).await?;
        ensure!(
            copy.at("/metadata/deletionTimestamp").is_null(),
            "it is being deleted"
        );
        ensure!(
            *copy.at("/type") == api::names::DOCKER_CONFIG_TYPE,
            "type {}",
            copy.at("/type")
        );
        let keys: Vec<&String> = copy
            .at("/data")
            .as_object()
            .into_iter()
            .flat_map(|data| data.keys())
            .collect();
        ensure!(keys == [api::names::DOCKER_CONFIG_KEY], "keys {keys:?}");
        ensure!(copy.at("/data") == master.at("/data"), "another content");
        anyhow::Ok(())
    })
    .await?;
    remember(world).await
}

#[then("the pull Secret is removed")]
async fn goes(world: &mut World) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let dialogue = world.landscape().dialogue();
    until("the copy is gone", PATIENCE, || async {
        is_absent(&dialogue.ask(Method::GET, &path(&name), None).await?)
    })
    .await?;
    Ok(())
}

#[then("the namespace gets no pull Secret")]
async fn stays_away(world: &mut World) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let dialogue = world.landscape().dialogue();
    holds("there is no copy", A_WHILE, || async {
        is_absent(&dialogue.ask(Method::GET, &path(&name), None).await?)
    })
    .await?;
    Ok(())
}

fn is_absent(answer: &Answer) -> anyhow::Result<()> {
    ensure!(
        answer.status == http::StatusCode::NOT_FOUND,
        "{}",
        answer.status
    );
    Ok(())
}

#[when("somebody edits the copy")]
async fn edited(world: &mut World) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    // Base64 of {"auths":{}}
    let patch = json!({ "data": { (api::names::DOCKER_CONFIG_KEY): "eyJhdXRocyI6e319" } });
    world
        .landscape()
        .dialogue()
        .patch(&path(&name), &patch)
        .await
        .map(drop)
}

#[when("somebody deletes the copy")]
async fn deleted(world: &mut World) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    world
        .landscape()
        .dialogue()
        .ask(Method::DELETE, &path(&name), None)
        .await?
        .good()
        .map(drop)
}

#[given("somebody's own Secret of that name is in the namespace")]
async fn foreign(world: &mut World) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": api::names::PULL_SECRET }, "stringData": { "mine": "alone" },
    });
    let collection = format!("/api/v1/namespaces/{name}/secrets");
    world
        .landscape()
        .dialogue()
        .ask(Method::POST, &collection, Some(&secret))
        .await?
        .good()?;
    remember(world).await
}

#[then("no copy is written")]
#[then("that Secret is left as it is")]
async fn unwritten(world: &mut World) -> anyhow::Result<()> {
    unwritten_for(world, A_WHILE).await
}

/// Longer than a copy that is no longer needed lingers.
#[then(expr = "the copy stays for {int} seconds")]
async fn stays(world: &mut World, seconds: u64) -> anyhow::Result<()> {
    unwritten_for(world, Duration::from_secs(seconds)).await
}

async fn unwritten_for(world: &mut World, duration: Duration) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let before = world.seen.get("secret").cloned().unwrap_or_default();
    let dialogue = world.landscape().dialogue();
    holds("the Secret is not written", duration, || async {
        let secret = dialogue.get(&path(&name)).await?;
        ensure!(
            *secret.at("/metadata/resourceVersion") == before,
            "{}",
            secret.at("/metadata")
        );
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then(expr = "an Event {string} on that Secret says {string}")]
async fn event(world: &mut World, reason: String, text: String) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let dialogue = world.landscape().dialogue();
    let secret = dialogue.get(&path(&name)).await?;
    let expected = json!({
        "apiVersion": "v1", "kind": "Secret", "namespace": name,
        "name": api::names::PULL_SECRET, "uid": secret.at("/metadata/uid"),
    });
    until("an Event says so", PATIENCE, || async {
        let events = dialogue
            .get(&format!("/apis/events.k8s.io/v1/namespaces/{name}/events"))
            .await?;
        let told = items(events.at("/items")).any(|event| {
            event["reason"] == reason
                && event["type"] == "Warning"
                && event["regarding"] == expected
                && event["note"]
                    .as_str()
                    .is_some_and(|note| note.contains(&text))
        });
        ensure!(told, "{}", events.at("/items"));
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

pub(super) async fn remember(world: &mut World) -> anyhow::Result<()> {
    let name = world.namespace().await?;
    let secret = world.landscape().dialogue().get(&path(&name)).await?;
    world.seen.insert(
        "secret".to_owned(),
        secret.at("/metadata/resourceVersion").clone(),
    );
    Ok(())
}

pub(super) fn path(namespace: &str) -> String {
    format!(
        "/api/v1/namespaces/{namespace}/secrets/{}",
        api::names::PULL_SECRET
    )
}
