//! The gateway of KCP: Envoy in a Pod, configured as an Istio ingress gateway, to which watchers of other clusters connect.
//!
//! It terminates TLS 1.3, and requires and verifies a client certificate. It writes the client certificate into
//! `X-Forwarded-Client-Cert` (`SANITIZE_SET`: a header that the client sent is removed). It forwards `/v2/<manager>/event…` to
//! the Service of the manager's listener. Its configuration is static, in one ConfigMap. Certificates are in one Secret and are
//! reloaded while it runs.

pub(crate) mod sidecar;

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use api::kcp::KCP_NAMESPACE;
use http::Method;
use serde_json::{Value, json};

use crate::definitions::{check, eventually};
use crate::install::{apply, template, with_image};
use crate::rollout::Workload;
use clusters::cluster::Cluster;
use clusters::images::digest;
use testkit::client::Client;
use testkit::json::config_map;
use testkit::pki::rcgen::{CertificateParams, Error, SanType};
use testkit::pki::{Authority, Leaf};

/// Host name of the gateway on a runtime, which is in the gateway's certificate. The port is 443.
pub(crate) const HOST: &str = "gateway.kcp.svc.cluster.local";
/// Port of the gateway on every KCP node.
pub(crate) const NODE_PORT: u16 = 30443;

pub(crate) struct Gateway {
    pub(crate) workload: Workload,
}

impl Gateway {
    pub(crate) fn new(client: Client) -> Self {
        let workload = Workload::new(client, NAMESPACE, NAME);
        Self { workload }
    }

    /// Installs the gateway with a route for each manager.
    pub(crate) async fn install(
        &self,
        cluster: &Cluster,
        image: &str,
        managers: &[&str],
        certificates: &Certificates,
    ) -> Result<()> {
        apply(cluster, &[certificates.secret(NAMESPACE, SECRET)]).await?;
        sidecar::provide_certificates(cluster, &self.workload.client).await?;
        apply(cluster, &objects(image, managers)?).await?;
        self.workload.is_rolled_out().await?;
        // A kept gateway has the certificates of another run.
        self.workload.update_mounts().await
    }

    /// Creates the Service that routes a manager's events to its listener outside of the cluster, or to the sidecar of the
    /// listener.
    pub(crate) async fn route(
        &self,
        cluster: &Cluster,
        image: &str,
        (manager, address): (&str, SocketAddr),
    ) -> Result<()> {
        if manager == sidecar::MANAGER {
            let client = self.workload.client.clone();
            return sidecar::install(cluster, client, image, address).await;
        }
        let name = format!("{manager}-events");
        let service = external_service(KCP_NAMESPACE, &name, 8082, address);
        cluster.apply(&service).await.map(drop)
    }

    /// Replaces the certificates of the gateway and waits until it has loaded them.
    pub(crate) async fn renew(&self, cluster: &Cluster, certificates: &Certificates) -> Result<()> {
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}");
        let before = self.workload.client.get(&secret).await?;
        let reloads = self.statistic(RELOADS).await?;
        apply(cluster, &[certificates.secret(NAMESPACE, SECRET)]).await?;
        let now = self.workload.client.get(&secret).await?;
        // The certificate with its key is one reload, the CAs are another.
        let changes = ["/data/tls.crt", "/data/ca.crt"].map(|it| before.at(it) != now.at(it));
        let wanted = reloads + changes.map(u64::from).iter().sum::<u64>();
        self.workload.update_mounts().await?;
        eventually("the gateway has loaded the certificates", async || {
            let now = self.statistic(RELOADS).await?;
            check(now >= wanted, format!("{now} reloads of {wanted}"))
        })
        .await
    }

    /// Returns the number of TLS handshakes that the gateway rejected, for any reason.
    pub(crate) async fn handshake_errors(&self) -> Result<u64> {
        handshake_errors(&self.page("stats").await?)
    }

    /// Returns the sum of the counters of the gateway's TLS listener with this suffix.
    async fn statistic(&self, ending: &str) -> Result<u64> {
        statistic(&self.page("stats").await?, ending)
    }

    /// Returns a page of the gateway's admin port.
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

/// Returns the number of TLS handshakes that an Envoy with these counters rejected, for any reason.
pub(crate) fn handshake_errors(counters: &str) -> Result<u64> {
    let kinds = [
        "connection_error",
        "fail_verify_no_cert",
        "fail_verify_error",
    ];
    let kinds = kinds
        .iter()
        .map(|kind| statistic(counters, &format!("ssl.{kind}")));
    kinds.sum()
}

fn statistic(counters: &str, ending: &str) -> Result<u64> {
    let counters = counters.lines().filter_map(|line| line.split_once(": "));
    let mut named = counters
        .filter(|(name, _)| name.starts_with("listener.") && name.ends_with(ending))
        .peekable();
    ensure!(named.peek().is_some(), "Envoy has no counter {ending}");
    named
        .map(|(name, value)| value.parse::<u64>().with_context(|| name.to_owned()))
        .sum()
}

