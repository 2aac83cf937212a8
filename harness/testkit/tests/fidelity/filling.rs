//! Fills a real control plane with runtimes, as the product's controller finds them.

use anyhow::{Context as _, ensure};
use clusters::cluster::Cluster;
use clusters::control_plane::{ControlPlane, runtime_id};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList};
use kube::{Api, ResourceExt};

const COUNT: usize = 20;
const RUNTIME_ID: &str = "kyma-project.io/runtime-id";

/// Fills twice, renews once, and checks the objects.
pub(super) async fn check(cluster: &Cluster) -> anyhow::Result<()> {
    let control_plane = ControlPlane::prepare(cluster.client()).await?;
    control_plane.fill(&kubeconfigs("first")).await?;
    let kind = GroupVersionKind::gvk("infrastructuremanager.kyma-project.io", "v1", "Runtime");
    let resource = ApiResource::from_gvk(&kind);
    let runtimes: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), "kcp-system", &resource);
    let first = runtimes.list(&ListParams::default()).await?;
    let count = first.items.len();
    ensure!(count == COUNT, "{count} Runtimes");
    for runtime in &first {
        let is_labelled = runtime.labels()[RUNTIME_ID] == runtime.name_any();
        let is_ready = runtime.data["status"]["state"] == "Ready";
        ensure!(is_labelled && is_ready, "{runtime:?}");
    }
    control_plane.fill(&kubeconfigs("first")).await?;
    control_plane.renew(&kubeconfigs("second")).await?;
    let again = runtimes.list(&ListParams::default()).await?;
    let versions = |list: &ObjectList<DynamicObject>| -> Vec<_> {
        list.iter().map(ResourceExt::resource_version).collect()
    };
    let is_same = versions(&first) == versions(&again);
    ensure!(is_same, "a Runtime was written twice");

    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "kcp-system");
    let labelled = ListParams::default().labels(&format!("{RUNTIME_ID}={}", runtime_id(7)));
    let found = secrets.list(&labelled).await?.items;
    let [secret] = found.as_slice() else {
        anyhow::bail!("{} kubeconfigs of one runtime", found.len());
    };
    let name = secret.name_any();
    ensure!(name == format!("kubeconfig-{}", runtime_id(7)), "{name}");
    let data = secret.data.as_ref().context("data")?;
    let config = String::from_utf8_lossy(&data["config"].0);
    ensure!(config == "second 7", "{config}");
    Ok(())
}

fn kubeconfigs(word: &str) -> Vec<String> {
    (0..COUNT)
        .map(|number| format!("{word} {number}"))
        .collect()
}
