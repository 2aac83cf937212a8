//! Pods on a real node: whether they run, and what their containers see from inside.

use std::time::Duration;

use anyhow::ensure;
use cucumber::{then, when};
use serde_json::{Value, json};

use super::pod::submit;
use super::update;
use crate::world::effects::items;
use crate::world::{Draft, PATIENCE, World, bundle, random};
use clusters::cluster::PodTarget;
use testkit::until::until;

/// The public name of an image that the landscape has in its private registry.
const IMAGE: &str = "replace.me/harness/probe:1";

#[when("a Pod with an init container, a sidecar and a container is created")]
async fn created(world: &mut World) -> anyhow::Result<()> {
    submit(world, whole(), false).await
}

#[when("a Pod with the same containers that asks for everything itself is created")]
async fn created_asking(world: &mut World) -> anyhow::Result<()> {
    let mut draft = whole();
    draft.0["metadata"]["annotations"][api::ALL_KEY] = json!("true");
    submit(world, draft, false).await
}

/// A Pod with containers of every kind that start with it, each of which can tell what it sees.
fn whole() -> Draft {
    let file = format!("/etc/ssl/certs/{}", bundle::FILE);
    let container = |name: &str, args: Value| json!({ "name": name, "image": IMAGE, "imagePullPolicy": "Always", "args": args });
    let mut sidecar = container("sidecar", json!(["pause"]));
    sidecar["restartPolicy"] = json!("Always");
    let mut draft = Draft::plain(&format!("node-{}", random()));
    // Init containers are gone when somebody could ask them, so they say it by themselves.
    draft.0["spec"]["initContainers"] = json!([
        sidecar,
        container("init-variable", json!(["env", api::names::FIPS_VARIABLE])),
        container("init-certificates", json!(["cat", file])),
    ]);
    draft.0["spec"]["containers"] = json!([container("app", json!(["pause"]))]);
    draft
}

#[when("a plain Pod is created")]
async fn plain(world: &mut World) -> anyhow::Result<()> {
    submit(world, Draft::plain(&format!("node-{}", random())), false).await
}

#[when("it runs")]
#[then("it runs")]
async fn runs(world: &mut World) -> anyhow::Result<()> {
    wait(world, "the Pod runs", |pod| {
        let statuses: Vec<&Value> = items(&pod["status"]["containerStatuses"]).collect();
        let ready = !statuses.is_empty() && statuses.iter().all(|status| status["ready"] == true);
        ensure!(
            pod["status"]["phase"] == "Running" && ready,
            "{}",
            pod["status"]
        );
        Ok(())
    })
    .await
}

#[then("its images cannot be pulled")]
async fn refused(world: &mut World) -> anyhow::Result<()> {
    wait(world, "the images cannot be pulled", |pod| {
        let all = items(&pod["status"]["initContainerStatuses"])
            .chain(items(&pod["status"]["containerStatuses"]));
        let mut reasons = all.filter_map(|status| status["state"]["waiting"]["reason"].as_str());
        let refused = reasons.any(|reason| ["ErrImagePull", "ImagePullBackOff"].contains(&reason));
        ensure!(refused, "{}", pod["status"]);
        Ok(())
    })
    .await
}

async fn wait(
    world: &mut World,
    what: &str,
    is: impl Fn(&Value) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = update::path(world).await?;
    let dialogue = world.landscape().dialogue();
    until(what, PULL, || async {
        is(&dialogue.get(&path).await?.object)
    })
    .await?;
    update::read(world).await.map(drop)
}

#[then("from inside, every container sees FIPS mode")]
async fn sees_variable(world: &mut World) -> anyhow::Result<()> {
    for container in ["app", "sidecar"] {
        let seen = exec(
            world,
            container,
            &["/probe", "env", api::names::FIPS_VARIABLE],
        )
        .await?;
        ensure!(seen.trim() == "true", "{container}: {seen}");
    }
    let seen = log(world, "init-variable").await?;
    ensure!(seen.trim() == "true", "init: {seen}");
    Ok(())
}

#[then("from inside, every container sees the landscape's authority")]
async fn sees_certificates(world: &mut World) -> anyhow::Result<()> {
    let expected = world
        .landscape()
        .registry()
        .identity()
        .ca_pem
        .replace('\r', "");
    let file = format!("/etc/ssl/certs/{}", bundle::FILE);
    let mut seen = vec![log(world, "init-certificates").await?];
    for container in ["app", "sidecar"] {
        seen.push(exec(world, container, &["/probe", "cat", &file]).await?);
    }
    for text in seen {
        ensure!(text.trim() == expected.trim(), "{text}");
    }
    Ok(())
}

#[then("no container of it was restarted")]
async fn not_restarted(world: &mut World) -> anyhow::Result<()> {
    let pod = update::read(world).await?;
    for status in items(&pod["status"]["containerStatuses"]) {
        ensure!(
            status["restartCount"] == 0 && status["ready"] == true,
            "{status}"
        );
    }
    Ok(())
}

#[then("the debugging container runs")]
async fn debugger_runs(world: &mut World) -> anyhow::Result<()> {
    wait(world, "the debugging container runs", |pod| {
        let status = &pod["status"]["ephemeralContainerStatuses"][0];
        ensure!(!status["state"]["running"].is_null(), "{status}");
        Ok(())
    })
    .await
}

async fn exec(world: &mut World, container: &str, argv: &[&str]) -> anyhow::Result<String> {
    let (namespace, pod) = (world.namespace().await?, update::name(world)?);
    let target = PodTarget {
        namespace: &namespace,
        pod: &pod,
        container: Some(container),
    };
    let output = world
        .landscape()
        .cluster()
        .exec_in_pod(target, argv)
        .await?;
    ensure!(output.code == 0, "{container} {argv:?}: {}", output.stderr);
    Ok(output.stdout)
}

async fn log(world: &mut World, container: &str) -> anyhow::Result<String> {
    let (namespace, pod) = (world.namespace().await?, update::name(world)?);
    let target = PodTarget {
        namespace: &namespace,
        pod: &pod,
        container: Some(container),
    };
    Ok(world.landscape().cluster().pod_logs(target).await?)
}

/// Pulls of a Secret that came after the Pod are tried again with a growing pause.
const PULL: Duration = PATIENCE.saturating_mul(2);
