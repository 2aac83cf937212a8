//! A real control plane filled with runtimes: what the product's controller will find there.

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clusters::cluster::Cluster;
use clusters::control_plane::{ControlPlane, Member, runtime_id};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};

const RUNTIMES: usize = 20;
const RUNTIME_ID: &str = "kyma-project.io/runtime-id";

/// Fills twice, renews once, and looks at what is there.
pub(super) async fn check(cluster: &Cluster) -> anyhow::Result<()> {
    let control_plane = ControlPlane::prepare(cluster.client(), Some("direct")).await?;
    control_plane.fill(&members("first")).await?;
    let first = runtimes(cluster).list(&ListParams::default()).await?;
    ensure!(
        first.items.len() == RUNTIMES,
        "{} Runtimes",
        first.items.len()
    );
    for runtime in &first {
        ensure!(runtime.data["status"]["state"] == "Ready", "{runtime:?}");
        ensure!(
            runtime.labels()[RUNTIME_ID] == runtime.name_any(),
            "{runtime:?}"
        );
    }
    control_plane.fill(&members("first")).await?;
    control_plane.renew(&members("second")).await?;
    let again = runtimes(cluster).list(&ListParams::default()).await?;
    let versions = |list: &kube::core::ObjectList<DynamicObject>| -> Vec<_> {
        list.iter()
            .map(kube::ResourceExt::resource_version)
            .collect()
    };
    ensure!(
        versions(&first) == versions(&again),
        "a Runtime was written twice"
    );

    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "kcp-system");
    let labelled = ListParams::default().labels(&format!("{RUNTIME_ID}={}", runtime_id(7)));
    let found = secrets.list(&labelled).await?.items;
    let [secret] = found.as_slice() else {
        anyhow::bail!("{} kubeconfigs of one runtime", found.len());
    };
    ensure!(
        secret.name_any() == format!("kubeconfig-{}", runtime_id(7)),
        "{}",
        secret.name_any()
    );
    let data = secret.data.as_ref().context("data")?;
    ensure!(
        data["config"].0 == b"second 7",
        "{}",
        BASE64.encode(&data["config"].0)
    );
    Ok(())
}

fn runtimes(cluster: &Cluster) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "infrastructuremanager.kyma-project.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "infrastructuremanager.kyma-project.io/v1".to_owned(),
        kind: "Runtime".to_owned(),
        plural: "runtimes".to_owned(),
    };
    Api::namespaced_with(cluster.client(), "kcp-system", &resource)
}

fn members(word: &str) -> Vec<Member> {
    (0..RUNTIMES)
        .map(|number| Member {
            number,
            kubeconfig: format!("{word} {number}"),
        })
        .collect()
}
