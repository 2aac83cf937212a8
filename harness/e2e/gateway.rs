//! KCP's gateway: Envoy in a Pod, as the ingress gateway of production is, where watchers of other clusters arrive.
//!
//! It ends their TLS (1.3, client certificate required and verified), writes who they are into
//! `X-Forwarded-Client-Cert` (`SANITIZE_SET`: what a client wrote there itself is gone), and hands
//! `/v2/<manager>/event…` to the Service of the manager's listener. Invariant: its configuration is static and one
//! ConfigMap; certificates come from one Secret and are reloaded live. The room for istiod, later: routes will come
//! from VirtualServices instead of the static file, and for cert-manager: the Secret from a Certificate instead of
//! [`Gateway::renew`]; name, port and Secret stay.

mod authority;
mod bootstrap;
mod entrance;
mod objects;

pub use authority::{Authority, Leaf, Pair, Validity};
pub use entrance::{HOST, entrance};

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use api::runtimes::KCP_NAMESPACE;
use http::Method;
use serde_json::{Value, json};

use crate::rollout::replicas_at;
use crate::world::Dialogue;
use clusters::cluster::Cluster;
use testkit::until::until;

/// The port of every KCP node that leads to the gateway.
pub const NODE_PORT: u16 = 30443;

/// A gateway on a cluster.
pub struct Gateway {
    dialogue: Dialogue,
    certificates: Mutex<Pair>,
}

impl Gateway {
    /// Installs it with a route for each manager.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn install(
        cluster: &Cluster,
        image: &str,
        managers: &[&str],
        certificates: &Pair,
    ) -> anyhow::Result<Self> {
        let gateway = Self {
            dialogue: Dialogue::with(cluster.kubeconfig()).await?,
            certificates: Mutex::new(certificates.clone()),
        };
        let namespaces = [
            objects::namespace(NAMESPACE),
            objects::namespace(KCP_NAMESPACE),
        ];
        let configuration = bootstrap::bootstrap(managers).to_string();
        for object in namespaces
            .into_iter()
            .chain([objects::secret(certificates)])
            .chain(objects::deployed(image, &configuration))
        {
            cluster.apply(&object.to_string()).await?;
        }
        gateway.is_up().await?;
        // One that was kept has the certificates of another run.
        hasten(&gateway.dialogue, NAMESPACE, NAME).await?;
        Ok(gateway)
    }

    /// Leads a manager's route to an address outside of the cluster's Pods.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn lead(
        cluster: &Cluster,
        manager: &str,
        address: std::net::SocketAddr,
    ) -> anyhow::Result<()> {
        for object in objects::events_service(manager, address) {
            cluster.apply(&object.to_string()).await?;
        }
        Ok(())
    }

    /// Gives it other certificates and waits until they are in force.
    ///
    /// # Errors
    /// When they do not get there.
    pub async fn renew(&self, cluster: &Cluster, certificates: &Pair) -> anyhow::Result<()> {
        let former = self.certificates.lock().ok();
        let former = former.map(|mut it| std::mem::replace(&mut *it, certificates.clone()));
        let former = former.context("the gateway's certificates")?;
        let wanted = self.statistic(RELOADS).await? + certificates.differences(&former);
        cluster
            .apply(&objects::secret(certificates).to_string())
            .await?;
        hasten(&self.dialogue, NAMESPACE, NAME).await?;
        until("the gateway has the new certificates", PATIENCE, || async {
            let now = self.statistic(RELOADS).await?;
            ensure!(now >= wanted, "{now} reloads of {wanted}");
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Takes it away, so that KCP refuses connections.
    ///
    /// # Errors
    /// When it does not go.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.scale(0).await?;
        until("the gateway is gone", PATIENCE, || async {
            let left = pods(&self.dialogue, NAMESPACE, NAME).await?.len();
            ensure!(left == 0, "{left} Pods");
            anyhow::Ok(())
        })
        .await?;
        Ok(())
    }

    /// Brings it back.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn resume(&self) -> anyhow::Result<()> {
        self.scale(1).await?;
        self.is_up().await
    }

    /// The sum of the counters of the listener's TLS that end so, such as `ssl.connection_error`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn statistic(&self, ending: &str) -> anyhow::Result<u64> {
        let text = self.ask("stats").await?;
        let counters = text.lines().filter_map(|line| line.split_once(": "));
        let named =
            counters.filter(|(name, _)| name.starts_with("listener.") && name.ends_with(ending));
        Ok(named
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum())
    }

    /// A page of its admin port.
    ///
    /// # Errors
    /// When there is no Pod of it, or it does not answer.
    pub async fn ask(&self, page: &str) -> anyhow::Result<String> {
        let path = self.admin(page).await?;
        Ok(match self.dialogue.get(&path).await?.object {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }

    /// Hands every request on five seconds late from now on, or none.
    ///
    /// # Errors
    /// The same.
    pub async fn delay(&self, every: bool) -> anyhow::Result<()> {
        let percent = if every { 100 } else { 0 };
        let page = format!("runtime_modify?{}={percent}", bootstrap::DELAYED);
        let path = self.admin(&page).await?;
        let answer = self.dialogue.ask(Method::POST, &path, None).await?;
        answer.good().map(drop)
    }

    async fn admin(&self, page: &str) -> anyhow::Result<String> {
        let pods = pods(&self.dialogue, NAMESPACE, NAME).await?;
        let pod = pods
            .first()
            .and_then(|pod| pod["metadata"]["name"].as_str());
        let pod = pod.unwrap_or_default();
        Ok(format!(
            "/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{}/proxy/{page}",
            bootstrap::ADMIN_PORT
        ))
    }

    async fn scale(&self, replicas: u32) -> anyhow::Result<()> {
        let change = json!({ "spec": { "replicas": replicas } });
        let path = objects::deployment_path();
        self.dialogue.patch(&path, &change).await.map(drop)
    }

    async fn is_up(&self) -> anyhow::Result<()> {
        let path = objects::deployment_path();
        let up = || replicas_at(&self.dialogue, &path);
        until("the gateway is up", PATIENCE, up).await?;
        Ok(())
    }
}

/// Has the kubelet look at Pods now instead of within its minute: it renews their Secrets then.
///
/// # Errors
/// When the API server refuses.
pub async fn hasten(dialogue: &Dialogue, namespace: &str, app: &str) -> anyhow::Result<()> {
    for pod in pods(dialogue, namespace, app).await? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let looked = format!("{:?}", std::time::SystemTime::now());
        let change = json!({ "metadata": { "annotations": { "harness/looked-at": looked } } });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        dialogue.patch(&path, &change).await?;
    }
    Ok(())
}

/// The Pods of an application, by the label `app`.
///
/// # Errors
/// When the API server refuses.
pub async fn pods(dialogue: &Dialogue, namespace: &str, app: &str) -> anyhow::Result<Vec<Value>> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app={app}");
    let listed = dialogue.ask(Method::GET, &path, None).await?.good()?;
    Ok(listed.at("/items").as_array().cloned().unwrap_or_default())
}

/// Istio's, so that its parts can move in.
pub(crate) const NAMESPACE: &str = "istio-system";
pub(crate) const NAME: &str = "kcp-gateway";
/// Loads of a certificate or of the authorities, each counted by itself.
const RELOADS: &str = "ssl_context_update_by_sds";
const PATIENCE: Duration = Duration::from_mins(1);
