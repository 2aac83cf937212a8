//! KLM on KCP: its Pod, its modules, and how often it has reconciled a Kyma.

use anyhow::{Context as _, Result};
use api::kcp::KCP_NAMESPACE;
use doubles::crds;
use doubles::klm::{CA_NAME, CA_SECRET, MANAGER, MODULE_PREFIX, RECONCILES, WATCHER_MANIFESTS};
use serde_json::{Value, json};
use testkit::pki::Authority;

use crate::gateway::{HOST, secret};
use crate::install::{apply, printed_text};
use crate::rollout::Workload;
use clusters::cluster::Cluster;
use clusters::images::Image;

pub(crate) fn workload(client: crate::client::Client) -> Workload {
    Workload::new(client, KCP_NAMESPACE, MANAGER)
}

/// Applies what KLM reads, then KLM, without waiting for its Pod.
pub(super) async fn install(
    kcp: &Cluster,
    image: &Image,
    watcher: &str,
    authority: &Authority,
    watchers: Option<&[conformance::Watcher]>,
) -> Result<()> {
    kcp.load_image(image).await?;
    for crd in [crds::KYMAS, crds::RUNTIMES, crds::GARDENER_CLUSTERS] {
        kcp.apply(crd).await?;
    }
    let key = authority.certificate.key_pem();
    let ca = json!({ "ca.crt": authority.pem(), "ca.key": key });
    let folder = tempfile::tempdir()?;
    let list = folder.path().join("watchers.yaml");
    // JSON is YAML.
    let text = watchers.map(serde_json::to_string).transpose()?;
    std::fs::write(&list, text.as_deref().unwrap_or(WATCHERS))?;
    let list = list.to_str().context("a path in UTF-8")?;
    let arguments = [
        "manifests",
        "watcher",
        "--kcp-addr",
        HOST,
        "--image",
        watcher,
        "--watchers-file",
        list,
    ];
    let manifests = printed_text(&arguments).await?;
    let mut objects = vec![
        secret(KCP_NAMESPACE, CA_SECRET, &ca),
        manifest(WATCHER_MANIFESTS, &manifests),
    ];
    for (name, text) in MODULES {
        objects.push(manifest(&format!("{MODULE_PREFIX}{name}"), text));
    }
    let mut own: Vec<Value> = serde_saphyr::from_multiple(include_str!("klm.yaml"))?;
    let deployment = own.iter_mut().find(|it| it["kind"] == "Deployment");
    let template = &mut deployment.context("no Deployment")?["spec"]["template"];
    template["spec"]["containers"][0]["image"] = json!(image.reference);
    objects.extend(own);
    apply(kcp, &objects).await
}

/// The CA of an earlier run on a kept cluster, or a new one.
pub(super) async fn authority(client: &crate::client::Client) -> Result<Authority> {
    use base64::Engine as _;
    let path = format!("/api/v1/namespaces/{KCP_NAMESPACE}/secrets/{CA_SECRET}");
    let found = client.find(&path).await?;
    let Some(key) = found["data"]["ca.key"].as_str() else {
        return Ok(Authority::new(CA_NAME)?);
    };
    let key = base64::engine::general_purpose::STANDARD.decode(key)?;
    Ok(Authority::of_key(CA_NAME, &String::from_utf8(key)?)?)
}

/// How often KLM has reconciled a Kyma since its Pod was started.
pub(crate) async fn reconciles(klm: &Workload, kyma: &str) -> Result<u64> {
    let series = format!("{RECONCILES}_total{{kyma=\"{kyma}\"}}");
    let metrics = klm.metrics(METRICS_PORT).await?;
    Ok(metrics.values().map(|it| it.count(&series)).sum())
}

fn manifest(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": KCP_NAMESPACE },
        "data": { "manifest.yaml": text },
    })
}

const METRICS_PORT: u16 = 8080;
/// Modules by name: the Deployment of the documentation's example, and a workload of each other kind.
const MODULES: [(&str, &str); 2] = [
    (
        "pause",
        include_str!("../../../scenarios/fixtures/pause-test1.yaml"),
    ),
    ("workloads", include_str!("workloads.yaml")),
];
const WATCHERS: &str = "
- {namespace: kcp-system, name: kymas, manager: lifecycle-manager, field: spec,
   resource: {group: operator.kyma-project.io, version: '*', resource: kymas},
   labels: {operator.kyma-project.io/watched-by: kyma}}
";
