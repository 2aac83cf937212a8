//! When a cluster is ready: the API server says so, the node is Ready, Pods could be made.
//!
//! Invariant: levels only, each with a deadline; the log line of the container is a hint, not the proof.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{Api, Client};

use super::ClusterError;
use testkit::until::until;

pub(super) async fn wait(client: &Client, has_node: bool) -> Result<(), ClusterError> {
    until("the API server is ready", PATIENCE, || healthy(client))
        .await
        .map_err(ClusterError::NotReady)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    until(
        "the ServiceAccount default/default exists",
        PATIENCE,
        || accounts.get("default"),
    )
    .await
    .map_err(ClusterError::NotReady)?;
    if has_node {
        let nodes: Api<Node> = Api::all(client.clone());
        until("a node is Ready", PATIENCE, || a_node_is_ready(&nodes))
            .await
            .map_err(ClusterError::NotReady)?;
    }
    Ok(())
}

async fn healthy(client: &Client) -> Result<(), String> {
    let request = http::Request::get("/readyz")
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    let answer = client
        .request_text(request)
        .await
        .map_err(|error| error.to_string())?;
    if answer == "ok" { Ok(()) } else { Err(answer) }
}

async fn a_node_is_ready(nodes: &Api<Node>) -> Result<(), String> {
    let found = nodes
        .list(&kube::api::ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let ready = found.iter().any(|node| {
        let conditions = node
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        conditions
            .into_iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    });
    if ready {
        Ok(())
    } else {
        Err(format!("{} nodes, none Ready", found.items.len()))
    }
}

const PATIENCE: Duration = Duration::from_mins(2);
