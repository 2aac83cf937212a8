//! The gateway by its name, as SKRs know it.
//!
//! In production that name is in the public DNS. Here it is a Service without a selector on the SKR, whose one endpoint
//! is KCP's node in the container network: the cluster's own name server answers for it, and the watcher is installed
//! as ever.

use serde_json::{Value, json};

use super::NODE_PORT;
use super::objects::{endpoints, namespace};
use clusters::cluster::Cluster;

/// The name, at port 443; the gateway's certificate carries it.
pub const HOST: &str = "gateway.kcp.svc.cluster.local";

/// Makes the name known on a runtime.
///
/// # Errors
/// When KCP has no node of ours, or the API server refuses.
pub async fn entrance(skr: &Cluster, kcp: &Cluster) -> anyhow::Result<()> {
    let address = kcp.node_address().await?;
    for object in objects(&address) {
        skr.apply(&object.to_string()).await?;
    }
    Ok(())
}

fn objects(address: &str) -> [Value; 3] {
    let metadata =
        |labels: Value| json!({ "name": NAME, "namespace": NAMESPACE, "labels": labels });
    [
        namespace(NAMESPACE),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": metadata(json!({})),
            "spec": { "ports": [{ "name": "https", "port": 443, "targetPort": NODE_PORT }] },
        }),
        endpoints(
            &metadata(json!({ "kubernetes.io/service-name": NAME })),
            address,
            ("https", NODE_PORT),
        ),
    ]
}

const NAME: &str = "gateway";
const NAMESPACE: &str = "kcp";
