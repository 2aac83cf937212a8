//! The controller on KCP: its flags, replicas, Lease, permissions, metrics, and the rollout.

use cucumber::gherkin::{Step, StepType};

use super::prelude::*;
use crate::synchronization::controller::{ACCOUNT, Controller, Installation};

/// Installs the controller with its default flags at the end of the scenario.
fn reinstall_later(scenario: &mut Scenario, env: &Leased) {
    later(scenario, env, "install the controller", async |it| {
        let default = Installation::default();
        Box::pin(it.controller.install(&it.kcp, &default)).await
    });
}

/// A `Given` step is executed before the scenario starts, and the installation stays until a scenario needs another one. The
/// step records the state after it. A `When` step keeps the recorded state.
#[given(regex = r#"^the controller runs (with flags "[^"]*"|without mode direct)$"#)]
#[when(regex = r#"^the controller runs (with flags "[^"]*"|without mode direct)$"#)]
async fn runs(scenario: &mut Scenario, how: String, step: &Step) -> Result {
    let wanted = Installation::of_step(&step.value).context("not an installation")?;
    if let Ok(env) = scenario.environment_of::<crate::flow::View>() {
        let flow = env.shared();
        scenario.undo("install the controller", async move {
            flow.upgrade(false).await
        });
        return env.install_as(false, true, &wanted).await;
    }
    let env = synchronization(scenario)?;
    let is_given = step.ty == StepType::Given;
    if !is_given || how == "without mode direct" {
        reinstall_later(scenario, &env);
    }
    Box::pin(env.controller.install(&env.kcp, &wanted)).await?;
    if is_given {
        record(scenario).await?;
    }
    Ok(())
}

pub(crate) async fn component(scenario: &mut Scenario, change: &str) -> Result {
    let env = synchronization(scenario)?;
    if change != "started" {
        reinstall_later(scenario, &env);
        Controller::stop(&env.kcp).await?;
    }
    if change != "stopped" {
        Controller::start(&env.kcp).await?;
    }
    Ok(())
}

#[when(
    regex = r#"^the leader of controller is killed (?:while it writes to runtime "([^"]+)"|after it signaled the first Runtime)$"#
)]
async fn killed(scenario: &mut Scenario, runtime: String) -> Result {
    let env = synchronization(scenario)?;
    if runtime.is_empty() {
        let runtimes = env.state().many.clone();
        eventually("the first Runtime is signaled", async || {
            for runtime in &runtimes {
                if env.is_signaled(runtime).await? {
                    return Ok(());
                }
            }
            bail!("none is signaled")
        })
        .await?;
        return kill_leader(&env).await;
    }
    let before = env.state().writes[&runtime].clone();
    let cluster = env.cluster(&runtime)?;
    eventually("the reconcile has started", async || {
        check(cluster.writes().await? != before, "no object is written")
    })
    .await?;
    kill_leader(&env).await?;
    // At this point the first writes of the reconcile are done, except that of the ConfigMap.
    let last = Source::Configuration.on_skr();
    let now = cluster.writes().await?;
    check(now[&last] == before[&last], "the reconcile was complete")
}

async fn kill_leader(env: &Leased) -> Result {
    let leader = Controller::leader(&env.kcp).await?;
    env.state().leader = Some(leader.clone());
    Controller::kill(&env.kcp, &leader).await
}

#[then(regex = r#"^(Lease "[^"]+") is held by (exactly one|another) replica of controller$"#)]
async fn held(scenario: &mut Scenario, lease: ObjectRef, which: String) -> Result {
    let env = synchronization(scenario)?;
    if which == "exactly one" {
        // The Lease and the metrics of both replicas must name the same leader.
        return eventually("one replica is the leader", async || {
            let holder = Controller::leader(&env.kcp).await?;
            let metrics = Controller::metric(&env.kcp, "leader_election_master_status").await?;
            let leaders = metrics.iter().filter(|(_, value)| **value > 0.5);
            let leaders: Vec<&String> = leaders.map(|(pod, _)| pod).collect();
            let is_one = leaders == [&holder] && metrics.len() == 2;
            check(is_one, format!("held by {holder}, metrics: {metrics:?}"))
        })
        .await;
    }
    let before = env.state().leader.clone().context("no leader was killed")?;
    expect(scenario, &lease, |seen| {
        let holder = seen["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let is_another = !holder.is_empty() && holder != before;
        check(is_another, format!("held by {holder:?}"))
    })
    .await
}

#[then(expr = "metric {string} of controller increases by at least {float}")]
async fn metric(scenario: &mut Scenario, name: String, least: f64) -> Result {
    let env = synchronization(scenario)?;
    let sum = async || -> Result<f64> {
        let values = Controller::metric(&env.kcp, &name).await?;
        Ok(values.values().sum())
    };
    let before = sum().await?;
    eventually(&format!("{name} increases"), async || {
        let now = sum().await?;
        check(now >= before + least, format!("{before}, then {now}"))
    })
    .await
}

/// Also checks a permission that the controller needs, which proves that it has permissions at all.
#[then(regex = r#"^the controller is not permitted to (\w+) (Secret "[^"]+")$"#)]
async fn not_permitted(scenario: &mut Scenario, verb: String, object: ObjectRef) -> Result {
    let env = synchronization(scenario)?;
    let needed = ("watch", api::names::PULL_SECRET, true);
    for (verb, name, expected) in [(verb.as_str(), object.name.as_str(), false), needed] {
        let what = json!({
            "namespace": object.namespace, "verb": verb, "resource": "secrets", "name": name,
        });
        let allowed = env.kcp.api.may(ACCOUNT, what).await?;
        ensure!(allowed == expected, "{verb} {name}: allowed is {allowed}");
    }
    Ok(())
}
