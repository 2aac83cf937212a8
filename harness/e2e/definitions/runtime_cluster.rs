//! Runtime clusters: the objects that the controller writes, their faults, and Pods that run on them.

use std::sync::Arc;
use std::time::Instant;

use api::kcp::{CONTROLLER_FIELD_MANAGER, KIM_FIELD_MANAGER, WATCHER_FIELD_MANAGER};
use api::names::MARKER;
use tokio::sync::Mutex;

use super::disturbance::MISSED_WITHOUT_A_KILL;
use super::prelude::*;
use super::webhook::{NOT_MUTATED, adapts};
use crate::admission::webhook::Webhook;
use crate::conformance::Conformance;
use crate::inventory::{self, Inventory};
use crate::scenario::Cluster;
use crate::synchronization::pods::{PodStream, Tally};
use crate::synchronization::runtime_cluster::deployment_path;
use crate::synchronization::{number, webhook_path};

#[then(expr = "no object of the controller on runtime {string} is modified")]
async fn unmodified(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let before = env.state().writes.get(&name).cloned();
    let before = before.context("the objects were not recorded")?;
    let cluster = env.cluster(&name)?;
    consistently("no object is modified", A_WHILE, async || {
        let now = cluster.writes().await?;
        check(now == before, format!("before {before}\nnow {now}"))
    })
    .await
}

#[then(
    expr = "the ClusterTrustBundle and the ConfigMap on runtime {string} are applied exactly once"
)]
async fn applied_once(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let cluster = env.cluster(&name)?;
    let before = env.state().applies.get(&name).cloned();
    let before = before.context("applies were not counted before")?;
    consistently("the number of applies is constant", A_WHILE, async || {
        for (resource, now) in cluster.applied().await? {
            let applied = now.saturating_sub(before[resource]);
            ensure!(applied == 1, "{resource}: {applied} times");
        }
        Ok(())
    })
    .await
}

#[then(expr = "no object on runtime {string} has fields of field manager {string}")]
async fn no_fields(scenario: &mut Scenario, name: String, manager: String) -> Result {
    // Another name would have no fields in any case.
    let managers = [
        CONTROLLER_FIELD_MANAGER,
        KIM_FIELD_MANAGER,
        WATCHER_FIELD_MANAGER,
    ];
    ensure!(
        managers.contains(&&*manager),
        "expected one of {managers:?}"
    );
    let client = scenario.environment()?.client(&runtime(&name))?;
    eventually("no object has fields of the manager", async || {
        let mut objects = inventory::objects(&client).await?;
        objects.retain(|_, object| {
            items(&object["metadata"]["managedFields"]).any(|entry| entry["manager"] == manager)
        });
        let names: Vec<_> = objects.keys().collect();
        check(names.is_empty(), format!("{names:?}"))
    })
    .await
}

/// Waits until the objects of the cluster have not changed for some seconds. In suites whose scenarios install the product, it also waits until no
/// object of an earlier installation exists.
#[given(expr = "the inventory of runtime {string} is recorded")]
async fn inventory_recorded(scenario: &mut Scenario, name: String) -> Result {
    let client = scenario.environment()?.client(&runtime(&name))?;
    let is_installed = scenario.environment_of::<Conformance>().is_ok();
    let last = Mutex::new((Inventory::default(), Instant::now()));
    eventually("the objects of the cluster are stable", async || {
        let now = inventory::digests(&client).await?;
        let mut last = last.lock().await;
        let changed = inventory::differences(&last.0, &now);
        if !changed.is_empty() {
            *last = (now, Instant::now());
            bail!("{changed:?}");
        }
        ensure!(last.1.elapsed() >= STABLE, "stable for a short time");
        let mut old = now.keys().filter(|it| it.contains("rt-bootstrapper"));
        let old = old.next().filter(|_| !is_installed);
        check(old.is_none(), format!("installed earlier: {old:?}"))
    })
    .await?;
    scenario
        .observed
        .note(INVENTORY, json!(last.into_inner().0));
    Ok(())
}

#[then(expr = "the inventory of runtime {string} equals the recorded one")]
async fn inventory_equal(scenario: &mut Scenario, name: String) -> Result {
    let client = scenario.environment()?.client(&runtime(&name))?;
    let before = scenario.observed.noted(INVENTORY)?.clone();
    let before: Inventory = serde_json::from_value(before)?;
    eventually("the inventory is as recorded", async || {
        let now = inventory::digests(&client).await?;
        let found = inventory::differences(&before, &now);
        check(found.is_empty(), format!("{found:?}"))
    })
    .await
}

fn runtime(name: &str) -> Cluster {
    Cluster::Runtime(Some(name.to_owned()))
}

const INVENTORY: &str = "inventory";
/// Time without a change after which the objects of a cluster are stable. Controllers of Kubernetes write some objects of a new
/// namespace later.
const STABLE: Duration = Duration::from_secs(5);

#[when(
    regex = r#"^(?:the API server of )?runtime "(.+)" (becomes (?:un)?reachable|denies writes to Secrets|delays writes to ConfigMaps|accepts writes again)$"#
)]
async fn fault(scenario: &mut Scenario, name: String, what: String) -> Result {
    let env = synchronization(scenario)?;
    let number = number(&name)?;
    match what.as_str() {
        "becomes reachable" => return env.block_connections(number, false).await,
        "accepts writes again" => return env.accept_writes(number).await,
        _ => {}
    }
    later(scenario, &env, "end all faults", async move |it| {
        it.block_connections(number, false).await?;
        it.accept_writes(number).await
    });
    match what.as_str() {
        "becomes unreachable" => env.block_connections(number, true).await,
        "denies writes to Secrets" => env.deny_secret(number).await,
        _ => env.delay_config_map(number).await,
    }
}

