//! What the API server would store of a Pod, by dry runs in the product namespace. Nothing is ever created.
//!
//! Rights: Pods in the product namespace: create.

use api::names::{MARKER, OWN_LABEL, POLICY_PROBE_POD, POLICY_REVISION, PROBE_POD, SKR_NAMESPACE};
use component_base::telemetry::error_chain;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::response::Status;
use kube::{Api, Client, ResourceExt as _};
use policy::admission::review::{self, Subject};
use policy::admission::{Context, decide_unsent};
use serde_json::{Value, json};

use crate::snapshot::SnapshotStore;

/// Whether the API server keeps a projected ClusterTrustBundle of a Pod. One without the feature gate drops it: the Pod would
/// get an empty folder in the place of the container's own certificates.
///
/// Where the dry run is refused, because a right, a quota, another webhook or a policy of the cluster is in its way, bundles are
/// taken to be projected: it will be refused the next time too, and an API server that serves configured bundles projects them in
/// all likelihood.
///
/// # Errors
/// The API server did not answer as it should, which tells nothing about bundles and may pass.
pub(crate) async fn projects(
    client: &Client,
    namespace: &str,
    bundle: &str,
) -> Result<bool, kube::Error> {
    let mut pod = pod("rt-bootstrapper-projection");
    // Not sent to this webhook.
    pod["metadata"]["labels"] = json!({OWN_LABEL.0: OWN_LABEL.1});
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
        // A source without any content is invalid for some versions.
        Err(kube::Error::Api(status)) if status.code == 422 && is_about_volumes(&status) => {
            Ok(false)
        }
        // 422 is also the answer of a ValidatingAdmissionPolicy.
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

/// Whether a field of the Pod's volumes is invalid.
fn is_about_volumes(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|it| &it.causes);
    causes
        .into_iter()
        .any(|it| it.field.starts_with("spec.volumes"))
}

/// Whether the API server sends a Pod that requests every feature to this webhook. A Pod that the active configuration does not
/// change proves nothing, and is a success.
///
/// # Errors
/// A text for a reader: the Pod came out unchanged, or the dry run is not possible.
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

/// Whether the API server evaluates the fallback policy of this revision, as a whole.
pub(crate) async fn evaluates(
    client: &Client,
    namespace: &str,
    revision: &str,
) -> Result<bool, kube::Error> {
    let mut pod = pod(POLICY_PROBE_POD);
    // Not sent to this webhook.
    pod["metadata"]["labels"] = json!({OWN_LABEL.0: OWN_LABEL.1});
    pod["metadata"]["annotations"] = json!({api::ALL_KEY: "true"});
    let pod = create(client, namespace, pod).await?;
    Ok(pod
        .annotations()
        .get(POLICY_REVISION)
        .is_some_and(|it| it == revision))
}

/// Whether the webhook would change the Pod.
fn changes(pod: &Value, namespace: &str, snapshots: &SnapshotStore) -> bool {
    let active = snapshots.active();
    let known = snapshots.namespace(namespace);
    let body = review::of_created_pod(namespace, &pod.to_string());
    let (Some(configuration), Ok(review)) = (&active.configuration, review::parse(body.as_bytes()))
    else {
        return false;
    };
    let context = Context {
        configuration,
        namespace: known.as_ref().map(|it| &it.view),
        pull_secret: &active.pull_secret.known,
        trust_bundle: active.trust_bundle,
        fallback_policy: false,
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

/// A Pod that no admission plugin has a reason to refuse.
fn pod(name: &str) -> Value {
    let restricted = json!({
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
        "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let amounts = json!({"cpu": "1m", "memory": "1Mi"});
    json!({
        "metadata": {"name": name},
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
