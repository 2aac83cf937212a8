//! The webhook's own Pods: their life, their health, what they count.

use anyhow::{Context as _, ensure};
use cucumber::{given, then};
use http::Method;
use serde_json::json;

use super::rollout::{FAILED_OPEN, failed_open};
use crate::world::{Draft, Landscape, PATIENCE, PRODUCT_NAMESPACE, Replica, Shared, World};
use testkit::until::until;

#[then("no replica was restarted")]
async fn not_restarted(world: &mut World) -> anyhow::Result<()> {
    let now = world.landscape().starts().await?;
    let before = world
        .seen
        .get("starts")
        .context("nothing to compare with")?;
    ensure!(now == *before, "before {before}\nnow {now}");
    Ok(())
}

#[given("the webhook is started anew")]
async fn restarted(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::Product);
    let landscape = world.landscape();
    let before: Vec<String> = landscape
        .replicas()
        .await?
        .into_iter()
        .map(|replica| replica.pod)
        .collect();
    for pod in &before {
        let path = format!("/api/v1/namespaces/{PRODUCT_NAMESPACE}/pods/{pod}");
        landscape
            .dialogue()
            .ask(Method::DELETE, &path, None)
            .await?
            .good()?;
    }
    until("other replicas have begun", PATIENCE, || async {
        let now = landscape.replicas().await?;
        ensure!(
            now.len() >= before.len() && now.iter().all(|replica| !before.contains(&replica.pod)),
            "{}",
            now.len()
        );
        for replica in &now {
            ensure!(
                replica.health("/healthz").await?.0,
                "{} is not there yet",
                replica.pod
            );
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[given("the webhook is down")]
async fn down(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::Product);
    let open = failed_open(&world.landscape().dialogue()).await?;
    world.seen.insert(FAILED_OPEN.to_owned(), json!(open));
    let landscape = world.landscape();
    landscape
        .dialogue()
        .patch(
            &Landscape::deployment_path(),
            &json!({ "spec": { "replicas": 0 } }),
        )
        .await?;
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{PRODUCT_NAMESPACE}/endpointslices");
    until("the Service has no endpoint", PATIENCE, || async {
        let replicas = landscape.processes().await?;
        let slices = landscape.dialogue().get(&path).await?.object.to_string();
        ensure!(
            replicas == 0 && !slices.contains("\"ready\":true"),
            "{replicas} replicas"
        );
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[given("the webhook was not told its landscape")]
async fn without_landscape(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::Product);
    let landscape = world.landscape();
    let product = landscape.product().clone().without_flag("landscape");
    product.apply(landscape.cluster()).await?;
    product.rolled_out(landscape.cluster()).await
}

#[then(expr = "no replica is ready, because {string}")]
async fn not_ready(world: &mut World, reason: String) -> anyhow::Result<()> {
    let says_why = |replica: Replica| {
        let reason = reason.clone();
        async move {
            let (ready, text) = replica.readiness().await?;
            ensure!(!ready && text.contains(&reason), "{text}");
            Ok(())
        }
    };
    world
        .landscape()
        .each_replica("it is not ready", says_why)
        .await
}

#[then(expr = "each replica serves nevertheless, and warns that {string}")]
async fn serves(world: &mut World, warning: String) -> anyhow::Result<()> {
    let warns = |replica: Replica| {
        let warning = warning.clone();
        async move {
            let response = replica.review("default", &Draft::plain("probe")).await?;
            ensure!(
                response["allowed"] == true && response["patch"].is_null(),
                "{response}"
            );
            ensure!(
                response["warnings"][0]
                    .as_str()
                    .is_some_and(|text| text.contains(&warning)),
                "{response}"
            );
            ensure!(
                replica
                    .sum("admission_internal_errors_total", |line| line
                        .contains("ConfigurationNotLoaded"))
                    .await?
                    > 0.0,
                "uncounted"
            );
            Ok(())
        }
    };
    world.landscape().each_replica("it serves", warns).await
}

#[then(expr = "each replica answers {string} and {string}, and counts reviews at {string}")]
async fn endpoints(
    world: &mut World,
    health: String,
    ready: String,
    metrics: String,
) -> anyhow::Result<()> {
    ensure!(metrics == "/metrics", "metrics are at /metrics");
    let answers = |replica: Replica| {
        let (health, ready) = (health.clone(), ready.clone());
        async move {
            ensure!(
                replica.health(&health).await?.0 && replica.health(&ready).await?.0,
                "not well"
            );
            ensure!(
                replica.sum("admission_reviews_total", |_| true).await? > 0.0,
                "no reviews counted"
            );
            Ok(())
        }
    };
    world.landscape().each_replica("it answers", answers).await
}
