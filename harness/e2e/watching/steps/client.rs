//! Clients at the gateway that are no watcher.

use anyhow::ensure;
use cucumber::{then, when};
use serde_json::{Value, json};

use crate::watching::World;
use crate::watching::subject::{Kind, Subject};

#[when(regex = r"^a client with (.+) comes to the gateway$")]
async fn comes(world: &mut World, words: String) -> anyhow::Result<()> {
    world.seen = json!({ "refused": world.stage.refused_handshakes().await? });
    world.answer = Some(world.stage.refusal_of(&words).await?.into());
    Ok(())
}

#[then(regex = r#"^the gateway refuses the handshake with "(.+)"$"#)]
async fn refused(world: &mut World, alert: String) -> anyhow::Result<()> {
    let answer = world.answer.clone().unwrap_or_default();
    let text = answer.as_str().unwrap_or_default();
    ensure!(text.contains(&alert), "{answer}");
    // What shows elsewhere that none was refused has to count this one.
    let before = world.seen["refused"].as_u64();
    let now = world.stage.refused_handshakes().await?;
    ensure!(Some(now) > before, "it is not counted");
    Ok(())
}

#[when("another runtime posts an event in this runtime's name")]
async fn posts(world: &mut World) -> anyhow::Result<()> {
    let subject = Subject::fresh(Kind::Kyma, &world.namespace);
    let name = subject.heard_as();
    let (group, version, kind) = &name.gvk;
    let event = json!({
        "watched": { "Namespace": name.namespace, "Name": name.name },
        "watchedGvk": { "group": group, "version": version, "kind": kind },
    });
    world.answer = Some(world.stage.post_as_another(&event).await?.into());
    world.subject = Some(subject);
    world.seen = json!({});
    Ok(())
}

#[then("it is answered 200")]
fn taken(world: &mut World) -> anyhow::Result<()> {
    ensure!(world.answer == Some(Value::from(200)), "{:?}", world.answer);
    Ok(())
}
