//! Objects that a Watcher selects: created and changed, so that the watcher sends events.

use anyhow::{Context as _, ensure};
use cucumber::gherkin::Step;
use cucumber::{given, then, when};
use http::Method;
use serde_json::json;

use super::object::{create, document, path};
use super::{PATIENCE, manager};
use crate::client::Write;
use crate::scenario::{ObjectRef, Scenario};
use crate::watching::manager::EventObject;
use crate::watching::objects::{GROUP, WATCHED_BY, kyma, watchers};
use crate::watching::{KymaStream, Kymas, View};
use testkit::until::until;

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
) -> anyhow::Result<()> {
    let installed = watchers();
    let mut installed = installed.as_array().into_iter().flatten();
    let found = installed.find(|it| it["name"] == name.as_str());
    let found = found.with_context(|| format!("no Watcher {name:?} is installed"))?;
    let actual = [
        &found["resource"]["resource"],
        &found["field"],
        &found["manager"],
    ];
    ensure!(
        actual == [&json!(resource), &json!(field), &json!(manager)],
        "{found}"
    );
    let live = scenario
        .environment_of::<View>()?
        .runtime
        .webhook_configuration()
        .await?;
    let mut entries = live["webhooks"].as_array().into_iter().flatten();
    let entry = entries.find(|it| it["name"] == format!("kcp-system.{name}.{GROUP}"));
    let path = &entry.context("no entry of the Watcher")?["clientConfig"]["service"]["path"];
    ensure!(*path == format!("/validate/{manager}"), "{path}");
    Ok(())
}

/// When the step ends, no replica has an event to deliver, and later steps look at further events only.
#[given(expr = "{object} that manager {string} has received an event for")]
async fn known(scenario: &mut Scenario, object: ObjectRef, name: String) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    let mut text = kyma();
    if object.kind != "Kyma" {
        text = json!({ "metadata": { "labels": { (WATCHED_BY): "kyma" } } });
    }
    let resolved = scenario.resolved(&object);
    create(scenario, &resolved, text, Write::Create).await?;
    let about = manager::event_object(scenario, &object).await?;
    let manager = env.manager(&name)?;
    until("the manager receives an event", PATIENCE, || async {
        !manager.received(&about).is_empty()
    })
    .await?;
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
) -> anyhow::Result<()> {
    let text = document(scenario, step)?;
    let object = scenario.resolved(&object);
    let client = scenario.client_of(&object)?;
    let path = format!("{}/{subresource}", path(&client, &object).await?);
    client.patch(&path, &text).await.map(drop)
}

#[when(regex = r"^(.+) is (patched|deleted) with dry run:?$")]
async fn dry_run(
    scenario: &mut Scenario,
    object: ObjectRef,
    how: String,
    step: &Step,
) -> anyhow::Result<()> {
    let (method, text) = match how.as_str() {
        "patched" => (Method::PATCH, Some(document(scenario, step)?)),
        _ => (Method::DELETE, None),
    };
    let object = scenario.resolved(&object);
    let client = scenario.client_of(&object)?;
    let path = format!("{}?dryRun=All", path(&client, &object).await?);
    let answer = client.ask(method, &path, text.as_ref()).await?;
    answer.good_for(path).map(drop)
}

#[when(expr = "{int} Kymas are created in Namespace {string}")]
async fn kymas(scenario: &mut Scenario, count: usize, namespace: String) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    let mut kymas = Kymas::new(scenario.resolve(&namespace));
    for _ in 0..count {
        kymas.add(&env).await?;
    }
    env.state().kymas = kymas;
    Ok(())
}

#[given(expr = "Kymas are created continuously in Namespace {string}")]
fn stream(scenario: &mut Scenario, namespace: String) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    let stream = KymaStream::start(env.shared(), scenario.resolve(&namespace));
    env.state().stream = Some(stream);
    scenario.undo("end the creation of Kymas", async move {
        let stream = env.state().stream.take();
        if let Some(stream) = stream {
            stream.abort().await;
        }
        env.runtime.has_delivered().await
    });
    Ok(())
}

/// Of one runtime, whose watcher presents the certificate of the connection.
#[then(
    regex = r#"^manager "([^"]+)" (receives an event for each of|has received no event for) the created Kymas$"#
)]
async fn for_kymas(scenario: &mut Scenario, name: String, what: String) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    let kymas = env.created_kymas().await?;
    let manager = env.manager(&name)?;
    if what == "has received no event for" {
        return manager::none_until_now(|| manager.received_in(&kymas.namespace).len()).await;
    }
    until("the manager receives every event", PATIENCE, || async {
        let received = manager.received_in(&kymas.namespace);
        let mut missing = kymas.names.clone();
        missing.retain(|name| !received.contains(name));
        let count = kymas.names.len();
        ensure!(missing.is_empty(), "of {count} Kymas not {missing:?}");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// An event about an object, as a watcher posts it.
pub(super) fn event(about: &EventObject) -> serde_json::Value {
    let (group, version, kind) = &about.gvk;
    json!({
        "watched": { "Namespace": about.namespace, "Name": about.name },
        "watchedGvk": { "group": group, "version": version, "kind": kind },
    })
}
