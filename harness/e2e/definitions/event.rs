//! Objects that a Watcher selects, and the events and heartbeats that managers on KCP receive.

use std::fmt::Debug;
use std::time::Instant;

use listener::RuntimeId;

use super::prelude::*;
use crate::rollout::count;
use crate::watching::manager::body;
use crate::watching::{DOMAIN, FOLLOW_UP_DELAY, GROUP, HEARTBEAT_INTERVAL, OTHER_RUNTIME, RUNTIME};
use crate::watching::{Kymas, WATCHED_BY, WATCHERS, kyma};

/// The Watchers are installed with the suite. The API server calls the watcher for each of them.
#[given(regex = r#"^Watcher "(.+)" for ([\w/]+) with field (spec|status) and manager "(.+)"$"#)]
async fn watcher(
    scenario: &mut Scenario,
    name: String,
    resource: String,
    field: String,
    manager: String,
) -> Result {
    let resource = json!({ "resource": resource });
    let watcher = json!({ "name": name, "resource": resource, "field": field, "manager": manager });
    has_all(&json!([watcher]), &serde_saphyr::from_str(WATCHERS)?)?;
    let path = json!({ "service": { "path": format!("/validate/{manager}") } });
    let entry = json!({ "name": format!("kcp-system.{name}.{GROUP}"), "clientConfig": path });
    let env = scenario.environment_of::<View>()?;
    let live = env.runtime.webhook_configuration().await?;
    has_all(&json!({ "webhooks": [entry] }), &live)
}

/// When the step ends, no replica has an undelivered event, and later steps consider only further events.
#[given(expr = "{object} that manager {string} has received an event for")]
async fn known(scenario: &mut Scenario, object: ObjectRef, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let text = match object.kind.as_str() {
        "Kyma" => kyma(),
        _ => json!({ "metadata": { "labels": { (WATCHED_BY): "kyma" } } }),
    };
    create(scenario, &object, text, Write::Create).await?;
    let about = event_about(scenario, &object).await?;
    let manager = env.manager(&name)?;
    let is_received = async || manager.received(&about).pop().context("no event");
    eventually("the manager receives an event", is_received).await?;
    env.runtime.has_delivered().await?;
    env.mark(&about);
    let metrics = env.runtime.metrics().await?;
    env.state().before_change = metrics;
    Ok(())
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
    let object = scenario.resolved(&object);
    let answer = answer.good_for(path)?;
    scenario.observed.wrote(&object, answer, Write::DryRun);
    Ok(())
}

#[when(expr = "{int} Kymas are created in Namespace {string}")]
async fn kymas(scenario: &mut Scenario, count: usize, namespace: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let mut kymas = Kymas {
        namespace: scenario.resolve(&namespace),
        ..Kymas::default()
    };
    for _ in 0..count {
        kymas.add(&env).await?;
    }
    env.state().kymas = kymas;
    Ok(())
}

#[given(expr = "Kymas are created continuously in Namespace {string}")]
fn stream(scenario: &mut Scenario, namespace: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let stream = Kymas::stream(env.shared(), scenario.resolve(&namespace));
    env.state().stream = Some(stream);
    scenario.undo("end the creation of Kymas", async move {
        // A step about the Kymas has already checked the result.
        let _ = env.created_kymas().await;
        env.runtime.has_delivered().await
    });
    Ok(())
}

/// All events must be from one runtime, whose watcher presents the certificate of the connection. A delay is the time from the
/// write of a Kyma to the arrival of its first event.
#[then(
    regex = r#"^manager "([^"]+)" (receives an event for each of|has received no event for) the created Kymas(?: after at least (\d+) seconds)?$"#
)]
async fn for_kymas(scenario: &mut Scenario, name: String, what: String, delay: String) -> Result {
    if let Ok(flow) = scenario.environment_of::<crate::flow::View>() {
        return super::flow::received_each(scenario, &flow).await;
    }
    let env = scenario.environment_of::<View>()?;
    let kymas = env.created_kymas().await?;
    let manager = env.manager(&name)?;
    let received = || manager.received_in(&kymas.namespace);
    if what == "has received no event for" {
        return none_for(SECOND, || received().into_iter().collect::<Vec<_>>()).await;
    }
    let received = eventually("the manager receives every event", async || {
        let received = received();
        let mut missing = kymas.names.clone();
        missing.retain(|(name, _)| !received.contains_key(name));
        let count = kymas.names.len();
        ensure!(missing.is_empty(), "of {count} Kymas not {missing:?}");
        Ok(received)
    })
    .await?;
    let least = Duration::from_secs(delay.parse().unwrap_or_default());
    for (name, written) in &kymas.names {
        let delay = received[name].duration_since(*written).unwrap_or_default();
        ensure!(delay >= least, "{name} after {delay:?}");
    }
    Ok(())
}

