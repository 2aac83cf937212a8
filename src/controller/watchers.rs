//! The controller `watchers`: one VirtualService for each Watcher on KCP, so that its component receives the events
//! of all runtimes.
//!
//! A reconcile lists the selected Gateways, reads the VirtualService, and writes the VirtualService that
//! `policy::watchers` computes. Changes of a Watcher, its VirtualService or a Gateway start a reconcile immediately.
//! Every Watcher is reconciled again after ten minutes. Runs on the leader only.
//!
//! Invariants: a VirtualService that does not belong to a Watcher is not written; an object that does not differ is
//! not written; a Watcher that cannot be deserialized or whose reconcile fails does not delay others.
//!
//! Permissions: `deploy/controller/rbac-common.yaml` and `rbac-watchers.yaml`.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::watcher::{ServiceInfo, Watcher};
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::{watch_if_served, watch_with_backoff};
use futures::{Stream, StreamExt as _, stream};
use kube::api::DynamicObject;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action, Config as Concurrency};
use kube::runtime::events::Reporter;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{Config, Event, Result as WatchResult};
use kube::runtime::{WatchStreamExt as _, applier, reflector};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use policy::watchers::ISTIO_API_VERSION;
use tokio_util::sync::CancellationToken;

use crate::RECONCILE_BACKOFF;
use crate::dynamic::objects;

mod metrics;
mod reconcile;
mod report;

#[cfg(test)]
mod tests;

pub use metrics::WatcherMetrics;

/// Interval after which a Watcher is reconciled without a change.
const RESYNC: Duration = Duration::from_mins(10);

/// Maximum number of concurrent reconciles.
const CONCURRENCY: u16 = 8;

/// A Watcher that may not be deserializable.
type Guarded = DeserializeGuard<Watcher>;

/// Settings of the controller `watchers`.
#[derive(Clone, Debug)]
pub struct WatcherSettings {
    /// Namespace of Watchers and VirtualServices.
    pub namespace: String,
    /// Namespace of the Istio Gateways that Watchers select.
    pub gateway_namespace: String,
}

/// Arguments of [`run`].
#[derive(Clone)]
pub struct WatcherOptions {
    /// Client of KCP.
    pub client: Client,
    /// Settings.
    pub settings: WatcherSettings,
    /// Readiness checks of the process.
    pub readiness: Readiness,
    /// Reporter of Kubernetes Events.
    pub reporter: Reporter,
    /// Metrics of the controller.
    pub metrics: WatcherMetrics,
}

/// State and clients that all reconciles share.
struct Context {
    options: WatcherOptions,
    watchers: Store<Guarded>,
    virtual_services: Api<DynamicObject>,
    gateways: Api<DynamicObject>,
    /// Consecutive failures, by name of the Watcher.
    failures: Mutex<HashMap<String, u32>>,
}

/// Reconciles Watchers until the token is canceled, and then completes running reconciles.
///
/// Failures are retried, counted and logged.
pub async fn run(options: WatcherOptions, token: CancellationToken) {
    let (watchers, writer) = store();
    let context = Arc::new(Context::new(options, watchers.clone()));
    let shown = Arc::clone(&context);
    let (known, mut routes) = (watchers.clone(), HashMap::new());
    let own = reflector(writer, context.watch_watchers())
        .inspect(move |_| shown.show_states())
        .touched_objects()
        .filter_map(|it| ready(it.ok()))
        .map(move |it| affected(&ObjectRef::from_obj(&it), &known, &mut routes));
    let owned = context
        .watch_virtual_services()
        .map(|object| owners(&object));
    let all = watchers.clone();
    let selected = context.watch_gateways().map(move |()| references(&all));
    let queue = stream::select_all([own.boxed(), owned.boxed(), selected.boxed()])
        .flat_map(stream::iter)
        .map(Ok::<_, std::convert::Infallible>)
        .take_until(token.cancelled_owned());
    let concurrency = Concurrency::default().concurrency(CONCURRENCY);
    let reconciles = applier(
        |watcher, context| Box::pin(reconcile::reconcile(watcher, context)),
        |watcher: Arc<Guarded>, error, context: Arc<Context>| context.failed(&watcher, error),
        Arc::clone(&context),
        watchers,
        queue,
        concurrency,
    );
    reconciles.for_each(|_| ready(())).await;
}

impl Context {
    fn new(options: WatcherOptions, watchers: Store<Guarded>) -> Self {
        let (client, settings) = (&options.client, &options.settings);
        let istio = |kind, namespace: &str| objects(client, namespace, (ISTIO_API_VERSION, kind));
        Self {
            virtual_services: istio("VirtualService", &settings.namespace),
            gateways: istio("Gateway", &settings.gateway_namespace),
            watchers,
            failures: Mutex::default(),
            options,
        }
    }

