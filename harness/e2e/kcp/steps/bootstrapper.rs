//! RuntimeBootstrappers: created, deleted, and what they say.

use std::cell::Cell;
use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use api::names::MARKER;
use api::runtimes::ACCEPT_CLUSTER_UID_ANNOTATION;
use cucumber::{given, then, when};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::rollout::NEVER;
use crate::kcp::inventory::{inventory, kept};
use crate::kcp::objects::found;
use crate::kcp::runtime::Runtime;
use crate::kcp::skr::{deployment_path, webhook_path};
use crate::kcp::{Changed, PATIENCE, World};
use crate::world::Draft;
use testkit::until::until;

#[when("a RuntimeBootstrapper is created for it")]
async fn created(world: &mut World) -> anyhow::Result<()> {
    let name = &world.latest()?.name;
    let plane = &world.stage.plane;
    plane
        .create_bootstrapper(name, &json!({}))
        .await?
        .good()
        .map(drop)
}

#[given("a runtime whose webhook a RuntimeBootstrapper installed")]
async fn installed(world: &mut World) -> anyhow::Result<()> {
    super::runtime::bare(world).await?;
    created(world).await?;
    ready(world).await?;
    world.look().await
}

#[when("a RuntimeBootstrapper is created for a Runtime that does not exist")]
async fn created_for_nobody(world: &mut World) -> anyhow::Result<()> {
    let runtime = Runtime::fresh(None);
    world.guests.push(runtime.clone());
    world.subject = Some(runtime);
    created(world).await
}

#[when(regex = "^a RuntimeBootstrapper with (.+) is created$")]
async fn mistaken(world: &mut World, mistake: String) -> anyhow::Result<()> {
    let runtime = Runtime::fresh(None);
    let long = "x".repeat(64);
    let (name, spec) = match mistake.as_str() {
        "an empty image" => (runtime.name, json!({ "webhook": { "image": "" } })),
        "an image without a tag" => (runtime.name, json!({ "webhook": { "image": "a/b" } })),
        "an unknown deletion policy" => (runtime.name, json!({ "deletionPolicy": "Forget" })),
        "a name that no Runtime can have" => (long, json!({})),
        other => bail!("{other}: not in the vocabulary"),
    };
    let answer = world.stage.plane.create_bootstrapper(&name, &spec).await?;
    let seen = json!([answer.status.as_u16(), answer.message()]);
    world.seen.insert("answer".to_owned(), seen);
    Ok(())
}

#[then(expr = "the API server refuses it, naming {string}")]
fn refused(world: &mut World, field: String) -> anyhow::Result<()> {
    let answer = world.seen("answer");
    ensure!(
        answer[0] == 422 && answer[1].as_str().is_some_and(|it| it.contains(&field)),
        "{answer}"
    );
    Ok(())
}

#[then("it becomes Ready")]
async fn ready(world: &mut World) -> anyhow::Result<()> {
    world.stage.is_settled(world.subject()?).await
}

#[then(expr = "its condition {word} is False with the reason {string}")]
async fn says(world: &mut World, kind: String, reason: String) -> anyhow::Result<()> {
    let name = &world.latest()?.name;
    let plane = &world.stage.plane;
    plane.says(name, (&kind, "False"), &[&reason]).await
}

#[then(expr = "its condition {word} is False with the reason {string}, naming {string}")]
async fn names(
    world: &mut World,
    kind: String,
    reason: String,
    named: String,
) -> anyhow::Result<()> {
    let name = world.latest()?.name.clone();
    says(world, kind.clone(), reason).await?;
    let (_, _, message) = world.stage.plane.condition(&name, &kind).await?;
    ensure!(message.contains(&named), "{message}");
    Ok(())
}

#[then("the other one's condition Reachable is False")]
async fn other_says(world: &mut World) -> anyhow::Result<()> {
    let name = &world.other()?.name;
    let plane = &world.stage.plane;
    plane.says(name, ("Reachable", "False"), UNREACHED).await
}

