//! The webhook's rules in the API server, and a second webhook beside it.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cucumber::{given, then, when};
use http::Method;
use serde_json::{Value, json};

use crate::world::effects::items;
use crate::world::{A_WHILE, PATIENCE, World, second};
use testkit::until::{holds, until};

#[then(expr = "the rules name {string} at {string} and nothing else")]
async fn rules(world: &mut World, resources: String, operations: String) -> anyhow::Result<()> {
    let entry = entry(world).await?;
    let rules = entry["rules"].as_array().context("a list of rules")?;
    let [rule] = rules.as_slice() else {
        anyhow::bail!("{} rules", rules.len())
    };
    let joined = |list: &Value| {
        items(list)
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    ensure!(
        joined(&rule["resources"]) == resources && joined(&rule["operations"]) == operations,
        "{rule}"
    );
    ensure!(
        joined(&rule["apiGroups"]).is_empty() && joined(&rule["apiVersions"]) == "v1",
        "{rule}"
    );
    Ok(())
}

#[then(expr = "the rules' {word} is {word}")]
async fn detail(world: &mut World, field: String, value: String) -> anyhow::Result<()> {
    let entry = entry(world).await?;
    let seen = entry[&field].to_string();
    ensure!(seen.trim_matches('"') == value, "{field} is {seen}");
    Ok(())
}

#[when("somebody overwrites the caBundle")]
async fn overwritten(world: &mut World) -> anyhow::Result<()> {
    let entry = entry(world).await?;
    world.seen.insert(
        "caBundle".to_owned(),
        entry["clientConfig"]["caBundle"].clone(),
    );
    // Any certificate will do, as long as it is not ours.
    let foreign = &world.landscape().registry().identity().ca_pem;
    let foreign = BASE64.encode(foreign);
    let patch =
        json!([{ "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": foreign }]);
    let kind = "application/json-patch+json";
    let dialogue = world.landscape().dialogue();
    dialogue
        .send(Method::PATCH, &path(), kind, patch.to_string().into_bytes())
        .await?
        .good()
        .map(drop)
}

#[then("the caBundle is as it was")]
async fn repaired(world: &mut World) -> anyhow::Result<()> {
    let before = world
        .seen
        .get("caBundle")
        .cloned()
        .context("nothing to compare with")?;
    let world: &World = world;
    until("the caBundle is repaired", PATIENCE, || async {
        let entry = entry(world).await?;
        ensure!(
            entry["clientConfig"]["caBundle"] == before,
            "still another one"
        );
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then(expr = "the caBundle alone is written by {string}")]
async fn written_by(world: &mut World, manager: String) -> anyhow::Result<()> {
    let object = world.landscape().dialogue().get(&path()).await?;
    let entries = items(object.at("/metadata/managedFields"));
    let ours: Vec<&Value> = entries
        .filter(|entry| entry["manager"] == manager)
        .collect();
    let [ours] = ours.as_slice() else {
        anyhow::bail!("{} entries of {manager}", ours.len())
    };
    ensure!(ours["operation"] == "Update", "{ours}");
    let fields = ours["fieldsV1"]["f:webhooks"]
        .as_object()
        .context("webhooks")?;
    let fields: Vec<&Value> = fields.values().collect();
    ensure!(
        fields == [&json!({ "f:clientConfig": { "f:caBundle": {} } })],
        "{fields:?}"
    );
    Ok(())
}

#[then("nobody writes the rules")]
async fn quiet(world: &mut World) -> anyhow::Result<()> {
    let dialogue = world.landscape().dialogue();
    let version = dialogue
        .get(&path())
        .await?
        .at("/metadata/resourceVersion")
        .clone();
    holds(
        "nobody writes the webhook configuration",
        A_WHILE,
        || async {
            let now = dialogue.get(&path()).await?;
            ensure!(
                *now.at("/metadata/resourceVersion") == version,
                "{}",
                now.at("/metadata/managedFields")
            );
            anyhow::Ok(())
        },
    )
    .await?;
    Ok(())
}

#[given("a second webhook that adds a container after us")]
async fn second_webhook(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.namespace().await?;
    let host = second::address(&world.landscape().cluster().node_address().await?)?;
    let server = second::serve(host).await?;
    let rules = server.configuration(&namespace);
    world.tasks.push(server.task);
    world
        .landscape()
        .cluster()
        .apply(&rules.to_string())
        .await?;
    world.leftovers.push(rules.to_string());
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let plain = crate::world::Draft::plain("probe");
    let dialogue = world.landscape().dialogue();
    until("the second webhook is asked", PATIENCE, || async {
        let answer = dialogue
            .ask(Method::POST, &path, Some(&plain.0))
            .await?
            .good()?;
        ensure!(
            answer.object.to_string().contains(second::CONTAINER),
            "not yet"
        );
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

async fn entry(world: &World) -> anyhow::Result<Value> {
    let object = world.landscape().dialogue().get(&path()).await?;
    let entries = object
        .at("/webhooks")
        .as_array()
        .cloned()
        .unwrap_or_default();
    ensure!(
        entries.len() == 1 && entries[0]["name"] == api::names::WEBHOOK_ENTRY,
        "{}",
        object.object
    );
    Ok(entries[0].clone())
}

fn path() -> String {
    let name = api::names::WEBHOOK_CONFIGURATION;
    format!("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}")
}
