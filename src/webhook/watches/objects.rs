//! Namespaces, the pull Secret and the ClusterTrustBundle. The names of the latter two are from the latest configuration,
//! active or not, because a revision becomes active only when its objects were observed.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use component_base::readiness::ReadinessCheck;
use component_base::telemetry::error_chain;
use component_base::watch::{watch_object, watch_with_backoff};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, Secret};
use kube::core::{ApiResource, DynamicObject};
use kube::error::DiscoveryError;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _, discovery};
use policy::admission::{Annotations, Namespace, TrustBundlePresence};
use tokio::time::{Instant, sleep};

use super::Watches;
use crate::dry_run::projects;
use crate::snapshot::{
    KnownNamespace, ObservedChanges, ObservedObject, PullSecretSource, SnapshotStore, bundle_name,
};
use crate::stored::StoredMetadata;

/// Interval of requests to an API server that does not serve ClusterTrustBundles. Its flags only change with an upgrade.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(1);

/// Initial pause after an error before the API server gets another request.
const DISCOVERY_RETRY: Duration = Duration::from_secs(5);

/// Number of successive errors after which the API server gets a request only every [`DISCOVERY_INTERVAL`].
const DISCOVERY_RETRIES: u32 = 12;

/// Interval of requests while bundles are mounted, because the feature gate may be disabled, or another API server may
/// respond that is not updated yet.
const PROJECTION_INTERVAL: Duration = Duration::from_mins(5);

/// Number of successive positive responses, a [`DISCOVERY_INTERVAL`] apart, that are required to mount bundles again after
/// the response that bundles are not projected. A control plane that is being updated may give both responses.
const CONFIRMATIONS: u32 = 3;

/// Time after its start in which a replica waits for a response of the API server before it becomes ready.
const DISCOVERY_DEADLINE: Duration = Duration::from_mins(1);

type NamespaceMetadata = StoredMetadata<KubeNamespace, BTreeMap<String, String>>;