/// A certificate, its key and the trusted CAs, all in PEM.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    pub(crate) trusted: String,
    pub(crate) certificate: String,
    key: String,
}

impl Certificates {
    /// Issues a certificate of `signer`, for a client or server that trusts these CAs.
    pub(crate) fn issue(
        signer: &Authority,
        common_name: &str,
        names: &[&str],
        trusted: &[&Authority],
    ) -> Result<Self, Error> {
        let leaf = leaf(signer, common_name, names, |_| ())?;
        let trusted: String = trusted.iter().map(|it| it.pem()).collect();
        Ok(Self::of(leaf, &trusted))
    }

    pub(crate) fn of(leaf: Leaf, trusted: &str) -> Self {
        Self {
            trusted: trusted.to_owned(),
            key: leaf.key_pem(),
            certificate: leaf.pem,
        }
    }

    /// Returns the data of the Secret.
    pub(crate) fn files(&self) -> Value {
        json!({ "ca.crt": self.trusted, "tls.crt": self.certificate, "tls.key": self.key })
    }

    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Value {
        secret(namespace, name, &self.files())
    }
}

/// Issues a certificate for DNS names, with changed parameters.
pub(crate) fn leaf(
    signer: &Authority,
    common_name: &str,
    names: &[&str],
    change: impl FnOnce(&mut CertificateParams),
) -> Result<Leaf, Error> {
    let names = names.iter().map(|&it| Ok(SanType::DnsName(it.try_into()?)));
    let names = names.collect::<Result<_, Error>>()?;
    signer.leaf_with(common_name, |params| {
        params.subject_alt_names = names;
        change(params);
    })
}

/// Returns a Secret with these files.
pub(crate) fn secret(namespace: &str, name: &str, files: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": name, "namespace": namespace }, "stringData": files,
    })
}

/// Returns all other objects of the gateway, with a route for each manager.
fn objects(image: &str, managers: &[&str]) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(include_str!("gateway/envoy.yaml"))?;
    let documents = documents.try_into().ok();
    let [mut envoy, server, authorities]: [Value; 3] = documents.context("three documents")?;
    for list in [ROUTES, "/static_resources/clusters"] {
        let list = envoy.pointer_mut(list).context("no list in envoy.yaml")?;
        let template = list[0].to_string();
        let filled = managers.iter().map(|it| template.replace("MANAGER", it));
        let filled = filled.map(|text| serde_json::from_str::<Value>(&text));
        *list = filled.collect::<Result<_, _>>()?;
    }
    sidecar::connect(&mut envoy["static_resources"]["clusters"])?;
    let files = json!({
        "envoy.json": envoy.to_string(),
        "server.json": server.to_string(),
        "authorities.json": authorities.to_string(),
    });
    let mut objects = with_image(include_str!("gateway/manifests.yaml"), image)?;
    template(&mut objects)?["metadata"]["annotations"]["harness.test/configuration"] =
        json!(digest(files.to_string().as_bytes()));
    let configuration = config_map(NAMESPACE, NAME, &files);
    let after_namespaces = objects.iter().position(|it| it["kind"] != "Namespace");
    objects.insert(after_namespaces.unwrap_or_default(), configuration);
    Ok(objects)
}

/// Makes [`HOST`] resolvable on a runtime. In production it is in the public DNS. Here it is a Service whose endpoint is the
/// node of KCP in the container network, so that the watcher is installed as in production.
pub(crate) async fn publish_host(runtime: &Cluster, kcp_node: &str) -> Result<()> {
    let (name, namespace) = HOST.split_once('.').context("HOST has no namespace")?;
    let namespace = namespace.split('.').next().unwrap_or_default();
    let address = SocketAddr::new(kcp_node.parse()?, NODE_PORT);
    ensure!(address.is_ipv4(), "{address} is not IPv4");
    let service = external_service(namespace, name, 443, address);
    runtime.apply(&service).await.map(drop)
}

fn external_service(namespace: &str, name: &str, port: u16, address: SocketAddr) -> String {
    include_str!("gateway/external.yaml")
        .replace("NAMESPACE", namespace)
        .replace("SERVICE", name)
        .replace("SERVED", &port.to_string())
        .replace("ADDRESS", &address.ip().to_string())
        .replace("BOUND", &address.port().to_string())
}

/// Port of Envoy's admin pages.
const ADMIN_PORT: u16 = 9901;
/// Runtime key of Envoy: percentage of requests that are delayed.
const DELAYED: &str = "fault.http.delay.fixed_delay_percent";
/// Namespace of Istio's ingress gateway.
const NAMESPACE: &str = "istio-system";
/// Name of the Deployment, the Service and the ConfigMap, and value of the label `app`.
const NAME: &str = "kcp-gateway";
const SECRET: &str = "kcp-gateway-tls";
/// Name of Envoy's counter of reloaded Secrets.
const RELOADS: &str = "ssl_context_update_by_sds";
const ROUTES: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config\
                      /virtual_hosts/0/routes";
