//! Local clusters with the landscape of a scenario file, for `cargo harness conformance` and the demo.
//!
//! Without a control plane in the scenario they are clusters with the webhook and the landscape's configuration. With one they
//! are the whole flow ([`crate::flow`]), in which KEB provisions each runtime of the scenario.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use conformance::{ControlPlane, Mode, Scenario};
use serde_json::json;

use crate::admission::webhook::Webhook;
use crate::flow::{Flow, instance};
use crate::install::{self, Fixtures};
use crate::landscape::{objects, provide_images};
use api::names::SKR_NAMESPACE;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::evidence::Evidence;
use clusters::images::digest;
use clusters::progress;
use clusters::setup::Setup;
use doubles::keb::Instance;
use testkit::client::Client;

/// Clusters of a scenario.
pub struct Local {
    /// Kubeconfig of the control plane, if the scenario has one.
    pub kcp: Option<PathBuf>,
    /// Kubeconfigs of the runtimes, in the order of the scenario.
    pub runtimes: Vec<PathBuf>,
    environment: Environment,
}

enum Environment {
    Runtimes(Arc<Fixtures>, Vec<Cluster>),
    Flow(Box<Flow>, Vec<Instance>),
}

impl Local {
    /// Starts clusters, or uses those that an earlier run kept, and installs the landscape.
    pub async fn start(setup: &Setup, keep: bool, scenario: &Scenario) -> Result<Self> {
        match &scenario.landscape.control_plane {
            None => Self::runtimes(setup, keep, scenario).await,
            Some(control_plane) => Box::pin(Self::flow(setup, keep, scenario, control_plane)).await,
        }
    }

    async fn runtimes(setup: &Setup, keep: bool, scenario: &Scenario) -> Result<Self> {
        let fixtures = Arc::new(Box::pin(Fixtures::prepare(setup, keep)).await?);
        let mut clusters = Vec::new();
        for (number, name) in (1..).zip(scenario.runtimes()) {
            let options = ClusterOptions::new(&format!("conformance-{number}"));
            let start = Box::pin(fixtures.cluster(options));
            let cluster =
                progress::show(&format!("start the cluster of runtime {name}"), start).await?;
            let prepare = Box::pin(prepare(&fixtures, &cluster, scenario));
            progress::show("give it the landscape and the webhook", prepare).await?;
            clusters.push(cluster);
        }
        Ok(Self {
            kcp: None,
            runtimes: clusters
                .iter()
                .map(|it| it.kubeconfig_path.clone())
                .collect(),
            environment: Environment::Runtimes(fixtures, clusters),
        })
    }

    async fn flow(
        setup: &Setup,
        keep: bool,
        scenario: &Scenario,
        control_plane: &ControlPlane,
    ) -> Result<Self> {
        let flow = Box::pin(Flow::start_with_defaults(setup, keep, scenario)).await?;
        let mode = match control_plane.mode {
            Mode::Signal => api::kcp::MODE_SIGNAL,
            Mode::Direct => api::kcp::MODE_DIRECT,
        };
        let instances = scenario.runtimes().map(|_| instance(mode, &[]));
        let instances: Vec<Instance> = instances.collect();
        let provision = async {
            let all = instances.iter().map(|it| flow.provision(it, PROVISIONING));
            futures::future::try_join_all(all).await
        };
        let provisioned = progress::show("KEB provisions the runtimes", provision).await;
        if provisioned.is_err() {
            let evidence = Evidence::of("conformance", "provision the runtimes")?;
            flow.collect(&evidence).await;
            tracing::warn!(folder = %evidence.folder.display(), "diagnostics written");
        }
        let mut runtimes = Vec::new();
        for instance in &instances {
            if let Ok(path) = flow.kubeconfig(instance) {
                runtimes.push(path);
            }
        }
        let local = Self {
            kcp: Some(flow.kcp.cluster.kubeconfig_path.clone()),
            runtimes,
            environment: Environment::Flow(Box::new(flow), instances),
        };
        if let Err(error) = provisioned {
            Box::pin(local.stop()).await?;
            return Err(error);
        }
        Ok(local)
    }

    /// Removes all objects that are not kept.
    pub async fn stop(self) -> Result<()> {
        match self.environment {
            Environment::Runtimes(fixtures, clusters) => {
                for cluster in clusters {
                    cluster.stop().await?;
                }
                fixtures.release().await
            }
            Environment::Flow(flow, instances) => {
                for instance in &instances {
                    flow.keb.deprovision(instance).await?;
                }
                flow.stop().await
            }
        }
    }
}

/// Writes the landscape's configuration, removes that of another landscape, and installs the webhook with it.
pub(crate) async fn prepare(
    fixtures: &Fixtures,
    cluster: &Cluster,
    scenario: &Scenario,
) -> Result<()> {
    let landscape = &scenario.landscape;
    for image in provide_images(landscape, &fixtures.registry).await? {
        cluster.load_image(&image).await?;
    }
    let client = Client::new(cluster.client());
    if landscape.pull_secret.is_none() {
        let name = api::names::PULL_SECRET;
        let path = format!("/api/v1/namespaces/{SKR_NAMESPACE}/secrets/{name}");
        client.delete(&path).await?;
    }
    let objects = objects(landscape, SKR_NAMESPACE, &fixtures.registry)?;
    cluster.apply(&objects).await?;
    let mut manifests = install::webhook(&fixtures.webhook.reference, &[]).await?;
    // Another landscape causes another rollout, because a replica is ready only after it has read its configuration.
    let template = install::template(&mut manifests)?;
    let hash = digest(objects.as_bytes());
    template["metadata"]["annotations"]["harness/landscape"] = json!(hash);
    install::install(cluster, &manifests).await?;
    Webhook { client }.is_reached().await
}

/// Time limit from the creation of a Runtime until its Kyma is Ready.
const PROVISIONING: Duration = Duration::from_mins(3);
