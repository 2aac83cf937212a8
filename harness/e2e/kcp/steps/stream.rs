//! Pods that customers create all the while.
//!
//! Invariant: they are asked for as a dry run, which takes the same way through the API server and the webhook.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::names::{MARKER, SKR_NAMESPACE};
use cucumber::{given, then};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::kcp::source::{FURTHER, LIVE};
use crate::kcp::{PATIENCE, Stream, Tally, World};
use crate::world::effects::{VOLUME, containers, items, pull_secrets, started};
use crate::world::{Answer, Dialogue, Draft, bundle};
use testkit::until::until;

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
    all_mount(world)
}

#[then("every Pod mounts the trust bundle")]
fn all_mount(world: &mut World) -> anyhow::Result<()> {
    let Tally { pods, bare, .. } = &world.tally;
    ensure!(bare.is_empty(), "of {pods}: {bare:?}");
    Ok(())
}

#[then("there was one webhook all the while, never another")]
fn one_webhook(world: &mut World) -> anyhow::Result<()> {
    let Tally { pods, others, .. } = &world.tally;
    ensure!(others.is_empty(), "in {pods} looks: {others:?}");
    Ok(())
}

async fn create(dialogue: Dialogue, over: Arc<AtomicBool>) -> Tally {
    #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tally = Tally::default();
    while tally.pods <= ENOUGH || !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        tally.pods += 1;
        let answer = ask(&dialogue, tally.pods).await;
        tally.take(answer);
        tally.count(registrations(&dialogue).await);
    }
    tally
}

/// The webhook configurations that send Pods to the product's namespace.
async fn registrations(dialogue: &Dialogue) -> anyhow::Result<Vec<String>> {
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let listed = dialogue.get(path).await?;
    let ours = items(listed.at("/items")).filter(|it| {
        items(&it["webhooks"])
            .any(|entry| entry["clientConfig"]["service"]["namespace"] == SKR_NAMESPACE)
    });
    Ok(ours.map(|it| it["metadata"]["name"].to_string()).collect())
}

async fn ask(dialogue: &Dialogue, number: u32) -> anyhow::Result<Answer> {
    let mut draft = Draft::plain(&format!("pod-{number}")).0;
    draft["metadata"]["annotations"][api::ALL_KEY] = json!("true");
    draft["spec"]["containers"][0]["image"] = json!(format!("{LIVE}/x"));
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    dialogue.ask(Method::POST, path, Some(&draft)).await?.good()
}

impl Tally {
    fn count(&mut self, registrations: anyhow::Result<Vec<String>>) {
        match registrations {
            Ok(names) if names.len() == 1 => {}
            Ok(names) => self.others.push(format!("{names:?}")),
            Err(error) => self.others.push(format!("{error:#}")),
        }
    }

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
        if !mounts_bundle(&pod) {
            self.bare.push(pod["spec"].to_string());
        }
    }
}

/// What stays the same when the bundle's content changes: its name, and the file in every container.
fn mounts_bundle(pod: &Value) -> bool {
    let bundle = json!({ "name": bundle::NAME, "path": bundle::FILE });
    let volume = items(&pod["spec"]["volumes"]).find(|it| it["name"] == VOLUME);
    let projected = volume.is_some_and(|volume| {
        items(&volume["projected"]["sources"]).any(|it| it["clusterTrustBundle"] == bundle)
    });
    let everywhere = started(pod)
        .all(|container| items(&container["volumeMounts"]).any(|mount| mount["name"] == VOLUME));
    projected && everywhere
}

const PACE: Duration = Duration::from_millis(25);
const ENOUGH: u32 = 20;
