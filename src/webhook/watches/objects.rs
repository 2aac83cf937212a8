//! Namespaces, the pull Secret and the ClusterTrustBundle. The names of the latter two are those of the latest
//! configuration, active or not: a revision becomes active only when its objects were observed.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use component_base::telemetry::error_chain;
use component_base::watch::{watch_object, watch_with_backoff};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::error::DiscoveryError;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _, discovery};
use policy::admission::{Annotations, Namespace, TrustBundlePresence};
use tokio::time::sleep;

use super::Watches;
use crate::dry_run::projects;
use crate::snapshot::{
    KnownNamespace, ObservedObject, PullSecretSource, SnapshotStore, bundle_name,
};

/// How often an API server that does not serve ClusterTrustBundles is asked again: its flags change with an upgrade only.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(1);

/// After a failed discovery.
const DISCOVERY_RETRY: Duration = Duration::from_secs(5);

/// Watches the metadata of Namespaces.
pub(super) async fn watch_namespaces(watches: &Watches) {
    let api: Api<PartialObjectMeta<KubeNamespace>> = Api::all(watches.client.clone());
    let synced = watches.readiness.check("namespace-watch");
    let mut events = pin!(watch_with_backoff(api, watcher::Config::default(), synced));
    let snapshots = &watches.snapshots;
    let mut listed = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(it) => _ = listed.insert(it.name_any(), Arc::new(known(&it))),
            Event::InitDone => snapshots.set_namespaces(std::mem::take(&mut listed)),
            Event::Apply(it) => snapshots.set_namespace(&it.name_any(), Some(known(&it))),
            Event::Delete(it) => snapshots.set_namespace(&it.name_any(), None),
        }
    }
}

fn known(namespace: &PartialObjectMeta<KubeNamespace>) -> KnownNamespace {
    let annotations = namespace.annotations().iter();
    KnownNamespace {
        view: Namespace {
            annotations: Annotations::collect(annotations.map(|(key, value)| (&**key, &**value))),
            labels: namespace.labels().clone(),
        },
        terminating: namespace.metadata.deletion_timestamp.is_some(),
        annotated: annotated(&namespace.metadata),
        labelled: written(&namespace.metadata, "f:labels", |_| true),
    }
}

/// When a field manager of our annotations wrote last.
pub(crate) fn annotated(metadata: &ObjectMeta) -> Option<Timestamp> {
    let is_ours = |key: &str| key.starts_with("f:rt-cfg.kyma-project.io/");
    written(metadata, "f:annotations", is_ours)
}

/// When a field manager wrote last that owns such a key of a map in the metadata.
fn written(metadata: &ObjectMeta, map: &str, is_key: impl Fn(&str) -> bool) -> Option<Timestamp> {
    let entries = metadata.managed_fields.iter().flatten();
    let owners = entries.filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|it| &it.0["f:metadata"][map]);
        let keys = fields.and_then(|it| it.as_object()).into_iter().flatten();
        keys.map(|it| it.0).any(|key| is_key(key))
    });
    owners.filter_map(|it| Some(it.time.as_ref()?.0)).max()
}

/// Watches the pull Secret of the product namespace.
pub(super) async fn watch_pull_secret(watches: &Watches) {
    loop {
        let name = pull_secret_name(watches);
        let api = Api::namespaced(watches.client.clone(), &watches.namespace);
        let synced = watches.readiness.check("pull-secret-watch");
        let secrets = watch_object(api, &name, synced);
        let follow = secrets.for_each(async |it| set_pull_secret(&watches.snapshots, &name, it));
        tokio::select! {
            () = follow => {}
            () = watches.differs(&name, pull_secret_name) => {
                watches.snapshots.set_pull_secret(PullSecretSource::default());
            }
        }
    }
}

fn pull_secret_name(watches: &Watches) -> String {
    watches.snapshots.latest().configuration.map_or_else(
        || watches.settings.pull_secret.clone(),
        |configuration| configuration.pull_secret().name.clone(),
    )
}

