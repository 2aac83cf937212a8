//! Double of the Kyma Lifecycle Manager; `klm/README.md` describes the scope of the double.

mod kyma;
mod module;
mod watcher;

pub use watcher::apply_watcher;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use api::kcp::KCP_NAMESPACE;
use axum::Router;
use axum::routing::get;
use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{ObjectRef, store::Writer};
use kube::runtime::{Predicate as _, WatchStreamExt as _, predicates, watcher as watches};
use kube::{Client, ResourceExt as _};
use listener::{CertificateCheck, KymaDomains, Listener, SanPinning, TrustAnchors};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{KYMA_GROUP, KYMA_VERSION, Objects, ReconcileError};

/// Command line of KLM; the defaults of the intervals are those of the public KLM.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "klm-double")]
pub struct Settings {
    /// Time until a Kyma that is Ready is reconciled again without an event, in seconds
    #[arg(long, default_value = "300")]
    pub requeue_success_seconds: u64,
    /// Time until a Kyma that is not Ready is reconciled again, in seconds
    #[arg(long, default_value = "5")]
    pub requeue_busy_seconds: u64,
    /// Address of the listener
    #[arg(long, default_value = "0.0.0.0:8082")]
    pub listen: std::net::SocketAddr,
    /// Address of /metrics
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub metrics: std::net::SocketAddr,
}

/// Name of the manager in Watchers and in the route of the gateway.
pub const MANAGER: &str = "lifecycle-manager";
/// Prefix of the ConfigMaps on KCP with the manifests of a module, under the key `manifest.yaml`.
pub const MODULE_PREFIX: &str = "klm-module-";
/// Namespace of the gateway on KCP.
pub const GATEWAY_NAMESPACE: &str = "istio-system";
/// Secret of the gateway, with the CAs of all watchers in `ca.crt`.
pub const GATEWAY_SECRET: &str = "klm-istio-gateway";
/// Counter of reconciles, by Kyma.
pub const RECONCILES: &str = "klm_reconcile";
/// Counter of events of the listener, by object.
pub const EVENTS: &str = "klm_event";
/// Counter of other notifications of the listener, such as a required resync, by Kyma. Each leads to a reconcile.
pub const OTHER_NOTIFICATIONS: &str = "klm_other_notification";

/// KLM of one control plane.
struct Klm {
    kcp: Objects,
    settings: Settings,
    reconciles: Counts,
}

/// Counters by Kyma or by object.
type Counts = Family<[(&'static str, String); 1], Counter>;

/// Runs the controller, the listener and the metrics server until `shutdown` is canceled.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> Result<()> {
    let client = Client::try_default().await?;
    let (anchors, following_ca) =
        TrustAnchors::follow_secret(client.clone(), GATEWAY_NAMESPACE, GATEWAY_SECRET, "ca.crt")
            .await?;
    let (domains, following_kymas) = KymaDomains::follow(client.clone(), KCP_NAMESPACE);
    let (listener, notifications) = Listener::builder(settings.listen, MANAGER)
        .authentication(CertificateCheck::new(anchors, SanPinning::new(domains)))
        .build()?;
    // The name of a Kyma is its runtime ID.
    let [reconciles, events, others] = [(); 3].map(|()| Counts::default());
    let registry = Arc::new(registry(&reconciles, &events, &others));
    let changed = notifications.object_refs(move |runtime, event| {
        if let Some(event) = event {
            let object = format!("{}/{}", event.watched.namespace, event.watched.name);
            events.get_or_create(&[("object", object)]).inc();
        } else {
            let kyma = runtime.as_str().to_owned();
            others.get_or_create(&[("kyma", kyma)]).inc();
        }
        tracing::info!(%runtime, "event received from SKR, adding its Kyma to the queue");
        let name = ObjectRef::new_with(runtime.as_str(), kymas());
        Some(name.within(KCP_NAMESPACE))
    });
    let klm = Arc::new(Klm {
        kcp: Objects::new(client.clone()),
        settings: settings.clone(),
        reconciles,
    });
    let metrics = TcpListener::bind(settings.metrics).await?;
    let page = Router::new().route(
        "/metrics",
        get(move || std::future::ready(exposition(&registry))),
    );
    let writer = Writer::new(kymas());
    let reader = writer.as_reader();
    let api: Api<DynamicObject> = Api::namespaced_with(client, KCP_NAMESPACE, &kymas());
    let wakes = predicates::generation
        .combine(predicates::labels)
        .combine(predicates::annotations);
    let stream = watches(api, watches::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(wakes, kube::runtime::PredicateConfig::default());
    let controller = Controller::for_stream_with(stream, reader, kymas())
        .with_config(Config::default().concurrency(WORKERS))
        .reconcile_on(changed)
        .graceful_shutdown_on(shutdown.clone().cancelled_owned())
        .run(reconcile, after_error, klm)
        .for_each(|_| async {});
    tokio::select! {
        () = controller => {}
        ended = listener.run(shutdown) => ended.context("the listener")?,
        served = axum::serve(metrics, page).into_future() => served.context("/metrics")?,
        () = following_ca => anyhow::bail!("the CA Secret is not watched"),
        () = following_kymas => anyhow::bail!("Kymas are not watched"),
    }
    Ok(())
}

fn registry(reconciles: &Counts, events: &Counts, others: &Counts) -> Registry {
    let mut registry = Registry::default();
    registry.register(RECONCILES, "Reconciles of each Kyma", reconciles.clone());
    registry.register(EVENTS, "Events about each object", events.clone());
    let help = "Notifications about each Kyma without an event";
    registry.register(OTHER_NOTIFICATIONS, help, others.clone());
    registry
}

fn exposition(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = encode(&mut text, registry);
    text
}

async fn reconcile(kyma: Arc<DynamicObject>, klm: Arc<Klm>) -> Result<Action, ReconcileError> {
    let name = kyma.name_any();
    klm.reconciles
        .get_or_create(&[("kyma", name.clone())])
        .inc();
    let state = klm.reconcile(&name).await.map_err(ReconcileError)?;
    tracing::info!(kyma = name, ?state, "reconciled");
    let (success, busy) = (
        klm.settings.requeue_success_seconds,
        klm.settings.requeue_busy_seconds,
    );
    Ok(match state.as_deref() {
        None => Action::await_change(),
        Some("Ready") => Action::requeue(Duration::from_secs(success)),
        Some(_) => Action::requeue(Duration::from_secs(busy)),
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of kube")]
fn after_error(kyma: Arc<DynamicObject>, error: &ReconcileError, klm: Arc<Klm>) -> Action {
    tracing::warn!(kyma = kyma.name_any(), %error, "the reconcile is repeated");
    Action::requeue(Duration::from_secs(klm.settings.requeue_busy_seconds))
}

fn kymas() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(KYMA_GROUP, KYMA_VERSION, "Kyma"))
}

/// Largest number of Kymas that are reconciled at the same time. One Kyma is reconciled by one worker at a time.
const WORKERS: u16 = 50;
