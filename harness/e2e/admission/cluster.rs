//! Environment of the admission suite: a cluster with a node, the private registry, the product installed from the output of
//! `manifests webhook`, and the three objects that KIM writes on a runtime.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use serde_json::Value;
use testkit::json::namespace;

use clusters::cluster::{Cluster, ClusterOptions, TrustBundles};
use clusters::evidence::Evidence;
use clusters::progress;
use clusters::registry::{HOST, Registry};
use clusters::setup::Setup;

use super::webhook::{DEPLOYMENT, NAMESPACE, TRUST_BUNDLE, Webhook, sources, usual_configuration};
use crate::definitions::object::path;
use crate::definitions::pod::plain;
use crate::install::{self, Fixtures};
use crate::runner::{Environments, Selection};
use crate::scenario::{Cluster as Which, Environment, ObjectRef};
use testkit::client::{Client, Write};

/// State that the scenarios of the admission suite share.
pub struct Admission {
    pub(crate) fixtures: Arc<Fixtures>,
    pub(crate) cluster: Cluster,
    client: Client,
    trust_bundles: TrustBundles,
}

/// Starts the environment, or uses one that an earlier run kept.
pub async fn start(setup: &Setup, _: &Selection, keep: bool) -> Result<Arc<Admission>> {
    let fixtures = Arc::new(Fixtures::prepare(setup, keep).await?);
    let start = fixtures.cluster(ClusterOptions::new("features"));
    let cluster = progress::show("start the cluster", start).await?;
    let product = fixtures.product.clone();
    let install = Admission::on(cluster, fixtures, &product, TrustBundles::Projected);
    let admission = progress::show("install the product", install).await?;
    Ok(Arc::new(admission))
}

impl Environments for Arc<Admission> {
    async fn next(&self, _: Vec<String>) -> Result<Arc<dyn Environment>> {
        Ok(Self::clone(self))
    }

    async fn stop(self) -> Result<()> {
        Admission::stop(self).await
    }
}

impl Admission {
    async fn on(
        cluster: Cluster,
        fixtures: Arc<Fixtures>,
        product: &[Value],
        trust_bundles: TrustBundles,
    ) -> Result<Self> {
        let admission = Self {
            fixtures,
            client: Client::with(&cluster.kubeconfig).await?,
            cluster,
            trust_bundles,
        };
        let installed = admission.install(product).await;
        if installed.is_err() {
            let evidence = Evidence::of("admission", "install the product")?;
            admission.diagnose(&evidence).await;
        }
        installed.map(|()| admission)
    }

    /// Starts a cluster for one scenario, whose node pulls the product from the private registry.
    pub(crate) async fn without_trust_bundles(&self, trust_bundles: TrustBundles) -> Result<Self> {
        let name = match trust_bundles {
            TrustBundles::NotServed => "features-bundles-not-served",
            _ => "features-bundles-dropped",
        };
        let options = ClusterOptions::new(name).with_trust_bundles(trust_bundles);
        let fixtures = Arc::clone(&self.fixtures);
        let cluster = fixtures.cluster_without_product(options).await?;
        let product = &self.fixtures.private_product;
        Self::on(cluster, fixtures, product, trust_bundles).await
    }

    async fn install(&self, product: &[Value]) -> Result<()> {
        let identity = &self.registry().identity;
        let docker_config = serde_json::from_str(&identity.docker_config(HOST))?;
        let [configuration, secret, bundle] = sources(docker_config, &identity.ca_pem)?;
        let namespace = namespace(NAMESPACE);
        let is_served = self.trust_bundles != TrustBundles::NotServed;
        let bundle = is_served.then_some(&bundle);
        let first = [&namespace, &configuration, &secret];
        for object in first.into_iter().chain(bundle) {
            self.client.write(Write::Apply, object).await?.good()?;
        }
        install::install(&self.cluster, product).await?;
        let webhook = self.webhook();
        webhook.configure(usual_configuration()?).await?;
        webhook.knows_pull_secret(&secret).await?;
        let is_mounted = self.trust_bundles == TrustBundles::Projected;
        webhook.knows_trust_bundle(is_mounted).await
    }

    /// Removes all objects that are not kept, of the shared environment or of one for a single scenario.
    pub(crate) async fn stop(this: Arc<Self>) -> Result<()> {
        let this = Arc::into_inner(this).context("the environment is still used")?;
        this.cluster.stop().await?;
        this.fixtures.release().await
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.fixtures.registry
    }

    fn webhook(&self) -> Webhook {
        let client = self.client.clone();
        Webhook { client }
    }

    async fn uses(&self, object: &ObjectRef) -> Result<()> {
        let webhook = self.webhook();
        let in_namespace = object.namespace.as_deref() == Some(NAMESPACE);
        let found = async || self.client.find(&path(&self.client, object).await?).await;
        match (object.kind.as_str(), object.name.as_str()) {
            ("ConfigMap", api::names::CONFIG_MAP) if in_namespace && !found().await?.is_null() => {
                webhook.configure(usual_configuration()?).await?;
                // A replica that started without a configuration was not ready.
                install::rolled_out(&self.cluster).await
            }
            ("Secret", api::names::PULL_SECRET) if in_namespace => {
                webhook.knows_pull_secret(&found().await?).await
            }
            ("ClusterTrustBundle", TRUST_BUNDLE) => {
                webhook.knows_trust_bundle(!found().await?.is_null()).await
            }
            ("Deployment", DEPLOYMENT) if in_namespace => {
                install::rolled_out(&self.cluster).await?;
                match found().await?["spec"]["replicas"].as_u64() {
                    None | Some(0) => Ok(()),
                    Some(_) => webhook.is_reached().await,
                }
            }
            ("Namespace", name) => {
                let found = found().await?;
                let annotations = &found["metadata"]["annotations"];
                let keys = [api::ALL_KEY, api::Feature::FipsMode.key()];
                let fips = keys.iter().any(|key| annotations[key] == "true");
                let variable = (api::names::FIPS_VARIABLE, fips);
                webhook.patches(name, &plain(), variable).await
            }
            _ => Ok(()),
        }
    }
}

impl Environment for Admission {
    fn client(&self, cluster: &Which) -> Result<Client> {
        ensure!(
            *cluster == Which::Runtime(None),
            "the admission suite has one runtime and no control plane"
        );
        Ok(self.client.clone())
    }

    fn settle<'a>(&'a self, object: &'a ObjectRef) -> LocalBoxFuture<'a, Result<()>> {
        self.uses(object).boxed_local()
    }

    fn diagnose<'a>(&'a self, evidence: &'a Evidence) -> LocalBoxFuture<'a, ()> {
        let collect = async {
            self.cluster.collect_evidence(evidence).await;
            for replica in self.webhook().replicas().await.unwrap_or_default() {
                let file = |name: &str| format!("webhook/{}-{name}.txt", replica.pod);
                evidence.keep_result(&file("metrics"), replica.metrics_page().await);
                let ready = replica.health("/readyz").await;
                evidence.keep_result(&file("ready"), ready.map(|ready| ready.1));
            }
        };
        collect.boxed_local()
    }
}
