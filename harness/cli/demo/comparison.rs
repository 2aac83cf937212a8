//! The first demo step: one Deployment, applied before the webhook is installed and again after it.
//!
//! Both times the same bytes are applied, so the webhook is the only difference. A kept cluster is brought back to the
//! state without the webhook first.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::DeleteParams;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use super::pod::{self, PodResult};
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::images::{self, Image, Role};
use clusters::progress::Progress;
use clusters::registry::{Identity, Registry};
use clusters::run::Run;
use clusters::setup::Setup;
use clusters::workspace;
use e2e::install::{self, Product};
use e2e::landscape::{Content, Place, Scenario, Workload, differences, objects, placed, shown};
use testkit::until::until;

/// Both Pods, and what is needed to explain and to repeat the comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) scenario: Scenario,
    /// File of the Deployment.
    pub(super) manifest: PathBuf,
    /// Image that runs the cluster.
    pub(super) provider: String,
    /// Host and port of the private registry.
    pub(super) registry: String,
    pub(super) kubeconfig: PathBuf,
    pub(super) without: PodResult,
    pub(super) with: PodResult,
    /// What `runtime-bootstrapper preview` prints for the same file.
    pub(super) decisions: Vec<Decision>,
    /// The command line of that preview.
    pub(super) preview: String,
    /// What the second Pod lacks of what the scenario expects.
    pub(super) differences: Vec<String>,
    /// Docker's name of the cluster's container, if it stays when the demo ends.
    pub(super) kept: Option<String>,
}

/// One decision of the webhook, in the JSON of `preview`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Decision {
    pub(super) feature: String,
    pub(super) applied: bool,
    pub(super) message: String,
}

/// Cluster, private registry and images of this step.
pub(super) struct Environment {
    run: Run,
    pub(super) cluster: Cluster,
    registry: Registry,
    product: Image,
    probe: Image,
}

impl Environment {
    pub(super) async fn start(
        progress: &Progress,
        setup: &Setup,
        keep: bool,
    ) -> anyhow::Result<Self> {
        let probe = images::probe(progress).await?;
        let product = images::product(progress, Role::Webhook).await?;
        let identity = Identity::load_or_make()?;
        let run = Run::begin(keep).await?;
        let start = Registry::start(&run, &setup.registry_image, &identity);
        let registry = progress.show("start the private registry", start).await?;
        let options = ClusterOptions::new("demo").with_registry(&registry.host(), &identity.ca_pem);
        let start = Cluster::start(&run, &setup.provider, &options);
        let cluster = progress.show("start the cluster", start).await?;
        Ok(Self {
            run,
            cluster,
            registry,
            product,
            probe,
        })
    }

