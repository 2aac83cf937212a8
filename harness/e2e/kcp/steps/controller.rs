//! The controller's own life.

use anyhow::ensure;
use api::runtimes::KCP_NAMESPACE;
use cucumber::{given, then, when};
use http::Method;
use serde_json::json;

use crate::kcp::controller::{ACCOUNT, Controller, DIRECT_RECORD, RECORD};
use crate::kcp::objects::{delete, found, named_config_map};
use crate::kcp::source::Source;
use crate::kcp::stage::signals;
use crate::kcp::{Changed, PATIENCE, World};
use testkit::until::until;

#[given(expr = "the controller runs with flags {string}")]
async fn runs_with(world: &mut World, flags: String) -> anyhow::Result<()> {
    world.changed.insert(Changed::Controller);
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let stage = &world.stage;
    stage.controller.install_with(&stage.plane, &flags).await
}

#[when("the controller is down")]
async fn down(world: &mut World) -> anyhow::Result<()> {
    world.changed.insert(Changed::Controller);
    Controller::stop(&world.stage.plane).await?;
    world.look().await
}

#[when("the controller is up again")]
async fn up(world: &mut World) -> anyhow::Result<()> {
    Controller::resume(&world.stage.plane).await
}

#[when("its record is lost")]
async fn lost(world: &mut World) -> anyhow::Result<()> {
    delete(&world.stage.plane.dialogue, &record()).await
}

#[given(expr = "the controller never knew a {source}")]
async fn never_knew(world: &mut World, source: Source) -> anyhow::Result<()> {
    world.changed.insert(Changed::Source(source));
    down(world).await?;
    world.stage.plane.delete(source).await?;
    for record in [record(), named_config_map(KCP_NAMESPACE, DIRECT_RECORD)] {
        delete(&world.stage.plane.dialogue, &record).await?;
    }
    up(world).await?;
    let dialogue = &world.stage.plane.dialogue;
    until("the controller knows the others", PATIENCE, || async {
        let record = found(dialogue, &record()).await?.unwrap_or_default();
        let known = |it: &Source| record["data"][it.in_record()].is_string();
        for it in Source::ALL {
            ensure!(known(&it) == (it != source), "{}", record["data"]);
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then("the record knows the sources")]
async fn knows(world: &mut World) -> anyhow::Result<()> {
    let dialogue = &world.stage.plane.dialogue;
    until("the record knows the sources", PATIENCE, || async {
        let record = found(dialogue, &record()).await?.unwrap_or_default();
        for source in Source::ALL {
            let known = &record["data"][source.in_record()];
            ensure!(known.is_string(), "{source:?}: {}", record["data"]);
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[when("the controller is killed after the first signals")]
async fn killed(world: &mut World) -> anyhow::Result<()> {
    let plane = &world.stage.plane;
    until("the first signals are there", PATIENCE, || async {
        let mut carried = 0;
        for guest in &world.guests {
            let runtime = plane.runtime(&guest.name).await?;
            carried += usize::from(signals(&runtime) == json!(["true", "true"]));
        }
        ensure!(carried > 0, "none");
        anyhow::Ok(())
    })
    .await?;
    Controller::kill(plane).await
}

#[when("the controller runs with signals alone")]
async fn signals_alone(world: &mut World) -> anyhow::Result<()> {
    world.changed.insert(Changed::Controller);
    let stage = &world.stage;
    stage.controller.install_signals(&stage.plane).await
}

#[then("its account may not read the kubeconfig of any runtime")]
async fn may_not_read(world: &mut World) -> anyhow::Result<()> {
    for verb in ["get", "list", "watch"] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": ACCOUNT,
                "resourceAttributes": {
                    "namespace": KCP_NAMESPACE, "verb": verb, "resource": "secrets",
                    "name": "kubeconfig-any",
                },
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let dialogue = &world.stage.plane.dialogue;
        let answer = dialogue
            .ask(Method::POST, path, Some(&review))
            .await?
            .good()?;
        ensure!(
            *answer.at("/status/allowed") == json!(false),
            "{verb} is allowed"
        );
    }
    Ok(())
}

fn record() -> String {
    named_config_map(KCP_NAMESPACE, RECORD)
}
