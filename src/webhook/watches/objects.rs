//! Namespaces, the pull Secret and the ClusterTrustBundle. The names of the latter two are those of the latest
//! configuration, active or not: a revision becomes active only when its objects were observed.

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
    KnownNamespace, ObservedObject, PullSecretSource, SnapshotStore, bundle_name,
};
use crate::stored::StoredMetadata;

/// How often an API server that does not serve ClusterTrustBundles is asked again: its flags change with an upgrade only.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(1);

/// Until the API server is asked again after an error, at first.
const DISCOVERY_RETRY: Duration = Duration::from_secs(5);

/// The errors in a row after which the API server is asked every [`DISCOVERY_INTERVAL`] only.
const DISCOVERY_RETRIES: u32 = 12;

/// How often the API server is asked while bundles are mounted: its gate may be turned off, or another API server may answer that
/// is not updated yet.
const PROJECTION_INTERVAL: Duration = Duration::from_mins(5);

/// After the answer that bundles are not projected, so many others in a row, a [`DISCOVERY_INTERVAL`] apart, have them mounted. A
/// control plane that is being updated answers one way and the other.
const CONFIRMATIONS: u32 = 3;

/// How long after its start a replica waits to become ready for an answer of the API server.
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
        view: Namespace {
            annotations: Annotations::collect(annotations.map(|(key, value)| (&**key, &**value))),
            labels: namespace.metadata.labels.clone().unwrap_or_default(),
        },
        terminating: namespace.metadata.terminating,
        annotated: namespace.metadata.managed.annotated,
        labelled: namespace.metadata.managed.labelled,
    }
}

/// Watches the pull Secret of the product namespace. Another name in a later document makes no replica not ready: where the right
/// to that Secret is missing, all of them would be, at once.
pub(super) async fn watch_pull_secret(watches: &Watches) {
    const CHECK: &str = "pull-secret-watch";
    let mut was_observed = false;
    loop {
        let name = pull_secret_name(watches);
        let api = Api::namespaced(watches.client.clone(), &watches.namespace);
        let synced = if was_observed {
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

/// What the API server does with ClusterTrustBundles.
enum BundleSupport {
    Projected(ApiResource),
    /// Why no Pod gets a bundle.
    Missing(TrustBundlePresence),
}

/// What is known of [`BundleSupport`], whatever the name of the bundle.
struct KnownSupport {
    started: Instant,
    /// Set while the last answer was [`BundleSupport::Projected`].
    projected: Option<ApiResource>,
    /// The number of errors in a row.
    failures: u32,
    /// After the answer that bundles are not projected, the number of others since.
    confirmations: Option<u32>,
    /// Whether it was known of another bundle whether it exists.
    was_observed: bool,
}

/// Watches the configured ClusterTrustBundle, of which a digest of the certificates is kept, in the version that the API server serves.
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

/// Returns when the API server is to be asked again what it does with ClusterTrustBundles.
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
                presence = refusal(watches, name) => {
                    // It counts at once; the API server is asked again before another bundle is mounted.
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

/// Asks the API server from time to time, and returns when it tells clearly why no Pod gets a bundle. After an error the bundles
/// that were projected are mounted as before.
async fn refusal(watches: &Watches, name: &str) -> TrustBundlePresence {
    loop {
        sleep(PROJECTION_INTERVAL).await;
        if let Ok(BundleSupport::Missing(presence)) = support(watches, name).await {
            return presence;
        }
    }
}

fn is_unknown(watches: &Watches) -> bool {
    watches.snapshots.latest().trust_bundle.presence == TrustBundlePresence::Unknown
}

impl KnownSupport {
    /// Another bundle in a later document makes no replica not ready.
    fn condition(&self, watches: &Watches) -> ReadinessCheck {
        const CHECK: &str = "trust-bundle-watch";
        if self.was_observed || self.started.elapsed() >= DISCOVERY_DEADLINE {
            watches.readiness.advisory_check(CHECK)
        } else {
            watches.readiness.check(CHECK)
        }
    }

    /// Whether the replica stays not ready until the API server answers.
    ///
    /// Only for [`DISCOVERY_DEADLINE`] after its start: where the dry run is never possible, no replica would become ready and
    /// every Pod would be missed; and a new document must not make all replicas not ready at once. From then on the API server
    /// is taken to project no bundles until it answers. A Pod without its bundle gets a warning, starts, and is found as missed
    /// once the answer is known. A Pod with a volume that the API server drops is refused, or gets an empty folder in the place of
    /// the container's own certificates, and no check of the webhook finds it.
    fn is_awaited(&self, watches: &Watches) -> bool {
        self.started.elapsed() < DISCOVERY_DEADLINE && is_unknown(watches)
    }

    /// Keeps an answer. After an error, bundles that were projected are watched as before.
    ///
    /// # Errors
    /// The text of the error, if nothing else is known.
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
