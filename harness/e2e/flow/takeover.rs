//! The lifecycle-manager takes over the watcher of a runtime, as in `docs/migrating.md`, and the controller takes it back,
//! while Kymas are created on the runtime.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::kcp::KCP_NAMESPACE;
use api::names::SKR_NAMESPACE;
use doubles::Objects;
use doubles::keb::Instance;
use doubles::klm::{EVENTS, GATEWAY_SECRET, apply_watcher};
use serde_json::{Value, json};
use testkit::until::until;
use tokio::time::{interval, timeout};

use super::Flow;
use super::klm::METRICS_PORT as KLM_METRICS_PORT;
use super::rotation::{CA, Delivery, ISSUED, is_delivered, secret_path};
use super::shoots::Shoot;
use crate::definitions::{Stream, check, random};
use crate::rollout::Workload;
use testkit::client::{Client, Write};

/// Time limit for two rollouts of the watcher, of which the second has Pods that wait before they end.
const LIMIT: Duration = Duration::from_mins(4);
/// Delay between two Kymas.
const PERIOD: Duration = Duration::from_millis(100);
/// Name of the Watcher with which the controller of Watchers receives its own heartbeats.
const OWN_WATCHER: &str = "runtime-bootstrapper";
const MIGRATING: &str = include_str!("../../../docs/migrating.md");

/// The installer of the watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installer {
    LifecycleManager,
    Controller,
}

impl Flow {
    /// Lets another installer take over, and returns the names of the Kymas that were created meanwhile.
    pub(crate) async fn take_over(
        &self,
        instance: &Instance,
        installer: Installer,
    ) -> Result<(Delivery, Vec<String>)> {
        let shoot = self.shoots.find(&instance.shoot)?;
        let watcher = Workload::new(shoot.api.clone(), SKR_NAMESPACE, "skr-webhook");
        // The counters of the other installer's Pods start at zero.
        let before = Delivery {
            failures: 0,
            ..self.counted(&shoot, &watcher).await?
        };
        let creating = create_continuously(shoot.api.clone(), PERIOD);
        let taken = match installer {
            Installer::LifecycleManager => self.install_by_klm(&shoot, instance, &watcher).await,
            Installer::Controller => self.install_by_controller(instance, &watcher).await,
        };
        let created = timeout(LIMIT, creating.end()).await???;
        taken?;
        until("all events are delivered", LIMIT, || is_delivered(&watcher)).await?;
        let after = self.counted(&shoot, &watcher).await?;
        let changes = u64::try_from(created.len())?;
        Ok((after.since(&before, changes)?, created))
    }

    async fn install_by_klm(
        &self,
        shoot: &Shoot,
        instance: &Instance,
        watcher: &Workload,
    ) -> Result<()> {
        let skr = &shoot.api;
        let container = "/spec/template/spec/containers/0";
        let deployment = skr.get(DEPLOYMENT).await?;
        let image = deployment.at(&format!("{container}/image")).clone();
        let variables = deployment.at(&format!("{container}/env")).as_array();
        let mut variables = variables.into_iter().flatten();
        let address = variables.find(|it| it["name"] == "KCP_ADDR");
        let address = address.and_then(|it| it["value"].as_str());
        let address = address.context("the watcher has no address")?;
        let has_port = address.contains(':');
        let address = format!("{address}{}", if has_port { "" } else { ":443" });
        let path = format!(
            "/apis/operator.kyma-project.io/v1beta2/namespaces/{KCP_NAMESPACE}/watchers/{OWN_WATCHER}"
        );
        self.kcp.api.delete(&path).await?;
        is_deleted(&self.kcp.api, &path).await?;
        self.install_controller(false, false).await?;
        self.present_ca().await?;
        let path = format!("{DEPLOYMENT}?propagationPolicy=Orphan");
        skr.delete(&path).await?;
        skr.delete(DISRUPTION_BUDGET).await?;
        is_deleted(skr, DEPLOYMENT).await?;
        skr.apply_at("migration", DEPLOYMENT, &documented()?)
            .await?;
        let kcp = Objects::new(self.kcp.cluster.client());
        let image = image.as_str().context("the watcher has no image")?;
        let apply = || apply_watcher(&kcp, &instance.runtime_id, image, &address);
        apply().await?;
        let resumed = json!({ "spec": { "paused": null } });
        skr.patch(DEPLOYMENT, &resumed).await?;
        watcher.is_rolled_out().await?;
        // The lifecycle-manager applies the objects at each reconcile.
        apply().await?;
        watcher.is_rolled_out().await
    }

