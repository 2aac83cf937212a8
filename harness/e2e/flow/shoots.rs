//! The clusters of Runtimes, as containers that KIM starts and stops.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use doubles::kim::Provider;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use testkit::locked;

use crate::gateway::publish_host;
use crate::install::Fixtures;
use clusters::cluster::{Cluster, ClusterOptions};
use clusters::images::Image;
use testkit::client::Client;

/// The existing clusters, by the names of their Shoots.
pub(crate) struct Shoots {
    fixtures: Arc<Fixtures>,
    /// Images that every node has, besides those of the fixtures.
    images: Vec<Image>,
    /// Address of the node of KCP, on which the gateway has a port.
    kcp_node: String,
    running: Mutex<BTreeMap<String, Arc<Shoot>>>,
    /// Errors of stopped clusters. They are kept, because KIM retries and then finds no cluster.
    errors: Mutex<Vec<String>>,
}

pub(crate) struct Shoot {
    /// Time at which KIM requested the cluster.
    pub(super) requested: Timestamp,
    pub(crate) cluster: Cluster,
    pub(crate) api: Client,
    kubeconfig: String,
}

impl Shoots {
    pub(super) fn new(fixtures: Arc<Fixtures>, images: Vec<Image>, kcp_node: String) -> Self {
        Self {
            fixtures,
            images,
            kcp_node,
            running: Mutex::default(),
            errors: Mutex::default(),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Shoot>> {
        let found = locked(&self.running).get(name).cloned();
        found.with_context(|| format!("KIM has not provisioned the cluster of Shoot {name}"))
    }

    async fn start(&self, name: &str) -> Result<Shoot> {
        let requested = Timestamp::now();
        let options = ClusterOptions::new(name);
        let cluster = Box::pin(self.fixtures.transient_cluster(options)).await?;
        for image in &self.images {
            cluster.load_image(image).await?;
        }
        publish_host(&cluster, &self.kcp_node).await?;
        Ok(Shoot {
            requested,
            api: Client::with(&cluster.kubeconfig).await?,
            kubeconfig: cluster.direct_kubeconfig().await?.to_string(),
            cluster,
        })
    }

    /// Stops the clusters that were not deprovisioned.
    pub(super) async fn stop(&self) -> Result<()> {
        let left = std::mem::take(&mut *locked(&self.running));
        for (name, shoot) in left {
            let shoot = Arc::into_inner(shoot);
            shoot
                .with_context(|| format!("{name} is used"))?
                .cluster
                .stop()
                .await?;
        }
        let errors = locked(&self.errors);
        ensure!(errors.is_empty(), "{}", errors.join("\n"));
        Ok(())
    }
}

impl Provider for Shoots {
    fn provision<'a>(&'a self, shoot: &'a str) -> BoxFuture<'a, Result<String>> {
        async move {
            if let Ok(found) = self.find(shoot) {
                return Ok(found.kubeconfig.clone());
            }
            let started = Box::pin(self.start(shoot)).await?;
            let kubeconfig = started.kubeconfig.clone();
            locked(&self.running).insert(shoot.to_owned(), Arc::new(started));
            Ok(kubeconfig)
        }
        .boxed()
    }

    fn deprovision<'a>(&'a self, shoot: &'a str) -> BoxFuture<'a, Result<()>> {
        async move {
            let Some(found) = locked(&self.running).remove(shoot) else {
                return Ok(());
            };
            match Arc::try_unwrap(found) {
                Ok(found) => {
                    let stopped = found.cluster.stop().await;
                    let error = stopped.as_ref().err().map(|it| format!("{it:#}"));
                    locked(&self.errors).extend(error);
                    stopped
                }
                Err(used) => {
                    // A step still uses the cluster; KIM retries.
                    locked(&self.running).insert(shoot.to_owned(), used);
                    anyhow::bail!("cluster {shoot} is in use")
                }
            }
        }
        .boxed()
    }
}