#[then("its condition Reachable is False, for it does not answer")]
async fn unreachable(world: &mut World) -> anyhow::Result<()> {
    let name = &world.latest()?.name;
    let plane = &world.stage.plane;
    plane.says(name, ("Reachable", "False"), UNREACHED).await
}

#[then("a Pod that opts in on the runtime carries the marker")]
async fn intercepts(world: &mut World) -> anyhow::Result<()> {
    let mut draft = Draft::plain("would-be");
    draft.0["metadata"]["annotations"][api::Feature::FipsMode.key()] = json!("true");
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    let dialogue = &world.skr()?.dialogue;
    until("the Pod carries the marker", PATIENCE, || async {
        let answer = dialogue
            .ask(Method::POST, path, Some(&draft.0))
            .await?
            .good()?;
        let annotations = &answer.object["metadata"]["annotations"];
        ensure!(annotations[MARKER] == "true", "{annotations}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("its status names the webhook's version, its ready replicas and the three hashes")]
async fn status(world: &mut World) -> anyhow::Result<()> {
    let object = world
        .stage
        .plane
        .bootstrapper(&world.subject()?.name)
        .await?;
    let status = &object["status"];
    let webhook = &status["webhook"];
    ensure!(
        webhook["version"].is_string()
            && webhook["readyReplicas"] == webhook["replicas"]
            && webhook["replicas"].as_u64() > Some(0),
        "{webhook}"
    );
    for hash in [
        "pullSecretHash",
        "trustBundleHash",
        "configMapHash",
        "revision",
    ] {
        let hash = status["configuration"][hash].as_str().unwrap_or_default();
        ensure!(hash.len() == 64, "{}", status["configuration"]);
    }
    ensure!(
        status["observedGeneration"] == object["metadata"]["generation"],
        "{status}"
    );
    Ok(())
}

#[when("its RuntimeBootstrapper is deleted")]
async fn deleted(world: &mut World) -> anyhow::Result<()> {
    let name = &world.latest()?.name;
    world.stage.plane.delete_bootstrapper(name).await
}

#[then("the webhook configuration goes before the webhook")]
async fn goes_first(world: &mut World) -> anyhow::Result<()> {
    let dialogue = &world.skr()?.dialogue;
    let missed = Cell::new(false);
    let missed = &missed;
    until("the webhook is gone", PATIENCE, || async move {
        // In this order: what goes in between makes the answer better, not worse.
        let deployment = found(dialogue, &deployment_path()).await?;
        let stands = deployment.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null());
        let sends = found(dialogue, &webhook_path()).await?.is_some();
        missed.set(missed.get() || (sends && !stands));
        ensure!(!stands && !sends, "webhook {stands}, configuration {sends}");
        anyhow::Ok(())
    })
    .await?;
    ensure!(!missed.get(), "Pods were sent to nobody");
    Ok(())
}

#[given("a Namespace of the runtime opts in to the pull Secret")]
async fn opts_in(world: &mut World) -> anyhow::Result<()> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": OPTS_IN,
            "annotations": { (api::Feature::PullSecret.key()): "true" },
        },
    });
    world.skr()?.cluster.apply(&namespace.to_string()).await?;
    Ok(())
}

#[given("the objects of the runtime are recorded")]
async fn recorded(world: &mut World) -> anyhow::Result<()> {
    let dialogue = &world.skr()?.dialogue;
    let last = Mutex::new(BTreeSet::new());
    let last = &last;
    // What other objects bring with them (a Namespace its ServiceAccount) is there a moment later; what an earlier
    // scenario left is still being deleted.
    until(
        "the objects of the runtime settle",
        PATIENCE,
        || async move {
            let now = inventory(dialogue).await?;
            let before = std::mem::replace(&mut *last.lock().await, now.clone());
            let changed: Vec<_> = before.symmetric_difference(&now).collect();
            ensure!(changed.is_empty(), "{changed:?}");
            let ours: Vec<_> = now
                .iter()
                .filter(|it| it.contains("rt-bootstrapper"))
                .collect();
            ensure!(
                ours.is_empty(),
                "objects of an earlier installation: {ours:?}"
            );
            anyhow::Ok(())
        },
    )
    .await?;
    let objects = kept(&*last.lock().await);
    world.seen.insert(OBJECTS.to_owned(), objects);
    Ok(())
}

