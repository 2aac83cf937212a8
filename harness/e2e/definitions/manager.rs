//! Managers on KCP: the events and heartbeats that they receive.

use std::fmt::Debug;

use super::prelude::*;
use crate::watching::manager::body;
use crate::watching::{DOMAIN, FOLLOW_UP_DELAY, OTHER_RUNTIME, RUNTIME};

/// "receives" waits for events; "has received no event" looks at those until now.
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
    let env = scenario.environment_of::<View>()?;
    let about = event_about(scenario, &object).await?;
    let manager = env.manager(&name)?;
    let key = (manager.name, about.clone());
    let mark = env.state().marks.get(&key).copied().unwrap_or_default();
    let news = || manager.received(&about).split_off(mark);
    match what.as_str() {
        "has received no event" => none_for(SECOND, news).await,
        // The queues are looked at again afterwards: a follow-up event may be delivered late.
        "receives no event" => {
            env.runtime.has_delivered().await?;
            none_for(FOLLOW_UP_DELAY + SECOND, news).await?;
            env.runtime.has_delivered().await?;
            none_for(Duration::ZERO, news).await
        }
        // Late enough not to be a repetition of the first one.
        "receives a follow-up event" => {
            eventually("the manager receives a follow-up event", async || {
                let news = news();
                let ends = news.last().zip(news.first());
                let span = ends.map(|(last, first)| last.1 - first.1);
                check(
                    span >= Some(FOLLOW_UP_DELAY / 2),
                    format!("{span:?} from first to last"),
                )
            })
            .await
        }
        _ => {
            let is_received = async || news().pop().context("no event");
            eventually("the manager receives an event", is_received).await?;
            let sender = if other.is_empty() {
                RUNTIME
            } else {
                OTHER_RUNTIME
            };
            let received = manager.received(&about);
            let mut runtimes = received.iter().map(|it| it.0.runtime_id.as_ref());
            let is_right = runtimes.all(|it| it.is_some_and(|it| it.as_str() == sender));
            check(is_right, format!("not only from {sender}: {received:?}"))
        }
    }
}

/// No event during a span.
pub(super) async fn none_for<T: Debug>(span: Duration, news: impl Fn() -> Vec<T>) -> Result {
    consistently("the manager receives no event", span, async || {
        let news = news();
        check(news.is_empty(), format!("{news:?}"))
    })
    .await
}

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The body of an event about an object. A Scale is not an object of its own.
pub(super) async fn event_about(scenario: &Scenario, object: &ObjectRef) -> Result<String> {
    let object = scenario.resolved(object);
    let api_version = match object.kind.as_str() {
        "Scale" => "autoscaling/v1".to_owned(),
        kind => scenario.client_of(&object)?.api_version(kind).await?,
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let namespace = object.namespace.as_deref().unwrap_or_default();
    Ok(body(
        [group, version, &object.kind],
        namespace,
        &object.name,
    ))
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
    let found = eventually("the manager reports it", async || {
        let liveness = env.liveness(&name)?;
        ensure!(liveness.silent == unresponsive, "{liveness:?}");
        Ok(liveness)
    })
    .await?;
    if unresponsive {
        let [least, most] = [least.parse()?, most.parse()?].map(Duration::from_secs);
        let since = found.since_heartbeat.unwrap_or_default();
        ensure!(least <= since && since <= most, "after {since:?}");
    }
    Ok(())
}

/// The annotation of the Kyma on KCP that managers look up.
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
