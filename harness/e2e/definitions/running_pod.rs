//! Pods on runtime clusters: created continuously, or running through a change.

use std::sync::Arc;

use api::names::MARKER;

use super::component;
use super::prelude::*;
use crate::synchronization::pods::{PodStream, Tally};

#[given(expr = "Pods that opt in are created continuously on runtime {string}")]
async fn stream(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let stream = PodStream::start(env.cluster(&name)?.api.clone()).await?;
    env.state().pods = Some(stream);
    Ok(())
}

#[then(
    regex = "^every created Pod (is mutated|mounts the ClusterTrustBundle|has the image and the pull Secret of one revision|finds exactly one webhook configuration)$"
)]
async fn every_pod(scenario: &mut Scenario, expected: String) -> Result {
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
    check(odd.is_empty(), format!("of {} Pods: {odd:?}", tally.pods))
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
async fn runs(scenario: &mut Scenario, name: String, cluster: String) -> Result {
    scenario.name(&name);
    let object = ObjectRef {
        runtime: Some(cluster),
        ..ObjectRef::new("Pod", Some("default"), &name)
    };
    let mut pod = plain();
    pod["metadata"]["annotations"][api::Feature::TrustBundle.key()] = json!("true");
    create(scenario, &object, pod, Write::Create).await?;
    expect(scenario, &object, |live| {
        let status = &live["status"];
        ensure!(status["containerStatuses"][0]["ready"] == true, "{status}");
        let is_mutated = live["metadata"]["annotations"][MARKER] == "true";
        check(is_mutated, "it is not mutated")
    })
    .await
}

#[then(regex = r#"^(Pod "[^"]+" on runtime "[^"]+") was not restarted$"#)]
async fn not_restarted(scenario: &mut Scenario, mut object: ObjectRef) -> Result {
    object.namespace = Some("default".to_owned());
    let now = existing(scenario, &object).await?;
    let [before, now] = [scenario.earlier(&object)?, &now].map(|pod| {
        let status = &pod["status"]["containerStatuses"][0];
        let (uid, restarts) = (&pod["metadata"]["uid"], &status["restartCount"]);
        json!([uid, restarts, status["containerID"]])
    });
    equal(&before, &now)
}
