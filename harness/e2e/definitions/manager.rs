//! Managers on KCP: the events and heartbeats that they receive.

use std::time::Duration;

use anyhow::ensure;
use cucumber::{then, when};

use super::PATIENCE;
use crate::scenario::{ObjectRef, Scenario};
use crate::watching::manager::{EventObject, Manager};
use crate::watching::{DOMAIN, FOLLOW_UP_DELAY, OTHER_RUNTIME, RUNTIME, View};
use testkit::until::{holds, until};

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
) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    let about = event_object(scenario, &object).await?;
    let manager = env.manager(&name)?;
    let mark = env
        .state()
        .marks
        .get(&(manager.name, about.clone()))
        .copied();
    let mark = mark.unwrap_or_default();
    let news = || manager.received(&about).len().saturating_sub(mark);
    match what.as_str() {
        "has received no event" => none_until_now(news).await,
        "receives no event" => none(&env, news).await,
        "receives a follow-up event" => follow_up(manager, &about, mark).await,
        _ => {
            until("the manager receives an event", PATIENCE, || async {
                news() > 0
            })
            .await?;
            let sender = if other.is_empty() {
                RUNTIME
            } else {
                OTHER_RUNTIME
            };
            let received = manager.received(&about);
            let is_right = received.iter().all(|it| it.runtime == sender);
            ensure!(is_right, "not only from {sender}: {received:?}");
            Ok(())
        }
    }
}

/// No event until all queues are empty and the time of a follow-up event has passed. The queues are looked at again
/// afterwards: a follow-up event may be delivered late.
async fn none(env: &View, news: impl Fn() -> usize) -> anyhow::Result<()> {
    env.runtime.has_delivered().await?;
    let span = FOLLOW_UP_DELAY + Duration::from_secs(1);
    no_more(span, &news).await?;
    env.runtime.has_delivered().await?;
    no_more(Duration::ZERO, &news).await
}

/// No event during a second.
pub(super) async fn none_until_now(news: impl Fn() -> usize) -> anyhow::Result<()> {
    no_more(Duration::from_secs(1), &news).await
}

async fn no_more(span: Duration, news: impl Fn() -> usize) -> anyhow::Result<()> {
    holds("the manager receives no event", span, || async {
        let count = news();
        ensure!(count == 0, "{count} events");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

/// An event that is late enough not to be a repetition of the first one.
async fn follow_up(manager: &Manager, about: &EventObject, mark: usize) -> anyhow::Result<()> {
    until(
        "the manager receives a follow-up event",
        PATIENCE,
        || async {
            let received = manager.received(about);
            let times: Vec<_> = received.iter().skip(mark).map(|it| it.at).collect();
            let span = times
                .last()
                .zip(times.first())
                .map(|(last, first)| *last - *first);
            ensure!(
                span >= Some(FOLLOW_UP_DELAY / 2),
                "{span:?} from first to last"
            );
            anyhow::Ok(())
        },
    )
    .await?;
    Ok(())
}

/// The object as events name it. A Scale is not an object of its own.
pub(super) async fn event_object(
    scenario: &Scenario,
    object: &ObjectRef,
) -> anyhow::Result<EventObject> {
    let object = scenario.resolved(object);
    let api_version = match object.kind.as_str() {
        "Scale" => "autoscaling/v1".to_owned(),
        kind => scenario.client_of(&object)?.api_version(kind).await?,
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    Ok(EventObject {
        gvk: (group.to_owned(), version.to_owned(), object.kind),
        namespace: object.namespace.unwrap_or_default(),
        name: object.name,
    })
}

#[then(expr = "manager {string} receives heartbeats from {int} watchers")]
async fn heartbeats(scenario: &mut Scenario, name: String, count: usize) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    env.has_heartbeats(&name, count).await
}

#[then(
    regex = r#"^manager "([^"]+)" reports the runtime as (?:responsive|unresponsive between (\d+) and (\d+) seconds after its last heartbeat)$"#
)]
async fn reports(
    scenario: &mut Scenario,
    name: String,
    least: String,
    most: String,
) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    let unresponsive = !least.is_empty();
    let found = until("the manager reports it", PATIENCE, || async {
        let liveness = env.liveness(&name)?;
        ensure!(liveness.silent == unresponsive, "{liveness:?}");
        anyhow::Ok(liveness)
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
fn domain_set(scenario: &mut Scenario, domain: String) -> anyhow::Result<()> {
    let env = scenario.environment_of::<View>()?;
    env.set_domain(&domain);
    scenario.undo("restore the domain", async move {
        env.set_domain(DOMAIN);
        env.runtime.has_delivered().await
    });
    Ok(())
}
