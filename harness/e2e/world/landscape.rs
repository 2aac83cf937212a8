//! The landscape that scenarios share: one cluster, one private registry, the product, its three sources. A scenario that
//! needs another kind of cluster gets a landscape of its own, with the same registry.
//!
//! Invariant: [`Landscape::start`] returns when every replica of the webhook has the shared configuration, pull Secret
//! and trust bundle in force, and [`Landscape::put_back`] gets there again from wherever a scenario left it.
//! KIM's part (writing the three sources) is played here.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use serde_json::{Value, json};

use super::bundle;
use super::supplies::Supplies;
use super::{Dialogue, random};
use crate::install::Product;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::evidence::Evidence;
use clusters::progress::Progress;
use clusters::registry::Registry;
use clusters::setup::Setup;
use clusters::workspace;
use testkit::until::until;

/// What all scenarios share.
pub struct Landscape {
    supplies: Arc<Supplies>,
    cluster: Cluster,
    dialogue: Dialogue,
    product: Product,
    /// Whether the cluster serves ClusterTrustBundles.
    has_bundles: bool,
}

/// What a scenario may change for all, and what puts it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// The configuration document.
    Configuration,
    /// The pull Secret in the product namespace.
    PullSecret,
    /// The ClusterTrustBundle.
    TrustBundle,
    /// The product's objects: Deployment, rules, Service.
    Product,
}

impl Landscape {
    /// Starts everything, or takes what an earlier run kept.
    ///
    /// # Errors
    /// At the first part that does not come up.
    pub async fn start(progress: &Progress, setup: &Setup, keep: bool) -> anyhow::Result<Self> {
        let supplies = Arc::new(Supplies::gather(progress, setup, keep).await?);
        let start = supplies.cluster(ClusterOptions::new("features"));
        let cluster = progress.show("start the cluster", start).await?;
        let product = supplies.product.clone();
        let install = Self::on(cluster, supplies, (product, true));
        progress.show("install the product", install).await
    }

    /// The same on a further cluster, which does not serve ClusterTrustBundles, and where the product too has to be
    /// pulled from the private registry.
    ///
    /// # Errors
    /// At the first part that does not come up.
    pub async fn without_trust_bundles(&self) -> anyhow::Result<Self> {
        let options = ClusterOptions::new("features-without-bundles").without_trust_bundles();
        let supplies = Arc::clone(&self.supplies);
        let cluster = supplies.cluster_without_product(options).await?;
        let product = supplies.private_product.clone();
        Self::on(cluster, supplies, (product, false)).await
    }

    async fn on(
        cluster: Cluster,
        supplies: Arc<Supplies>,
        (product, has_bundles): (Product, bool),
    ) -> anyhow::Result<Self> {
        let landscape = Self {
            supplies,
            dialogue: Dialogue::with(cluster.kubeconfig()).await?,
            cluster,
            product,
            has_bundles,
        };
        let installed = landscape.install().await;
        if installed.is_err() {
            let evidence = Evidence::of("landscape", "install the product")?;
            landscape.cluster.collect_evidence(&evidence).await;
            landscape.keep_replicas(&evidence).await;
        }
        installed.map(|()| landscape)
    }

    async fn install(&self) -> anyhow::Result<()> {
        for shared in [PRODUCT_NAMESPACE, REFUSING]
            .into_iter()
            .chain(SHARED_NAMESPACES)
        {
            let mut namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": shared } });
            if shared == REFUSING {
                let refusal = json!({ (api::Feature::TrustBundle.key()): "false" });
                namespace["metadata"]["annotations"] = refusal;
            }
            self.cluster.apply(&namespace.to_string()).await?;
        }
        if self.has_bundles {
            self.write_bundle().await?;
        }
        self.write_pull_secret(&self.docker_config()).await?;
        self.write_configuration(&shared_configuration()?.to_string())
            .await?;
        self.put_back(Shared::Product).await?;
        self.configure(shared_configuration()?).await?;
        self.put_back(Shared::PullSecret).await?;
        if self.has_bundles {
            self.put_back(Shared::TrustBundle).await?;
        }
        Ok(())
    }

