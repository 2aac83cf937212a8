//! Requests to the API server, as the webhook counts its own.

use anyhow::ensure;
use cucumber::{then, when};
use http::Method;
use serde_json::json;

use crate::world::{Draft, World};
use clusters::images::PROBE;

#[when(expr = "{int} Pods that ask for everything are reviewed")]
async fn reviewed(world: &mut World, count: usize) -> anyhow::Result<()> {
    let namespace = world.namespace().await?;
    let (before, reviews) = (calls(world).await?, counted(world).await?);
    world.seen.insert("calls".to_owned(), json!(before));
    world.seen.insert("reviews".to_owned(), json!(reviews));
    let mut draft = Draft::plain("reviewed");
    draft.0["metadata"]["annotations"][api::ALL_KEY] = json!("true");
    draft.0["spec"]["containers"][0]["image"] = json!(PROBE);
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    for _ in 0..count {
        world
            .landscape()
            .dialogue()
            .ask(Method::POST, &path, Some(&draft.0))
            .await?
            .good()?;
    }
    world.seen.insert("count".to_owned(), json!(count));
    Ok(())
}

#[then("the webhook asked the API server nothing")]
async fn asked_nothing(world: &mut World) -> anyhow::Result<()> {
    let (now, reviews) = (calls(world).await?, counted(world).await?);
    let seen = |key: &str| {
        world
            .seen
            .get(key)
            .and_then(serde_json::Value::as_f64)
            .unwrap_or_default()
    };
    ensure!(
        reviews - seen("reviews") >= seen("count"),
        "only {} reviews",
        reviews - seen("reviews")
    );
    ensure!(
        (now - seen("calls")).abs() < 0.5,
        "{} calls",
        now - seen("calls")
    );
    Ok(())
}

/// Requests of all replicas but the renewals of their Lease, which come with the clock and not with reviews.
async fn calls(world: &World) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for replica in world.landscape().replicas().await? {
        sum += replica
            .sum("rest_client_requests_total", |line| {
                !line.contains("\"leases\"")
            })
            .await?;
    }
    Ok(sum)
}

async fn counted(world: &World) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for replica in world.landscape().replicas().await? {
        sum += replica.sum("admission_reviews_total", |_| true).await?;
    }
    Ok(sum)
}
