//! The configuration document in its ConfigMap, which KIM writes.

use anyhow::{Context as _, ensure};
use cucumber::{given, then, when};
use serde_json::{Value, json};

use crate::world::effects::items;
use crate::world::{PATIENCE, PRODUCT_NAMESPACE, Replica, Shared, World, shared_configuration};
use testkit::until::until;

#[given(regex = r"^the configuration has (\w+) ([\[{].+)$")]
#[when(regex = r"^the configuration gets (\w+) ([\[{].+)$")]
async fn has(world: &mut World, key: String, value: String) -> anyhow::Result<()> {
    let mut document = shared_configuration()?;
    document[&key] = serde_json::from_str(&value).with_context(|| value.clone())?;
    if key == "availableFeatures" {
        // What is listed must be available.
        document["namespaceFeatures"] = json!({});
    }
    configure(world, document).await
}

#[given(expr = "the configuration has no {word}")]
#[when(expr = "the configuration loses {word}")]
async fn has_no(world: &mut World, key: String) -> anyhow::Result<()> {
    let mut document = shared_configuration()?;
    document.as_object_mut().context("an object")?.remove(&key);
    configure(world, document).await
}

pub(super) async fn configure(world: &mut World, document: Value) -> anyhow::Result<()> {
    world.changed.push(Shared::Configuration);
    let starts = world.landscape().starts().await?;
    world.seen.insert("starts".to_owned(), starts);
    world.landscape().configure(document).await
}

#[given("the configuration does not exist")]
async fn absent(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::Configuration);
    let path = format!(
        "/api/v1/namespaces/{PRODUCT_NAMESPACE}/configmaps/{}",
        api::names::CONFIG_MAP
    );
    world
        .landscape()
        .dialogue()
        .ask(http::Method::DELETE, &path, None)
        .await?
        .good()
        .map(drop)
}

#[when(regex = r"^the document becomes (.+)$")]
async fn becomes(world: &mut World, document: String) -> anyhow::Result<()> {
    world.changed.push(Shared::Configuration);
    world.landscape().write_configuration(&document).await
}

#[then("it is in force, and allows nothing")]
async fn in_force(world: &mut World) -> anyhow::Result<()> {
    let refuses = |replica: Replica| async move {
        replica
            .says_of_image("replace.me/a", "not in availableFeatures")
            .await
    };
    world
        .landscape()
        .each_replica("the document is in force", refuses)
        .await?;
    let valid = |replica: Replica| async move { is_valid(&replica, true).await };
    world
        .landscape()
        .each_replica("the document counts as valid", valid)
        .await
}

#[then(regex = r"^it is refused because (.+)$")]
async fn refused(world: &mut World, reason: String) -> anyhow::Result<()> {
    let says_why = |replica: Replica| {
        let reason = reason.clone();
        async move {
            is_valid(&replica, false).await?;
            let (ready, text) = replica.readiness().await?;
            ensure!(
                ready && text.contains(&reason) && text.contains("last valid one is active"),
                "{text}"
            );
            Ok(())
        }
    };
    world
        .landscape()
        .each_replica("the document is refused", says_why)
        .await
}

#[then(regex = r#"^an Event "(\w+)" on its ConfigMap names the error: (.+)$"#)]
async fn told(world: &mut World, reason: String, error: String) -> anyhow::Result<()> {
    let dialogue = world.landscape().dialogue();
    let path = format!("/apis/events.k8s.io/v1/namespaces/{PRODUCT_NAMESPACE}/events");
    until("an Event says so", PATIENCE, || async {
        let events = dialogue.get(&path).await?;
        let notes: Vec<&str> = items(events.at("/items"))
            .filter(|event| event["reason"] == reason && event["type"] == "Warning")
            .filter(|event| event["regarding"]["name"] == api::names::CONFIG_MAP)
            .filter_map(|event| event["note"].as_str())
            .collect();
        ensure!(
            notes.iter().any(|note| note.contains(&error)),
            "Events of {reason}: {notes:?}"
        );
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

async fn is_valid(replica: &Replica, expected: bool) -> anyhow::Result<()> {
    let valid = replica
        .sum("configuration_last_reload_successful", |_| true)
        .await?;
    ensure!(
        (valid > 0.5) == expected,
        "configuration_last_reload_successful is {valid}"
    );
    Ok(())
}

#[given("the configuration of the example")]
async fn example(world: &mut World) -> anyhow::Result<()> {
    let document = serde_json::from_str(&super::deployment::example("config.json")?)?;
    configure(world, document).await
}
