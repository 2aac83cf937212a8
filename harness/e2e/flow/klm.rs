//! KLM on KCP: its Pod, its modules, and its counter of reconciles of a Kyma.

use anyhow::Result;
use api::kcp::KCP_NAMESPACE;
use doubles::klm::{MANAGER, MODULE_PREFIX, OTHER_NOTIFICATIONS, RECONCILES};
use serde_json::{Value, json};
use testkit::json::config_map;

use crate::install::{apply, with_image};
use crate::rollout::{Workload, count};
use clusters::cluster::Cluster;
use clusters::images::Image;

pub(crate) fn workload(client: testkit::client::Client) -> Workload {
    Workload::new(client, KCP_NAMESPACE, MANAGER)
}

/// Applies the objects that KLM reads, then KLM, without waiting for its Pod.
pub(super) async fn install(kcp: &Cluster, image: &Image) -> Result<()> {
    kcp.load_image(image).await?;
    let modules = MODULES.iter();
    let mut objects: Vec<Value> = modules
        .map(|(name, text)| manifest(&format!("{MODULE_PREFIX}{name}"), text))
        .collect();
    objects.extend(with_image(include_str!("klm.yaml"), &image.reference)?);
    apply(kcp, &objects).await
}

/// Counts of a Kyma since the start of KLM's Pod.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reconciles {
    pub(crate) all: u64,
    /// Those that a notification without an event led to. KLM may have combined some with other reconciles.
    pub(crate) without_event: u64,
}

/// Returns how often KLM has reconciled a Kyma.
pub(crate) async fn reconciles(klm: &Workload, kyma: &str) -> Result<Reconciles> {
    let metrics = klm.metrics(METRICS_PORT).await?;
    let of = |family: &str| count(&metrics, &format!("{family}_total{{kyma=\"{kyma}\"}}"));
    Ok(Reconciles {
        all: of(RECONCILES)?,
        without_event: of(OTHER_NOTIFICATIONS)?,
    })
}

fn manifest(name: &str, text: &str) -> Value {
    config_map(KCP_NAMESPACE, name, &json!({ "manifest.yaml": text }))
}

pub(super) const METRICS_PORT: u16 = 8080;
/// Modules by name: the Deployment of the documentation's example, and a workload of each other kind.
const MODULES: [(&str, &str); 2] = [
    (
        "pause",
        include_str!("../../../scenarios/fixtures/pause-test1.yaml"),
    ),
    ("workloads", include_str!("workloads.yaml")),
];
