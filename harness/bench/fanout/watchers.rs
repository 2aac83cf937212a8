//! Dependencies of the controller of Watchers on the control plane: definitions, a CA, an Istio Gateway, a Watcher, and a Kyma
//! with a certificate for each runtime. The bench issues certificates instead of cert-manager.

use std::time::Duration;

use anyhow::ensure;
use api::kcp::{KCP_NAMESPACE, RUNTIME_ID};
use api::names::SKR_NAMESPACE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clusters::cluster::Cluster;
use clusters::control_plane::{ControlPlane, runtime_id};
use clusters::setup::definitions;
use serde_json::{Value, json};
use testkit::Place;
use testkit::apiserver::place;
use testkit::json::namespace;
use testkit::pki::{Authority, Leaf};
use testkit::until::until;
use tokio::process::Command;

use crate::environment::Bench;

/// Returns the location of the object on a runtime that depends on the Watchers.
pub(super) fn webhooks() -> Place {
    place("validatingwebhookconfigurations", "", "skr-webhook")
}

/// Returns the location of a runtime's certificate, and of the CAs that its watcher trusts.
pub(super) fn certificate() -> Place {
    place("secrets", SKR_NAMESPACE, "skr-webhook-tls")
}

/// State of the control plane.
pub(super) struct Watchers {
    authority: Authority,
    /// Version in the labels of the Watcher, and its port.
    version: [u32; 2],
}

impl Watchers {
    pub(super) fn new() -> anyhow::Result<Self> {
        let authority = authority()?;
        let version = [0, 8082];
        Ok(Self { authority, version })
    }

    /// Creates all these objects on a control plane.
    pub(super) async fn prepare(
        &self,
        bench: &Bench,
        cluster: &Cluster,
        control_plane: &ControlPlane,
        runtimes: usize,
    ) -> anyhow::Result<()> {
        cluster.apply(&definitions().await?).await?;
        cluster
            .apply(include_str!("../../doubles/crds/kymas.yaml"))
            .await?;
        let mut crds = Command::new(&bench.product);
        let crds = crds.args(["crds", "--watchers"]).output().await?;
        ensure!(crds.status.success(), "crds: {crds:?}");
        cluster.apply(str::from_utf8(&crds.stdout)?).await?;
        cluster.apply(&namespace(ISTIO).to_string()).await?;
        self.put_authority(control_plane).await?;
        for object in [gateway(), self.watcher(), kyma(0)] {
            let what = format!("{} is served", object["kind"]);
            until(&what, PATIENCE, || control_plane.apply(&object)).await?;
        }
        self.issue(control_plane, runtimes).await?;
        control_plane.apply_all((0..runtimes).map(kyma)).await
    }

    /// Changes the Watcher fields that runtimes get.
    pub(super) async fn change(&mut self, control_plane: &ControlPlane) -> anyhow::Result<()> {
        self.version[0] += 1;
        control_plane.apply(&self.watcher()).await
    }

    /// Changes only the route. Returns the port that the VirtualService gets.
    pub(super) async fn reroute(&mut self, control_plane: &ControlPlane) -> anyhow::Result<u32> {
        self.version[1] += 1;
        control_plane.apply(&self.watcher()).await?;
        Ok(self.version[1])
    }

    /// Replaces the CA and the certificate of the gateway.
    pub(super) async fn rotate(&mut self, control_plane: &ControlPlane) -> anyhow::Result<()> {
        self.authority = authority()?;
        self.put_authority(control_plane).await
    }

    async fn put_authority(&self, control_plane: &ControlPlane) -> anyhow::Result<()> {
        let ca = &self.authority.certificate;
        control_plane.apply(&secret("klm-watcher", ca)).await?;
        let leaf = self.leaf("gateway")?;
        control_plane
            .apply(&secret("klm-watcher-gateway", &leaf))
            .await
    }

    /// Issues the certificates of all runtimes.
    async fn issue(&self, control_plane: &ControlPlane, runtimes: usize) -> anyhow::Result<()> {
        let secrets = (0..runtimes).zip(names(runtimes)).map(|(number, name)| {
            let leaf = self.leaf(&runtime_id(number))?;
            Ok(secret(&name, &leaf))
        });
        let secrets: anyhow::Result<Vec<Value>> = secrets.collect();
        control_plane.apply_all(secrets?).await
    }

    /// Issues the certificates again, in the order of cert-manager: first the Secret, then the status.
    pub(super) async fn renew(
        &self,
        control_plane: &ControlPlane,
        runtimes: usize,
    ) -> anyhow::Result<()> {
        self.issue(control_plane, runtimes).await?;
        let statuses = names(runtimes).map(|name| {
            json!({
                "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
                "metadata": { "name": name, "namespace": ISTIO },
                "status": { "revision": fastrand::u16(1..) },
            })
        });
        control_plane.apply_statuses(statuses).await
    }

    fn leaf(&self, name: &str) -> anyhow::Result<Leaf> {
        let leaf = self.authority.leaf_with(name, |it| {
            it.use_authority_key_identifier_extension = true;
        });
        Ok(leaf?)
    }

    fn watcher(&self) -> Value {
        let [version, port] = self.version;
        json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
            "metadata": { "name": WATCHER, "namespace": KCP_NAMESPACE },
            "spec": {
                "manager": "lifecycle-manager", "field": "spec",
                "labelsToWatch": { "bench": format!("v{version}") },
                "resourceToWatch": { "group": "operator.kyma-project.io", "version": "*", "resource": "kymas" },
                "serviceInfo": { "name": "events", "namespace": KCP_NAMESPACE, "port": port },
                "gateway": { "selector": { "matchLabels": { "bench": "gateway" } } },
            },
        })
    }
}

/// Returns the names of Certificates and their Secrets.
fn names(runtimes: usize) -> impl Iterator<Item = String> {
    (0..runtimes).map(|number| format!("{}-webhook-tls", runtime_id(number)))
}

fn authority() -> anyhow::Result<Authority> {
    Ok(Authority::new("klm-watcher-selfsigned-ca")?)
}

fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": { "name": "klm-watcher", "namespace": KCP_NAMESPACE, "labels": { "bench": "gateway" } },
        "spec": {
            "selector": { "istio": "ingressgateway" },
            "servers": [{
                "hosts": ["kcp.bench.example"],
                "port": { "name": "https", "number": 443, "protocol": "HTTPS" },
                "tls": { "mode": "MUTUAL", "credentialName": "klm-istio-gateway" },
            }],
        },
    })
}

fn kyma(number: usize) -> Value {
    let id = runtime_id(number);
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "name": id, "namespace": KCP_NAMESPACE,
            "labels": { (RUNTIME_ID): id },
            "annotations": { "skr-domain": format!("c-{number:07x}.kyma.example") },
        },
        "spec": { "channel": "regular" },
    })
}

fn secret(name: &str, pair: &Leaf) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": name, "namespace": ISTIO },
        "data": { "tls.crt": BASE64.encode(&pair.pem), "tls.key": BASE64.encode(pair.key_pem()) },
    })
}

/// Time limit until an API server serves a new kind.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns kind and name of the VirtualService.
pub(super) fn virtual_service() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": WATCHER, "namespace": KCP_NAMESPACE },
    })
}

/// Namespace of Istio's ingress gateway and the certificates.
const ISTIO: &str = "istio-system";
/// Name of the Watcher and its VirtualService.
const WATCHER: &str = "bench";
