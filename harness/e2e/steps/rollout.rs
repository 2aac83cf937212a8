//! The webhook restarts while Pods are created.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use cucumber::{then, when};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::world::{Answer, Dialogue, Draft, Landscape, World};

/// How long Pods are created before the restart and after its end, so that both sides of it are seen.
const MARGIN: u32 = 200;

const RATE: u32 = 100;

/// Under which name a scenario remembers [`failed_open`].
pub(super) const FAILED_OPEN: &str = "failed open";

#[when("100 Pods a second are created there while the webhook restarts")]
async fn restart(world: &mut World) -> anyhow::Result<()> {
    let namespace = world.namespace().await?;
    let landscape = world.landscape();
    let before = failed_open(&landscape.dialogue()).await?;
    let over = Arc::new(AtomicBool::new(false));
    let creating = tokio::spawn(create(landscape.dialogue(), namespace, Arc::clone(&over)));
    let restarted = roll(landscape).await;
    over.store(true, Ordering::Relaxed);
    let outcome = creating.await?;
    restarted?;
    world.seen.insert("pods".to_owned(), json!(outcome.pods));
    world
        .seen
        .insert("missed".to_owned(), json!(outcome.missed));
    world
        .seen
        .insert("refused".to_owned(), json!(outcome.refused));
    world.seen.insert(FAILED_OPEN.to_owned(), json!(before));
    Ok(())
}

#[then("every one of them was created and carries the marker")]
fn all_marked(world: &mut World) -> anyhow::Result<()> {
    let seen = |name: &str| {
        world
            .seen
            .get(name)
            .cloned()
            .context("no Pods were created")
    };
    let pods = seen("pods")?.as_u64().unwrap_or_default();
    ensure!(
        pods > u64::from(2 * MARGIN),
        "only {pods} Pods: nothing is shown by that"
    );
    ensure!(
        seen("refused")? == json!([]),
        "of {pods} refused: {}",
        seen("refused")?
    );
    ensure!(
        seen("missed")? == json!([]),
        "of {pods} missed: {}",
        seen("missed")?
    );
    Ok(())
}

#[then("the API server never went on without the webhook")]
async fn never_open(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen.get(FAILED_OPEN).cloned().unwrap_or_default();
    let now = json!(failed_open(&world.landscape().dialogue()).await?);
    ensure!(
        before == now,
        "apiserver_admission_webhook_fail_open_count: {before} before, {now} now"
    );
    Ok(())
}

/// What makes the zero of the step above worth something.
#[then("the API server counts that it went on without the webhook")]
async fn opened(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen.get(FAILED_OPEN).and_then(Value::as_f64);
    let before = before.context("nothing to compare with")?;
    let now = failed_open(&world.landscape().dialogue()).await?;
    ensure!(
        now > before,
        "apiserver_admission_webhook_fail_open_count: {before} before, {now} now"
    );
    Ok(())
}

#[derive(Default)]
struct Outcome {
    pods: u32,
    missed: Vec<String>,
    refused: Vec<String>,
}

/// Open loop: a tick creates a Pod, however long the one before takes.
async fn create(dialogue: Dialogue, namespace: String, over: Arc<AtomicBool>) -> Outcome {
    #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut answers = JoinSet::new();
    let mut outcome = Outcome::default();
    let mut left = MARGIN;
    while left > 0 {
        ticks.tick().await;
        if over.load(Ordering::Relaxed) {
            left -= 1;
        }
        outcome.pods += 1;
        let draft = gated(outcome.pods);
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let dialogue = dialogue.clone();
        answers.spawn(async move { dialogue.ask(Method::POST, &path, Some(&draft)).await });
        while let Some(answer) = answers.try_join_next() {
            outcome.judge(answer);
        }
    }
    while let Some(answer) = answers.join_next().await {
        outcome.judge(answer);
    }
    outcome
}

impl Outcome {
    fn judge(&mut self, answer: Result<anyhow::Result<Answer>, tokio::task::JoinError>) {
        match answer
            .map_err(anyhow::Error::from)
            .flatten()
            .and_then(Answer::good)
        {
            Err(error) => self.refused.push(format!("{error:#}")),
            Ok(answer) => {
                if answer.object["metadata"]["annotations"][api::names::MARKER] != "true" {
                    self.missed
                        .push(answer.object["metadata"]["name"].to_string());
                }
            }
        }
    }
}

/// A Pod that no scheduler looks at: what is tested is its admission.
fn gated(number: u32) -> Value {
    let mut draft = Draft::plain(&format!("pod-{number}")).0;
    draft["spec"]["schedulingGates"] = json!([{ "name": "harness.test/never" }]);
    draft
}

/// What `kubectl rollout restart` does, and waiting for its end.
async fn roll(landscape: &Landscape) -> anyhow::Result<()> {
    let stamp = crate::world::random();
    let patch = json!({ "spec": { "template": { "metadata": { "annotations": { "harness.test/restarted": stamp } } } } });
    landscape
        .dialogue()
        .patch(&Landscape::deployment_path(), &patch)
        .await?;
    landscape.product().rolled_out(landscape.cluster()).await
}

/// How often this API server let an object pass because our webhook did not answer.
pub(super) async fn failed_open(dialogue: &Dialogue) -> anyhow::Result<f64> {
    let metrics = dialogue.get("/metrics").await?.object;
    let text = metrics.as_str().context("metrics are text")?;
    Ok(text
        .lines()
        .filter(|line| line.starts_with("apiserver_admission_webhook_fail_open_count{"))
        .filter(|line| line.contains(&format!("name=\"{}\"", api::names::WEBHOOK_ENTRY)))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}
