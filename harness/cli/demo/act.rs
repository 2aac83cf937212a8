//! The play: the Deployment is applied before the webhook is there, the webhook is installed, it is applied again.
//!
//! Invariant: both times the same bytes are applied, so the webhook is all that differs. A kept cluster is brought
//! back to the beginning first.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::pod::{self, Seen};
use super::preview::{self, Preview};
use super::stage::Stage;
use clusters::cluster::Cluster;
use clusters::progress::Progress;
use e2e::install::{self, Product};
use e2e::landscape::{Content, Scenario, Workload, differences, objects, placed};
use testkit::until::until;

/// What was seen, for the screen.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) scenario: Scenario,
    /// The file of the Deployment.
    pub(super) manifest: PathBuf,
    pub(super) provider: String,
    /// Host and port of the private registry.
    pub(super) registry: String,
    pub(super) kubeconfig: PathBuf,
    pub(super) without: Seen,
    pub(super) with: Seen,
    pub(super) preview: Preview,
    /// What the second Pod lacks of what the scenario expects.
    pub(super) differences: Vec<String>,
    /// Whether the cluster will be there when the demo is over.
    pub(super) stays: bool,
}

pub(super) async fn play(
    progress: &Progress,
    stage: &Stage,
    scenario: &Scenario,
) -> anyhow::Result<Story> {
    let workload = scenario
        .landscape
        .workloads
        .first()
        .with_context(|| format!("{} has no workload", scenario.shown()))?;
    let manifest = scenario.manifest(workload)?;
    let beginning = begin(stage, scenario);
    progress.show("prepare the landscape", beginning).await?;
    stage.cluster.apply_in(WITHOUT, &manifest).await?;
    // The next step brings the webhook; this Pod must be older.
    let first = || pod::newest(&stage.cluster, WITHOUT);
    until("the first Pod is there", PATIENCE, first).await?;

    let installation = install(stage, &manifest, workload);
    progress.show("install the webhook", installation).await?;
    stage.cluster.apply_in(WITH, &manifest).await?;
    let running = pod::running(&stage.cluster, WITH, scenario, workload);
    let with = progress.show("wait for the Pod to run", running).await?;
    let refused = pod::refused(&stage.cluster, WITHOUT);
    let title = "wait for the other Pod's image to be refused";
    let without = progress.show(title, refused).await?;
    let expected = placed(&workload.expect.pod, &stage.host);
    let mut differences = differences(&expected, &with.pod);
    let wrong = with.inside.iter().filter(|answer| !answer.good);
    differences.extend(wrong.map(|answer| format!("inside: {}", answer.text)));
    Ok(Story {
        differences,
        manifest: scenario.manifest_file(workload),
        provider: stage.cluster.provider().to_owned(),
        registry: stage.host.clone(),
        kubeconfig: stage.cluster.kubeconfig_path().to_owned(),
        without,
        with,
        preview: preview::ask(stage, scenario, workload).await?,
        scenario: scenario.clone(),
        stays: stage.stays,
    })
}

/// The landscape without the webhook: its sources, its images, two empty namespaces.
async fn begin(stage: &Stage, scenario: &Scenario) -> anyhow::Result<()> {
    let cluster = &stage.cluster;
    install::unregister(cluster).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    for namespace in [WITHOUT, WITH] {
        match namespaces.delete(namespace, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other?),
        }
    }
    let sources = objects(&scenario.landscape, stage.place())?;
    cluster.apply(&sources).await?;
    for image in &scenario.landscape.registry.images {
        match image.content {
            Content::Probe => stage.registry.push(&stage.probe, &image.name).await?,
        };
    }
    cluster.load_image(&stage.product).await?;
    let accounts = [WITHOUT, WITH].map(|namespace| empty(&namespaces, cluster, namespace));
    futures::future::try_join_all(accounts).await?;
    Ok(())
}

/// A namespace that has just been made, once it is of use.
async fn empty(namespaces: &Api<Namespace>, cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    until(
        "the namespace of an earlier demo is gone",
        PATIENCE,
        || async {
            let left = namespaces.get_metadata_opt(name).await?;
            ensure!(left.is_none(), "{name} is still there");
            anyhow::Ok(())
        },
    )
    .await?;
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
    });
    cluster.apply(&object.to_string()).await?;
    // Without it no Pod can be made.
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), name);
    let account = || accounts.get("default");
    until("the ServiceAccount default exists", PATIENCE, account).await?;
    Ok(())
}

async fn install(stage: &Stage, manifest: &str, workload: &Workload) -> anyhow::Result<()> {
    let product = Product::printed_by(&stage.binary, &stage.product.reference, &[]).await?;
    product.apply(&stage.cluster).await?;
    product.rolled_out(&stage.cluster).await?;
    let object: Value = serde_saphyr::from_str(manifest)?;
    let expected = placed(&workload.expect.pod, &stage.host);
    let template = &object["spec"]["template"];
    install::intercepts(&stage.cluster, WITH, template, &expected).await
}

pub(super) const WITHOUT: &str = "without-webhook";
pub(super) const WITH: &str = "with-webhook";
const PATIENCE: Duration = Duration::from_mins(1);
