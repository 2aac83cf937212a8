//! The gateway of KCP: Envoy in a Pod, configured as an Istio ingress gateway, to which watchers of other clusters connect.
//!
//! It terminates TLS (1.3, client certificate required and verified), writes the client certificate into
//! `X-Forwarded-Client-Cert` (`SANITIZE_SET`: a header that the client sent is removed), and forwards
//! `/v2/<manager>/event…` to the Service of the manager's listener. Its configuration is static, in one ConfigMap;
//! certificates come from one Secret and are reloaded while it runs.

mod objects;

pub(crate) use objects::{Certificates, HOST, leaf, publish_host};

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use http::Method;

use crate::client::Client;
use crate::definitions::{check, eventually};
use crate::install::apply;
use crate::rollout::Workload;
use clusters::cluster::Cluster;

/// Port of every KCP node that leads to the gateway.
pub(crate) const NODE_PORT: u16 = 30443;

/// A gateway on a cluster.
pub(crate) struct Gateway {
    pub(crate) workload: Workload,
}

impl Gateway {
    /// Installs it with a route for each manager.
    pub(crate) async fn install(
        cluster: &Cluster,
        image: &str,
        managers: &[&str],
        certificates: &Certificates,
    ) -> Result<Self> {
        let client = Client::with(&cluster.kubeconfig).await?;
        apply(cluster, &objects::objects(image, managers)?).await?;
        apply(cluster, &[objects::secret(certificates)]).await?;
        let workload = Workload {
            client,
            namespace: NAMESPACE,
            name: NAME,
        };
        workload.is_rolled_out().await?;
        // A kept gateway has the certificates of another run.
        workload.update_mounts().await?;
        Ok(Self { workload })
    }

    /// Routes the events of a manager to an address outside of the cluster.
    pub(crate) async fn route(cluster: &Cluster, manager: &str, address: SocketAddr) -> Result<()> {
        let service = objects::events_service(manager, address);
        cluster.apply(&service).await.map(drop)
    }

    /// Replaces its certificates and waits until it has loaded them.
    pub(crate) async fn renew(&self, cluster: &Cluster, certificates: &Certificates) -> Result<()> {
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
        let before = self.workload.client.get(&secret).await?;
        let reloads = self.statistic(RELOADS).await?;
        apply(cluster, &[objects::secret(certificates)]).await?;
        let now = self.workload.client.get(&secret).await?;
        // The certificate with its key is one reload, the authorities are another.
        let changes = ["/data/tls.crt", "/data/ca.crt"].map(|it| before.at(it) != now.at(it));
        let wanted = reloads + changes.map(u64::from).iter().sum::<u64>();
        self.workload.update_mounts().await?;
        eventually("the gateway has loaded the certificates", async || {
            let now = self.statistic(RELOADS).await?;
            check(now >= wanted, format!("{now} reloads of {wanted}"))
        })
        .await
    }

    /// Number of TLS handshakes that it rejected, for any reason.
    pub(crate) async fn handshake_errors(&self) -> Result<u64> {
        let mut errors = 0;
        for kind in [
            "connection_error",
            "fail_verify_no_cert",
            "fail_verify_error",
        ] {
            errors += self.statistic(&format!("ssl.{kind}")).await?;
        }
        Ok(errors)
    }

    /// Sum of the counters of its TLS listener whose names end like this.
    async fn statistic(&self, ending: &str) -> Result<u64> {
        let text = self.page("stats").await?;
        let counters = text.lines().filter_map(|line| line.split_once(": "));
        let mut named = counters
            .filter(|(name, _)| name.starts_with("listener.") && name.ends_with(ending))
            .peekable();
        ensure!(named.peek().is_some(), "Envoy has no counter {ending}");
        named
            .map(|(name, value)| value.parse::<u64>().with_context(|| name.to_owned()))
            .sum()
    }

    /// A page of its admin port.
    pub(crate) async fn page(&self, page: &str) -> Result<String> {
        let pod = self.pod().await?;
        self.workload.page(&pod, ADMIN_PORT, page).await
    }

    /// Delays every request by five seconds, or none.
    pub(crate) async fn delay(&self, every: bool) -> Result<()> {
        let percent = u8::from(every) * 100;
        let pod = self.workload.pod_path(&self.pod().await?);
        let (port, key) = (ADMIN_PORT, DELAYED);
        let path = format!("{pod}:{port}/proxy/runtime_modify?{key}={percent}");
        let answer = self.workload.client.ask(Method::POST, &path, None).await?;
        answer.good_for(path).map(drop)
    }

    async fn pod(&self) -> Result<String> {
        let pods = self.workload.pod_names().await?;
        pods.into_iter().next().context("the gateway has no Pod")
    }
}

/// Port of Envoy's admin pages.
const ADMIN_PORT: u16 = 9901;
/// Runtime key of Envoy: the percentage of requests that are delayed.
const DELAYED: &str = "fault.http.delay.fixed_delay_percent";
/// Namespace of Istio's ingress gateway.
const NAMESPACE: &str = "istio-system";
/// Deployment, Service, ConfigMap and the value of the label `app`.
const NAME: &str = "kcp-gateway";
const SECRET: &str = "kcp-gateway-tls";
/// Envoy's counter of reloaded Secrets.
const RELOADS: &str = "ssl_context_update_by_sds";
