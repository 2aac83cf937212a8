//! Pods that customers create all the while.
//!
//! Invariant: they are asked for as a dry run, which takes the same way through the API server and the webhook.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::names::MARKER;
use cucumber::{given, then};
use http::Method;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::kcp::source::{FURTHER, LIVE};
use crate::kcp::{PATIENCE, Stream, Tally, World};
use crate::until::until;
use crate::world::effects::{containers, pull_secrets};
use crate::world::{Answer, Dialogue, Draft};

#[given("Pods that opt in are created on the runtime all the while")]
async fn created(world: &mut World) -> anyhow::Result<()> {
    let dialogue = world.skr()?.dialogue.clone();
    // The registration may be younger than what the API server knows of it.
    until("Pods are sent to the webhook", PATIENCE, || async {
        let mut tally = Tally::default();
        tally.take(ask(&dialogue, 0).await);
        ensure!(tally.odd.is_empty(), "{:?}", tally.odd);
        anyhow::Ok(())
    })
    .await?;
    let over = Arc::new(AtomicBool::new(false));
    let task = tokio::spawn(create(dialogue, Arc::clone(&over)));
    world.pods = Some(Stream { over, task });
    Ok(())
}

#[then("every Pod was admitted and carries the marker")]
async fn all_marked(world: &mut World) -> anyhow::Result<()> {
    let stream = world.pods.take().context("no Pods were created")?;
    stream.over.store(true, Ordering::Relaxed);
    world.tally = stream.task.await?;
    let Tally { pods, odd, .. } = &world.tally;
    ensure!(*pods > ENOUGH, "only {pods} Pods: nothing is shown by that");
    ensure!(odd.is_empty(), "of {pods}: {odd:?}");
    Ok(())
}

#[then("none of them is half of one version and half of another")]
fn none_is_half(world: &mut World) -> anyhow::Result<()> {
    let Tally { pods, halves, .. } = &world.tally;
    ensure!(*pods > ENOUGH, "only {pods} Pods: nothing is shown by that");
    ensure!(halves.is_empty(), "of {pods}: {halves:?}");
    Ok(())
}

async fn create(dialogue: Dialogue, over: Arc<AtomicBool>) -> Tally {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tally = Tally::default();
    while tally.pods <= ENOUGH || !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        tally.pods += 1;
        let answer = ask(&dialogue, tally.pods).await;
        tally.take(answer);
    }
    tally
}

async fn ask(dialogue: &Dialogue, number: u32) -> anyhow::Result<Answer> {
    let mut draft = Draft::plain(&format!("pod-{number}")).0;
    draft["metadata"]["annotations"][api::ALL_KEY] = json!("true");
    draft["spec"]["containers"][0]["image"] = json!(format!("{LIVE}/x"));
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    dialogue.ask(Method::POST, path, Some(&draft)).await?.good()
}

impl Tally {
    fn take(&mut self, answer: anyhow::Result<Answer>) {
        let pod = match answer {
            Err(error) => return self.odd.push(format!("{error:#}")),
            Ok(answer) => answer.object,
        };
        let metadata = &pod["metadata"];
        if metadata["annotations"][MARKER] != "true" {
            self.odd.push(format!("{} has no marker", metadata["name"]));
        }
        let image = containers(&pod).find_map(|it| it["image"].as_str());
        let moved = image.is_some_and(|image| image.starts_with(FURTHER));
        let opened = pull_secrets(&pod).contains(&api::names::PULL_SECRET);
        if !moved || !opened {
            let name = &metadata["name"];
            self.halves
                .push(format!("{name}: {image:?}, with a pull Secret: {opened}"));
        }
    }
}

const PACE: Duration = Duration::from_millis(25);
const ENOUGH: u32 = 20;
