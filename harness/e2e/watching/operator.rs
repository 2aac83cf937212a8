//! The example operator of the listener's crate, which runs as a Pod on KCP behind the gateway, as an operator would.

use anyhow::{Context as _, Result};
use api::runtimes::KCP_NAMESPACE;
use clusters::cluster::Cluster;
use clusters::images::Image;
use serde_json::{Value, json};

use crate::client::Client;
use crate::install::apply;
use crate::rollout::Workload;

/// Its name as a manager, and of its Deployment.
pub(super) const NAME: &str = "example-operator";

/// Installs it, without waiting for its Pod.
pub(super) async fn install(kcp: &Cluster, image: &Image, bundle: &str) -> Result<Workload> {
    kcp.load_image(image).await?;
    trust(kcp, bundle).await?;
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(include_str!("operator.yaml"))?;
    let deployment = objects.iter_mut().find(|it| it["kind"] == "Deployment");
    let template = &mut deployment.context("no Deployment")?["spec"]["template"];
    template["spec"]["containers"][0]["image"] = json!(image.reference);
    apply(kcp, &objects).await?;
    Ok(Workload {
        client: Client::with(&kcp.kubeconfig).await?,
        namespace: KCP_NAMESPACE,
        name: NAME,
    })
}

/// Replaces the CAs that it trusts; it reads them again every five seconds.
pub(super) async fn trust(kcp: &Cluster, bundle: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": "example-operator-ca", "namespace": KCP_NAMESPACE },
        "stringData": { "ca.crt": bundle },
    });
    kcp.apply(&secret.to_string()).await.map(drop)
}
