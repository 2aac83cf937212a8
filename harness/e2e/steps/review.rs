//! Reviews as bytes on the wire: what the endpoint makes of them.

use anyhow::{Context as _, bail, ensure};
use cucumber::{then, when};
use serde_json::json;

use crate::world::replicas::asking;
use crate::world::{Replica, World};

#[when(regex = r"^the endpoint gets (.+)$")]
async fn gets(world: &mut World, what: String) -> anyhow::Result<()> {
    let body = body(&what)?;
    let replica = one(world).await?;
    world.answer = Some(replica.post(body).await?);
    Ok(())
}

#[when("the endpoint reviews a Pod that asks for FIPS mode")]
async fn reviews(world: &mut World) -> anyhow::Result<()> {
    let replica = one(world).await?;
    let response = replica
        .review("default", &asking(api::Feature::FipsMode, "replace.me/a"))
        .await?;
    world.seen.insert("response".to_owned(), response);
    Ok(())
}

#[then(expr = "it answers {int}")]
async fn answers(world: &mut World, status: u16) -> anyhow::Result<()> {
    let answer = world.answer.as_ref().context("nothing was asked")?;
    ensure!(
        answer.status.as_u16() == status,
        "{} {}",
        answer.status,
        answer.object
    );
    // Whatever it got, it goes on.
    let replica = one(world).await?;
    ensure!(
        replica.health("/readyz").await?.0,
        "it is not ready any more"
    );
    Ok(())
}

#[then(expr = "it allows the object unchanged, and warns that {string}")]
fn allows(world: &mut World, warning: String) -> anyhow::Result<()> {
    let answer = world.answer.as_ref().context("nothing was asked")?;
    let response = answer.at("/response");
    ensure!(
        response["allowed"] == true && response["patch"].is_null(),
        "{}",
        answer.object
    );
    ensure!(
        response["warnings"].to_string().contains(&warning),
        "{response}"
    );
    Ok(())
}

#[then("it answers with a JSON Patch that only adds or replaces")]
fn patches(world: &mut World) -> anyhow::Result<()> {
    let response = world.seen.get("response").context("nothing was asked")?;
    ensure!(
        response["allowed"] == true && response["patchType"] == "JSONPatch",
        "{response}"
    );
    let operations = response["patch"]
        .as_array()
        .context("a list of operations")?;
    let known = |operation: &serde_json::Value| {
        ["add", "replace"]
            .iter()
            .any(|known| operation["op"] == *known)
    };
    ensure!(
        !operations.is_empty() && operations.iter().all(known),
        "{response}"
    );
    Ok(())
}

fn body(what: &str) -> anyhow::Result<Vec<u8>> {
    let review = |request: serde_json::Value| {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }).to_string()
    };
    let pods = json!({ "group": "", "version": "v1", "resource": "pods" });
    let of = |object: serde_json::Value| {
        review(
            json!({ "uid": "u", "operation": "CREATE", "namespace": "default", "resource": pods, "object": object }),
        )
    };
    Ok(match what {
        "nothing" => Vec::new(),
        "no JSON" => b"replicas: 2".to_vec(),
        "invalid UTF-8" => b"{\"apiVersion\": \"\xff\xfe\"}".to_vec(),
        "a truncated review" => of(json!({})).as_bytes()[..60].to_vec(),
        "a Pod in place of a review" => json!({ "apiVersion": "v1", "kind": "Pod" })
            .to_string()
            .into_bytes(),
        "a review without a uid" => {
            review(json!({ "operation": "CREATE", "resource": pods, "object": {} })).into_bytes()
        }
        "a review of a Pod whose containers are nested 10,000 deep" => {
            let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
            let review = of(json!({ "spec": { "containers": "DEEP" } }));
            review.replace("\"DEEP\"", &deep).into_bytes()
        }
        "a review of 8 MiB" => of(json!({ "x": "x".repeat(8 << 20) })).into_bytes(),
        "a review of a Pod whose containers are a number" => {
            of(json!({ "spec": { "containers": 7 } })).into_bytes()
        }
        "a review of a ConfigMap" => review(json!({
            "uid": "u", "operation": "CREATE", "namespace": "default", "object": {},
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
        }))
        .into_bytes(),
        _ => bail!("nobody knows what {what:?} is"),
    })
}

async fn one(world: &World) -> anyhow::Result<Replica> {
    world
        .landscape()
        .replicas()
        .await?
        .into_iter()
        .next()
        .context("the webhook has no replica")
}