pub(super) fn set_pull_secret(snapshots: &SnapshotStore, name: &str, secret: Option<Secret>) {
    let Some(secret) = secret else {
        return snapshots.set_pull_secret(PullSecretSource::none(ObservedObject::absent(name)));
    };
    let source = PullSecretSource::read(&secret).unwrap_or_else(|error| {
        tracing::error!(error = error_chain(&error), "invalid pull Secret");
        PullSecretSource::unusable(&secret.metadata, &error)
    });
    snapshots.set_pull_secret(source);
}

/// Watches the configured ClusterTrustBundle, of which a digest of the certificates is kept, in the version that the API server serves.
pub(super) async fn watch_trust_bundle(watches: &Watches) {
    loop {
        let name = trust_bundle_name(watches);
        tokio::select! {
            () = watch_bundle(watches, name.as_deref()) => {}
            () = watches.differs(&name, trust_bundle_name) => {
                set_trust_bundle(watches, ObservedObject::default());
            }
        }
    }
}

pub(super) fn trust_bundle_name(watches: &Watches) -> Option<String> {
    let configuration = watches.snapshots.latest().configuration?;
    bundle_name(&configuration).map(str::to_owned)
}

/// Returns when the API server is to be asked again which version it serves.
async fn watch_bundle(watches: &Watches, name: Option<&str>) {
    let condition = watches.readiness.check("trust-bundle-watch");
    let Some(name) = name else {
        condition.ready();
        return std::future::pending().await;
    };
    match served(&watches.client).await {
        Ok(Some(_)) if !projects(&watches.client, &watches.namespace, name).await => {
            condition.detail("API server does not project ClusterTrustBundles into Pods");
            set_trust_bundle(watches, TrustBundlePresence::NotProjected);
            sleep(DISCOVERY_INTERVAL).await;
        }
        Ok(Some(kind)) => {
            let client = watches.client.clone();
            let api = Api::<DynamicObject>::all_with(client, &kind);
            let bundles = watch_object(api, name, condition);
            let bundles = bundles.for_each(async |bundle| {
                let absent = || ObservedObject::absent(name);
                set_trust_bundle(
                    watches,
                    bundle.as_ref().map_or_else(absent, observed_bundle),
                );
            });
            bundles.await;
        }
        Ok(None) => {
            condition.detail("API of ClusterTrustBundles not served");
            set_trust_bundle(watches, TrustBundlePresence::Unserved);
            sleep(DISCOVERY_INTERVAL).await;
        }
        Err(error) => {
            // The last known state stays active; a Pod that mounts a bundle waits rather than fails.
            let text = error_chain(&error);
            tracing::warn!(error = text, "failed to discover APIs");
            condition.detail(text);
            sleep(DISCOVERY_RETRY).await;
        }
    }
}

fn observed_bundle(bundle: &DynamicObject) -> ObservedObject {
    let object = ObservedObject::of(&bundle.metadata);
    match bundle.data["spec"]["trustBundle"].as_str() {
        Some(certificates) => object.with_content(certificates.as_bytes()),
        None => object,
    }
}

/// ClusterTrustBundles in the most stable version that the API server serves, beta at least.
pub(super) async fn served(client: &Client) -> Result<Option<ApiResource>, kube::Error> {
    let kinds = match discovery::group(client, "certificates.k8s.io").await {
        Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_))) => return Ok(None),
        group => group?.resources_by_stability().into_iter().map(|it| it.0),
    };
    let mut kinds = kinds.filter(|it| !it.version.contains("alpha"));
    Ok(kinds.find(|it| it.kind == "ClusterTrustBundle"))
}

fn set_trust_bundle(watches: &Watches, bundle: impl Into<ObservedObject>) {
    let bundle = bundle.into();
    let presence = bundle.presence;
    if watches.snapshots.latest().trust_bundle.presence != presence {
        tracing::info!(?presence, "ClusterTrustBundle observed");
    }
    watches.snapshots.set_trust_bundle(bundle);
}
