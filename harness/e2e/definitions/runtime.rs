//! Runtimes on KCP: their creation, their kubeconfigs, and their migration between the modes.

use std::sync::Arc;

use api::kcp::{FORCE_RECONCILE_KEY, MODE_DIRECT, MODE_LABEL, MODE_SIGNAL, OWNER_CONFIG_MAP};

use super::prelude::*;
use crate::rollout::filter;
use crate::synchronization::control_plane::{Runtime, named_config_map, runtime_path};
use crate::synchronization::kim::{Destination, apply_configuration};
use crate::synchronization::{Clusters, RUNTIMES, number};

/// Returns the environment of the scenario. The first call registers a wait for the controller at the end of the scenario.
pub(crate) fn synchronization(scenario: &mut Scenario) -> Result<Arc<Leased>> {
    let env = scenario.environment_of::<Leased>()?;
    if !std::mem::replace(&mut env.state().is_begun, true) {
        later(scenario, &env, "wait for the controller", async |it| {
            Box::pin(it.sources_observed()).await
        });
    }
    Ok(env)
}

/// Registers an action on the clusters for the end of the scenario.
pub(crate) fn later(
    scenario: &mut Scenario,
    env: &Leased,
    what: impl Into<String>,
    action: impl AsyncFnOnce(Arc<Clusters>) -> Result + 'static,
) {
    let clusters = env.clusters();
    scenario.undo(what, async move { action(clusters).await });
}

/// Records the state with which "is not modified" compares. Every `Given` step of this suite records it, so the last one is
/// used.
pub(crate) async fn record(scenario: &mut Scenario) -> Result {
    let env = synchronization(scenario)?;
    scenario.alias("webhook image", env.controller.webhook_image());
    for name in RUNTIMES {
        let cluster = env.cluster(name)?;
        let system = cluster.api.get("/api/v1/namespaces/kube-system").await?;
        let uid = system.at("/metadata/uid").as_str().unwrap_or_default();
        scenario.alias(&format!("UID of runtime {name}"), uid);
        let writes = cluster.writes().await?;
        env.state().writes.insert(name.to_owned(), writes);
        for source in Source::ALL {
            let mut object = source.object();
            object.runtime = Some(name.to_owned());
            let copy = cluster.copy(source).await?;
            scenario.observed.before.insert(object, copy);
        }
    }
    let runtimes: Vec<Runtime> = env.state().runtimes.values().cloned().collect();
    for runtime in runtimes {
        let live = env.kcp.runtime(&runtime.name).await?;
        scenario.observed.before.insert(runtime.reference(), live);
    }
    Ok(())
}

/// Registers the name of a Runtime. Unless it is the permanent one, the Runtime is deleted at the end of the scenario.
async fn add(scenario: &mut Scenario, name: &str, runtime: Runtime) -> Result {
    let env = synchronization(scenario)?;
    scenario.alias(name, &runtime.name);
    if runtime.name != Runtime::permanent(0).name {
        let (what, runtime) = (format!("remove Runtime {name}"), runtime.clone());
        later(scenario, &env, what, async move |it| {
            Box::pin(it.remove(&runtime)).await
        });
    }
    scenario.alias(&format!("ID of Runtime {name}"), &runtime.id);
    let named = (name.to_owned(), runtime.clone());
    env.state().runtimes.extend([named]);
    // The scenario owns the object, so a step that changes it does not restore it.
    let path = runtime_path(&runtime.name);
    let answer = env.kcp.api.get(&path).await?;
    let object = runtime.reference();
    scenario.observed.wrote(&object, answer, Write::Create);
    record(scenario).await
}

#[given(
    regex = r#"^(Runtime "[^"]+"|\d+ Runtimes)(?: in mode (signal|direct))?(?: and wave (\d+))?(?: with(?:out an?)? (cluster|webhook|runtime ID|an address that does not respond))?$"#
)]
async fn exists(
    scenario: &mut Scenario,
    runtimes: String,
    mode: String,
    wave: String,
    special: String,
) -> Result {
    if let Some(count) = runtimes.strip_suffix(" Runtimes") {
        return many(scenario, count.parse()?).await;
    }
    let name = runtimes.split('"').nth(1).unwrap_or_default();
    let wave = wave.parse().ok();
    let mode = Some(mode.as_str()).filter(|it| *it == MODE_DIRECT);
    if special.is_empty() {
        return synchronized(scenario, name, mode.is_some(), wave).await;
    }
    incomplete(scenario, name, mode, &special).await
}

