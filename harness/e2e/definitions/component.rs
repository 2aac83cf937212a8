//! Components: stopped, restarted, rolled out, and another webhook beside the product's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::ready;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::prelude::*;
use super::{Stream, controller, watcher};
use crate::admission::webhook::{DEPLOYMENT, LANDSCAPE, NAMESPACE};
use crate::client::Answer;
use crate::install;
use crate::other_webhook;
use crate::rollout::restarted;
use clusters::cluster::TrustBundles;
use clusters::registry::HOST;

#[given(
    regex = "^a runtime that does not (serve|project) ClusterTrustBundles and pulls the webhook from the private registry$"
)]
async fn other_runtime(scenario: &mut Scenario, what: String) -> Result {
    let shared = scenario.environment_of::<Admission>()?;
    let trust_bundles = match what.as_str() {
        "serve" => TrustBundles::NotServed,
        _ => TrustBundles::Dropped,
    };
    let own = Arc::new(Box::pin(shared.without_trust_bundles(trust_bundles)).await?);
    let ended = Arc::clone(&own);
    scenario.undo("stop the scenario's own runtime", Admission::stop(ended));
    scenario.own = Some(own);
    for pod in webhook(scenario)?.pods().await? {
        let image = &pod["status"]["containerStatuses"][0]["imageID"];
        let pulled = image.as_str().is_some_and(|it| it.starts_with(HOST));
        ensure!(pulled, "the node runs {image}");
    }
    Ok(())
}

#[given(regex = r#"^component webhook runs (?:without flag "landscape"|with flags "(.+)")$"#)]
async fn with_flags(scenario: &mut Scenario, flags: String) -> Result {
    if flags.contains("--mutating-admission-policy") {
        let client = webhook(scenario)?.client;
        scenario.undo("wait until no policy is evaluated", without_policy(client));
    }
    restore_later(scenario, &deployment()).await?;
    let environment = scenario.environment_of::<Admission>()?;
    let image = &environment.fixtures.webhook.reference;
    let mut flags: Vec<&str> = flags.split_whitespace().collect();
    if !flags.is_empty() {
        flags.extend(["--landscape", LANDSCAPE]);
    }
    install::install(
        &environment.cluster,
        &install::webhook(image, &flags).await?,
    )
    .await
}

/// A Pod that the policy has adapted leaves the webhook nothing to mark.
async fn without_policy(client: Client) -> Result {
    let mut pod = named("adapted-by-the-webhook");
    pod["metadata"]["annotations"][api::Feature::FipsMode.key()] = json!("true");
    eventually("the webhook itself adapts a Pod", async || {
        let created = client.write(Write::DryRun, &pod).await?.good()?;
        let annotations = created.at("/metadata/annotations");
        check(annotations[api::names::MARKER] == "true", annotations)
    })
    .await
}

#[given(regex = "^component (webhook|controller|watcher) is (stopped|started|restarted|killed)$")]
#[when(regex = "^component (webhook|controller|watcher) is (stopped|started|restarted|killed)$")]
async fn component(scenario: &mut Scenario, name: String, change: String) -> Result {
    match (name.as_str(), change.as_str()) {
        ("controller", change) => controller::component(scenario, change).await,
        ("watcher", change) => watcher::component(scenario, change).await,
        (_, "stopped") => stop(scenario).await,
        (_, "started") => start(scenario).await,
        (_, "restarted") => restart(scenario).await,
        (_, change) => bail!("the webhook is never {change} by a scenario"),
    }
}

async fn restart(scenario: &Scenario) -> Result {
    let webhook = webhook(scenario)?;
    let before = webhook.replicas().await?;
    for replica in &before {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", replica.pod);
        webhook.client.delete(&path).await?;
    }
    eventually("other replicas run", async || {
        let now = webhook.replicas().await?;
        ensure!(now.len() >= before.len(), "{} replicas", now.len());
        for replica in &now {
            let is_new = before.iter().all(|old| old.pod != replica.pod);
            let is_started = replica.health("/healthz").await?.0;
            ensure!(is_new && is_started, "{}: {is_started}", replica.pod);
        }
        Ok(())
    })
    .await
}

async fn stop(scenario: &mut Scenario) -> Result {
    note_failed_open(scenario).await?;
    let scale = json!({ "spec": { "replicas": 0 } });
    change(scenario, &deployment(), scale).await?;
    let webhook = webhook(scenario)?;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    eventually("the Service has no endpoint", async || {
        let pods = webhook.pods().await?.len();
        let slices = webhook.client.get(&slices).await?.object.to_string();
        let is_ready = slices.contains("\"ready\":true");
        check(pods == 0 && !is_ready, format!("{pods} Pods"))
    })
    .await
}

async fn start(scenario: &mut Scenario) -> Result {
    change(
        scenario,
        &deployment(),
        json!({ "spec": { "replicas": 2 } }),
    )
    .await?;
    let environment = scenario.environment_of::<Admission>()?;
    install::rolled_out(&environment.cluster).await
}

