//! The KIM double, and the signal by which the controller asks for a reconcile.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use api::runtimes::FORCE_RECONCILIATION;
use cucumber::{given, then};
use serde_json::{Value, json};

use super::runtime::synchronization;
use super::{A_WHILE, PATIENCE};
use crate::scenario::Scenario;
use crate::synchronization::Leased;
use crate::synchronization::kim::{Key, Kim};
use crate::synchronization::runtime::Runtime;
use testkit::until::{holds, until};

#[given(
    regex = "^the KIM double is (running|stopped)(?: and acknowledges the (label|annotation))?$"
)]
async fn double(scenario: &mut Scenario, state: String, key: String) -> anyhow::Result<()> {
    let env = synchronization(scenario)?;
    let key = match key.as_str() {
        "annotation" => Key::Annotation,
        _ => Key::Label,
    };
    let is_running = state == "running";
    let kim = is_running.then(|| Arc::new(Kim::start(&env.kcp, key)));
    env.state().kim = kim;
    std::future::ready(Ok(())).await
}

#[then(expr = "KIM reconciles Runtime {string}")]
async fn reconciles(scenario: &mut Scenario, name: String) -> anyhow::Result<()> {
    let env = synchronization(scenario)?;
    let name = env.runtime(&name)?.name;
    let before = env.state().reconciles.get(&name).copied().unwrap_or(0);
    let kim = env.kim()?;
    until("KIM reconciles the Runtime", PATIENCE, || async {
        let now = kim.counts().get(&name).copied().unwrap_or(0);
        ensure!(now > before, "{now} times in total");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then(regex = r#"^(?:Runtime "([^"]+)"|(\d+) Runtimes) (?:is|are) (not )?signaled$"#)]
async fn signaled(
    scenario: &mut Scenario,
    name: String,
    count: String,
    not: String,
) -> anyhow::Result<()> {
    let env = synchronization(scenario)?;
    let runtimes = match count.parse::<usize>() {
        Err(_) => vec![env.runtime(&name)?],
        Ok(count) => {
            let many = env.state().many.clone();
            ensure!(many.len() == count, "there are {} Runtimes", many.len());
            many
        }
    };
    for runtime in &runtimes {
        if not.is_empty() {
            let what = format!("Runtime {} is signaled", runtime.name);
            until(&what, PATIENCE, || env.is_signaled(runtime)).await?;
        } else {
            not_signaled(&env, runtime).await?;
        }
    }
    Ok(())
}

/// Both keys are removed and stay so.
async fn not_signaled(env: &Leased, runtime: &Runtime) -> anyhow::Result<()> {
    let absent = || async move {
        let live = env.kcp.runtime(&runtime.name).await?;
        let keys = keys(&live);
        ensure!(keys == [&Value::Null, &Value::Null], "{keys:?}");
        anyhow::Ok(())
    };
    until("the signal is removed", PATIENCE, absent).await?;
    holds("the signal is absent", A_WHILE, absent).await?;
    Ok(())
}

#[then(expr = "nothing of Runtime {string} is modified except the keys of the signal")]
async fn only_keys(scenario: &mut Scenario, name: String) -> anyhow::Result<()> {
    let env = synchronization(scenario)?;
    let runtime = env.runtime(&name)?;
    let before = scenario.observed.before.get(&runtime.reference());
    let before = without_keys(before.cloned().context("the Runtime was not recorded")?);
    let now = without_keys(env.kcp.runtime(&runtime.name).await?);
    ensure!(now == before, "it was {before}, it is {now}");
    Ok(())
}

/// Label and annotation of the signal.
pub(crate) fn keys(runtime: &Value) -> [&Value; 2] {
    ["labels", "annotations"].map(|field| &runtime["metadata"][field][FORCE_RECONCILIATION])
}

fn without_keys(mut runtime: Value) -> Value {
    let metadata = &mut runtime["metadata"];
    for field in ["resourceVersion", "managedFields"] {
        metadata[field].take();
    }
    for field in ["labels", "annotations"] {
        let mut keys = metadata[field].as_object().cloned().unwrap_or_default();
        keys.remove(FORCE_RECONCILIATION);
        metadata[field] = json!(keys);
    }
    runtime
}