/// Creates a Runtime with a cluster. In mode direct it is synchronized; in mode signal it is registered with the KIM double.
async fn synchronized(
    scenario: &mut Scenario,
    name: &str,
    is_direct: bool,
    wave: Option<u32>,
) -> Result {
    let env = synchronization(scenario)?;
    let number = number(name)?;
    if is_direct && number == 0 {
        let runtime = env.direct(number, wave).await?;
        return add(scenario, name, runtime).await;
    }
    let runtime = Runtime::fresh(name, Some(number));
    if is_direct {
        env.put_direct(&runtime, wave).await?;
        add(scenario, name, runtime.clone()).await?;
        env.is_synchronized(&runtime).await?;
        return record(scenario).await;
    }
    env.kcp.put_runtime(&runtime, None, wave).await?;
    if let Ok(kim) = env.kim() {
        let api = env.cluster(name)?.api.clone();
        let manifests = Vec::new();
        kim.serve(&runtime.name, Destination { api, manifests });
    }
    add(scenario, name, runtime).await
}

/// Creates a Runtime that is not synchronized: without a webhook, a runtime ID or a kubeconfig, or with an address in a
/// documentation network, from which no host responds.
async fn incomplete(
    scenario: &mut Scenario,
    name: &str,
    mode: Option<&str>,
    special: &str,
) -> Result {
    let env = synchronization(scenario)?;
    let has_cluster = ["webhook", "runtime ID"].contains(&special);
    let mut runtime = Runtime::fresh(name, number(name).ok().filter(|_| has_cluster));
    if special == "runtime ID" {
        runtime.id.clear();
    }
    env.kcp.put_runtime(&runtime, mode, None).await?;
    let is_elsewhere = special == "an address that does not respond";
    if is_elsewhere {
        // Packets are dropped, because some networks refuse connections to the address.
        filter(&env.kcp.cluster, "filter", DROP_ELSEWHERE, true).await?;
        later(
            scenario,
            &env,
            "packets are no longer dropped",
            async |it| filter(&it.kcp.cluster, "filter", DROP_ELSEWHERE, false).await,
        );
    }
    let cluster = runtime.cluster.or(is_elsewhere.then_some(1));
    if let Some(number) = cluster {
        let version = env.runtimes[number].api.version().await?;
        scenario.observed.note("version before", json!(version));
        let mut kubeconfig = env.runtimes[number].kubeconfig.clone();
        if is_elsewhere {
            kubeconfig["clusters"][0]["cluster"]["server"] =
                json!(format!("https://{ELSEWHERE}:6443"));
        }
        let text = kubeconfig.to_string();
        env.kcp.put_kubeconfig(&runtime, &text).await?;
    }
    add(scenario, name, runtime).await
}

/// Address in a documentation network.
const ELSEWHERE: &str = "192.0.2.1";
/// Rule that drops packets of Pods to the address.
const DROP_ELSEWHERE: &str = "FORWARD -d 192.0.2.1 -j DROP";

async fn many(scenario: &mut Scenario, count: usize) -> Result {
    let env = synchronization(scenario)?;
    let runtimes: Vec<Runtime> = (0..count).map(|_| Runtime::fresh("many", None)).collect();
    for runtime in &runtimes {
        env.kcp.put_runtime(runtime, None, None).await?;
    }
    env.state().many.clone_from(&runtimes);
    later(scenario, &env, "remove all Runtimes", async move |it| {
        for runtime in &runtimes {
            Box::pin(it.remove(runtime)).await?;
        }
        Ok(())
    });
    Ok(())
}

#[when(
    regex = r#"^the kubeconfig of Runtime "([^"]+)" (?:leads to runtime "([^"]+)"|contains "([^"]+)"|is deleted)$"#
)]
async fn kubeconfig(scenario: &mut Scenario, name: String, of: String, content: String) -> Result {
    let env = synchronization(scenario)?;
    let runtime = env.runtime(&name)?;
    if !of.is_empty() {
        leads_to(scenario, runtime, &of).await
    } else if content.is_empty() {
        env.kcp.delete_kubeconfig(&runtime).await
    } else {
        contains(scenario, runtime, &content).await
    }
}

async fn leads_to(scenario: &mut Scenario, runtime: Runtime, cluster: &str) -> Result {
    let env = synchronization(scenario)?;
    let kubeconfig = env.cluster(cluster)?.kubeconfig.to_string();
    env.kcp.put_kubeconfig(&runtime, &kubeconfig).await?;
    let elsewhere = Some(number(cluster)?);
    if runtime.cluster.is_some() && runtime.cluster != elsewhere {
        // Both clusters and the RuntimeBootstrapper are cleaned up, also for the permanent Runtime.
        let mut moved = runtime.clone();
        moved.cluster = elsewhere;
        later(scenario, &env, "remove what was moved", async move |it| {
            Box::pin(it.remove(&moved)).await?;
            Box::pin(it.remove(&runtime)).await
        });
    }
    Ok(())
}

