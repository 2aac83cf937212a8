//! Environment that the scenarios share. [`Flow::start`] returns when the controller leads and KLM serves.

use std::sync::Arc;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use api::kcp::{KCP_NAMESPACE, MODE_LABEL, MODE_SIGNAL, VERSION_LABEL};
use api::names::PULL_SECRET;
use conformance::Scenario;
use doubles::keb::{Instance, Keb, Waiting};
use doubles::kim::{Bootstrapper, Garden, Kim, Settings};
use doubles::{Objects, crds};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use super::istio::Istio;
use super::klm as klm_pod;
use super::shoots::Shoots;
use super::{DOUBLES_POLL, LANDSCAPE, watchers};
use crate::definitions::check;
use crate::gateway::HOST;
use crate::install::{Fixtures, printed_text};
use crate::landscape;
use crate::rollout::Workload;
use crate::synchronization::control_plane::ControlPlane;
use crate::synchronization::controller::{Controller, Installation, WatcherImage};
use clusters::cluster::ClusterOptions;
use clusters::evidence::Evidence;
use clusters::images::{self, Image, Role};
use clusters::progress;
use clusters::registry::{HOST as REGISTRY, Registry};
use clusters::setup::Setup;
use testkit::client::Client;
use testkit::json::{config_map, namespace, pull_secret};
use testkit::until::until;

/// KCP with all its components, and the doubles.
pub struct Flow {
    fixtures: Arc<Fixtures>,
    scenario: Scenario,
    controller: Image,
    watcher: Image,
    /// The product's images with tags of another version: controller, webhook and watcher.
    pub(crate) upgraded: [Image; 3],
    /// Whether the product runs with its default flags, instead of those that shorten scenarios.
    has_defaults: bool,
    pub(crate) kcp: ControlPlane,
    pub(super) istio: Istio,
    pub(crate) klm: Workload,
    pub(crate) keb: Keb,
    pub(crate) shoots: Arc<Shoots>,
    kims: Vec<AbortOnDropHandle<()>>,
}

impl Flow {
    /// Starts the environment for the suite's landscape, or uses one that an earlier run kept.
    pub async fn start(setup: &Setup, keep: bool) -> Result<Self> {
        let scenario = landscape::scenario(LANDSCAPE)?;
        Self::start_with(setup, keep, &scenario, false).await
    }

    /// Starts the environment for the landscape of a scenario, with the product's default flags.
    pub async fn start_with_defaults(
        setup: &Setup,
        keep: bool,
        scenario: &Scenario,
    ) -> Result<Self> {
        Self::start_with(setup, keep, scenario, true).await
    }

    async fn start_with(
        setup: &Setup,
        keep: bool,
        scenario: &Scenario,
        has_defaults: bool,
    ) -> Result<Self> {
        let fixtures = Arc::new(Fixtures::prepare(setup, keep).await?);
        let controller = images::product(Role::Controller).await?;
        let watcher = images::product(Role::Watcher).await?;
        let upgraded = [
            controller.retagged("upgraded").await?,
            fixtures.webhook.retagged("upgraded").await?,
            watcher.retagged("upgraded").await?,
        ];
        let start = Box::pin(fixtures.cluster(ClusterOptions::new("flow-kcp")));
        let cluster = progress::show("start the cluster of KCP", start).await?;
        let kcp = ControlPlane {
            api: Client::with(&cluster.kubeconfig).await?,
            cluster,
        };
        let node = kcp.cluster.node_address().await?;
        let loaded = landscape::provide_images(&scenario.landscape, &fixtures.registry).await?;
        let further = [&watcher, &upgraded[1], &upgraded[2]]
            .map(Clone::clone)
            .into_iter();
        let further = further.chain(loaded).collect();
        let shoots = Arc::new(Shoots::new(Arc::clone(&fixtures), further, node));
        let waiting = Waiting {
            provisioning: DOUBLES_POLL,
            deletion: DOUBLES_POLL,
            ..Waiting::default()
        };
        let mut flow = Self {
            klm: klm_pod::workload(kcp.api.clone()),
            keb: Keb::new(Objects::new(kcp.cluster.client()), waiting),
            istio: Istio::new(&kcp.api),
            kims: Vec::new(),
            scenario: scenario.clone(),
            controller,
            watcher,
            upgraded,
            has_defaults,
            fixtures,
            kcp,
            shoots,
        };
        let install = Box::pin(flow.install(setup));
        let installed = progress::show("install Istio, controller and KLM", install).await;
        if let Err(error) = installed {
            let evidence = Evidence::of("flow", "installation")?;
            flow.collect(&evidence).await;
            return Err(error);
        }
        // The KIMs start last, because their watches need the CRDs.
        flow.kims = flow.start_kims();
        Ok(flow)
    }

