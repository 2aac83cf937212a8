//! Kubernetes objects of the gateway, from `manifests.yaml` and `envoy.yaml`, and its address on other clusters.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use api::runtimes::KCP_NAMESPACE;
use serde_json::{Value, json};

use super::{NAME, NAMESPACE, NODE_PORT, SECRET};
use clusters::cluster::Cluster;
use clusters::images::digest;
use testkit::pki::rcgen::{CertificateParams, Error, SanType};
use testkit::pki::{Authority, Leaf};

/// Host name of the gateway on a runtime, which is in the gateway's certificate. Port 443.
pub(crate) const HOST: &str = "gateway.kcp.svc.cluster.local";

/// A certificate, its key and the trusted authorities, all PEM.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    pub(crate) trusted: String,
    pub(crate) certificate: String,
    key: String,
}

impl Certificates {
    /// A new certificate of `signer`, whose holder trusts these authorities.
    pub(crate) fn issue(
        signer: &Authority,
        common_name: &str,
        names: &[&str],
        trusted: &[&Authority],
    ) -> Result<Self, Error> {
        let leaf = leaf(signer, common_name, names, |_| ())?;
        Ok(Self {
            trusted: trusted.iter().map(|it| it.pem()).collect(),
            key: leaf.key_pem(),
            certificate: leaf.pem,
        })
    }

    /// Content of the Secret.
    pub(crate) fn files(&self) -> Value {
        json!({ "ca.crt": self.trusted, "tls.crt": self.certificate, "tls.key": self.key })
    }
}

/// A certificate for DNS names, with changed parameters.
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

/// The Secret with its certificates.
pub(super) fn secret(certificates: &Certificates) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": SECRET, "namespace": NAMESPACE },
        "stringData": certificates.files(),
    })
}

/// All other objects, with a route for each manager.
pub(super) fn objects(image: &str, managers: &[&str]) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(include_str!("envoy.yaml"))?;
    let documents = documents.try_into().ok();
    let [mut envoy, server, authorities]: [Value; 3] = documents.context("three documents")?;
    for list in [ROUTES, "/static_resources/clusters"] {
        let list = envoy.pointer_mut(list).context("no list in envoy.yaml")?;
        let template = list[0].to_string();
        let filled = managers.iter().map(|it| template.replace("MANAGER", it));
        let filled = filled.map(|text| serde_json::from_str::<Value>(&text));
        *list = filled.collect::<Result<_, _>>()?;
    }
    let files = json!({
        "envoy.json": envoy.to_string(),
        "server.json": server.to_string(),
        "authorities.json": authorities.to_string(),
    });
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(include_str!("manifests.yaml"))?;
    let deployment = objects.iter_mut().find(|it| it["kind"] == "Deployment");
    let template = &mut deployment.context("no Deployment")?["spec"]["template"];
    template["spec"]["containers"][0]["image"] = json!(image);
    template["metadata"]["annotations"]["harness.test/configuration"] =
        json!(digest(files.to_string().as_bytes()));
    let configuration = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": NAME, "namespace": NAMESPACE }, "data": files,
    });
    let after_namespaces = objects.iter().position(|it| it["kind"] != "Namespace");
    objects.insert(after_namespaces.unwrap_or_default(), configuration);
    Ok(objects)
}

/// The Service of a manager's listener, which is outside of the cluster.
pub(super) fn events_service(manager: &str, address: SocketAddr) -> String {
    let name = format!("{manager}-events");
    external_service(KCP_NAMESPACE, &name, 8082, address)
}

/// Makes [`HOST`] resolvable on a runtime. In production it is in the public DNS. Here it is a Service whose endpoint is the
/// node of KCP in the container network, so that the watcher is installed as in production.
pub(crate) async fn publish_host(runtime: &Cluster, kcp: &Cluster) -> anyhow::Result<()> {
    let (name, namespace) = HOST.split_once('.').context("HOST has no namespace")?;
    let namespace = namespace.split('.').next().unwrap_or_default();
    let address = SocketAddr::new(kcp.node_address().await?.parse()?, NODE_PORT);
    ensure!(address.is_ipv4(), "{address} is not IPv4");
    let service = external_service(namespace, name, 443, address);
    runtime.apply(&service).await.map(drop)
}

fn external_service(namespace: &str, name: &str, port: u16, address: SocketAddr) -> String {
    include_str!("external.yaml")
        .replace("NAMESPACE", namespace)
        .replace("SERVICE", name)
        .replace("SERVED", &port.to_string())
        .replace("ADDRESS", &address.ip().to_string())
        .replace("BOUND", &address.port().to_string())
}

const ROUTES: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config\
                      /virtual_hosts/0/routes";