    /// Removes what is not kept.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.cluster.stop().await?;
        self.registry.stop().await?;
        self.run.end().await
    }

    /// Applies the Deployment without and with the webhook and waits for the outcome of both.
    pub(super) async fn compare(
        &self,
        progress: &Progress,
        scenario: &Scenario,
    ) -> anyhow::Result<Comparison> {
        let workload = scenario.landscape.workloads.first();
        let workload = workload.with_context(|| format!("{}: no workload", scenario.shown()))?;
        let (cluster, host) = (&self.cluster, self.registry.host());
        let manifest = scenario.manifest(workload)?;
        let preparation = self.prepare(scenario);
        progress.show("prepare the landscape", preparation).await?;
        cluster.apply_in(WITHOUT, &manifest).await?;
        // The webhook must not see this Pod.
        let first = || pod::newest(cluster, WITHOUT);
        until("the first Pod exists", TIMEOUT, first).await?;

        let installation = self.install(&manifest, workload);
        progress.show("install the webhook", installation).await?;
        cluster.apply_in(WITH, &manifest).await?;
        let running = pod::running(cluster, WITH, scenario, workload);
        let with = progress.show("wait for the Pod to run", running).await?;
        let title = "wait for the other Pod's image to be rejected";
        let without = progress
            .show(title, pod::rejected(cluster, WITHOUT))
            .await?;
        let mut differences = differences(&placed(&workload.expect.pod, &host), &with.pod);
        let unexpected = with.answers.iter().filter(|answer| !answer.is_expected);
        differences.extend(unexpected.map(|answer| format!("in the container: {}", answer.text)));
        let (preview, decisions) = self.preview(scenario, workload).await?;
        Ok(Comparison {
            manifest: scenario.manifest_file(workload),
            provider: cluster.provider().to_owned(),
            registry: host,
            kubeconfig: cluster.kubeconfig_path().to_owned(),
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
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        for namespace in [WITHOUT, WITH] {
            match namespaces.delete(namespace, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => drop(other?),
            }
        }
        let (host, docker_config) = (
            self.registry.host(),
            self.registry.identity().docker_config(),
        );
        let place = Place {
            registry: &host,
            docker_config: &docker_config,
        };
        cluster.apply(&objects(&scenario.landscape, place)?).await?;
        for image in &scenario.landscape.registry.images {
            match image.content {
                Content::Probe => self.registry.push(&self.probe, &image.name).await?,
            };
        }
        cluster.load_image(&self.product).await?;
        let created = [WITHOUT, WITH].map(|name| create_namespace(cluster, &namespaces, name));
        futures::future::try_join_all(created).await?;
        Ok(())
    }

    async fn install(&self, manifest: &str, workload: &Workload) -> anyhow::Result<()> {
        let binary = images::built_binary(images::Profile::E2e);
        let product = Product::printed_by(&binary, &self.product.reference, &[]).await?;
        product.apply(&self.cluster).await?;
        product.rolled_out(&self.cluster).await?;
        let object: Value = serde_saphyr::from_str(manifest)?;
        let expected = placed(&workload.expect.pod, &self.registry.host());
        let template = &object["spec"]["template"];
        install::intercepts(&self.cluster, WITH, template, &expected).await
    }

    /// Runs the product's own `preview` on the same file; gives its command line and its decisions.
    async fn preview(
        &self,
        scenario: &Scenario,
        workload: &Workload,
    ) -> anyhow::Result<(String, Vec<Decision>)> {
        let document = placed(&scenario.landscape.config, &self.registry.host());
        let config = write("config.json", &format!("{document:#}\n"))?;
        let secret = write(
            "pull-secret.json",
            &self.registry.identity().docker_config(),
        )?;
        let manifest = scenario.manifest_file(workload);
        let binary = images::built_binary(images::Profile::E2e);
        let mut preview = Command::new(&binary);
        preview
            .args(["preview", "--output", "json", "--config"])
            .arg(&config);
        preview.arg("--pull-secret").arg(&secret).arg(&manifest);
        let printed = preview.output().await.context("preview cannot be run")?;
        let errors = String::from_utf8_lossy(&printed.stderr);
        ensure!(
            printed.status.success(),
            "preview: {}: {errors}",
            printed.status
        );
        let [binary, config, secret, manifest] =
            [&binary, &config, &secret, &manifest].map(|path| shown(path));
        let command =
            format!("{binary} preview --config {config} \\\n  --pull-secret {secret} {manifest}");
        Ok((command, decisions(&printed.stdout)?))
    }
}

async fn create_namespace(
    cluster: &Cluster,
    namespaces: &Api<Namespace>,
    name: &str,
) -> anyhow::Result<()> {
    until(
        "the Namespace of an earlier demo is deleted",
        TIMEOUT,
        || async {
            let left = namespaces.get_metadata_opt(name).await?;
            ensure!(left.is_none(), "Namespace {name} exists");
            anyhow::Ok(())
        },
    )
    .await?;
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    cluster.apply(&object.to_string()).await?;
    // Without it no Pod can be created.
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), name);
    let account = || accounts.get("default");
    until("the ServiceAccount default exists", TIMEOUT, account).await?;
    Ok(())
}

fn decisions(printed: &[u8]) -> anyhow::Result<Vec<Decision>> {
    #[derive(Deserialize)]
    struct Report {
        pods: Vec<PodReport>,
    }
    #[derive(Deserialize)]
    struct PodReport {
        reasons: Vec<Decision>,
    }
    let report: Report = serde_json::from_slice(printed).context("the JSON of preview")?;
    let decisions = report.pods.into_iter().flat_map(|pod| pod.reasons);
    let without_prefix = |mut decision: Decision| {
        if let Some((_, name)) = decision.feature.rsplit_once('/') {
            decision.feature = name.to_owned();
        }
        decision
    };
    Ok(decisions.map(without_prefix).collect())
}

fn write(name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let folder = workspace::state().join("demo");
    let file = folder.join(name);
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, text))
        .with_context(|| file.display().to_string())?;
    Ok(file)
}

pub(super) const WITHOUT: &str = "without-webhook";
pub(super) const WITH: &str = "with-webhook";
const TIMEOUT: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_read_from_the_public_json() {
        let printed = json!({ "pods": [{
            "source": { "kind": "Deployment", "namespace": "default", "name": "x" },
            "changed": true, "pod": {}, "patch": [],
            "reasons": [{
                "feature": "rt-cfg.kyma-project.io/set-fips-mode", "applied": true,
                "reason": "added", "message": "m",
            }],
        }] });
        let [decision] = &decisions(printed.to_string().as_bytes()).unwrap()[..] else {
            panic!("one decision");
        };
        assert_eq!(decision.feature, "set-fips-mode");
        assert!(decision.applied && decision.message == "m");
        assert!(decisions(b"not json").is_err());
    }
}
