//! The ClusterTrustBundle, in the version that the control plane serves.

use std::time::Duration;

use component_base::readiness::Condition;
use component_base::telemetry::error_chain;
use component_base::watch::watch_object;
use futures::{StreamExt as _, pin_mut};
use kube::core::ApiResource;
use kube::{Api, Client};
use tokio::time::sleep;

use super::Told;
use super::objects::BundleObject;
use super::served::served;

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "clustertrustbundles";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// How often an API server that does not serve the kind, or does not tell, is asked again.
const ASK_AGAIN: Duration = Duration::from_mins(1);

/// How often it is asked whether it serves another version by now: an upgrade may end the one that is watched, and to the
/// watch that looks like any other failure.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// Tells what is there, for ever. Bundles that an API server cannot show are not deleted: one that is restarted without the
/// feature must not take its roots from every runtime. Nothing waits for them either.
pub(super) async fn watch(
    client: &Client,
    name: &str,
    condition: &Condition,
    tell: impl Fn(Told<BundleObject>),
) {
    let mut told = false;
    loop {
        match served(client, GROUP, &VERSIONS, PLURAL).await {
            Ok(Some(version)) => {
                told = true;
                tokio::select! {
                    () = watch_version(client, name, condition, (version, &tell)) => {}
                    () = another_version(client, version) => {
                        tracing::info!(was = version, "served version of ClusterTrustBundle changed");
                    }
                }
            }
            Ok(None) => {
                condition.detail("API of ClusterTrustBundles not served");
                if !told {
                    told = true;
                    tell(Told::Unmanaged);
                }
                sleep(ASK_AGAIN).await;
            }
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(error, "failed to discover APIs");
                if told {
                    condition.detail(error);
                } else {
                    condition.not_ready(error);
                }
                sleep(ASK_AGAIN / 12).await;
            }
        }
    }
}

async fn watch_version(
    client: &Client,
    name: &str,
    condition: &Condition,
    (version, tell): (&str, &impl Fn(Told<BundleObject>)),
) {
    let api: Api<BundleObject> = Api::all_with(client.clone(), &kind(version));
    let objects = watch_object(api, name, condition.clone());
    pin_mut!(objects);
    while let Some(object) = objects.next().await {
        tell(Told::of(object));
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

/// The API of the best version that is served; `None` if none is.
pub(super) async fn api(client: &Client) -> kube::Result<Option<Api<BundleObject>>> {
    let version = served(client, GROUP, &VERSIONS, PLURAL).await?;
    Ok(version.map(|version| Api::all_with(client.clone(), &kind(version))))
}

/// Resolves when another version than the watched one is the best that is served.
async fn another_version(client: &Client, watched: &str) {
    loop {
        sleep(LOOK_AGAIN).await;
        if let Ok(Some(best)) = served(client, GROUP, &VERSIONS, PLURAL).await
            && best != watched
        {
            return;
        }
    }
}
