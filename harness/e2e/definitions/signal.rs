//! The KIM double, and the signal by which the controller asks for a reconcile.

use std::sync::Arc;

use api::runtimes::FORCE_RECONCILIATION;

use super::prelude::*;
use crate::synchronization::kim::{Key, Kim};

#[given(
    regex = "^the KIM double is (running|stopped)(?: and acknowledges the (label|annotation))?$"
)]
fn double(scenario: &mut Scenario, state: String, key: String) -> Result {
    let env = synchronization(scenario)?;
    let key = match key.as_str() {
        "annotation" => Key::Annotation,
        _ => Key::Label,
    };
    let is_running = state == "running";
    let kim = is_running.then(|| Arc::new(Kim::start(&env.kcp, key)));
    env.state().kim = kim;
    Ok(())
}

#[then(expr = "KIM reconciles Runtime {string}")]
async fn reconciles(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let name = env.runtime(&name)?.name;
    let before = env.state().reconciles.get(&name).copied().unwrap_or(0);
    let kim = env.kim()?;
    eventually("KIM reconciles the Runtime", async || {
        let now = kim.counts().get(&name).copied().unwrap_or(0);
        check(now > before, format!("{now} times in total"))
    })
    .await
}

#[then(regex = r#"^(?:Runtime "([^"]+)"|(\d+) Runtimes) (?:is|are) (not )?signaled$"#)]
async fn signaled(scenario: &mut Scenario, name: String, count: String, not: String) -> Result {
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
        let what = format!("Runtime {} is {not}signaled", runtime.name);
        if not.is_empty() {
            let signaled = async || check(env.is_signaled(runtime).await?, "it is not");
            eventually(&what, signaled).await?;
            continue;
        }
        // Both keys are removed and stay so.
        let absent = async || {
            let live = env.kcp.runtime(&runtime.name).await?;
            let keys = keys(&live);
            check(keys == [&Value::Null, &Value::Null], format!("{keys:?}"))
        };
        eventually(&what, absent).await?;
        consistently(&what, A_WHILE, absent).await?;
    }
    Ok(())
}

#[then(expr = "nothing of Runtime {string} is modified except the keys of the signal")]
async fn only_keys(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let runtime = env.runtime(&name)?;
    let before = scenario.earlier(&runtime.reference())?;
    let before = without_keys(before.clone());
    let now = without_keys(env.kcp.runtime(&runtime.name).await?);
    check(now == before, format!("it was {before}, it is {now}"))
}

pub(crate) fn keys(runtime: &Value) -> [&Value; 2] {
    ["labels", "annotations"].map(|field| &runtime["metadata"][field][FORCE_RECONCILIATION])
}

fn without_keys(mut runtime: Value) -> Value {
    let metadata = &mut runtime["metadata"];
    remove_fields(metadata, &["resourceVersion", "managedFields"]);
    for field in ["labels", "annotations"] {
        remove_fields(&mut metadata[field], &[FORCE_RECONCILIATION]);
        if metadata[field].is_null() {
            metadata[field] = json!({});
        }
    }
    runtime
}
