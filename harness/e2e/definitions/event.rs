//! Objects that a Watcher selects: created and changed, so that the watcher sends events.

use super::manager;
use super::prelude::*;
use crate::watching::{GROUP, KymaStream, Kymas, WATCHED_BY, WATCHERS, kyma};

/// The Watchers are installed with the suite; the API server asks the watcher for each of them.
#[given(
    regex = r#"^Watcher "([^"]+)" for ([\w/]+) with field (spec|status) and manager "([^"]+)"$"#
)]
async fn watcher(
    scenario: &mut Scenario,
    name: String,
    resource: String,
    field: String,
    manager: String,
) -> Result {
    let installed: Value = serde_saphyr::from_str(WATCHERS)?;
    let found = items(&installed).find(|it| it["name"] == name.as_str());
    let found = found.with_context(|| format!("no Watcher {name:?} is installed"))?;
    let actual = json!([
        found["resource"]["resource"],
        found["field"],
        found["manager"]
    ]);
    ensure!(actual == json!([resource, field, manager]), "{found}");
    let env = scenario.environment_of::<View>()?;
    let live = env.runtime.webhook_configuration().await?;
    let entry =
        items(&live["webhooks"]).find(|it| it["name"] == format!("kcp-system.{name}.{GROUP}"));
    let path = &entry.context("no entry of the Watcher")?["clientConfig"]["service"]["path"];
    check(*path == format!("/validate/{manager}"), path)
}

/// When the step ends, no replica has an event to deliver, and later steps look at further events only.
#[given(expr = "{object} that manager {string} has received an event for")]
async fn known(scenario: &mut Scenario, object: ObjectRef, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let mut text = kyma();
    if object.kind != "Kyma" {
        text = json!({ "metadata": { "labels": { (WATCHED_BY): "kyma" } } });
    }
    create(scenario, &object, text, Write::Create).await?;
    let about = manager::event_about(scenario, &object).await?;
    let manager = env.manager(&name)?;
    let is_received = async || manager.received(&about).pop().context("no event");
    eventually("the manager receives an event", is_received).await?;
    env.runtime.has_delivered().await?;
    env.mark(&about);
    Ok(())
}

#[when(expr = "subresource {word} of {object} is patched with:")]
async fn subresource_patched(
    scenario: &mut Scenario,
    subresource: String,
    object: ObjectRef,
    step: &Step,
) -> Result {
    let text = document(scenario, step)?;
    let (client, path) = at(scenario, &object).await?;
    let path = format!("{path}/{subresource}");
    client.patch(&path, &text).await.map(drop)
}

#[when(regex = r"^(.+) is (patched|deleted) with dry run:?$")]
async fn dry_run(scenario: &mut Scenario, object: ObjectRef, how: String, step: &Step) -> Result {
    let (method, text) = match how.as_str() {
        "patched" => (Method::PATCH, Some(document(scenario, step)?)),
        _ => (Method::DELETE, None),
    };
    let (client, path) = at(scenario, &object).await?;
    let path = format!("{path}?dryRun=All");
    let answer = client.ask(method, &path, text.as_ref()).await?;
    answer.good_for(path).map(drop)
}

#[when(expr = "{int} Kymas are created in Namespace {string}")]
async fn kymas(scenario: &mut Scenario, count: usize, namespace: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let mut kymas = Kymas::new(scenario.resolve(&namespace));
    for _ in 0..count {
        kymas.add(&env).await?;
    }
    env.state().kymas = kymas;
    Ok(())
}

#[given(expr = "Kymas are created continuously in Namespace {string}")]
fn stream(scenario: &mut Scenario, namespace: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let stream = KymaStream::start(env.shared(), scenario.resolve(&namespace));
    env.state().stream = Some(stream);
    scenario.undo("end the creation of Kymas", async move {
        // A step about the Kymas has judged them.
        let _ = env.created_kymas().await;
        env.runtime.has_delivered().await
    });
    Ok(())
}

/// Of one runtime, whose watcher presents the certificate of the connection.
#[then(
    regex = r#"^manager "([^"]+)" (receives an event for each of|has received no event for) the created Kymas$"#
)]
async fn for_kymas(scenario: &mut Scenario, name: String, what: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let kymas = env.created_kymas().await?;
    let manager = env.manager(&name)?;
    if what == "has received no event for" {
        let received = || manager.received_in(&kymas.namespace).into_iter().collect();
        return manager::none_for::<String>(manager::SECOND, received).await;
    }
    eventually("the manager receives every event", async || {
        let received = manager.received_in(&kymas.namespace);
        let mut missing = kymas.names.clone();
        missing.retain(|name| !received.contains(name));
        let count = kymas.names.len();
        check(
            missing.is_empty(),
            format!("of {count} Kymas not {missing:?}"),
        )
    })
    .await
}
