//! Checks whether the watcher of a runtime reports a change to KCP.
//!
//! The number of delivered events is read from the watcher's metrics, so these checks are not part of `--only contract`.
//! Changes of other objects at the same time are also counted. So a watcher that reports more than expected may be correct. A change
//! that is not reported shows nothing unless the API server called the watcher during the run.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::json::name;
use testkit::until::{holds, until};

use crate::cluster::Cluster;
use crate::model::{EventCheck, Namespace, Subresource};
use crate::report::Outcome;
use crate::requests::collection;
use crate::run::Context;
use crate::runtime::{Component, counted};

/// Checks all changes of the scenario on a runtime. Those that are reported come first, because each causes a call of the watcher.
pub(crate) async fn check_all(context: &Context<'_>, cluster: &Cluster) -> Result<()> {
    if context.options.only_contract {
        return Ok(());
    }
    let events = context.scenario.landscape.events.iter().enumerate();
    let mut events: Vec<_> = events.filter(|(_, it)| it.is_on(&cluster.name)).collect();
    events.sort_by_key(|(_, it)| !it.reported);
    let asked_at_begin = asked(cluster).await.unwrap_or(u64::MAX);
    for event in events {
        check(context, cluster, event, asked_at_begin).await?;
    }
    Ok(())
}

/// Creates an object, changes it, and checks whether the watcher delivers an event. `asked_at_begin` is the number of its calls at the
/// beginning of the run.
async fn check(
    context: &Context<'_>,
    cluster: &Cluster,
    (index, event): (usize, &EventCheck),
    asked_at_begin: u64,
) -> Result<()> {
    let not = if event.reported { "" } else { "not " };
    let title = format!("Change \"{}\" is {not}reported to KCP", event.name);
    if let Err(error) = delivered(cluster).await {
        let reason = format!("the metrics of the watcher cannot be read: {error:#}");
        context.metrics(cluster, &title, Outcome::not_run(reason));
        return Ok(());
    }
    let namespace = context.namespaces.of_event(index);
    let extra = Namespace::default();
    let created = context.create_namespace(cluster, &namespace, &extra);
    created.await?;
    let object = &context.scenario.manifest(&event.manifest)?.object;
    let path = collection(object, &namespace);
    cluster.create(&path, object).await?;
    // The creation also causes an event, and a second event that confirms it.
    if let Err(error) = quiet(context, cluster).await {
        let outcome = failed(cluster, event, "an empty outbox", &format!("{error:#}"));
        context.metrics(cluster, &title, outcome);
        return Ok(());
    }
    let processes = processes(cluster).await?;
    let before = (delivered(cluster).await?, asked(cluster).await?);
    let sub = match event.change.subresource {
        Some(Subresource::Status) => "/status",
        None => "",
    };
    let path = format!("{path}/{}{sub}", name(object));
    cluster.merge(&path, &json!(event.change.patch)).await?;
    let mut outcome = outcome(context, cluster, event, before).await;
    let is_asked = asked(cluster).await.is_ok_and(|it| it > asked_at_begin);
    if outcome == Outcome::Passed && !event.reported && !is_asked {
        outcome = Outcome::not_run(
            "the API server has not called the watcher during this run, so nothing could be reported",
        );
    }
    if self::processes(cluster).await.ok() != Some(processes) {
        outcome = replaced();
    }
    context.metrics(cluster, &title, outcome);
    Ok(())
}

/// Waits until the watcher has no undelivered events during [`QUIET`].
async fn quiet(context: &Context<'_>, cluster: &Cluster) -> Result<()> {
    let is_quiet = || async {
        let waiting = waiting(cluster).await?;
        ensure!(waiting == 0, "{waiting} events are not delivered");
        anyhow::Ok(())
    };
    let what = "the watcher has nothing to deliver";
    let stays = || async { anyhow::Ok(holds(what, QUIET, is_quiet).await?) };
    Ok(until(what, context.options.patience, stays).await?)
}