#[then(regex = r"^the API server admitted (no|the) Pod without asking the webhook$")]
async fn failed_open(scenario: &mut Scenario, which: String) -> Result {
    let before = scenario.observed.noted("fail-open counter")?.as_u64();
    let now = webhook(scenario)?.failed_open().await?;
    let is_expected = (Some(now) > before) == (which == "the");
    check(
        is_expected,
        format!("fail-open count: {before:?}, then {now}"),
    )
}

async fn note_failed_open(scenario: &mut Scenario) -> Result {
    let count = webhook(scenario)?.failed_open().await?;
    scenario.observed.note("fail-open counter", json!(count));
    Ok(())
}

#[when(
    expr = "component webhook is rolled out while {int} Pods per second are created in Namespace {string}"
)]
async fn rolled_out(scenario: &mut Scenario, rate: u32, namespace: String) -> Result {
    note_failed_open(scenario).await?;
    let client = webhook(scenario)?.client;
    let namespace = scenario.resolve(&namespace);
    let creating = Stream::spawn(|over| create_pods(client, namespace, rate, over));
    // It waits for the rollout.
    let rolled = change(scenario, &deployment(), restarted()).await;
    let pods = creating.end().await??;
    rolled?;
    let during = pods.len() > usize::try_from(2 * MARGIN_SECONDS * rate)?;
    ensure!(during, "no Pod was created during the rollout");
    let wrong: Vec<&String> = pods.iter().flatten().collect();
    scenario
        .observed
        .note("Pods that are not mutated", json!(wrong));
    Ok(())
}

/// Creates Pods at a constant rate for some seconds before and after `over` is set, so that both sides of the rollout are
/// seen. Gives what was wrong with each.
///
/// The rate falls while `IN_FLIGHT` requests are not answered. Without a bound an API server that is slower than the rate
/// for some seconds collects requests until its calls of the webhook exceed their time limit in the API server itself.
async fn create_pods(
    client: Client,
    namespace: String,
    rate: u32,
    over: Arc<AtomicBool>,
) -> Result<Vec<Option<String>>> {
    #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let in_flight = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut pods = JoinSet::new();
    let mut left = MARGIN_SECONDS * rate;
    while left > 0 {
        ticks.tick().await;
        left -= u32::from(over.load(Ordering::Relaxed));
        let mut pod = named(&format!("pod-{}", pods.len()));
        // No scheduler looks at it: its admission is what is tested.
        pod["spec"]["schedulingGates"] = json!([{ "name": "harness.test/never" }]);
        pod["metadata"]["namespace"] = json!(namespace);
        let client = client.clone();
        let permit = Arc::clone(&in_flight).acquire_owned().await?;
        pods.spawn(async move {
            let answer = client.write(Write::Create, &pod).await;
            drop(permit);
            not_mutated(answer)
        });
    }
    Ok(pods.join_all().await)
}

fn not_mutated(answer: Result<Answer>) -> Option<String> {
    match answer.and_then(Answer::good) {
        Err(error) => Some(format!("{error:#}")),
        Ok(answer) => {
            let metadata = answer.at("/metadata");
            let is_mutated = metadata["annotations"][api::names::MARKER] == "true";
            (!is_mutated).then(|| format!("{} is not mutated", metadata["name"]))
        }
    }
}

#[given(
    expr = "another mutating webhook that adds container {string} with image {string} in Namespace {string}"
)]
async fn second_webhook(
    scenario: &mut Scenario,
    container: String,
    image: String,
    namespace: String,
) -> Result {
    let namespace = scenario.resolve(&namespace);
    let environment = scenario.environment_of::<Admission>()?;
    let added = json!({ "name": container, "image": image });
    let node = environment.cluster.node_address().await?;
    let patch = json!([{ "op": "add", "path": "/spec/containers/-", "value": added }]);
    let (config, task) = other_webhook::serve(&node, move |_| ready(patch.clone())).await?;
    // After the configuration is deleted: one that leads nowhere is in the way of every Pod.
    scenario.undo("stop the other webhook", async move {
        task.abort();
        Ok(())
    });
    let in_namespace = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    let configuration = other_webhook::registration(&config, &in_namespace);
    let name = format!("zz-{namespace}");
    let object = ObjectRef::new("MutatingWebhookConfiguration", None, &name);
    create(scenario, &object, configuration, Write::Create).await?;
    let client = webhook(scenario)?.client;
    let mut pod = named("is-it-asked");
    pod["metadata"]["namespace"] = json!(namespace);
    eventually("the other webhook is asked", async || {
        let answer = client.write(Write::DryRun, &pod).await?.good()?;
        check(answer.object.to_string().contains(&container), "not yet")
    })
    .await
}

fn deployment() -> ObjectRef {
    ObjectRef::new("Deployment", Some(NAMESPACE), DEPLOYMENT)
}

/// How many Pods are being created at most at a time.
const IN_FLIGHT: usize = 20;
/// Seconds of load before a rollout and after it.
const MARGIN_SECONDS: u32 = 2;