    async fn install(&self, setup: &Setup) -> Result<()> {
        let kcp = &self.kcp;
        let (istiod, envoy) = (images::istiod().await?, images::gateway(setup).await?);
        let klm = images::klm().await?;
        let namespace = namespace(KCP_NAMESPACE).to_string();
        kcp.cluster.apply(&namespace).await?;
        let landscape = &self.scenario.landscape;
        let sources = landscape::objects(landscape, KCP_NAMESPACE, &self.fixtures.registry)?;
        kcp.cluster.apply(&sources).await?;
        self.put_webhook_manifests(None).await?;
        for crd in [crds::KYMAS, crds::RUNTIMES, crds::GARDENER_CLUSTERS] {
            kcp.cluster.apply(crd).await?;
        }
        watchers::install(&kcp.cluster, &landscape.watchers).await?;
        watchers::provide_authority(&kcp.api).await?;
        self.istio.install(&kcp.cluster, &istiod, &envoy).await?;
        for image in [&self.controller, &self.upgraded[0]] {
            kcp.cluster.load_image(image).await?;
        }
        self.install_controller(false, true).await?;
        // A Pod whose Secret does not exist is started again only after a delay.
        watchers::has_gateway_secret(&kcp.api).await?;
        klm_pod::install(&kcp.cluster, &klm).await?;
        self.klm.is_rolled_out().await?;
        self.istio.is_ready().await
    }

    fn start_kims(&self) -> Vec<AbortOnDropHandle<()>> {
        let landscape = &self.scenario.landscape;
        let garden = Garden::new(self.shoots.clone());
        let installs = Settings {
            selector: format!("{MODE_LABEL}={MODE_SIGNAL}"),
            bootstrapper: Some(Bootstrapper {
                manifests: WEBHOOK_MANIFESTS.to_owned(),
                pull_secret: landscape.pull_secret.as_ref().map(|it| it.name.clone()),
                trust_bundle: landscape.trust.as_ref().map(|it| it.name.clone()),
            }),
            bootstrapper_requeue: DOUBLES_POLL,
            ..Settings::default()
        };
        let knows_nothing = Settings {
            selector: format!("{MODE_LABEL}!={MODE_SIGNAL}"),
            ..Settings::default()
        };
        let client = || self.kcp.cluster.watching_client();
        let start = |settings| Kim::start(client(), garden.clone(), settings);
        [installs, knows_nothing].map(start).into()
    }

    /// Removes all objects that are not kept.
    pub async fn stop(self) -> Result<()> {
        // The KIMs use the clusters until they have ended.
        for kim in self.kims {
            kim.abort();
            let _ = kim.await;
        }
        self.shoots.stop().await?;
        self.kcp.cluster.stop().await?;
        drop(self.shoots);
        self.fixtures.release().await
    }

    /// Writes the pull Secret on KCP with the credentials of a user of the registry.
    pub(crate) async fn put_pull_secret(&self, user: usize) -> Result<()> {
        let identity = &self.fixtures.registry.identity;
        let opens = serde_json::from_str(&identity.docker_config_of(user, &[REGISTRY]))?;
        let object = pull_secret(KCP_NAMESPACE, PULL_SECRET, &opens);
        self.kcp.cluster.apply(&object.to_string()).await.map(drop)
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.fixtures.registry
    }

    /// Releases the upgraded images, or the earlier ones again. KIM upgrades the webhook from the manifests. The controller is
    /// installed with its new image, and upgrades the watcher and, in mode direct, the webhook.
    pub(crate) async fn upgrade(&self, is_upgraded: bool) -> Result<()> {
        let [_, webhook, _] = self.released(is_upgraded);
        let version = is_upgraded.then_some("upgraded");
        self.write_manifests(&webhook.reference, version).await?;
        self.install_controller(is_upgraded, true).await
    }

    /// Returns the images of controller, webhook and watcher.
    fn released(&self, is_upgraded: bool) -> [&Image; 3] {
        if is_upgraded {
            self.upgraded.each_ref()
        } else {
            [&self.controller, &self.fixtures.webhook, &self.watcher]
        }
    }

    /// Installs the controller, with or without the controller of Watchers.
    pub(super) async fn install_controller(
        &self,
        is_upgraded: bool,
        has_watchers: bool,
    ) -> Result<()> {
        let installation = Installation::default();
        self.install_as(is_upgraded, has_watchers, &installation)
            .await
    }