async fn outcome(
    context: &Context<'_>,
    cluster: &Cluster,
    event: &EventCheck,
    (delivered_before, asked_before): (u64, u64),
) -> Outcome {
    if event.reported {
        let arrived = || async {
            let after = delivered(cluster).await?;
            ensure!(after > delivered_before, "no event");
            anyhow::Ok(())
        };
        let patience = context.options.patience;
        let arrived = until("an event is delivered", patience, arrived).await;
        if arrived.is_ok() {
            return Outcome::Passed;
        }
    } else {
        let asked = until("the watcher was asked", NOT_ASKED, || async {
            let after = asked(cluster).await?;
            ensure!(after > asked_before, "not yet");
            anyhow::Ok(())
        });
        // The result is not needed: by now an event of the change would be delivered or in the outbox.
        drop(asked.await);
    }
    let counts = async { anyhow::Ok((delivered(cluster).await?, waiting(cluster).await?)) };
    match counts.await {
        Ok((after, _)) if after < delivered_before => replaced(),
        Ok(_) if event.reported => failed(cluster, event, "an event delivered to KCP", "no event"),
        Ok((after, 0)) if after == delivered_before => Outcome::Passed,
        Ok((after, waiting)) => {
            let delivered = after - delivered_before;
            let found = format!("{delivered} events delivered, {waiting} not delivered yet");
            failed(cluster, event, "no event", &found)
        }
        Err(error) => Outcome::not_run(format!("{error:#}")),
    }
}

fn failed(cluster: &Cluster, event: &EventCheck, expected: &str, found: &str) -> Outcome {
    let cause = if event.reported {
        "no Watcher selects this change, or KCP cannot be reached: then the outbox is not empty"
    } else {
        "a Watcher selects more than intended, or another object changed at the same time"
    };
    let change = json!(event.change.patch);
    let logs = format!("-n {NAMESPACE} logs -l {PODS} --tail=50");
    let next = format!("{} {logs}", cluster.kubectl);
    let location = format!("{}: {} with {change}", cluster.name, event.manifest);
    Outcome::failed(location, (expected, found), (cause, next))
}

/// Returns the outcome if a process was replaced. Counters of a new process start at zero, so they cannot be compared.
fn replaced() -> Outcome {
    Outcome::not_run("a replica of the watcher was replaced meanwhile, and its counts are lost")
}

/// Returns the processes of the watcher: the UIDs of its Pods and the restarts of their containers.
async fn processes(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={PODS}");
    let pods = cluster.list(&pods).await?;
    let process = |pod: &Value| {
        let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
        format!("{} {restarts}", pod["metadata"]["uid"])
    };
    Ok(pods.iter().map(process).collect())
}

async fn delivered(cluster: &Cluster) -> Result<u64> {
    counted(cluster, WATCHER, "watcher_delivered_events_total").await
}

async fn waiting(cluster: &Cluster) -> Result<u64> {
    counted(cluster, WATCHER, "watcher_outbox_events").await
}

async fn asked(cluster: &Cluster) -> Result<u64> {
    counted(cluster, WATCHER, "watcher_admission_request_total").await
}

/// Period without undelivered events after which the outbox is treated as empty.
const QUIET: Duration = Duration::from_secs(1);
/// Time limit for the API server's call of the watcher. If no rule selects the change, the API server does not call the
/// watcher. Otherwise it calls the watcher before it responds, and the watcher counts the request before it responds. So the
/// time is only for a metrics page that cannot be read at once.
const NOT_ASKED: Duration = Duration::from_secs(3);
const NAMESPACE: &str = "kyma-system";
const PODS: &str = "app=skr-webhook";
const WATCHER: Component = Component {
    namespace: NAMESPACE,
    labels: PODS,
    port: 2112,
};

#[cfg(test)]
mod tests;
