//! Steps of the documented flow: KEB provisions Runtimes, KIM creates clusters, KLM deploys modules.

use std::collections::BTreeSet;

use api::names::SKR_NAMESPACE;
use jiff::Timestamp;

use super::PATIENCE;
use super::prelude::*;
use super::webhook::would_be;
use crate::conformance::{Call, Program};
use crate::flow::{Flow, Installer, Provisioned, Reconciles, Rotation, STEPS, View};
use crate::flow::{kyma_path, reconciles};
use crate::rollout::{Workload, kill};
use crate::synchronization::runtime_cluster::deployment_path;
use kube::Resource as _;

/// Mode of Runtimes without a webhook, which neither KIM nor the controller supports.
const WITHOUT_WEBHOOK: &str = "none";

#[when(
    regex = r#"^KEB provisions Runtime "([^"]+)" (?:in mode (signal|direct)|without a webhook) with modules? "([^"]+)"$"#
)]
fn provisions(scenario: &mut Scenario, name: String, mode: String, modules: String) -> Result {
    provision(scenario, &name, &mode, &modules).map(drop)
}

#[given(
    regex = r#"^Runtime "([^"]+)" in mode (signal|direct) whose Kyma has modules? "([^"]+)" and is Ready$"#
)]
async fn is_provisioned(
    scenario: &mut Scenario,
    name: String,
    mode: String,
    modules: String,
) -> Result {
    let provisioned = provision(scenario, &name, &mode, &modules)?;
    let env = scenario.environment_of::<View>()?;
    let is_ready = async || is_ready(&env, &provisioned).await;
    eventually("the Kyma is Ready", is_ready).await?;
    // Without a watcher, KLM receives no events of the changes of a scenario, and reconciles a Kyma that is Ready only every
    // hour.
    env.shared()
        .is_watched(&provisioned.instance, PATIENCE)
        .await
}

fn provision(
    scenario: &mut Scenario,
    name: &str,
    mode: &str,
    modules: &str,
) -> Result<Provisioned> {
    let env = scenario.environment_of::<View>()?;
    let mode = Some(mode).filter(|it| !it.is_empty());
    let provisioned = env.provision(name, mode.unwrap_or(WITHOUT_WEBHOOK), modules);
    // The runtime ID is the name of the Runtime and of the Kyma.
    scenario.alias(name, &provisioned.instance.runtime_id);
    let (flow, own) = (env.shared(), provisioned.clone());
    scenario.undo(format!("deprovision Runtime {name}"), async move {
        own.end();
        flow.keb.deprovision(&own.instance).await
    });
    Ok(provisioned)
}

async fn is_ready(env: &View, provisioned: &Provisioned) -> Result {
    provisioned.error()?;
    env.shared().has_ready_kyma(&provisioned.instance).await
}

/// The time starts with the creation of the Runtime; it includes no builds.
#[then(regex = r#"^the Kyma of Runtime "([^"]+)" is Ready within (\d+) seconds$"#)]
async fn ready_within(scenario: &mut Scenario, name: String, seconds: u64) -> Result {
    let env = scenario.environment_of::<View>()?;
    let provisioned = env.provisioned(&name)?;
    let limit = Duration::from_secs(seconds);
    let what = format!("the Kyma of Runtime {name} is Ready");
    let left = limit.saturating_sub(provisioned.begin.elapsed());
    testkit::until::until(&what, left, || is_ready(&env, &provisioned)).await?;
    let taken = provisioned.begin.elapsed();
    tracing::info!(?taken, mode = provisioned.instance.mode, "Kyma is Ready");
    if scenario.observed.noted(KILLED).is_err() {
        // An eviction would hide a Pod that the webhook missed, because another Pod replaces it in time.
        let events = "/apis/events.k8s.io/v1/events?fieldSelector=reason=EvictedForRepair";
        let evicted = env.shoot(Some(&name))?.api.items(events).await?;
        check(
            evicted.is_empty(),
            format!("missed Pods were evicted: {evicted:?}"),
        )?;
    }
    check(taken <= limit, format!("it took {taken:?}"))
}