    fn watch_watchers(&self) -> impl Stream<Item = WatchResult<Event<Guarded>>> + Send + use<> {
        let WatcherOptions {
            client,
            settings,
            readiness,
            ..
        } = &self.options;
        let api = Api::namespaced(client.clone(), &settings.namespace);
        let check = readiness.check("watchers-watch");
        watch_with_backoff(api, Config::default(), check).map(Ok)
    }

    /// Returns a stream of VirtualServices that are created, changed or deleted.
    fn watch_virtual_services(&self) -> impl Stream<Item = DynamicObject> + Send + use<> {
        let check = self.options.readiness.check("virtualservices-watch");
        let api = self.virtual_services.clone();
        watch_if_served(api, Config::default(), check).filter_map(|event| {
            ready(match event {
                Event::Apply(it) | Event::InitApply(it) | Event::Delete(it) => Some(it),
                Event::Init | Event::InitDone => None,
            })
        })
    }

    /// Returns a stream with one item for each change of a Gateway, and for each complete list.
    fn watch_gateways(&self) -> impl Stream<Item = ()> + Send + use<> {
        let check = self.options.readiness.check("gateways-watch");
        let api = self.gateways.clone();
        watch_if_served(api, Config::default(), check).filter_map(|event| {
            ready(match event {
                Event::Apply(_) | Event::Delete(_) | Event::InitDone => Some(()),
                Event::Init | Event::InitApply(_) => None,
            })
        })
    }

    fn show_states(&self) {
        let watchers = self.watchers.state();
        let state = |it: &Watcher| {
            it.status
                .as_ref()
                .map_or_else(Default::default, |it| it.state)
        };
        let states = watchers.iter().map(|it| it.0.as_ref().ok().map(state));
        self.options.metrics.show(states);
    }

    /// Returns the backoff of a failed reconcile, and logs the failure.
    fn failed(&self, watcher: &Guarded, error: &kube::Error) -> Action {
        let name = watcher.name_any();
        self.options.metrics.reconciled("error");
        let error = error_chain(error);
        tracing::warn!(name, error, "failed to reconcile Watcher, backing off");
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let times = failures.entry(name).or_default();
        let delay = RECONCILE_BACKOFF.delay(*times, fastrand::u64(..));
        *times += 1;
        Action::requeue(delay)
    }

    fn succeeded(&self, name: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(name);
    }
}

/// Returns all Watchers that can be read.
fn references(watchers: &Store<Guarded>) -> Vec<ObjectRef<Guarded>> {
    let all = watchers.state();
    let readable = all.iter().filter(|it| it.0.is_ok());
    readable.map(|it| ObjectRef::from_obj(&**it)).collect()
}

/// Returns the Watchers to reconcile after a change of one Watcher. These are all Watchers if its manager or its
/// service changed.
fn affected(
    changed: &ObjectRef<Guarded>,
    watchers: &Store<Guarded>,
    routes: &mut HashMap<String, (Option<String>, ServiceInfo)>,
) -> Vec<ObjectRef<Guarded>> {
    let now = watchers.get(changed);
    let now = now.as_ref().and_then(|it| it.0.as_ref().ok());
    let now = now.map(|it| {
        (
            it.manager().map(str::to_owned),
            it.spec.service_info.clone(),
        )
    });
    let before = match now.clone() {
        Some(route) => routes.insert(changed.name.clone(), route),
        None => routes.remove(&changed.name),
    };
    if before == now {
        return vec![changed.clone()];
    }
    let mut all = references(watchers);
    // Added separately, because the changed Watcher may not be readable any more.
    all.push(changed.clone());
    all
}

impl Drop for Context {
    /// Resets the metrics: a replica that is not the leader reports 0.
    fn drop(&mut self) {
        self.options.metrics.show([]);
    }
}

/// Returns the Watchers that own a VirtualService, and the Watcher with its name. A VirtualService that this Watcher
/// does not own blocks its own VirtualService.
fn owners(object: &DynamicObject) -> Vec<ObjectRef<Guarded>> {
    let namespace = object.namespace().unwrap_or_default();
    let owners = object.meta().owner_references.iter().flatten();
    let mut names: Vec<&str> = owners
        .filter(|it| it.kind == api::watcher::KIND)
        .map(|it| it.name.as_str())
        .collect();
    names.extend(object.meta().name.as_deref());
    names.sort_unstable();
    names.dedup();
    let references = names.into_iter();
    references
        .map(|name| ObjectRef::new(name).within(&namespace))
        .collect()
}
