//! Whether the configured ClusterTrustBundle exists, in whichever version the API server serves, and which version of
//! the content it carries. Metadata only; the name is that of the newest configuration, in force or not.

use std::fmt::Debug;
use std::time::Duration;

use chassis::telemetry::error_chain;
use chassis::watch::keep_watching;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::certificates::{v1, v1beta1};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use policy::admission::TrustBundlePresence;
use serde::de::DeserializeOwned;

use super::{Watches, named};
use crate::knowledge::version::{KnownBundle, Seen, bundle_name};

/// How often an API server that does not serve the kind is asked again: its flags change with an upgrade only.
const ASK_AGAIN: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    V1,
    V1Beta1,
    No,
}

/// Watches for ever; begins anew when a configuration names another bundle.
pub(super) async fn watch(watches: &Watches) {
    loop {
        let name = current_name(watches);
        tokio::select! {
            () = watch_one(watches, name.as_deref()) => {}
            () = watches.differs(&name, current_name) => set(watches, KnownBundle::default()),
        }
    }
}

pub(super) fn current_name(watches: &Watches) -> Option<String> {
    let configuration = watches.knowledge.newest().configuration?;
    bundle_name(&configuration).map(str::to_owned)
}

async fn watch_one(watches: &Watches, name: Option<&str>) {
    let Some(name) = name else {
        // Nothing to watch; ready all the same.
        watches.readiness.condition("trust-bundle-watch").ready();
        return std::future::pending().await;
    };
    let condition = watches.readiness.condition("trust-bundle-watch");
    match served(&watches.client).await {
        Ok(Served::V1) => watch_version::<v1::ClusterTrustBundle>(watches, name).await,
        Ok(Served::V1Beta1) => watch_version::<v1beta1::ClusterTrustBundle>(watches, name).await,
        Ok(Served::No) => {
            condition.detail("API of ClusterTrustBundles not served");
            set(watches, TrustBundlePresence::Unserved.into());
            tokio::time::sleep(ASK_AGAIN).await;
        }
        Err(error) => {
            // What was known stays in force; a Pod that mounts a bundle waits rather than fails.
            let text = error_chain(&error);
            tracing::warn!(error = text, "failed to discover APIs");
            condition.detail(text);
            tokio::time::sleep(ASK_AGAIN / 12).await;
        }
    }
}

/// Which version of the kind is served.
pub(super) async fn served(client: &Client) -> Result<Served, kube::Error> {
    for (version, served) in [("v1", Served::V1), ("v1beta1", Served::V1Beta1)] {
        match client
            .list_api_group_resources(&format!("certificates.k8s.io/{version}"))
            .await
        {
            Ok(list)
                if list
                    .resources
                    .iter()
                    .any(|it| it.name == "clustertrustbundles") =>
            {
                return Ok(served);
            }
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Served::No)
}

async fn watch_version<K>(watches: &Watches, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::all(watches.client.clone());
    let condition = watches.readiness.condition("trust-bundle-watch");
    let events = keep_watching(api, named(name), condition);
    pin_mut!(events);
    let mut listed = None;
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed = None,
            Event::InitApply(bundle) => listed = Some(bundle),
            Event::InitDone => set(watches, known(name, listed.take().as_ref())),
            Event::Apply(bundle) => set(watches, known(name, Some(&bundle))),
            Event::Delete(_) => set(watches, known::<K>(name, None)),
        }
    }
}

pub(super) fn known<K>(name: &str, bundle: Option<&PartialObjectMeta<K>>) -> KnownBundle {
    match bundle {
        Some(bundle) => KnownBundle {
            presence: TrustBundlePresence::Present,
            seen: Seen::of(&bundle.metadata),
        },
        None => KnownBundle {
            presence: TrustBundlePresence::Absent,
            seen: Seen::absent(name),
        },
    }
}

fn set(watches: &Watches, bundle: KnownBundle) {
    if watches.knowledge.newest().trust_bundle.presence != bundle.presence {
        tracing::info!(presence = ?bundle.presence, "ClusterTrustBundle observed");
    }
    watches.knowledge.set_trust_bundle(bundle);
}
