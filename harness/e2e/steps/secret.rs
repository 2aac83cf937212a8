//! The pull Secret that KIM writes into the product's namespace.

use cucumber::{given, when};
use http::Method;
use serde_json::{Value, json};

use super::copy::{path, remember};
use crate::world::{PRODUCT_NAMESPACE, Replica, Shared, World};

#[given("the pull Secret does not exist")]
#[when("the pull Secret is deleted")]
async fn absent(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::PullSecret);
    world
        .landscape()
        .dialogue()
        .ask(Method::DELETE, &path(PRODUCT_NAMESPACE), None)
        .await?;
    let forgotten = |replica: Replica| async move { replica.pull_secret_is_known(false).await };
    world
        .landscape()
        .each_replica("the pull Secret is gone", forgotten)
        .await
}

#[given("the pull Secret is not a valid docker configuration")]
async fn invalid(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::PullSecret);
    world
        .landscape()
        .write_pull_secret(r#"{"auths":7}"#)
        .await?;
    let seen = |replica: Replica| async move { replica.pull_secret_is_invalid().await };
    world
        .landscape()
        .each_replica("the pull Secret is seen to be invalid", seen)
        .await
}

#[when("the pull Secret changes")]
async fn changes(world: &mut World) -> anyhow::Result<()> {
    world.changed.push(Shared::PullSecret);
    let mut config: Value = serde_json::from_str(&world.landscape().docker_config())?;
    config["auths"]["further.test"] = json!({ "username": "further", "password": "further" });
    world
        .landscape()
        .write_pull_secret(&config.to_string())
        .await
}

#[when("only a label of the pull Secret changes")]
async fn labelled(world: &mut World) -> anyhow::Result<()> {
    remember(world).await?;
    let patch = json!({ "metadata": { "labels": { "touched": crate::world::random() } } });
    world
        .landscape()
        .dialogue()
        .patch(&path(PRODUCT_NAMESPACE), &patch)
        .await
        .map(drop)
}
