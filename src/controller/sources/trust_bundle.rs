//! Watches the ClusterTrustBundle in the version that KCP serves.

use std::time::Duration;

use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use component_base::watch::watch_object;
use futures::{StreamExt as _, pin_mut};
use kube::core::ApiResource;
use kube::{Api, Client};
use policy::sync::sources::SourceState;
use tokio::time::sleep;

use super::objects::BundleObject;
use super::publish::Publisher;
use super::served::served;

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "clustertrustbundles";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// Interval of requests to an API server that does not serve the kind. The interval after a failed request is a twelfth of it.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Interval of checks for another served version. An upgrade may remove the watched version, which the watch cannot distinguish
/// from other failures.
const VERSION_CHECK_INTERVAL: Duration = Duration::from_mins(10);

/// Publishes each state of the object and never returns. An object whose API is no longer served does not count as
/// deleted: an API server that restarts without the feature must not remove the bundle from all runtimes. If the API
/// was never served, the source is unmanaged.
pub(super) async fn watch(
    client: &Client,
    name: &str,
    condition: &ReadinessCheck,
    publisher: &Publisher,
) {
    let _remove = RemoveOnDrop(condition);
    let mut has_sent = false;
    loop {
        match served(client, GROUP, &VERSIONS, PLURAL).await {
            Ok(Some(version)) => {
                has_sent = true;
                tokio::select! {
                    () = watch_version(client, name, condition, (version, publisher)) => {}
                    () = another_version(client, version) => {
                        tracing::info!(was = version, "served version of ClusterTrustBundle changed");
                    }
                }
            }
            Ok(None) => {
                condition.detail("API of ClusterTrustBundles not served");
                if !has_sent {
                    has_sent = true;
                    publisher.update(|seen, _| seen.trust_bundle = Some(SourceState::Unmanaged));
                }
                sleep(RETRY_INTERVAL).await;
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "failed to discover APIs");
                if has_sent {
                    condition.detail(error);
                } else {
                    condition.not_ready(error);
                }
                sleep(RETRY_INTERVAL / 12).await;
            }
        }
    }
}

/// Removes the check when the sources are no longer watched, because another replica leads.
struct RemoveOnDrop<'a>(&'a ReadinessCheck);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.0.remove();
    }
}

async fn watch_version(
    client: &Client,
    name: &str,
    condition: &ReadinessCheck,
    (version, publisher): (&str, &Publisher),
) {
    let api: Api<BundleObject> = Api::all_with(client.clone(), &kind(version));
    let objects = watch_object(api, name, condition.clone());
    pin_mut!(objects);
    while let Some(object) = objects.next().await {
        publisher.update(|seen, salt| {
            seen.trust_bundle = Some(SourceState::of(object.map(|it| it.spec.read(salt))));
        });
    }
}

fn kind(version: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: "ClusterTrustBundle".to_owned(),
        plural: PLURAL.to_owned(),
    }
}

/// Returns the API in the best served version; `None` if no version is served.
pub(super) async fn api(client: &Client) -> kube::Result<Option<Api<BundleObject>>> {
    let version = served(client, GROUP, &VERSIONS, PLURAL).await?;
    Ok(version.map(|version| Api::all_with(client.clone(), &kind(version))))
}

/// Returns when the best served version differs from the watched version.
async fn another_version(client: &Client, watched: &str) {
    loop {
        sleep(VERSION_CHECK_INTERVAL).await;
        if let Ok(Some(best)) = served(client, GROUP, &VERSIONS, PLURAL).await
            && best != watched
        {
            return;
        }
    }
}
