//! The sources on KCP, and their copies on runtimes.

use std::time::Instant;

use super::prelude::*;
use crate::synchronization::control_plane::named_config_map;
use crate::synchronization::controller::{Controller, DIRECT_STATE, SIGNAL_STATE};
use crate::synchronization::source::{Source, random, with_hosts_of};

#[when(
    regex = r#"^(?:source (pull Secret|ClusterTrustBundle|ConfigMap)|all sources) on (?:KCP|runtime "([^"]+)") (?:is|are) (created|updated|deleted)$"#
)]
async fn changes(
    scenario: &mut Scenario,
    source: String,
    runtime: String,
    change: String,
) -> Result {
    let env = synchronization(scenario)?;
    env.record_reconciles();
    let Ok(source) = source.parse::<Source>() else {
        return all_change(&env).await;
    };
    if !runtime.is_empty() {
        let api = &env.cluster(&runtime)?.api;
        if change == "deleted" {
            return api.delete(&source.on_skr()).await;
        }
        let fresh = source.fresh()?;
        // Only one of them has a value.
        let content = json!({ "spec": fresh["spec"], "data": fresh["data"] });
        return api.patch(&source.on_skr(), &content).await.map(drop);
    }
    if change == "deleted" {
        renew_later(scenario, &env, source);
        return env.kcp.delete(source).await;
    }
    env.record_applies().await?;
    env.kcp.renew(source).await?;
    let answer = env.kcp.api.get(&source.on_kcp()).await?;
    scenario.observed.last = Some(answer);
    Ok(())
}

fn renew_later(scenario: &mut Scenario, env: &Leased, source: Source) {
    later(scenario, env, "create the source", async move |clusters| {
        clusters.kcp.renew(source).await
    });
}

/// The new pull Secret keeps the credentials of the old one, as in a rotation.
async fn all_change(env: &Leased) -> Result {
    env.record_applies().await?;
    let mark = random();
    for source in Source::ALL {
        let mut object = source.marked(&mark)?;
        if source == Source::PullSecret {
            object = with_hosts_of(&object, &env.kcp.source(source).await?)?;
        }
        env.kcp.write(source, &object).await?;
    }
    Ok(())
}

/// Deletes the object and what the controller has stored about it.
#[given(regex = r"^source (pull Secret|ClusterTrustBundle|ConfigMap) has never existed on KCP$")]
async fn never_existed(scenario: &mut Scenario, source: Source) -> Result {
    let env = synchronization(scenario)?;
    renew_later(scenario, &env, source);
    Controller::stop(&env.kcp).await?;
    env.kcp.delete(source).await?;
    let [signal, direct] = [SIGNAL_STATE, DIRECT_STATE]
        .map(|name| named_config_map(api::runtimes::KCP_NAMESPACE, name));
    for state in [&signal, &direct] {
        env.kcp.api.delete(state).await?;
    }
    Controller::start(&env.kcp).await?;
    eventually("the controller has observed the others", async || {
        let state = env.kcp.api.find(&signal).await?.unwrap_or_default();
        for other in Source::ALL {
            let is_known = state["data"][other.state_key()].is_string();
            ensure!(is_known == (other != source), "{}", state["data"]);
        }
        Ok(())
    })
    .await?;
    record(scenario).await
}

#[then(
    regex = r#"^runtime "([^"]+)" has (?:source (pull Secret|ClusterTrustBundle|ConfigMap) of KCP|the revision of the sources)(?: within (\d+) seconds)?$"#
)]
async fn has(scenario: &mut Scenario, runtime: String, source: String, limit: String) -> Result {
    let env = synchronization(scenario)?;
    let cluster = env.cluster(&runtime)?;
    let Ok(source) = source.parse::<Source>() else {
        return Box::pin(env.has_sources(cluster)).await;
    };
    let original = env.kcp.source(source).await?;
    ensure!(!original.is_null(), "{source:?} does not exist on KCP");
    let begin = Instant::now();
    cluster.has(source, &original).await?;
    if let Ok(limit) = limit.parse() {
        let taken = begin.elapsed();
        ensure!(taken <= Duration::from_secs(limit), "it took {taken:?}");
    }
    Ok(())
}

#[then(
    regex = r#"^the webhook on runtime "([^"]+)" uses (?:source (pull Secret|ClusterTrustBundle|ConfigMap)|all sources)$"#
)]
async fn uses(scenario: &mut Scenario, runtime: String, source: String) -> Result {
    let env = synchronization(scenario)?;
    let one = source.parse::<Source>().ok();
    let named = |it: &Source| one.is_none_or(|one| one == *it);
    for source in Source::ALL.into_iter().filter(named) {
        let original = env.kcp.source(source).await?;
        env.cluster(&runtime)?.uses(source, &original).await?;
    }
    Ok(())
}