    /// Lets the gateway present the CA itself, as the lifecycle-manager does.
    async fn present_ca(&self) -> Result<()> {
        let serial = self.presented().await?;
        let pair = json!({
            "tls.crt": self.certificate(CA, "tls.crt").await?,
            "tls.key": self.certificate(CA, "tls.key").await?,
        });
        let secret = secret_path(GATEWAY_SECRET);
        self.kcp
            .api
            .patch(&secret, &json!({ "data": pair }))
            .await?;
        until("the gateway presents the CA", LIMIT, || async {
            check(
                self.presented().await? != serial,
                "it presents another certificate",
            )
        })
        .await?;
        Ok(())
    }

    async fn install_by_controller(&self, instance: &Instance, watcher: &Workload) -> Result<()> {
        self.install_controller(false, true).await?;
        until("the gateway has its own certificate", LIMIT, || async {
            let issued = self.certificate(ISSUED, "tls.crt").await?;
            let served = self.certificate(GATEWAY_SECRET, "tls.crt").await?;
            check(issued == served, "it presents the CA")
        })
        .await?;
        let id = &instance.runtime_id;
        let path = format!(
            "/apis/operator.kyma-project.io/v1alpha1/namespaces/{KCP_NAMESPACE}/runtimebootstrappers/{id}"
        );
        until(
            "the controller has installed the watcher",
            LIMIT,
            || async {
                let deployment = watcher.client.get(DEPLOYMENT).await?;
                let command = deployment.at("/spec/template/spec/containers/0/command");
                ensure!(
                    command.is_array(),
                    "the Deployment is the lifecycle-manager's"
                );
                watcher.replicas().await?;
                let bootstrapper = self.kcp.api.get(&path).await?.object;
                let condition = testkit::json::condition(&bootstrapper, "WatcherInstalled");
                check(condition["status"] == "True", condition)
            },
        )
        .await?;
        Ok(())
    }

    /// Returns the number of events that KLM has received, by namespace and name of their object.
    pub(crate) async fn events(&self) -> Result<BTreeMap<String, f64>> {
        let metrics = self.klm.metrics(KLM_METRICS_PORT).await?;
        let series = format!("{EVENTS}_total");
        let mut events = BTreeMap::new();
        for mut sample in metrics.values().flat_map(|it| it.matching(&series)) {
            let object = sample.labels.remove("object");
            *events.entry(object.unwrap_or_default()).or_default() += sample.value;
        }
        Ok(events)
    }
}

/// Waits until an object without finalizers does not exist.
async fn is_deleted(client: &Client, path: &str) -> Result<()> {
    let is_absent = || async { check(client.find(path).await?.is_null(), "it exists") };
    Ok(until(&format!("{path} is deleted"), LIMIT, is_absent).await?)
}

/// Returns the documented Deployment that gives Pods of the lifecycle-manager a readiness probe.
fn documented() -> Result<Value> {
    let mut blocks = MIGRATING.split("```yaml\n").skip(1);
    let block = blocks.find(|it| it.contains("paused: true"));
    let block = block.and_then(|it| it.split("```").next());
    let block = block.context("docs/migrating.md has no paused Deployment")?;
    Ok(serde_saphyr::from_str(block)?)
}

#[expect(clippy::disallowed_methods, reason = "the rate of the changes")]
pub(super) fn create_continuously(
    runtime: Client,
    period: Duration,
) -> Stream<Result<Vec<String>>> {
    Stream::spawn(async move |over| {
        let mut ticks = interval(period);
        let mut created = Vec::new();
        let prefix = random();
        while !over.load(Ordering::Relaxed) {
            ticks.tick().await;
            let name = format!("kyma-{prefix}-{}", created.len());
            let kyma = json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
                "metadata": {
                    "name": name, "namespace": SKR_NAMESPACE,
                    "labels": { "operator.kyma-project.io/watched-by": "kyma" },
                },
                "spec": { "channel": "regular" },
            });
            runtime.write(Write::Create, &kyma).await?.good()?;
            created.push(name);
        }
        Ok(created)
    })
}

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/kyma-system/deployments/skr-webhook";
const DISRUPTION_BUDGET: &str =
    "/apis/policy/v1/namespaces/kyma-system/poddisruptionbudgets/skr-webhook";
