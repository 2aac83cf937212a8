//! The webhook's Deployment: restarted, stopped, rolled out, and other webhooks beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use cucumber::{given, then, when};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::configuration::webhook;
use super::object::{change, create, restore_later};
use super::pod::plain;
use super::{PATIENCE, controller};
use crate::admission::Admission;
use crate::admission::second;
use crate::admission::webhook::{DEPLOYMENT, NAMESPACE};
use crate::client::{Answer, Client, Write};
use crate::scenario::{ObjectRef, Scenario};
use testkit::until::until;

#[given(
    "a runtime that does not serve ClusterTrustBundles and pulls the webhook from the private registry"
)]
async fn other_runtime(scenario: &mut Scenario) -> anyhow::Result<()> {
    let shared = scenario.environment_of::<Admission>()?;
    let own = Arc::new(Box::pin(shared.without_trust_bundles()).await?);
    let ended = Arc::clone(&own);
    scenario.undo("stop the scenario's own runtime", Admission::stop(ended));
    scenario.move_to(own);
    let registry = shared.registry().host();
    for pod in webhook(scenario)?.pods().await? {
        let image = &pod["status"]["containerStatuses"][0]["imageID"];
        let pulled = image.as_str().is_some_and(|it| it.starts_with(&registry));
        ensure!(pulled, "the node runs {image}");
    }
    Ok(())
}

#[given(expr = "component webhook runs without flag {string}")]
async fn without_flag(scenario: &mut Scenario, flag: String) -> anyhow::Result<()> {
    restore_later(scenario, &deployment()).await?;
    let environment = scenario.environment_of::<Admission>()?;
    let product = environment.product().clone().without_flag(&flag);
    product.apply(environment.cluster()).await?;
    product.rolled_out(environment.cluster()).await
}

#[given(regex = "^component (webhook|controller) is (stopped|started|restarted)$")]
#[when(regex = "^component (webhook|controller) is (stopped|started|restarted)$")]
async fn component(scenario: &mut Scenario, name: String, change: String) -> anyhow::Result<()> {
    match (name.as_str(), change.as_str()) {
        ("controller", change) => controller::component(scenario, change).await,
        (_, "stopped") => stop(scenario).await,
        (_, "restarted") => restart(scenario).await,
        (_, change) => bail!("the webhook is never {change} by a scenario; its clean-up starts it"),
    }
}

