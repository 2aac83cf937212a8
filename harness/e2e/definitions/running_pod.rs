//! Pods on runtime clusters: created continuously, or running through a change.

use std::sync::Arc;

use api::names::MARKER;

use super::component;
use super::pod::named;
use super::prelude::*;
use super::runtime::synchronization;
use crate::synchronization::Leased;
use crate::synchronization::objects::delete;
use crate::synchronization::pods::{PodStream, Tally};

#[given(expr = "Pods that opt in are created continuously on runtime {string}")]
async fn stream(scenario: &mut Scenario, name: String) -> Result<()> {
    let env = synchronization(scenario)?;
    let stream = PodStream::start(env.cluster(&name)?.api.clone()).await?;
    env.state().pods = Some(stream);
    Ok(())
}

#[then(
    regex = "^every created Pod (is mutated|mounts the ClusterTrustBundle|has the image and the pull Secret of one revision|finds exactly one webhook configuration)$"
)]
async fn every_pod(scenario: &mut Scenario, expected: String) -> Result<()> {
    if scenario.environment_of::<Leased>().is_err() {
        ensure!(expected == "is mutated", "of this suite's Pods: {expected}");
        return component::all_mutated(scenario);
    }
    let env = synchronization(scenario)?;
    let tally = tally(&env).await?;
    let odd = match expected.as_str() {
        "is mutated" => &tally.not_mutated,
        "mounts the ClusterTrustBundle" => &tally.without_bundle,
        "finds exactly one webhook configuration" => &tally.registrations,
        _ => &tally.mixed,
    };
    ensure!(odd.is_empty(), "of {} Pods: {odd:?}", tally.pods);
    Ok(())
}

/// What became of the Pods; the first call ends their creation.
async fn tally(env: &Arc<Leased>) -> Result<Arc<Tally>> {
    let running = env.state().pods.take();
    if let Some(stream) = running {
        let tally = Arc::new(stream.end().await?);
        env.state().tally = Some(tally);
    }
    env.state().tally.clone().context("no Pods were created")
}

/// With the ClusterTrustBundle, which is the only feature whose effect on a running Pod changes.
#[given(expr = "Pod {string} that opts in runs on runtime {string}")]
async fn runs(scenario: &mut Scenario, name: String, cluster: String) -> Result<()> {
    let env = synchronization(scenario)?;
    let actual = scenario.name(&name);
    let api = &env.cluster(&cluster)?.api;
    let mut pod = named(&actual);
    pod["metadata"]["annotations"][api::Feature::TrustBundle.key()] = json!("true");
    let path = pod_path(&actual);
    let (undo, undo_path) = (api.clone(), path.clone());
    scenario.undo(format!("delete Pod {actual}"), async move {
        delete(&undo, &undo_path).await
    });
    api.ask(Method::POST, PODS, Some(&pod)).await?.good()?;
    let running = eventually("the Pod runs", async || {
        let live = api.get(&path).await?.object;
        let status = &live["status"];
        ensure!(status["containerStatuses"][0]["ready"] == true, "{status}");
        let is_mutated = live["metadata"]["annotations"][MARKER] == "true";
        ensure!(is_mutated, "it is not mutated");
        Ok(live)
    })
    .await?;
    env.state().pod_uids.insert(name, identity(&running));
    Ok(())
}

#[then(expr = "Pod {string} on runtime {string} was not restarted")]
async fn not_restarted(scenario: &mut Scenario, name: String, cluster: String) -> Result<()> {
    let env = synchronization(scenario)?;
    let before = env.state().pod_uids.get(&name).cloned();
    let path = pod_path(&scenario.resolve(&name));
    let now = identity(&env.cluster(&cluster)?.api.get(&path).await?.object);
    ensure!(before == Some(now.clone()), "before {before:?}, now {now}");
    Ok(())
}

fn identity(pod: &Value) -> Value {
    let status = &pod["status"]["containerStatuses"][0];
    json!([
        pod["metadata"]["uid"],
        status["restartCount"],
        status["containerID"]
    ])
}

fn pod_path(name: &str) -> String {
    format!("{PODS}/{name}")
}

const PODS: &str = "/api/v1/namespaces/default/pods";
