//! The first demo step: one Deployment, applied before the webhook is installed and again after it.
//!
//! Both times the same bytes are applied, so the webhook is the only difference. A kept cluster is brought back to the
//! state without the webhook first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::Value;
use tokio::process::Command;

use super::pod::{self, PodResult};
use api::names::SKR_NAMESPACE;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::images::{self, Image, Role};
use clusters::progress;
use clusters::registry::{HOST, Registry};
use clusters::run::Run;
use clusters::setup::Setup;
use clusters::workspace;
use e2e::install;
use e2e::landscape::{Content, Scenario, Workload, differences, objects, placed, shown};
use testkit::until::until;

/// Both Pods, and what is needed to explain and to repeat the comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) scenario: Scenario,
    pub(super) manifest: PathBuf,
    pub(super) kubeconfig: PathBuf,
    pub(super) without: PodResult,
    pub(super) with: PodResult,
    /// The decisions that `runtime-bootstrapper preview` prints for the same file.
    pub(super) decisions: Vec<String>,
    /// The command line of that preview.
    pub(super) preview: String,
    /// What the second Pod lacks of what the scenario expects.
    pub(super) differences: Vec<String>,
    /// Docker's name of the cluster's container, if it stays when the demo ends.
    pub(super) kept: Option<String>,
}

pub(super) struct Environment {
    run: Run,
    pub(super) cluster: Cluster,
    registry: Registry,
    product: Image,
    probe: Image,
}

impl Environment {
    pub(super) async fn start(setup: &Setup, keep: bool) -> anyhow::Result<Self> {
        let run = Run::begin(keep).await?;
        let start = Registry::start(&run, &setup.registry_image);
        let registry = progress::show("start the private registry", start).await?;
        let options = ClusterOptions::new("demo").with_registry(HOST, &registry.identity.ca_pem);
        let start = Cluster::start(&run, &setup.provider, &options);
        let cluster = progress::show("start the cluster", start).await?;
        Ok(Self {
            run,
            cluster,
            registry,
            product: images::product(Role::Webhook).await?,
            probe: images::probe().await?,
        })
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.cluster.stop().await?;
        self.registry.stop().await?;
        self.run.end().await
    }

    /// Applies the Deployment without and with the webhook and waits for the outcome of both.
    pub(super) async fn compare(&self, scenario: &Scenario) -> anyhow::Result<Comparison> {
        let workload = scenario.landscape.workloads.first();
        let workload =
            workload.with_context(|| format!("{}: no workload", shown(&scenario.file)))?;
        let cluster = &self.cluster;
        let manifest = scenario.manifest(workload)?;
        let preparation = self.prepare(scenario);
        progress::show("prepare the landscape", preparation).await?;
        cluster.apply_in(WITHOUT, &manifest).await?;
        // The webhook must not see this Pod.
        let first = || pod::newest(cluster, WITHOUT);
        until("the first Pod exists", TIMEOUT, first).await?;

        let installation = self.install(&manifest, workload);
        progress::show("install the webhook", installation).await?;
        cluster.apply_in(WITH, &manifest).await?;
        let running = pod::running(cluster, WITH, scenario, workload);
        let with = progress::show("wait for the Pod to run", running).await?;
        let rejected = pod::rejected(cluster, WITHOUT);
        let title = "wait for the other Pod's image to be rejected";
        let without = progress::show(title, rejected).await?;
        let mut differences = differences(&placed(&workload.expect.pod, HOST), &with.pod);
        let unexpected = with.answers.iter().filter(|(_, is_expected)| !is_expected);
        differences.extend(unexpected.map(|(text, _)| format!("in the container: {text}")));
        let file = scenario.manifest_file(workload);
        let (preview, decisions) = self.preview(scenario, &file).await?;
        Ok(Comparison {
            manifest: file,
            kubeconfig: cluster.kubeconfig_path.clone(),
            kept: cluster.kept_container().map(str::to_owned),
            scenario: scenario.clone(),
            without,
            with,
            decisions,
            preview,
            differences,
        })
    }

    /// The landscape without the webhook: its sources, its images, two empty Namespaces.
    async fn prepare(&self, scenario: &Scenario) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        install::unregister(cluster).await?;
        let namespaces = [WITHOUT, WITH]
            .map(|name| format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"));
        cluster.delete(&namespaces.join("\n---\n")).await?;
        let opens = self.registry.identity.docker_config(HOST);
        let objects = objects(&scenario.landscape, SKR_NAMESPACE, HOST, &opens)?;
        cluster.apply(&objects).await?;
        for image in &scenario.landscape.registry.images {
            match image.content {
                Content::Probe => self.registry.push(&self.probe, &image.name).await?,
            };
        }
        cluster.load_image(&self.product).await?;
        for (name, namespace) in [WITHOUT, WITH].into_iter().zip(&namespaces) {
            let all: Api<Namespace> = Api::all(cluster.client());
            let is_deleted = || async { anyhow::Ok(all.get_metadata_opt(name).await?.is_none()) };
            until(
                "an earlier demo's Namespace is deleted",
                TIMEOUT,
                is_deleted,
            )
            .await?;
            cluster.apply(namespace).await?;
        }
        Ok(())
    }

    async fn install(&self, manifest: &str, workload: &Workload) -> anyhow::Result<()> {
        let manifests = install::webhook(&self.product.reference, &[]).await?;
        install::install(&self.cluster, &manifests).await?;
        let object: Value = serde_saphyr::from_str(manifest)?;
        let expected = placed(&workload.expect.pod, HOST);
        let template = &object["spec"]["template"];
        install::intercepts(&self.cluster, WITH, template, &expected).await
    }

    /// Runs the product's own `preview` on the same file; gives its command line and its decisions.
    async fn preview(
        &self,
        scenario: &Scenario,
        manifest: &Path,
    ) -> anyhow::Result<(String, Vec<String>)> {
        let document = placed(&scenario.landscape.config, HOST);
        let config = write("config.json", &format!("{document:#}\n"))?;
        let docker_config = self.registry.identity.docker_config(HOST);
        let secret = write("pull-secret.json", &docker_config)?;
        let binary = images::built_binary(images::Profile::E2e);
        let mut preview = Command::new(&binary);
        preview.arg("preview").arg("--config").arg(&config);
        preview.arg("--pull-secret").arg(&secret).arg(manifest);
        let printed = preview.output().await.context("preview cannot be run")?;
        ensure!(printed.status.success(), "preview: {printed:?}");
        let [binary, config, secret, manifest] =
            [binary.as_path(), &config, &secret, manifest].map(shown);
        let command =
            format!("{binary} preview --config {config} \\\n  --pull-secret {secret} {manifest}");
        let printed = String::from_utf8_lossy(&printed.stdout);
        let decisions = printed.lines().filter_map(|line| line.strip_prefix("#   "));
        Ok((command, decisions.map(str::to_owned).collect()))
    }
}

fn write(name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let folder = workspace::state().join("demo");
    let file = folder.join(name);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    Ok(file)
}

pub(super) const WITHOUT: &str = "without-webhook";
pub(super) const WITH: &str = "with-webhook";
const TIMEOUT: Duration = Duration::from_mins(1);
