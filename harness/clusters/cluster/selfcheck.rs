//! `cargo harness cluster check`: checks that the features on which the tests rely work on this machine.
//!
//! The check removes all its objects, also after a failure, and prints the duration of each step.

use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::{Cluster, ClusterOptions};
use crate::evidence::Evidence;
use crate::images::{self, Image};
use crate::progress;
use crate::registry::{HOST, Registry};
use crate::run::Run;
use crate::setup::Setup;
use crate::workspace;

/// Runs all steps and prints the duration of each. The evidence of a failure is in `target/harness/evidence/check`.
pub async fn run(setup: &Setup) -> anyhow::Result<()> {
    let mut laps = Laps(Instant::now());
    let run = Run::begin(false).await?;
    let outcome = in_run(setup, &run, &mut laps).await;
    run.clone().end().await?;
    laps.end("remove the network");
    outcome?;
    let left = run.own().await?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    progress::say(&format!("clusters and registry work on {}", setup.provider));
    Ok(())
}

async fn in_run(setup: &Setup, run: &Run, laps: &mut Laps) -> anyhow::Result<()> {
    let probe = images::probe().await?;
    laps.end("build the probe");
    let registry = Registry::start(run, &setup.registry_image).await?;
    laps.end("start the registry");
    let options = ClusterOptions::new("check").with_registry(&[HOST], &registry.identity.ca_pem);
    let start = Cluster::start(run, &setup.provider, &options);
    let cluster = progress::show("start a cluster", start).await?;
    laps.end("start a cluster, node Ready");
    let outcome = parts(&cluster, &registry, &probe, laps).await;
    if outcome.is_err() {
        let evidence = Evidence::in_folder(workspace::state().join("evidence/check"))?;
        cluster.collect_evidence(&evidence).await;
    }
    cluster.stop().await?;
    registry.stop().await?;
    laps.end("remove cluster and registry");
    outcome
}

async fn parts(
    cluster: &Cluster,
    registry: &Registry,
    probe: &Image,
    laps: &mut Laps,
) -> anyhow::Result<()> {
    cluster.load_image(probe).await?;
    let again = cluster.load_image(probe).await;
    again.context("load an image again")?;
    laps.end("load an image into the node");
    let loaded = pod("loaded", &probe.reference, "Never", "");
    cluster.apply(&loaded).await?;
    reaches(cluster, "loaded", READY).await?;
    laps.end("a Pod of it is Ready");
    ask(cluster, &["env", "GREETING"], "hello").await?;
    laps.end("ask it from inside");
    let service = "kubernetes.default.svc.cluster.local";
    ask(cluster, &["resolve", service], "10.43.0.1").await?;
    laps.end("resolve a Service's name in it");

    let image = registry.push(probe, "check/probe:1").await?;
    laps.end("push the image to the registry");
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "pull" },
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": { ".dockerconfigjson": registry.identity.docker_config(HOST) },
    });
    cluster.apply(&secret.to_string()).await?;
    let anonymous = pod("anonymous", &image, "Always", "");
    cluster.apply(&anonymous).await?;
    reaches(cluster, "anonymous", NOT_PULLED).await?;
    laps.end("without credentials: not pulled");
    let further = "imagePullSecrets: [{name: pull}]";
    let authorized = pod("authorized", &image, "Always", further);
    cluster.apply(&authorized).await?;
    reaches(cluster, "authorized", READY).await?;
    laps.end("with the pull Secret: Ready");
    let delete = ["delete", "pod", "authorized", "--timeout=20s"];
    cluster.kubectl(&delete).await?;
    laps.end("delete that Pod");
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

async fn ask(cluster: &Cluster, question: &[&str], expected: &str) -> anyhow::Result<()> {
    let exec = [&["exec", "loaded", "--", "/probe"], question].concat();
    let answer = cluster.kubectl(&exec).await?;
    ensure!(answer.trim() == expected, "{question:?} gave {answer:?}");
    Ok(())
}

/// Waits until a Pod has a state, in the syntax of `kubectl wait --for`.
async fn reaches(cluster: &Cluster, pod: &str, state: &str) -> anyhow::Result<()> {
    let (pod, state) = (format!("pod/{pod}"), format!("--for={state}"));
    let wait = ["wait", &pod, &state, "--timeout=1m"];
    cluster.kubectl(&wait).await.map(drop)
}

/// Prints the duration of each step since the end of the previous one.
struct Laps(Instant);

impl Laps {
    fn end(&mut self, what: &str) {
        let seconds = self.0.elapsed().as_secs_f64();
        progress::say(&format!("{seconds:>8.2} s  {what}"));
        self.0 = Instant::now();
    }
}

const READY: &str = "condition=Ready";
const NOT_PULLED: &str =
    "jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull";