/// "receives" waits for events; "has received no event" checks the events so far.
#[then(
    regex = r#"^manager "([^"]+)" (receives an event|receives a follow-up event|receives no event|has received no event) for ([A-Z]\w+ "[^"]+")( from the other runtime only)?$"#
)]
async fn receives(
    scenario: &mut Scenario,
    name: String,
    what: String,
    object: ObjectRef,
    other: String,
) -> Result {
    if let Ok(flow) = scenario.environment_of::<crate::flow::View>() {
        let is_of_flow = what == "receives an event" && name == "lifecycle-manager";
        ensure!(is_of_flow, "not a step of the flow");
        return super::flow::received(scenario, &flow, &object).await;
    }
    let env = scenario.environment_of::<View>()?;
    let about = event_about(scenario, &object).await?;
    let manager = env.manager(&name)?;
    let key = (manager.name, about.clone());
    let mark = env.state().marks.get(&key).copied().unwrap_or_default();
    let news = || manager.received(&about).split_off(mark);
    match what.as_str() {
        "has received no event" => none_for(SECOND, news).await,
        // The outbox is checked again afterwards, because a follow-up event may be late.
        "receives no event" => {
            env.runtime.has_delivered().await?;
            none_for(FOLLOW_UP_DELAY + SECOND, news).await?;
            env.runtime.has_delivered().await?;
            none_for(Duration::ZERO, news).await?;
            // Only an object that matches a Watcher of the manager had an event before.
            if mark > 0 {
                was_skipped(scenario, &object).await?;
            }
            Ok(())
        }
        // The API server reviews an object after it sets its creation time. So the first event may also be this late, and then
        // the watcher sends no other one.
        "receives a follow-up event" => {
            let (client, path) = at(scenario, &object).await?;
            let created = client.get(&path).await?;
            let created = created.at("/metadata/creationTimestamp").as_str();
            let created: jiff::Timestamp = created.context("a time")?.parse()?;
            let is_late = async || {
                let (_, last) = news().pop().context("no event")?;
                let age = last.duration_since(created.into())?;
                check(age >= FOLLOW_UP_DELAY, format!("after {age:?}"))
            };
            eventually("the manager receives a follow-up event", is_late).await
        }
        _ => {
            let is_received = async || news().pop().context("no event");
            eventually("the manager receives an event", is_received).await?;
            let sender = [RUNTIME, OTHER_RUNTIME][usize::from(!other.is_empty())];
            let received = manager.received(&about);
            let mut runtimes = received.iter().map(|it| it.0.runtime_id.as_str());
            let is_right = runtimes.all(|it| it == sender);
            check(is_right, format!("not only from {sender}: {received:?}"))
        }
    }
}

/// The example operator writes a line for each notification.
#[then(expr = "the example operator logs {string} for {object}")]
async fn logs(scenario: &mut Scenario, what: String, object: ObjectRef) -> Result {
    let env = scenario.environment_of::<View>()?;
    let object = scenario.resolved(&object);
    let namespace = object.namespace.as_deref().unwrap_or_default();
    let expected = format!("{RUNTIME}: {what} {namespace}/{}", object.name);
    eventually("the operator logs it", async || {
        let log = env.operator.log().await?;
        let is_logged = log.lines().any(|line| line == expected);
        check(is_logged, format!("no line {expected:?}: {log}"))
    })
    .await
}

/// Fails unless the watcher has skipped a review since the manager received an event, for the reason that applies to the last write
/// of the object. Without a review, the absence of events would not show what the watcher does. Scenarios that run in parallel
/// have other reasons, or reviews by the same rules.
async fn was_skipped(scenario: &Scenario, object: &ObjectRef) -> Result {
    let written = scenario.observed.written.get(&scenario.resolved(object));
    let reason = match written.map(|(_, how)| how) {
        Some(Write::DryRun) => "DryRun",
        Some(Write::Merge) => "NoChange",
        // The Watcher does not select the written subresource.
        _ => return Ok(()),
    };
    let env = scenario.environment_of::<View>()?;
    let series = format!("watcher_skipped_reviews_total{{reason={reason:?}}}");
    let before = count(&env.state().before_change, &series)?;
    let now = count(&env.runtime.metrics().await?, &series)?;
    check(now > before, format!("{series} is still {now}"))
}