async fn contains(scenario: &mut Scenario, runtime: Runtime, content: &str) -> Result {
    let env = synchronization(scenario)?;
    let live = env.cluster_of(&runtime)?;
    let restored = runtime.clone();
    later(scenario, &env, "restore the kubeconfig", async move |it| {
        let kubeconfig = it.cluster_of(&restored)?.kubeconfig.to_string();
        it.kcp.put_kubeconfig(&restored, &kubeconfig).await
    });
    let mut kubeconfig = live.kubeconfig.clone();
    let mut cluster = kubeconfig["clusters"][0]["cluster"].take();
    let mut user = kubeconfig["users"][0]["user"].take();
    match content {
        "another key" => return env.kcp.put_secret(&runtime, "another", "{}").await,
        "an empty key config" => return env.kcp.put_kubeconfig(&runtime, "").await,
        "invalid YAML" => return env.kcp.put_kubeconfig(&runtime, "{").await,
        "a read-only user" => user = json!({ "token": live.read_only_token().await? }),
        "an exec plugin" => {
            let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "id" });
            user = json!({ "exec": exec });
        }
        "the path of a file" => {
            cluster["certificate-authority-data"].take();
            cluster["certificate-authority"] = json!("/etc/ssl/ca.pem");
        }
        "a proxy" => cluster["proxy-url"] = json!("http://proxy.test:3128"),
        "a plain http address" => {
            let server = cluster["server"].as_str().unwrap_or_default();
            cluster["server"] = json!(server.replace("https:", "http:"));
        }
        "insecure-skip-tls-verify" => cluster["insecure-skip-tls-verify"] = json!(true),
        "a leaf certificate as CA" => {
            cluster["certificate-authority-data"] = user["client-certificate-data"].clone();
        }
        other => bail!("unknown content of a kubeconfig: {other:?}"),
    }
    kubeconfig["clusters"][0]["cluster"] = cluster;
    kubeconfig["users"][0]["user"] = user;
    let text = kubeconfig.to_string();
    env.kcp.put_kubeconfig(&runtime, &text).await
}

/// Installs the public webhook and the sources as KIM does. Waits until every replica uses the sources, and the webhook has
/// applied its configuration.
#[given(expr = "runtime {string} installed by KIM")]
async fn installed_by_kim(scenario: &mut Scenario, name: String) -> Result {
    incomplete(scenario, &name, None, "webhook").await?;
    let env = synchronization(scenario)?;
    let (runtime, cluster) = (env.runtime(&name)?, env.cluster(&name)?);
    let (api, manifests) = (cluster.api.clone(), env.public_webhook()?);
    let destination = Destination { api, manifests };
    env.kim()?.serve(&runtime.name, destination);
    let signal = json!({ "metadata": { "labels": { (FORCE_RECONCILE_KEY): "true" } } });
    let path = runtime_path(&runtime.name);
    env.kcp.api.patch(&path, &signal).await?;
    for source in Source::ALL {
        let original = env.kcp.source(source).await?;
        cluster.has(source, &original).await?;
        cluster.uses(source, &original).await?;
    }
    cluster.is_registered().await?;
    apply_configuration(&cluster.api).await?;
    record(scenario).await
}

#[when(regex = r#"^Runtime "([^"]+)" is migrated to mode (direct|signal)$"#)]
async fn migrated(scenario: &mut Scenario, name: String, mode: String) -> Result {
    let env = synchronization(scenario)?;
    let runtime = env.runtime(&name)?;
    let change = json!({ "metadata": { "labels": { (MODE_LABEL): mode } } });
    let path = runtime_path(&runtime.name);
    env.kcp.api.patch(&path, &change).await?;
    if mode == MODE_SIGNAL {
        let api = &env.cluster_of(&runtime)?.api;
        let owner = named_config_map(api::names::SKR_NAMESPACE, OWNER_CONFIG_MAP);
        eventually("the runtime is orphaned", async || {
            let left = env.kcp.bootstrapper(&runtime.name).await?;
            ensure!(left.is_null(), "{}", left["status"]["conditions"]);
            check(api.find(&owner).await?.is_null(), format!("{owner} exists"))
        })
        .await?;
    } else {
        env.is_synchronized(&runtime).await?;
        let pods = env.cluster_of(&runtime)?.webhook_pods().await?;
        env.state().pod_uids = Some(pods);
    }
    env.record_reconciles();
    Ok(())
}
