//! `cargo harness cluster check`: does everything that the features rely on work on this machine?
//!
//! It ends with nothing left behind, whether it succeeded or not, and says how long each part took.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube::Api;

use super::node::PodTarget;
use super::{Cluster, ClusterOptions};
use crate::evidence::Evidence;
use crate::images::{self, Image};
use crate::progress::Progress;
use crate::registry::{Identity, Registry};
use crate::run::Run;
use crate::setup::Setup;
use crate::workspace;
use testkit::until::until;

/// Runs all parts and gives a table of their times.
pub async fn run(progress: &Progress, setup: &Setup) -> anyhow::Result<String> {
    let mut times = Times::default();
    let run = Run::begin(false).await?;
    let outcome = in_run(progress, setup, &run, &mut times).await;
    run.clone().end().await?;
    times.lap("remove the network");
    outcome?;
    let left = run.leftovers().await?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(times.table(setup))
}

async fn in_run(
    progress: &Progress,
    setup: &Setup,
    run: &Run,
    times: &mut Times,
) -> anyhow::Result<()> {
    let probe = images::probe(progress).await?;
    times.lap("build the probe");
    let identity = Identity::load_or_make()?;
    let registry = Registry::start(run, &setup.registry_image, &identity).await?;
    times.lap("start the registry");
    let options = ClusterOptions::new("check").with_registry(&registry.host(), &identity.ca_pem);
    let start = Cluster::start(run, &setup.provider, &options);
    let cluster = progress.show("start a cluster", start).await?;
    times.lap("start a cluster, node Ready");
    let outcome = parts(&cluster, &registry, &probe, times).await;
    if outcome.is_err() {
        let evidence = Evidence::in_folder(workspace::state().join("evidence/check"))?;
        cluster.collect_evidence(&evidence).await;
    }
    cluster.stop().await?;
    registry.stop().await?;
    times.lap("remove cluster and registry");
    outcome
}

async fn parts(
    cluster: &Cluster,
    registry: &Registry,
    probe: &Image,
    times: &mut Times,
) -> anyhow::Result<()> {
    cluster.load_image(probe).await?;
    cluster
        .load_image(probe)
        .await
        .context("load an image again")?;
    times.lap("load an image into the node");
    cluster
        .apply(&pod("loaded", &probe.reference, "Never", ""))
        .await?;
    ready(cluster, "loaded").await?;
    times.lap("a Pod of it is Ready");
    ask(cluster, &["/probe", "env", "GREETING"], "hello").await?;
    times.lap("ask it from inside");
    ask(
        cluster,
        &["/probe", "resolve", "kubernetes.default.svc.cluster.local"],
        "10.43.0.1",
    )
    .await?;
    times.lap("resolve a Service's name in it");

    let image = registry.push(probe, "check/probe:1").await?;
    times.lap("push the image to the registry");
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "pull" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": registry.identity().docker_config() },
    });
    cluster.apply(&secret.to_string()).await?;
    cluster
        .apply(&pod("anonymous", &image, "Always", ""))
        .await?;
    not_pulled(cluster, "anonymous").await?;
    times.lap("without credentials: not pulled");
    cluster
        .apply(&pod(
            "selfcheck",
            &image,
            "Always",
            "imagePullSecrets: [{name: pull}]",
        ))
        .await?;
    ready(cluster, "selfcheck").await?;
    times.lap("with the pull Secret: Ready");
    let deleted = cluster
        .kubectl(&["delete", "pod", "selfcheck", "--timeout=20s"])
        .await?;
    ensure!(deleted.code == 0, "delete a Pod: {}", deleted.stderr);
    times.lap("delete that Pod");
    Ok(())
}

fn pod(name: &str, image: &str, pull: &str, further: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  {further}\n  containers:\n  \
         - {{name: probe, image: \"{image}\", imagePullPolicy: {pull}, args: [http], \
         env: [{{name: GREETING, value: hello}}], \
         readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}}}\n"
    )
}

async fn ask(cluster: &Cluster, argv: &[&str], expected: &str) -> anyhow::Result<()> {
    let target = PodTarget {
        namespace: "default",
        pod: "loaded",
        container: None,
    };
    let answer = cluster.exec_in_pod(target, argv).await?;
    ensure!(answer.stdout.trim() == expected, "{argv:?} gave {answer:?}");
    Ok(())
}

async fn ready(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    reaches(cluster, name, "Ready", |status| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
    .await
}

async fn not_pulled(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    reaches(cluster, name, "not pulled", |status| {
        let containers = status.container_statuses.iter().flatten();
        let waiting = |it: &ContainerStatus| it.state.as_ref()?.waiting.as_ref()?.reason.clone();
        let mut reasons = containers.filter_map(waiting);
        reasons.any(|reason| reason == "ErrImagePull" || reason == "ImagePullBackOff")
    })
    .await
}

async fn reaches(
    cluster: &Cluster,
    name: &str,
    what: &str,
    is_so: impl Fn(&PodStatus) -> bool,
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let probe = async || {
        let status = pods.get(name).await?.status.unwrap_or_default();
        ensure!(
            is_so(&status),
            "{:?} {:?}",
            status.phase,
            status.container_statuses
        );
        anyhow::Ok(())
    };
    Ok(until(&format!("Pod {name} is {what}"), PATIENCE, probe).await?)
}

/// How long each part took.
#[derive(Debug)]
struct Times {
    last: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            last: Instant::now(),
            laps: Vec::new(),
        }
    }
}

impl Times {
    fn lap(&mut self, what: &'static str) {
        self.laps.push((what, self.last.elapsed()));
        self.last = Instant::now();
    }

    fn table(&self, setup: &Setup) -> String {
        let mut text = format!("clusters and registry work on {}\n", setup.provider);
        for (what, time) in &self.laps {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:>8.2} s  {what}", time.as_secs_f64());
        }
        text
    }
}

const PATIENCE: Duration = Duration::from_mins(1);