/// The step must list all steps by number and name. The times are in seconds and from one machine; equal times are in order.
#[then(regex = r#"^the flow of Runtime "([^"]+)" went through these steps in order:$"#)]
async fn in_order(scenario: &mut Scenario, name: String, step: &Step) -> Result {
    let env = scenario.environment_of::<View>()?;
    let provisioned = env.provisioned(&name)?;
    let lines = step.docstring.as_deref().context("the step has no text")?;
    let lines: Vec<&str> = lines.trim().lines().map(str::trim).collect();
    let known = STEPS.map(|(number, what)| format!("{number} {what}"));
    equal(&known.join("\n"), &lines.join("\n"))?;
    let mut earlier = (Timestamp::UNIX_EPOCH, "");
    for (_, what) in STEPS {
        let time = env.time_of(&provisioned.instance, what).await?;
        let (before, earlier_step) = earlier;
        let seen = format!("{what} at {time}, before {earlier_step:?} at {before}");
        check(time >= before, seen)?;
        earlier = (time, what);
    }
    Ok(())
}

/// Checks the moment at which the Runtime becomes Ready: a Pod is created immediately after the first read with this state.
#[then(
    regex = r#"^as soon as KEB may create the Kyma, a Pod that opts in is mutated on runtime "([^"]+)"$"#
)]
async fn mutated_when_ready(scenario: &mut Scenario, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let provisioned = env.provisioned(&name)?;
    eventually("KEB may create the Kyma", async || {
        provisioned.error()?;
        let is_open = env.keb.is_ready(&provisioned.instance).await?;
        check(is_open, "not yet")
    })
    .await?;
    let shoot = env.shoot(Some(&name))?;
    let pod = would_be(&shoot.api).await?;
    let has_variable = pod.to_string().contains(api::names::FIPS_VARIABLE);
    check(has_variable, pod)
}

#[given(regex = r#"^KLM has nothing to do for Runtime "([^"]+)"$"#)]
async fn idle(scenario: &mut Scenario, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let id = env.provisioned(&name)?.instance.runtime_id;
    let count = eventually("KLM reconciles the Kyma no more", async || {
        let before = reconciles(&env.klm, &id).await?;
        consistently("no reconcile", QUIET, async || {
            let now = reconciles(&env.klm, &id).await?;
            check(now == before, "KLM reconciles the Kyma")
        })
        .await?;
        Ok(before)
    })
    .await?;
    scenario.observed.note("events", json!(env.events().await?));
    let Reconciles { all, without_event } = count;
    scenario.observed.note("reconciles", json!(all));
    scenario
        .observed
        .note("reconciles without an event", json!(without_event));
    Ok(())
}

/// An event, and the event that confirms it some seconds later, cause one reconcile each. The required resync of a new runtime may
/// arrive meanwhile and cause another one.
#[then(
    regex = r#"^KLM (?:reconciles the Kyma of Runtime "([^"]+)" within (\d+) seconds, and (\d+) times in all|does not reconcile the Kyma of Runtime "([^"]+)")$"#
)]
async fn reconciled(
    scenario: &mut Scenario,
    name: String,
    seconds: String,
    most: String,
    other: String,
) -> Result {
    let env = scenario.environment_of::<View>()?;
    let noted = |name| anyhow::Ok(scenario.observed.noted(name)?.as_u64().unwrap_or(0));
    let before = noted("reconciles")?;
    let before_without_event = noted("reconciles without an event")?;
    let name = if name.is_empty() { other } else { name };
    let id = env.provisioned(&name)?.instance.runtime_id;
    let increase = async || {
        let now = reconciles(&env.klm, &id).await?;
        let others = now.without_event.saturating_sub(before_without_event);
        anyhow::Ok((now.all.saturating_sub(before), others))
    };
    if let Ok(seconds) = seconds.parse() {
        let limit = Duration::from_secs(seconds);
        let is_seen = || async {
            let (seen, others) = increase().await?;
            check(seen > others, "no reconcile")
        };
        testkit::until::until("KLM reconciles the Kyma", limit, is_seen).await?;
    }
    let most = most.parse().unwrap_or(0);
    consistently("no further reconcile", CONFIRMED, async || {
        let (seen, others) = increase().await?;
        check(seen <= most + others, format!("{seen} reconciles"))
    })
    .await?;
    let (seen, _) = increase().await?;
    check(seen >= most, format!("{seen} reconciles"))
}