/// Watches the metadata of Namespaces.
pub(super) async fn watch_namespaces(watches: &Watches) {
    let api: Api<NamespaceMetadata> = Api::all(watches.client.clone());
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

fn known(namespace: &NamespaceMetadata) -> KnownNamespace {
    let annotations = namespace.annotations().iter();
    KnownNamespace {
        uid: namespace.uid(),
        view: Namespace {
            annotations: Annotations::collect(annotations.map(|(key, value)| (&**key, &**value))),
            labels: namespace.metadata.labels.clone().unwrap_or_default(),
        },
        terminating: namespace.metadata.terminating,
        annotated: namespace.metadata.managed.annotated,
        labelled: namespace.metadata.managed.labelled,
        has_earlier_times: false,
        observed: ObservedChanges::default(),
    }
}

/// Watches the pull Secret of the product namespace. A name that the document contains does not make a replica unready.
/// Otherwise, if the permission for that Secret is missing, all replicas would become unready at once, or one after the other
/// when they are replaced.
pub(super) async fn watch_pull_secret(watches: &Watches) {
    const CHECK: &str = "pull-secret-watch";
    let mut was_observed = false;
    loop {
        let name = pull_secret_name(watches);
        let api = Api::namespaced(watches.client.clone(), &watches.namespace);
        let synced = if was_observed || name != watches.settings.pull_secret {
            watches.readiness.advisory_check(CHECK)
        } else {
            watches.readiness.check(CHECK)
        };
        let secrets = watch_object(api, &name, synced);
        let follow = secrets.for_each(async |it| set_pull_secret(&watches.snapshots, &name, it));
        tokio::select! {
            () = follow => {}
            () = watches.differs(&name, pull_secret_name) => {
                let presence = watches.snapshots.latest().pull_secret.object.presence;
                was_observed |= presence != TrustBundlePresence::Unknown;
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
        return snapshots.set_pull_secret(PullSecretSource::absent(name));
    };
    let source = PullSecretSource::read(&secret).unwrap_or_else(|error| {
        tracing::error!(error = error_chain(&error), "invalid pull Secret");
        PullSecretSource::unusable(&secret.metadata, &error)
    });
    snapshots.set_pull_secret(source);
}

/// Support of the API server for ClusterTrustBundles.
enum BundleSupport {
    Projected(ApiResource),
    /// Reason why no Pod gets a bundle.
    Missing(TrustBundlePresence),
}

/// Known [`BundleSupport`], independent of the name of the bundle.
struct KnownSupport {
    started: Instant,
    /// Set while the last response was [`BundleSupport::Projected`].
    projected: Option<ApiResource>,
    /// Number of successive errors.
    failures: u32,
    /// Number of positive responses since the response that bundles are not projected.
    confirmations: Option<u32>,
    /// Whether the existence of another bundle was already observed.
    was_observed: bool,
}

/// Watches the configured ClusterTrustBundle in the version that the API server serves, and stores a digest of its certificates.
pub(super) async fn watch_trust_bundle(watches: &Watches) {
    let mut known = KnownSupport {
        started: Instant::now(),
        projected: None,
        failures: 0,
        confirmations: None,
        was_observed: false,
    };
    loop {
        let name = trust_bundle_name(watches);
        tokio::select! {
            () = watch_bundle(watches, name.as_deref(), &mut known) => {}
            () = watches.differs(&name, trust_bundle_name) => {
                known.was_observed |= !is_unknown(watches);
                set_trust_bundle(watches, ObservedObject::default());
            }
        }
    }
}

pub(super) fn trust_bundle_name(watches: &Watches) -> Option<String> {
    let configuration = watches.snapshots.latest().configuration?;
    bundle_name(&configuration).map(str::to_owned)
}

/// Watches a bundle. Returns when the support of the API server must be checked again.
async fn watch_bundle(watches: &Watches, name: Option<&str>, known: &mut KnownSupport) {
    let condition = known.condition(watches);
    let Some(name) = name else {
        condition.ready();
        return std::future::pending().await;
    };
    if known.is_awaited(watches) {
        condition.not_ready("API server not asked yet whether it projects ClusterTrustBundles");
    }
    match known.update(support(watches, name).await) {
        Ok(BundleSupport::Projected(kind)) => {
            let api = Api::<DynamicObject>::all_with(watches.client.clone(), &kind);
            let bundles = watch_object(api, name, condition);
            let follow = bundles.for_each(async |bundle| {
                let absent = || ObservedObject::absent(name);
                let observed = bundle.as_ref().map_or_else(absent, observed_bundle);
                set_trust_bundle(watches, observed);
            });
            tokio::select! {
                () = follow => {}
                change = support_change(watches, name, &kind) => if let Some(presence) = change {
                    // The response takes effect at once. The API server gets another request before a bundle is mounted again.
                    known.projected = None;
                    known.confirmations = Some(0);
                    set_trust_bundle(watches, presence);
                    sleep(DISCOVERY_INTERVAL).await;
                }
            }
        }
        Ok(BundleSupport::Missing(presence)) => {
            condition.detail(match presence {
                TrustBundlePresence::Unserved => "API of ClusterTrustBundles not served",
                _ => "API server does not project ClusterTrustBundles into Pods",
            });
            set_trust_bundle(watches, presence);
            sleep(DISCOVERY_INTERVAL).await;
        }
        Err(error) if known.is_awaited(watches) => {
            condition.not_ready(error);
            sleep(DISCOVERY_RETRY).await;
        }
        Err(error) => {
            condition.detail(error);
            if is_unknown(watches) {
                set_trust_bundle(watches, TrustBundlePresence::NotProjected);
            }
            sleep(known.pause()).await;
        }
    }
}

async fn support(watches: &Watches, name: &str) -> Result<BundleSupport, kube::Error> {
    let Some(kind) = served(&watches.client).await? else {
        return Ok(BundleSupport::Missing(TrustBundlePresence::Unserved));
    };
    let is_projected = projects(&watches.client, &watches.namespace, name).await?;
    Ok(if is_projected {
        BundleSupport::Projected(kind)
    } else {
        BundleSupport::Missing(TrustBundlePresence::NotProjected)
    })
}

/// Checks the API server periodically, and returns the reason as soon as it responds that no Pod gets a bundle, or `None` if
/// it serves bundles in another version than the current one. After an error the bundles continue to be mounted.
async fn support_change(
    watches: &Watches,
    name: &str,
    current: &ApiResource,
) -> Option<TrustBundlePresence> {
    loop {
        sleep(PROJECTION_INTERVAL).await;
        match support(watches, name).await {
            Ok(BundleSupport::Missing(presence)) => return Some(presence),
            Ok(BundleSupport::Projected(kind)) if kind != *current => return None,
            Ok(BundleSupport::Projected(_)) | Err(_) => {}
        }
    }
}

fn is_unknown(watches: &Watches) -> bool {
    watches.snapshots.latest().trust_bundle.presence == TrustBundlePresence::Unknown
}

impl KnownSupport {
    /// Returns the readiness check. Another bundle in a later document does not make a replica unready.
    fn condition(&self, watches: &Watches) -> ReadinessCheck {
        const CHECK: &str = "trust-bundle-watch";
        if self.was_observed || self.started.elapsed() >= DISCOVERY_DEADLINE {
            watches.readiness.advisory_check(CHECK)
        } else {
            watches.readiness.check(CHECK)
        }
    }

    /// Returns whether the replica stays unready until the API server responds.
    ///
    /// This only applies for [`DISCOVERY_DEADLINE`] after its start. If the dry run is never possible, no replica would
    /// become ready and each Pod would be missed. A new document must not make all replicas unready at once. After the
    /// deadline, the API server is assumed to project no bundles until it responds. A Pod without its bundle gets a
    /// warning, starts, and is found as missed once the response is known. A Pod with a volume that the API server drops is
    /// rejected, or gets an empty directory instead of the certificates of the container image, and no check of the webhook
    /// finds it.
    fn is_awaited(&self, watches: &Watches) -> bool {
        self.started.elapsed() < DISCOVERY_DEADLINE && is_unknown(watches)
    }

    /// Stores a response. After an error, bundles that were projected are watched as before.
    ///
    /// # Errors
    /// The text of the error, if no earlier positive response is known.
    fn update(
        &mut self,
        answer: Result<BundleSupport, kube::Error>,
    ) -> Result<BundleSupport, String> {
        let error = match answer {
            Ok(BundleSupport::Projected(kind)) => {
                self.failures = 0;
                if let Some(count) = &mut self.confirmations {
                    *count += 1;
                    if *count < CONFIRMATIONS {
                        return Ok(BundleSupport::Missing(TrustBundlePresence::NotProjected));
                    }
                }
                self.confirmations = None;
                self.projected = Some(kind.clone());
                return Ok(BundleSupport::Projected(kind));
            }
            Ok(missing) => {
                self.failures = 0;
                self.confirmations = Some(0);
                self.projected = None;
                return Ok(missing);
            }
            Err(error) => error_chain(&error),
        };
        self.failures = self.failures.saturating_add(1);
        let text = "cannot tell whether ClusterTrustBundles are projected";
        tracing::warn!(error, "{text}");
        let projected = self.projected.clone().map(BundleSupport::Projected);
        projected.ok_or_else(|| format!("{text}: {error}"))
    }

    fn pause(&self) -> Duration {
        if self.failures < DISCOVERY_RETRIES {
            DISCOVERY_RETRY
        } else {
            DISCOVERY_INTERVAL
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

/// Returns the kind ClusterTrustBundle in the most stable version that the API server serves, at least beta.
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
