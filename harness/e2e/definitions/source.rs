//! The sources on KCP, their copies on runtimes, and the signal after which the KIM double copies them.

use std::collections::BTreeSet;
use std::time::Instant;

use api::kcp::{FORCE_RECONCILE_KEY, KCP_NAMESPACE, SIGNALED_REVISION_ANNOTATION};

use super::prelude::*;
use crate::synchronization::control_plane::named_config_map;
use crate::synchronization::controller::{Controller, DIRECT_STATE, SIGNAL_STATE};
use crate::synchronization::kim::Kim;
use crate::synchronization::source::{Source, with_hosts_of};

#[when(regex = r#"^(?:source (.+)|all sources) on (?:KCP|runtime "(.+)") (?:is|are) (\w+)$"#)]
async fn changes(scenario: &mut Scenario, name: String, runtime: String, change: String) -> Result {
    let env = synchronization(scenario)?;
    env.record_reconciles();
    env.state().changes += 1;
    if name.is_empty() {
        return all_change(&env).await;
    }
    let source: Source = name.parse()?;
    if !runtime.is_empty() {
        let api = &env.cluster(&runtime)?.api;
        if change == "deleted" {
            return api.delete(&source.on_skr()).await;
        }
        let fresh = source.fresh()?;
        // Only one of the fields has a value.
        let content = json!({ "spec": fresh["spec"], "data": fresh["data"] });
        return api.patch(&source.on_skr(), &content).await.map(drop);
    }
    if change == "deleted" {
        renew_later(scenario, &env, source);
        return env.kcp.api.delete(&source.on_kcp()).await;
    }
    env.record_applies().await?;
    env.kcp.renew(source).await?;
    let answer = env.kcp.api.get(&source.on_kcp()).await?;
    scenario.observed.last = Some(answer);
    Ok(())
}

fn renew_later(scenario: &mut Scenario, env: &Leased, source: Source) {
    later(scenario, env, "create the source", async move |it| {
        it.kcp.renew(source).await
    });
}

/// Changes all sources. The new pull Secret keeps the credentials of the old one, as in a rotation.
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

/// Deletes the object and the state that the controller has stored about it.
#[given(regex = r"^source (pull Secret|ClusterTrustBundle|ConfigMap) has never existed on KCP$")]
async fn never_existed(scenario: &mut Scenario, source: Source) -> Result {
    let env = synchronization(scenario)?;
    renew_later(scenario, &env, source);
    Controller::stop(&env.kcp).await?;
    env.kcp.api.delete(&source.on_kcp()).await?;
    let states = [SIGNAL_STATE, DIRECT_STATE];
    let [signal, direct] = states.map(|name| named_config_map(KCP_NAMESPACE, name));
    for state in [&signal, &direct] {
        env.kcp.api.delete(state).await?;
    }
    Controller::start(&env.kcp).await?;
    eventually("the controller has observed the others", async || {
        let state = env.kcp.api.find(&signal).await?;
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

#[then(regex = r#"^the webhook on runtime "(.+)" uses (?:source (.+)|all sources)$"#)]
async fn uses(scenario: &mut Scenario, runtime: String, source: String) -> Result {
    let env = synchronization(scenario)?;
    let sources = match source.as_str() {
        "" => Source::ALL.to_vec(),
        name => vec![name.parse()?],
    };
    for source in sources {
        let original = env.kcp.source(source).await?;
        env.cluster(&runtime)?.uses(source, &original).await?;
    }
    Ok(())
}

#[given(regex = r"^the KIM double is (running|stopped)(?: and acknowledges the (\w+))?$")]
fn double(scenario: &mut Scenario, state: String, key: String) -> Result {
    let env = synchronization(scenario)?;
    let field = if key == "annotation" {
        "annotations"
    } else {
        "labels"
    };
    let kim = (state == "running").then(|| Kim::start(&env.kcp, field));
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
        not_signaled(&env, &what, &runtime.name).await?;
    }
    Ok(())
}

/// Waits until both keys are removed and stay removed. The controller signals again only for a change that it reads after the
/// removal: such a signal has another revision. KIM reconciles a Runtime at most once for each change.
async fn not_signaled(env: &Leased, what: &str, name: &str) -> Result {
    let changes = env.state().changes;
    let absent = async || {
        let live = env.kcp.runtime(name).await?;
        let keys = keys(&live);
        check(keys == [&Value::Null, &Value::Null], format!("{keys:?}"))?;
        let annotations = &live["metadata"]["annotations"];
        Ok(text(&annotations[SIGNALED_REVISION_ANNOTATION]).to_owned())
    };
    let mut revisions = BTreeSet::new();
    loop {
        // The first one may be that of a signal before the changes.
        let is_new = revisions.insert(eventually(what, absent).await?);
        let is_known = u32::try_from(revisions.len())? <= changes + 1;
        ensure!(
            is_new && is_known,
            "signaled twice with one of {revisions:?}"
        );
        if consistently(what, A_WHILE, absent).await.is_ok() {
            break;
        }
    }
    let counts = env.kim().map(|it| it.counts()).unwrap_or_default();
    let [before, now] = [&env.state().reconciles, &counts].map(|it| it.get(name).copied());
    let count = now.unwrap_or(0).saturating_sub(before.unwrap_or(0));
    let seen = format!("KIM reconciled {name} {count} times since the last of {changes} changes");
    check(count <= u64::from(changes), seen)
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
    ["labels", "annotations"].map(|field| &runtime["metadata"][field][FORCE_RECONCILE_KEY])
}

fn without_keys(mut runtime: Value) -> Value {
    let metadata = &mut runtime["metadata"];
    remove_fields(metadata, &["resourceVersion", "managedFields"]);
    for field in ["labels", "annotations"] {
        let keys = [FORCE_RECONCILE_KEY, SIGNALED_REVISION_ANNOTATION];
        remove_fields(&mut metadata[field], &keys);
        if metadata[field].is_null() {
            metadata[field] = json!({});
        }
    }
    runtime
}