/// The Pods are in the Namespace of the product.
#[then(
    regex = r#"^the image of the Pods with label "([^"]+)" on runtime "([^"]+)" cannot be pulled$"#
)]
async fn not_pulled(scenario: &mut Scenario, label: String, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    eventually("the image cannot be pulled", async || {
        let shoot = env.shoot(Some(&name))?;
        let pods = shoot.api.items(&pods_path(&label)).await?;
        let waiting = |pod: &Value| {
            let container = &pod["status"]["containerStatuses"][0];
            let reason = text(&container["state"]["waiting"]["reason"]);
            ["ErrImagePull", "ImagePullBackOff"].contains(&reason)
        };
        let all = !pods.is_empty() && pods.iter().all(waiting);
        let seen: Vec<&Value> = pods.iter().map(|it| &it["status"]).collect();
        check(all, json!(seen))
    })
    .await
}

#[when(regex = r#"^the Pods with label "([^"]+)" on runtime "([^"]+)" are deleted$"#)]
async fn pods_deleted(scenario: &mut Scenario, label: String, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let shoot = env.shoot(Some(&name))?;
    shoot.api.delete(&pods_path(&label)).await
}

fn pods_path(label: &str) -> String {
    format!("/api/v1/namespaces/{SKR_NAMESPACE}/pods?labelSelector={label}")
}

/// The image is changed in the manifests on KCP.
#[given(expr = "KIM installs the webhook with image {string}")]
async fn installs(scenario: &mut Scenario, image: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let flow = env.shared();
    scenario.undo("restore the manifests of the webhook", async move {
        flow.put_webhook_manifests(None).await
    });
    env.put_webhook_manifests(Some(&image)).await
}

/// Afterwards the registry accepts only the other user.
#[when(
    "the credentials of the registry on KCP are replaced by those of another user, and the earlier ones are revoked"
)]
async fn rotated(scenario: &mut Scenario) -> Result {
    let env = scenario.environment_of::<View>()?;
    let flow = env.shared();
    scenario.undo("restore the pull Secret", async move {
        flow.registry().accept(&[0, 1]).await?;
        flow.put_pull_secret(0).await
    });
    env.put_pull_secret(1).await?;
    env.registry().accept(&[1]).await?;
    eventually("the registry rejects the earlier credentials", async || {
        env.registry().rejects(0).await
    })
    .await
}

/// Upgrades as a release does: the controller gets another image, and installs other images of the webhook and the watcher.
#[when(expr = "all components are upgraded while Runtime {string} is provisioned")]
async fn upgraded(scenario: &mut Scenario, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let flow = env.shared();
    scenario.undo("install the earlier images", async move {
        flow.upgrade(false).await
    });
    eventually("the webhook is installed on the runtime", async || {
        let shoot = env.shoot(Some(&name))?;
        shoot.api.get(&deployment_path()).await.map(drop)
    })
    .await?;
    env.upgrade(true).await
}

#[then(regex = r#"^webhook and watcher on runtime "([^"]+)" run the upgraded images$"#)]
async fn runs_upgraded(scenario: &mut Scenario, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let shoot = env.shoot(Some(&name))?;
    let [_, webhook, watcher] = env.upgraded.each_ref().map(|it| &it.reference);
    super::runtime_cluster::webhook_runs(shoot.api.clone(), webhook).await?;
    let replicas = Workload::new(shoot.api.clone(), SKR_NAMESPACE, WATCHER);
    eventually("the watcher runs the upgraded image", async || {
        replicas.replicas().await?;
        let pods = replicas.pods().await?;
        let images = pods.iter().map(|it| &it["spec"]["containers"][0]["image"]);
        let images: Vec<&Value> = images.collect();
        let is_upgraded = images.iter().all(|it| *it == watcher);
        check(is_upgraded, format!("{images:?}"))
    })
    .await
}

#[when(
    expr = "the conformance of KCP and of runtimes {string} and {string} to {string} is checked"
)]
async fn checked(scenario: &mut Scenario, one: String, two: String, file: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let [one, two] = [env.shoot(Some(&one))?, env.shoot(Some(&two))?];
    let call = Call {
        scenario: &file,
        kcp: Some(&env.kcp.cluster.kubeconfig),
        runtimes: &[&one.cluster.kubeconfig, &two.cluster.kubeconfig],
        ..Call::default()
    };
    let ended = Program::build().await?.run(call).await?;
    super::conformance::keep(scenario, &ended)
}