#[given("a RuntimeBootstrapper installed the webhook and its copy of the pull Secret")]
async fn installed_with_copy(world: &mut World) -> anyhow::Result<()> {
    created(world).await?;
    ready(world).await?;
    let dialogue = &world.skr()?.dialogue;
    let copy = crate::kcp::objects::secret(OPTS_IN);
    let copy = &copy;
    until("the Namespace has its copy", PATIENCE, || async move {
        ensure!(found(dialogue, copy).await?.is_some(), "{copy}: none");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("nothing of ours is left on the runtime")]
async fn nothing_left(world: &mut World) -> anyhow::Result<()> {
    let before = world.seen(OBJECTS);
    ensure!(before.is_array(), "the objects were not recorded before");
    let before = &before;
    let dialogue = &world.skr()?.dialogue;
    until(
        "everything is as it was recorded",
        PATIENCE,
        || async move {
            let now = inventory(dialogue).await?;
            let before: BTreeSet<String> = serde_json::from_value(before.clone())?;
            let left: Vec<_> = now.difference(&before).collect();
            let lost: Vec<_> = before.difference(&now).collect();
            ensure!(now == before, "left: {left:?}, lost: {lost:?}");
            anyhow::Ok(())
        },
    )
    .await?;
    Ok(())
}

#[then("the RuntimeBootstrapper is gone")]
async fn gone(world: &mut World) -> anyhow::Result<()> {
    let name = &world.latest()?.name;
    until("the RuntimeBootstrapper is gone", PATIENCE, || async {
        let left = world.stage.plane.bootstrapper(name).await?;
        ensure!(left.is_null(), "{}", left["metadata"]);
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[when("its RuntimeBootstrapper asks for an image that never starts")]
async fn asks_for_nothing(world: &mut World) -> anyhow::Result<()> {
    hurry(world).await?;
    image(world, &json!({ "image": NEVER })).await
}

#[when("its RuntimeBootstrapper asks for no image of its own")]
async fn asks_no_more(world: &mut World) -> anyhow::Result<()> {
    image(world, &json!(null)).await
}

async fn image(world: &World, webhook: &Value) -> anyhow::Result<()> {
    let change = json!({ "spec": { "webhook": webhook } });
    let name = &world.subject()?.name;
    let plane = &world.stage.plane;
    plane.patch_bootstrapper(name, &change).await
}

/// A failure is one after seconds, not after ten minutes.
pub(super) async fn hurry(world: &mut World) -> anyhow::Result<()> {
    let number = world.subject()?.skr.context("it has no cluster")?;
    world.changed.insert(Changed::Webhook(number));
    world.stage.skrs[number].gives(3).await
}

#[when("an operator accepts the cluster")]
async fn accepted(world: &mut World) -> anyhow::Result<()> {
    let number = usize::from(world.subject()?.skr == Some(0));
    let path = "/api/v1/namespaces/kube-system";
    let answer = world.stage.skrs[number].dialogue.get(path).await?;
    let change = json!({ "metadata": { "annotations": {
        (ACCEPT_CLUSTER_UID_ANNOTATION): answer.at("/metadata/uid"),
    } } });
    let plane = &world.stage.plane;
    plane
        .patch_bootstrapper(&world.subject()?.name, &change)
        .await?;
    // From here on that is its cluster.
    if let Some(subject) = &mut world.subject {
        subject.skr = Some(number);
    }
    Ok(())
}

/// The Namespace that opts in. It stays: nothing in it belongs to a scenario.
const OPTS_IN: &str = "opts-in-to-pull-secret";
/// The objects of the runtime, as they were recorded.
const OBJECTS: &str = "objects";

/// Which of them depends on how the network says no.
const UNREACHED: &[&str] = &["ConnectionFailed", "TimedOut"];