async fn restart(scenario: &Scenario) -> anyhow::Result<()> {
    let webhook = webhook(scenario)?;
    let before = webhook.replicas().await?;
    for replica in &before {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", replica.pod);
        webhook
            .client()
            .ask(Method::DELETE, &path, None)
            .await?
            .good()?;
    }
    until("other replicas run", PATIENCE, || async {
        let now = webhook.replicas().await?;
        let is_new = |pod: &str| before.iter().all(|old| old.pod != pod);
        ensure!(
            now.len() >= before.len() && now.iter().all(|replica| is_new(&replica.pod)),
            "{} replicas",
            now.len()
        );
        for replica in &now {
            ensure!(
                replica.health("/healthz").await?.0,
                "{} starts",
                replica.pod
            );
        }
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

async fn stop(scenario: &mut Scenario) -> anyhow::Result<()> {
    note_failed_open(scenario).await?;
    let scale = json!({ "spec": { "replicas": 0 } });
    change(scenario, &deployment(), scale, Write::Merge).await?;
    let webhook = webhook(scenario)?;
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
    until("the Service has no endpoint", PATIENCE, || async {
        let pods = webhook.pods().await?.len();
        let slices = webhook.client().get(&slices).await?.object.to_string();
        ensure!(
            pods == 0 && !slices.contains("\"ready\":true"),
            "{pods} Pods"
        );
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

#[then(regex = r"^the API server admitted (no|the) Pod without asking the webhook$")]
async fn failed_open(scenario: &mut Scenario, which: String) -> anyhow::Result<()> {
    let before = scenario.observed.noted("fail-open counter")?.as_f64();
    let before = before.unwrap_or_default();
    let now = webhook(scenario)?.failed_open().await?;
    ensure!(
        (now > before) == (which == "the"),
        "apiserver_admission_webhook_fail_open_count: {before}, then {now}"
    );
    Ok(())
}

async fn note_failed_open(scenario: &mut Scenario) -> anyhow::Result<()> {
    let count = webhook(scenario)?.failed_open().await?;
    scenario
        .observed
        .noted
        .insert("fail-open counter", json!(count));
    Ok(())
}

#[when(
    expr = "component webhook is rolled out while {int} Pods per second are created in Namespace {string}"
)]
async fn rolled_out(scenario: &mut Scenario, rate: u32, namespace: String) -> anyhow::Result<()> {
    note_failed_open(scenario).await?;
    let environment = scenario.environment_of::<Admission>()?;
    let client = webhook(scenario)?.client().clone();
    let over = Arc::new(AtomicBool::new(false));
    let load = Load {
        client,
        namespace: scenario.resolve(&namespace),
        rate,
    };
    let creating = tokio::spawn(load.create(Arc::clone(&over)));
    let stamp = format!("{:016x}", fastrand::u64(..));
    let restart = json!({ "spec": { "template": { "metadata": { "annotations": { "harness.test/restarted": stamp } } } } });
    let rolled = match change(scenario, &deployment(), restart, Write::Merge).await {
        Ok(()) => {
            environment
                .product()
                .rolled_out(environment.cluster())
                .await
        }
        failed => failed,
    };
    over.store(true, Ordering::Relaxed);
    let outcome = creating.await?;
    rolled?;
    let noted = json!([outcome.pods, 2 * MARGIN_SECONDS * rate, outcome.wrong]);
    scenario.observed.noted.insert("created Pods", noted);
    Ok(())
}

/// Fails unless every Pod that was created during the rollout was admitted and mutated.
pub(crate) fn all_mutated(scenario: &Scenario) -> anyhow::Result<()> {
    let noted = scenario.observed.noted("created Pods")?;
    ensure!(
        noted[0].as_u64() > noted[1].as_u64(),
        "only {} Pods: none during the rollout",
        noted[0]
    );
    ensure!(noted[2] == json!([]), "of {} Pods: {}", noted[0], noted[2]);
    Ok(())
}

/// Pods that are created at a constant rate, however long each takes.
struct Load {
    client: Client,
    namespace: String,
    rate: u32,
}

#[derive(Default)]
struct Outcome {
    pods: u32,
    wrong: Vec<String>,
}

impl Load {
    /// Creates Pods for some seconds before and after `over` is set, so that both sides of the rollout are seen.
    async fn create(self, over: Arc<AtomicBool>) -> Outcome {
        #[expect(clippy::disallowed_methods, reason = "a fixed rate, not a wait")]
        let mut ticks = interval(Duration::from_secs(1) / self.rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut answers = JoinSet::new();
        let mut outcome = Outcome::default();
        let mut left = MARGIN_SECONDS * self.rate;
        while left > 0 {
            ticks.tick().await;
            if over.load(Ordering::Relaxed) {
                left -= 1;
            }
            outcome.pods += 1;
            let mut pod = plain();
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = json!(format!("pod-{}", outcome.pods));
            // No scheduler looks at it: its admission is what is tested.
            pod["spec"]["schedulingGates"] = json!([{ "name": "harness.test/never" }]);
            let (client, namespace) = (self.client.clone(), self.namespace.clone());
            answers.spawn(async move { client.write(Write::Create, Some(&namespace), &pod).await });
            while let Some(answer) = answers.try_join_next() {
                outcome.judge(answer);
            }
        }
        while let Some(answer) = answers.join_next().await {
            outcome.judge(answer);
        }
        outcome
    }
}

impl Outcome {
    fn judge(&mut self, answer: Result<anyhow::Result<Answer>, tokio::task::JoinError>) {
        let answer = answer.map_err(anyhow::Error::from).flatten();
        match answer.and_then(Answer::good) {
            Err(error) => self.wrong.push(format!("{error:#}")),
            Ok(answer) => {
                let metadata = answer.at("/metadata");
                if metadata["annotations"][api::names::MARKER] != "true" {
                    self.wrong
                        .push(format!("{} is not mutated", metadata["name"]));
                }
            }
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
) -> anyhow::Result<()> {
    let namespace = scenario.resolve(&namespace);
    let environment = scenario.environment_of::<Admission>()?;
    let host = second::address(&environment.cluster().node_address().await?)?;
    let added = json!({ "name": container, "image": image });
    let server = second::serve(host, added).await?;
    let (configuration, task) = (server.configuration(&namespace), server.task);
    // Before the task: a configuration that leads nowhere is in the way of every Pod.
    scenario.undo("stop the other webhook", async move {
        task.abort();
        Ok(())
    });
    let name = configuration["metadata"]["name"].as_str();
    let object = ObjectRef::new(
        "MutatingWebhookConfiguration",
        None,
        name.context("a name")?,
    );
    create(scenario, &object, configuration, Write::Create).await?;
    let client = webhook(scenario)?.client().clone();
    let mut pod = plain();
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("is-it-asked");
    until("the other webhook is asked", PATIENCE, || async {
        let answer = client.write(Write::DryRun, Some(&namespace), &pod).await?;
        let text = answer.good()?.object.to_string();
        ensure!(text.contains(&container), "not yet");
        anyhow::Ok(())
    })
    .await?;
    Ok(())
}

pub(crate) fn deployment() -> ObjectRef {
    ObjectRef::new("Deployment", Some(NAMESPACE), DEPLOYMENT)
}

/// The webhook's registration.
pub(crate) fn webhook_configuration() -> ObjectRef {
    let name = api::names::WEBHOOK_CONFIGURATION;
    ObjectRef::new("MutatingWebhookConfiguration", None, name)
}

/// A field of a stored object, for steps that compare.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> anyhow::Result<&'a str> {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.with_context(|| format!("no {pointer}"))
}

/// Seconds of load before a rollout and after it.
const MARGIN_SECONDS: u32 = 2;