    /// Removes everything that is not kept; the registry goes with the last landscape.
    ///
    /// # Errors
    /// When Docker refuses.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.cluster.stop().await?;
        match Arc::into_inner(self.supplies) {
            Some(supplies) => supplies.remove().await,
            None => Ok(()),
        }
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The private registry.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.supplies.registry
    }

    /// What is installed.
    #[must_use]
    pub fn product(&self) -> &Product {
        &self.product
    }

    /// Asks the API server.
    #[must_use]
    pub fn dialogue(&self) -> Dialogue {
        self.dialogue.clone()
    }

    /// Puts a document in force on every replica.
    ///
    /// # Errors
    /// When one of them has not taken it in time.
    pub async fn configure(&self, mut document: Value) -> anyhow::Result<()> {
        let mark = format!("mark-{}.test", random());
        let replacement = format!("in-force-{}.test", random());
        document["overrides"][&mark] = json!(replacement);
        self.write_configuration(&document.to_string()).await?;
        let features = document["availableFeatures"].as_array();
        let rewrites = features.is_some_and(|keys| {
            keys.iter()
                .any(|key| key == api::Feature::RegistryRewrite.key())
        });
        let expected = if rewrites {
            replacement
        } else {
            "not in availableFeatures".to_owned()
        };
        self.each_replica("the document is in force", |replica| {
            let (mark, expected) = (mark.clone(), expected.clone());
            async move { replica.says_of_image(&format!("{mark}/x"), &expected).await }
        })
        .await
    }

    /// Writes a text as the configuration document, as KIM would.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn write_configuration(&self, document: &str) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": api::names::CONFIG_MAP, "namespace": PRODUCT_NAMESPACE },
            "data": { (api::names::CONFIG_KEY): document },
        });
        self.cluster.apply(&object.to_string()).await?;
        Ok(())
    }

    /// Writes the pull Secret of the product namespace, as KIM would.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn write_pull_secret(&self, docker_config: &str) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": api::names::DOCKER_CONFIG_TYPE,
            "metadata": { "name": api::names::PULL_SECRET, "namespace": PRODUCT_NAMESPACE },
            "stringData": { (api::names::DOCKER_CONFIG_KEY): docker_config },
        });
        self.cluster.apply(&object.to_string()).await?;
        Ok(())
    }

    /// What opens the private registry, and names that of the example in src/policy/admission/tests/example and one more.
    #[must_use]
    pub fn docker_config(&self) -> String {
        let mut config: Value =
            serde_json::from_str(&self.registry().identity().docker_config()).unwrap_or_default();
        for host in ["ghcr.io", "private.me"] {
            config["auths"][host] = json!({ "username": "nobody", "password": "nothing" });
        }
        config.to_string()
    }

    /// Writes the ClusterTrustBundle, as KIM would: the registry's authority.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn write_bundle(&self) -> anyhow::Result<()> {
        let object = bundle::object(&self.registry().identity().ca_pem);
        self.cluster.apply(&object.to_string()).await?;
        Ok(())
    }

    /// Brings back what a scenario changed, and waits until every replica knows.
    ///
    /// # Errors
    /// When it does not come back in time.
    pub async fn put_back(&self, changed: Shared) -> anyhow::Result<()> {
        match changed {
            Shared::Configuration => self.configure(shared_configuration()?).await,
            Shared::PullSecret => {
                self.write_pull_secret(&self.docker_config()).await?;
                self.each_replica("the pull Secret is known", |replica| async move {
                    replica.pull_secret_is_known(true).await
                })
                .await
            }
            Shared::TrustBundle => {
                self.write_bundle().await?;
                self.each_replica("the bundle is known", |replica| async move {
                    replica.mounts_the_bundle(true).await
                })
                .await
            }
            Shared::Product => {
                self.product().apply(&self.cluster).await?;
                self.product().rolled_out(&self.cluster).await
            }
        }
    }

    /// Waits for the account without which no Pod can be made.
    pub(super) async fn account_exists(&self, namespace: &str) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        let dialogue = self.dialogue();
        until("the ServiceAccount default exists", PATIENCE, || {
            dialogue.get(&path)
        })
        .await?;
        Ok(())
    }

    /// Removes a Pod, whatever holds it.
    pub(super) async fn remove_pod(&self, path: &str) -> anyhow::Result<()> {
        let dialogue = self.dialogue();
        let freed = json!({ "metadata": { "finalizers": null } });
        dialogue.ask(Method::PATCH, path, Some(&freed)).await?;
        dialogue.ask(Method::DELETE, path, None).await?;
        Ok(())
    }

    /// Begins the removal of a namespace; nobody waits for its end.
    pub(super) async fn remove_namespace(&self, name: &str) -> anyhow::Result<()> {
        let path = format!("/api/v1/namespaces/{name}");
        self.dialogue().ask(Method::DELETE, &path, None).await?;
        Ok(())
    }
}

/// Whether the namespace is there for all scenarios.
pub(super) fn is_shared(name: &str) -> bool {
    SHARED_NAMESPACES.contains(&name)
        || name.starts_with("kube-")
        || [PRODUCT_NAMESPACE, REFUSING].contains(&name)
}

/// The document that most scenarios live with.
///
/// # Errors
/// When the fixture is not there.
pub fn shared_configuration() -> anyhow::Result<Value> {
    let path = workspace::root().join("scenarios/fixtures/admission/configuration.json");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Where the product and its sources are.
pub const PRODUCT_NAMESPACE: &str = api::names::SKR_NAMESPACE;
const SHARED_NAMESPACES: [&str; 3] = [
    "listed-registry-rewrite",
    "listed-trust-bundle",
    "listed-everything",
];
/// Lists the trust bundle, and refuses it by an annotation.
pub(crate) const REFUSING: &str = "listed-and-refusing";
/// How long "nothing happens" is looked at.
pub const A_WHILE: Duration = Duration::from_secs(2);
/// How long anything that a scenario waits for may take.
pub const PATIENCE: Duration = Duration::from_mins(1);
