//! Dry runs in the product namespace, which return the Pod that the API server would store. Nothing is ever created.
//!
//! Permissions: Pods in the product namespace: create.

use api::names::{MARKER, OWN_LABEL, POLICY_PROBE_POD, POLICY_REVISION, PROBE_POD, SKR_NAMESPACE};
use component_base::telemetry::error_chain;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::response::Status;
use kube::{Api, Client, ResourceExt as _};
use policy::admission::decide_unsent;
use policy::admission::review::{self, Subject};
use serde_json::{Value, json};

use crate::snapshot::SnapshotStore;

/// Returns whether the API server keeps a projected ClusterTrustBundle of a Pod. An API server without the feature gate
/// drops it, and the Pod would get an empty directory instead of the certificates of the container image.
///
/// If a missing permission, a quota, another webhook or a policy of the cluster rejects the dry run, bundles are assumed to
/// be projected. The next dry run would also be rejected, and an API server that serves configured bundles most likely
/// projects them.
///
/// # Errors
/// The API server did not respond correctly. This gives no information about bundles and may be temporary.
pub(crate) async fn projects(
    client: &Client,
    namespace: &str,
    bundle: &str,
) -> Result<bool, kube::Error> {
    let mut pod = pod("rt-bootstrapper-projection");
    // The label excludes the Pod from this webhook.
    pod["metadata"]["labels"][OWN_LABEL.0] = OWN_LABEL.1.into();
    pod["spec"]["volumes"] = json!([{"name": "bundle", "projected": {"sources": [
        {"clusterTrustBundle": {"name": bundle, "path": "bundle.pem"}},
    ]}}]);
    match create(client, namespace, pod).await {
        Ok(pod) => {
            let volumes = pod.spec.and_then(|it| it.volumes).unwrap_or_default();
            let sources = volumes.into_iter().filter_map(|it| it.projected?.sources);
            let mut sources = sources.flatten();
            Ok(sources.any(|it| it.cluster_trust_bundle.is_some()))
        }
        // Some API server versions reject a source without content.
        Err(kube::Error::Api(status)) if status.code == 422 && is_about_volumes(&status) => {
            Ok(false)
        }
        // A ValidatingAdmissionPolicy also responds 422.
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            let error = status.message;
            tracing::warn!(
                error,
                "dry run refused, ClusterTrustBundles are taken to be projected"
            );
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether a field of the volumes of the Pod is invalid.
fn is_about_volumes(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|it| &it.causes);
    causes
        .into_iter()
        .any(|it| it.field.starts_with("spec.volumes"))
}

/// Checks whether the API server sends a Pod that requests each feature to this webhook. A Pod that the active
/// configuration does not change proves nothing, and counts as a success.
///
/// # Errors
/// A human-readable text: the Pod is unchanged, or the dry run is not possible.
pub async fn adapts(
    client: &Client,
    namespace: &str,
    snapshots: &SnapshotStore,
) -> Result<(), String> {
    let mut pod = pod(PROBE_POD);
    pod["metadata"]["annotations"] = json!({api::ALL_KEY: "true"});
    let configuration = snapshots.configuration();
    if let Some(image) = configuration.and_then(|it| it.overridden_image()) {
        pod["spec"]["containers"][0]["image"] = json!(image);
    }
    if !changes(&pod, namespace, snapshots) {
        return Ok(());
    }
    match create(client, namespace, pod).await {
        Ok(pod) if pod.annotations().contains_key(MARKER) => Ok(()),
        Ok(_) => Err("the API server admitted a Pod without asking the webhook".to_owned()),
        Err(error) => Err(format!("dry run of a Pod failed: {}", error_chain(&error))),
    }
}

/// Returns whether the API server evaluates the complete fallback policy of this revision.
pub(crate) async fn evaluates(
    client: &Client,
    namespace: &str,
    revision: &str,
) -> Result<bool, kube::Error> {
    let mut pod = pod(POLICY_PROBE_POD);
    // The label excludes the Pod from this webhook.
    pod["metadata"]["labels"][OWN_LABEL.0] = OWN_LABEL.1.into();
    pod["metadata"]["annotations"] = json!({api::ALL_KEY: "true"});
    let pod = create(client, namespace, pod).await?;
    Ok(pod
        .annotations()
        .get(POLICY_REVISION)
        .is_some_and(|it| it == revision))
}

/// Returns whether the webhook would change the Pod.
fn changes(pod: &Value, namespace: &str, snapshots: &SnapshotStore) -> bool {
    let active = snapshots.active();
    let known = snapshots.namespace(namespace);
    let body = review::of_created_pod(namespace, &pod.to_string());
    let context = active.context(namespace, known.as_deref(), false);
    let (Some(context), Ok(review)) = (context, review::parse(body.as_bytes())) else {
        return false;
    };
    match review.subject {
        Subject::Pod(request) => decide_unsent(&request, SKR_NAMESPACE, None, &context).changed(),
        Subject::Foreign | Subject::Unreadable(_) => false,
    }
}

async fn create(client: &Client, namespace: &str, pod: Value) -> Result<Pod, kube::Error> {
    let pod = serde_json::from_value(pod).map_err(kube::Error::SerdeError)?;
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api = Api::namespaced(client.clone(), namespace);
    api.create(&parameters, &pod).await
}

/// Returns a Pod that no admission plugin has a reason to reject. Its label excludes it from the webhook of a service mesh,
/// whose failure would be one of the dry run.
fn pod(name: &str) -> Value {
    let restricted = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
        "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let amounts = json!({"cpu": "1m", "memory": "1Mi"});
    json!({
        "metadata": {"name": name, "labels": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "none", "image": "none", "securityContext": restricted,
                "resources": {"requests": amounts, "limits": amounts},
            }],
        },
    })
}

#[cfg(test)]
mod tests;
