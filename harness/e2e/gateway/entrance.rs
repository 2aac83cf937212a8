//! The host name of the gateway on a runtime.
//!
//! In production it is in the public DNS. Here it is a Service without a selector on the runtime, whose endpoint is the node
//! of KCP in the container network, so that the watcher is installed as in production.

use serde_json::{Value, json};

use super::NODE_PORT;
use super::objects::{endpoints, namespace};
use clusters::cluster::Cluster;

/// The host name, which is in the gateway's certificate. Port 443.
pub const HOST: &str = "gateway.kcp.svc.cluster.local";

/// Makes the host name resolvable on a runtime.
///
/// # Errors
/// When KCP has no node, or the API server refuses.
pub async fn entrance(runtime: &Cluster, kcp: &Cluster) -> anyhow::Result<()> {
    let address = kcp.node_address().await?;
    for object in objects(&address) {
        runtime.apply(&object.to_string()).await?;
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