#[when(regex = r#"^KEB deprovisions Runtime "([^"]+)"$"#)]
async fn deprovisions(scenario: &mut Scenario, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let provisioned = env.provisioned(&name)?;
    provisioned.end();
    let deprovision = env.keb.deprovision(&provisioned.instance);
    let limit = Duration::from_mins(4);
    let in_time = tokio::time::timeout(limit, deprovision).await;
    in_time.context("KEB still waits")?
}

/// Searches all fields of every object of every kind except Events, so that it also finds an ID in a state ConfigMap.
#[then(regex = r#"^no object on KCP names Runtime "([^"]+)"$"#)]
async fn nothing_left(scenario: &mut Scenario, name: String) -> Result {
    let env = scenario.environment_of::<View>()?;
    let id = env.provisioned(&name)?.instance.runtime_id;
    eventually("nothing of the Runtime is left", async || {
        let named = naming(&env, &id).await?;
        check(named.is_empty(), format!("{named:?}"))
    })
    .await
}

async fn naming(flow: &Flow, id: &str) -> Result<BTreeSet<String>> {
    let client = &flow.kcp.api;
    let mut named = BTreeSet::new();
    for kind in client.listed().await?.filter(|it| it.kind != "Event") {
        let path = kube::api::DynamicObject::url_path(&kind, None);
        for object in client.items(&path).await? {
            if object.to_string().contains(id) {
                let name = text(&object["metadata"]["name"]);
                named.insert(format!("{} {name}", kind.kind));
            }
        }
    }
    Ok(named)
}

/// The seed selects a component and a time in the first twelve seconds. A component that does not run yet is killed when it
/// starts. The step fails if the Kyma is Ready before. A Pod that is created while no replica of the webhook responds is
/// missed, and evicted later.
#[when(
    regex = r#"^a random component is killed while Runtime "([^"]+)" is provisioned, with seed (\d+)$"#
)]
async fn killed(scenario: &mut Scenario, name: String, seed: u64) -> Result {
    let env = scenario.environment_of::<View>()?;
    let mut random = fastrand::Rng::with_seed(seed);
    let (after, number) = (random.u64(..12_000), random.usize(..COMPONENTS.len()));
    let (component, pattern) = COMPONENTS[number];
    let provisioned = env.provisioned(&name)?;
    let at = provisioned.begin + Duration::from_millis(after);
    tokio::time::sleep_until(at.into()).await;
    let kyma = kyma_path(&provisioned.instance.runtime_id);
    let killed = eventually("the component is killed", async || {
        if env.kcp.api.find(&kyma).await?["status"]["state"] == "Ready" {
            return Ok(0);
        }
        let killed = if component.ends_with("on KCP") {
            kill(&env.kcp.cluster, "cmdline", pattern).await?
        } else {
            let shoot = env.shoot(Some(&name))?;
            if component == SERVING_WEBHOOK {
                let webhook = shoot.api.find(&deployment_path()).await?;
                let available = webhook["status"]["availableReplicas"].as_u64();
                ensure!(available >= Some(1), "no replica is available");
            }
            kill(&shoot.cluster, "cmdline", pattern).await?
        };
        ensure!(killed > 0, "no process of {component} runs");
        Ok(killed)
    })
    .await?;
    tracing::info!(seed, component, after, killed, "processes killed");
    scenario.observed.note(KILLED, json!(component));
    let too_late = format!("the Kyma was Ready before {component} was killed");
    check(killed > 0, too_late)
}

/// Key of a result of a scenario: the component that was killed.
const KILLED: &str = "component that was killed";