#[then(expr = "the webhook on runtime {string} mutates a Pod that opts in")]
async fn mutates(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    adapts(&env.cluster(&name)?.api).await
}

/// The annotation of each copy contains the hash that the status must contain.
#[then(
    regex = r#"^the status of RuntimeBootstrapper "([^"]+)" has the version, the ready replicas and the hashes of runtime "([^"]+)"$"#
)]
async fn status(scenario: &mut Scenario, name: String, cluster: String) -> Result {
    let env = synchronization(scenario)?;
    let name = env.runtime(&name)?.name;
    let cluster = env.cluster(&cluster)?;
    eventually("the status is complete", async || {
        let object = env.kcp.bootstrapper(&name).await?;
        let (status, webhook) = (&object["status"], &object["status"]["webhook"]);
        let is_current = status["observedGeneration"] == object["metadata"]["generation"];
        let is_ready = webhook["readyReplicas"] == webhook["replicas"];
        let runs = webhook["replicas"].as_u64() > Some(0) && webhook["version"].is_string();
        ensure!(is_current && is_ready && runs, "{status}");
        let fields = ["pullSecretHash", "trustBundleHash", "configMapHash"];
        for (source, field) in Source::ALL.into_iter().zip(fields) {
            let copy = cluster.copy(source).await?;
            let hash = &copy["metadata"]["annotations"][api::kcp::CONTENT_HASH];
            ensure!(hash.is_string(), "the {source:?} has no hash");
            let named = &status["configuration"][field];
            ensure!(named == hash, "{field}: {named}, not {hash}");
        }
        check(status["configuration"]["revision"].is_string(), status)
    })
    .await
}

#[then(
    expr = "the webhook configuration on runtime {string} is deleted before the Deployment of the webhook"
)]
async fn deleted_first(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let api = &env.cluster(&name)?.api;
    let before = scenario.observed.noted("version before")?.as_str();
    let before = before.context("no version")?;
    let (deployment, webhook) = (deployment_path(), webhook_path());
    let order = eventually("both are deleted", async || {
        let mut order = Vec::new();
        for path in [&webhook, &deployment] {
            let (collection, name) = path.rsplit_once('/').context("a path")?;
            order.push(api.deletion(collection, name, before).await?);
        }
        Ok(order)
    })
    .await?;
    let seen = format!("versions of the deletions: {order:?}");
    check(order.is_sorted(), seen)
}

#[then(expr = "the Pods of the webhook on runtime {string} are not replaced")]
async fn same_pods(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let before = env.state().pod_uids.clone();
    let now = env.cluster(&name)?.webhook_pods().await?;
    equal(&before.context("no Pods were recorded")?, &now)
}

/// The step belongs to the synchronization suite; `webhook image` is the default image.
#[given(regex = r#"^the webhook on runtime "([^"]+)" runs image "([^"]+)"$"#)]
#[then(regex = r#"^the webhook on runtime "([^"]+)" runs image "([^"]+)"$"#)]
async fn runs_image(scenario: &mut Scenario, name: String, image: String) -> Result {
    let image = scenario.resolve(&image);
    let env = synchronization(scenario)?;
    webhook_runs(env.cluster(&name)?.api.clone(), &image).await
}

/// Waits until all Pods of the webhook have an image.
pub(crate) async fn webhook_runs(client: Client, image: &str) -> Result {
    let webhook = Webhook { client };
    eventually("all replicas run the image", async || {
        let pods = webhook.pods().await?;
        let images = pods.iter().map(|it| &it["spec"]["containers"][0]["image"]);
        let is_all = !pods.is_empty() && images.clone().all(|it| *it == image);
        check(is_all, json!(images.collect::<Vec<_>>()))
    })
    .await
}

#[given(expr = "Pods that opt in are created continuously on runtime {string}")]
async fn stream(scenario: &mut Scenario, name: String) -> Result {
    let env = synchronization(scenario)?;
    let stream = PodStream::start(env.cluster(&name)?.api.clone()).await?;
    env.state().pods = Some(stream);
    Ok(())
}

#[then(
    regex = "^every created Pod (is mutated(?: but those sent to a killed replica)?|mounts the ClusterTrustBundle|has the image and the pull Secret of one revision|finds exactly one webhook configuration)$"
)]
async fn every_pod(scenario: &mut Scenario, expected: String) -> Result {
    if scenario.environment_of::<Leased>().is_err() {
        let of = match expected.as_str() {
            "is mutated" => NOT_MUTATED,
            "is mutated but those sent to a killed replica" => MISSED_WITHOUT_A_KILL,
            _ => bail!("of this suite's Pods: {expected}"),
        };
        let wrong = scenario.observed.noted(of)?;
        return check(*wrong == json!([]), wrong);
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

/// Returns the results of the created Pods. The first call ends their creation.
async fn tally(env: &Arc<Leased>) -> Result<Arc<Tally>> {
    let running = env.state().pods.take();
    if let Some(stream) = running {
        let tally = Arc::new(stream.end().await?);
        env.state().tally = Some(tally);
    }
    env.state().tally.clone().context("no Pods were created")
}

/// The Pod opts in to the ClusterTrustBundle, the only feature whose effect on a running Pod can change.
#[given(expr = "Pod {string} that opts in runs on runtime {string}")]
async fn runs(scenario: &mut Scenario, name: String, cluster: String) -> Result {
    scenario.name(&name);
    let mut object = ObjectRef::new("Pod", Some("default"), &name);
    object.runtime = Some(cluster);
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