/// Checks that no event arrives during a period.
async fn none_for<T: Debug>(span: Duration, news: impl Fn() -> Vec<T>) -> Result {
    let is_none = async || {
        let news = news();
        check(news.is_empty(), format!("{news:?}"))
    };
    consistently("the manager receives no event", span, is_none).await
}

/// Returns the body of an event about an object. Discovery does not find a Scale, because it is a subresource.
pub(super) async fn event_about(scenario: &Scenario, object: &ObjectRef) -> Result<String> {
    let object = scenario.resolved(object);
    let api_version = match object.kind.as_str() {
        "Scale" => "autoscaling/v1".to_owned(),
        kind => scenario.client_of(&object)?.api_version(kind).await?,
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let namespace = object.namespace.as_deref().unwrap_or_default();
    let kind = [group, version, &object.kind];
    Ok(body(kind, namespace, &object.name))
}

#[then(expr = "manager {string} receives heartbeats from {int} watchers")]
async fn heartbeats(scenario: &mut Scenario, name: String, count: usize) -> Result {
    let env = scenario.environment_of::<View>()?;
    env.has_heartbeats(&name, count).await
}

#[then(
    regex = r#"^manager "([^"]+)" reports the runtime as (?:responsive|unresponsive between (\d+) and (\d+) seconds after its last heartbeat)$"#
)]
async fn reports(scenario: &mut Scenario, name: String, least: String, most: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let unresponsive = !least.is_empty();
    let (liveness, now, notified) = eventually("the manager reports it", async || {
        let (now, liveness) = (Instant::now(), env.liveness(&name)?);
        ensure!(liveness.silent == unresponsive, "{liveness:?}");
        let notified = env.manager(&name)?.unresponsive();
        ensure!(notified.is_some() == unresponsive, "{notified:?}");
        Ok((liveness, now, notified))
    })
    .await?;
    let Some((_, notified)) = notified else {
        return Ok(());
    };
    // The arrival of the notification is relevant, because the test may read the state later.
    let [least, most] = [least.parse()?, most.parse()?].map(Duration::from_secs);
    let since = liveness.since_heartbeat.context("no heartbeat")?;
    let took = since.saturating_sub(now - notified);
    check((least..=most).contains(&took), format!("after {took:?}"))
}

/// The time ends with the arrival of the notification. The heartbeats are those after the previous step.
#[then(
    regex = r#"^manager "([^"]+)" reports the runtime as unresponsive with reason "(\w+)" within (\d+) heartbeats$"#
)]
async fn reports_reason(
    scenario: &mut Scenario,
    name: String,
    reason: String,
    heartbeats: u32,
) -> Result {
    let env = scenario.environment_of::<View>()?;
    let begin = Instant::now();
    let arrived = eventually("the manager reports it", async || {
        let liveness = env.liveness(&name)?;
        let notified = env.manager(&name)?.unresponsive();
        let (seen, arrived) = notified.with_context(|| format!("not reported: {liveness:?}"))?;
        ensure!(seen.to_string() == reason, "{seen}");
        Ok(arrived)
    })
    .await?;
    // Heartbeats are spread over the last quarter of their interval, and the listener checks ten times per interval. The node
    // of a test may be busy for some seconds.
    let took = arrived.saturating_duration_since(begin);
    let most = heartbeats * HEARTBEAT_INTERVAL + SLACK;
    check(took <= most, format!("after {took:?}, not {most:?}"))
}

/// Writes a Kyma like a manager that updates Kymas on the runtime, and announces the write to the manager's listener.
#[when(expr = "manager {string} writes a Kyma in Namespace {string}")]
async fn writes(scenario: &mut Scenario, name: String, namespace: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    env.create_kyma(&scenario.resolve(&namespace)).await?;
    let runtime = RuntimeId::parse(RUNTIME).context("a runtime ID")?;
    env.manager(&name)?.liveness()?.expect_review(&runtime);
    Ok(())
}

/// Changes the annotation of the Kyma on KCP that managers read.
#[when(regex = r#"^SkrDomain of Runtime "one" is set to "([^"]+)"$"#)]
fn domain_set(scenario: &mut Scenario, domain: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    env.set_domain(&domain);
    scenario.undo("restore the domain", async move {
        env.set_domain(DOMAIN);
        env.runtime.has_delivered().await
    });
    Ok(())
}

const SECOND: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(6);