    /// Installs the controller with further options.
    pub(crate) async fn install_as(
        &self,
        is_upgraded: bool,
        has_watchers: bool,
        installation: &Installation,
    ) -> Result<()> {
        let [controller, webhook, watcher] = self.released(is_upgraded);
        let landscape = &self.scenario.landscape;
        let bundle = landscape.trust.as_ref().map_or("", |it| it.name.as_str());
        let secret = landscape.pull_secret.as_ref();
        let secret = secret.map_or("", |it| it.name.as_str());
        let mut flags = vec![
            format!("--kcp-cluster-trust-bundle={bundle}"),
            format!("--kcp-pull-secret-name={secret}"),
        ];
        if !self.has_defaults {
            flags.push("--webhook-evict-missed-pods".to_owned());
        }
        let mut controller = Controller::new(&controller.reference, &webhook.reference);
        controller.flags = flags;
        controller.has_defaults = self.has_defaults;
        controller.watcher = has_watchers.then(|| WatcherImage {
            image: watcher.reference.clone(),
            gateway: HOST,
        });
        controller.install(&self.kcp, installation).await
    }

    /// Lets KEB provision a Runtime, and waits until its Kyma is Ready and its watcher is installed.
    pub async fn provision(&self, instance: &Instance, limit: Duration) -> Result<()> {
        let is_ready = || self.has_ready_kyma(instance);
        let ready = async { anyhow::Ok(until("the Kyma is Ready", limit, is_ready).await?) };
        tokio::try_join!(self.keb.provision(instance), ready)?;
        self.is_watched(instance, limit).await
    }

    pub(crate) async fn has_ready_kyma(&self, instance: &Instance) -> Result<()> {
        let kyma = self.kcp.api.find(&kyma_path(&instance.runtime_id)).await?;
        check(kyma["status"]["state"] == "Ready", &kyma["status"])
    }

    /// Waits until the watcher of a Runtime is installed.
    pub(crate) async fn is_watched(&self, instance: &Instance, limit: Duration) -> Result<()> {
        let skr = self.shoots.find(&instance.shoot)?;
        let is_watched = || async {
            let webhooks = skr.api.find(WATCHER_WEBHOOKS).await?;
            check(webhooks.is_object(), "no webhooks of Watchers")
        };
        Ok(until("the watcher is installed", limit, is_watched).await?)
    }

    /// Lets KEB deprovision a Runtime, and waits for the end.
    pub async fn deprovision(&self, instance: &Instance) -> Result<()> {
        self.keb.deprovision(instance).await
    }

    /// Returns the path of the kubeconfig of KCP.
    pub fn kcp_kubeconfig(&self) -> PathBuf {
        self.kcp.cluster.kubeconfig_path.clone()
    }

    /// Returns the path of the kubeconfig of a Runtime's cluster.
    pub fn kubeconfig(&self, instance: &Instance) -> Result<PathBuf> {
        Ok(self
            .shoots
            .find(&instance.shoot)?
            .cluster
            .kubeconfig_path
            .clone())
    }

    /// Writes the manifests that KIM installs, with the image of the webhook or another one.
    pub(crate) async fn put_webhook_manifests(&self, image: Option<&str>) -> Result<()> {
        let image = image.unwrap_or(&self.fixtures.webhook.reference);
        self.write_manifests(image, None).await
    }

    /// Writes the manifests. KIM detects an upgrade by the label with the version; the default is the version in the printed
    /// manifests.
    async fn write_manifests(&self, image: &str, version: Option<&str>) -> Result<()> {
        let mut arguments = vec!["manifests", "webhook", "--image", image];
        if !self.has_defaults {
            arguments.push("--evict-missed-pods");
        }
        let mut text = printed_text(&arguments).await?;
        if let Some(version) = version {
            let printed = format!("{VERSION_LABEL}: {:?}", env!("CARGO_PKG_VERSION"));
            let has_label = text.contains(&printed);
            ensure!(has_label, "the manifests have no label {printed}");
            text = text.replace(&printed, &format!("{VERSION_LABEL}: {version}"));
        }
        let data = json!({ "manifests.yaml": text });
        let manifests = config_map(KCP_NAMESPACE, WEBHOOK_MANIFESTS, &data);
        let cluster = &self.kcp.cluster;
        cluster.apply(&manifests.to_string()).await.map(drop)
    }

    /// Collects diagnostics: objects, Events and logs of KCP, including those of Envoy.
    pub async fn collect(&self, evidence: &Evidence) {
        self.kcp.cluster.collect_evidence(evidence).await;
        for page in ["stats", "config_dump"] {
            let file = format!("gateway/{page}.txt");
            evidence.keep_result(&file, self.istio.page(page).await);
        }
    }
}

/// Returns the path of a Kyma on KCP.
pub(crate) fn kyma_path(name: &str) -> String {
    format!("/apis/operator.kyma-project.io/v1beta2/namespaces/{KCP_NAMESPACE}/kymas/{name}")
}

/// Path of the webhook configuration on a runtime, which is created after the watcher is available.
const WATCHER_WEBHOOKS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/skr-webhook";
/// Name of the ConfigMap with the manifests: the default of the public KIM.
pub(super) const WEBHOOK_MANIFESTS: &str = "runtime-bootstrapper-manifests";