/// Rotates the CA of the watchers, or lets another installer take over the watcher of a Runtime, while Kymas are created on
/// the runtime.
pub(super) async fn changed_under_load(
    scenario: &mut Scenario,
    env: &View,
    what: &str,
    name: &str,
) -> Result {
    let instance = env.provisioned(name)?.instance;
    let flow = env.shared();
    let (delivery, created) = if what.starts_with("CA") {
        let rotation = Rotation {
            is_repeated: what.ends_with("twice"),
            has_outage: what.ends_with("an outage of the runtime"),
        };
        if rotation.has_outage {
            let (flow, instance) = (env.shared(), instance.clone());
            scenario.undo("end the outage", async move {
                flow.block_connections(&instance, false).await
            });
        }
        flow.rotate_ca(&instance, rotation).await?
    } else {
        let installer = if what.starts_with("controller") {
            Installer::Controller
        } else {
            let flow = env.shared();
            scenario.undo("install the controller of Watchers", async move {
                flow.upgrade(false).await
            });
            Installer::LifecycleManager
        };
        flow.take_over(&instance, installer).await?
    };
    scenario.observed.note("created Kymas", json!(created));
    tracing::info!(what, ?delivery, "changes continued");
    scenario.observed.note("delivery", json!(delivery));
    Ok(())
}

/// Waits until KLM has received an event for an object that the scenario has created.
/// Counts from the time at which KLM had nothing to do, if a step waited for that, and otherwise from the start of KLM.
pub(super) async fn received(scenario: &Scenario, env: &View, object: &ObjectRef) -> Result {
    let object = scenario.resolved(object);
    let object = format!("{}/{}", object.namespace.unwrap_or_default(), object.name);
    let before = scenario.observed.noted("events");
    let before = before.map_or(0.0, |it| it[&object].as_f64().unwrap_or_default());
    eventually("KLM receives an event", async || {
        let events = env.events().await?;
        let count = events.get(&object).copied().unwrap_or_default();
        check(count > before, format!("{count} events, {before} before"))
    })
    .await
}

/// Reads the metrics of the watcher as a scraper does that knows only its Service. The counters begin with the last rollout, and the
/// value is at least `least`.
pub(super) async fn is_scraped(env: &View, service: &str, metric: &str, least: u64) -> Result {
    let client = &env.shoot(None)?.api;
    let path =
        format!("/api/v1/namespaces/{SKR_NAMESPACE}/services/{service}:http-metrics/proxy/metrics");
    eventually(&format!("{service} serves {metric}"), async || {
        let page = client.text(&path).await?;
        let count = testkit::metrics::Samples::parse(&page).count_of_known(metric)?;
        check(count >= least, format!("it is {count}"))
    })
    .await
}

/// Waits until KLM's counters of events include each created Kyma.
pub(super) async fn received_each(scenario: &Scenario, env: &View) -> Result {
    let created = scenario.observed.noted("created Kymas")?;
    let created: Vec<String> = serde_json::from_value(created.clone())?;
    eventually("KLM receives every event", async || {
        let events = env.events().await?;
        let is_missing = |name: &&String| !events.contains_key(&format!("{SKR_NAMESPACE}/{name}"));
        let missing: Vec<&String> = created.iter().filter(is_missing).collect();
        let count = created.len();
        check(missing.is_empty(), format!("of {count} not {missing:?}"))
    })
    .await
}

/// Checks that no event was lost. The API server allows a review without a response, whose event is lost.
pub(super) fn lossless(scenario: &Scenario) -> Result {
    let delivery = scenario.observed.noted("delivery")?;
    let count = |name: &str| delivery[name].as_u64().unwrap_or_default();
    let is_whole = count("changes") > 20 && count("reviews") >= count("changes");
    let is_lossless = is_whole && count("unanswered") == 0 && count("failures") == 0;
    check(is_lossless, delivery)
}

/// Components, and regular expressions for the start of their command lines.
const COMPONENTS: [(&str, &str); 5] = [
    ("controller on KCP", "^/runtime-bootstrapper controller"),
    ("watcher", "^/runtime-bootstrapper watcher"),
    ("KLM with its listener on KCP", "^/program --requeue"),
    ("starting webhook", "^/runtime-bootstrapper webhook"),
    (SERVING_WEBHOOK, "^/runtime-bootstrapper webhook"),
];
/// The webhook, killed when a replica is available and the Deployments of modules are being created.
const SERVING_WEBHOOK: &str = "serving webhook";
/// Period without reconciles; longer than the delay of a follow-up event.
const QUIET: Duration = Duration::from_secs(8);
/// Time after which a follow-up event has arrived.
const CONFIRMED: Duration = Duration::from_secs(12);
/// Deployment of the watcher on a runtime.
const WATCHER: &str = "skr-webhook";
