//! The watcher on runtimes: installed on the runtime of each Kyma, and of each RuntimeBootstrapper without a Kyma,
//! while a Watcher exists, and removed a minute after the last Watcher. Statements about Kymas below apply to both.
//!
//! A reconcile reads the certificate and the kubeconfig of one Kyma, and connects to its runtime. It reads the
//! objects that the plan of `policy::sync::plan::watcher` needs, and writes the objects that differ. A change of a
//! Watcher, a Kyma, a Certificate or of the bundle of CAs starts a reconcile immediately. A change of a Watcher or of the
//! bundle concerns the webhook configuration and the Secret of every runtime, so the other objects of a runtime on which the
//! watcher is installed are not read then. Every runtime is reconciled again after ten minutes. Runs on the leader only, in
//! the controller `watchers`.
//!
//! It is separate from the controller `direct` because it has neither rollouts nor own resources: a change of a
//! Watcher applies to all runtimes at once. Both controllers verify the identity of a cluster by the same ConfigMap.
//!
//! Invariants: a cluster that is not verified is not written to; an object that does not differ is not written; a
//! private key is kept for one reconcile and zeroized; a slow or unreachable runtime does not delay other runtimes.
//!
//! Permissions: `deploy/controller/rbac-common.yaml` and `rbac-watchers.yaml`.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::bootstrapper::RuntimeBootstrapper;
use component_base::backoff::Backoff;
use component_base::readiness::Readiness;
use component_base::telemetry::LogLimit;
use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::core::DeserializeGuard;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config as Concurrency, Error};
use kube::runtime::events::Reporter;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};
use policy::sync::Salt;
use policy::sync::plan::watcher::DesiredWatcher;
use policy::watchers::RuntimeCounts;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::access::ClientFactory;
use crate::certificates::GatewayReceiver;
use crate::claims::Claims;
use crate::clients::{ConnectionLimits, RequestLimiter, RuntimeClients, RuntimeId};
use crate::kyma::{KnownKymas, KymaView, Kymas, LeftWatcher, ReconcileStarts, resynced};

mod bootstrapper;
mod certificate;
mod desired;
mod heartbeats;
mod metrics;
mod reconcile;
mod removal;
mod report;

#[cfg(test)]
mod tests;

pub use desired::{REMOVAL_DELAY, Render};
pub use heartbeats::HeartbeatSettings;
pub use metrics::RuntimeWatcherMetrics;

use desired::{Goal, GoalRevision};
use heartbeats::Heartbeats;

/// Maximum number of concurrent reconciles: the sum of the limits below. One that waits for a permit to write keeps its connection and
/// its plan, so more reconciles would only take memory.
const CONCURRENCY: usize = 168;

/// Maximum number of runtimes to which a connection is being opened. The number doubles while some runtimes are slow.
const MAX_HANDSHAKES: usize = 56;

/// Maximum number of runtimes that are read concurrently. The number doubles while some runtimes are slow. Their objects take most
/// of the memory of a reconcile, and are dropped before the first write.
const MAX_CONNECTIONS: usize = 48;

/// Maximum number of runtimes that are written concurrently. The number doubles while some runtimes are slow.
const MAX_WRITES: usize = 48;

/// Maximum number of reconciles that send requests to KCP concurrently, each up to three. More do not increase the throughput of
/// KCP, and would delay the lists of other controllers. The number doubles while some requests are slow.
const MAX_KCP_RECONCILES: usize = 16;

/// Duration after which a runtime, or KCP, counts as slow, so that it does not prevent other reconciles.
const SLOW_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of runtimes from which the watcher is removed concurrently because no Kyma represents them any more.
const REMOVALS: usize = 32;

/// Delay before a failed reconcile of a runtime is repeated.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_mins(5),
};

/// Delay before a Deployment that is progressing is read again.
const PROGRESS_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(2),
    cap: Duration::from_secs(30),
};

/// Minimum interval between log lines about failures of KCP, which concern all runtimes at once.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Settings of the watcher on runtimes.
#[derive(Clone)]
pub struct RuntimeWatcherSettings {
    /// Namespace of Watchers, Kymas and kubeconfig Secrets on KCP.
    pub namespace: String,
    /// Namespace of the Certificates and their Secrets on KCP.
    pub certificate_namespace: String,
    /// Namespace of the watcher on runtimes.
    pub skr_namespace: String,
    /// Address of the gateway of KCP; `None` means the address of the Istio Gateway.
    pub address: Option<String>,
    /// Renders the manifests.
    pub render: Render,
    /// Time limit of a review, in seconds.
    pub review_timeout_seconds: u8,
    /// Interval after which a runtime is reconciled without a change.
    pub resync: Duration,
    /// Time without a Watcher after which the watcher is removed from all runtimes.
    pub removal_delay: Duration,
    /// Settings of the heartbeats of watchers.
    pub heartbeats: HeartbeatSettings,
}

/// Arguments of [`run`].
#[derive(Clone)]
pub struct RuntimeWatcherOptions {
    /// Client of KCP.
    pub client: Client,
    /// Settings.
    pub settings: RuntimeWatcherSettings,
    /// Salt of all hashes; it identifies KCP.
    pub salt: Salt,
    /// Clients of runtimes.
    pub fleet: RuntimeClients,
    /// Readiness checks of the process.
    pub readiness: Readiness,
    /// Reporter of Kubernetes Events.
    pub reporter: Reporter,
    /// Metrics.
    pub metrics: RuntimeWatcherMetrics,
}

/// State and clients that all reconciles share.
struct Context {
    options: RuntimeWatcherOptions,
    control_plane: String,
    client_factory: ClientFactory,
    limits: ConnectionLimits,
    writes: RequestLimiter,
    /// Limit of the reconciles that send requests to KCP.
    kcp: RequestLimiter,
    certificates: Api<Secret>,
    bootstrappers: Api<DeserializeGuard<RuntimeBootstrapper>>,
    claims: Claims,
    heartbeats: Heartbeats,
    /// Goal of all runtimes.
    goal: watch::Receiver<(GoalRevision, Goal)>,
    /// Desired state of the runtime of a deleted Kyma.
    removal: Arc<DesiredWatcher>,
    kymas: KnownKymas,
    starts: ReconcileStarts,
    removals: Semaphore,
    runtimes: Mutex<Runtimes>,
    /// Notified after each change of `runtimes`.
    changed: watch::Sender<()>,
    kcp_failures: LogLimit,
}

/// The state of all runtimes. Its parts share the names of Kymas and the runtime IDs.
#[derive(Default)]
struct Runtimes {
    /// States by name of the Kyma.
    states: HashMap<Arc<str>, RuntimeState>,
    /// The runtime IDs of Kymas without a state.
    noted: HashMap<Arc<str>, RuntimeId>,
    /// The Kyma of each runtime ID: the first one that was reconciled.
    owners: HashMap<RuntimeId, Arc<str>>,
    /// IDs of runtimes that no Kyma represents, from which the watcher is being removed.
    removing: HashSet<String>,
    /// IDs of runtimes whose removal has ended, and that a Certificate may still name.
    releasing: HashSet<String>,
    /// Number of reconciles in progress by runtime ID.
    reconciling: HashMap<RuntimeId, u32>,
    /// Whether each Kyma of the first list has a state.
    is_first_pass_complete: bool,
}

/// The state of the watcher on one runtime.
#[derive(Clone, Debug, Default)]
struct RuntimeState {
    id: Option<RuntimeId>,
    reason: &'static str,
    /// Number of the goal of the last reconcile.
    revision: u64,
    /// The last reason, except reasons of a running installation or removal.
    settled: Option<&'static str>,
    /// Consecutive attempts that failed or found a Deployment progressing.
    attempts: u32,
    /// Whether the runtime is reconciled again without a change, and no next reconcile is scheduled.
    is_resynced: bool,
    /// The times of the last Event about a success, and of the last Event about a failure.
    reported: [Option<Instant>; 2],
}

/// Reconciles all runtimes until the token is canceled. Failures are retried, counted and reported. `acknowledged`
/// receives the SHA-256 of the CAs that all watchers trust.
pub async fn run(
    options: RuntimeWatcherOptions,
    mut kymas: Kymas,
    gateway: GatewayReceiver,
    acknowledged: watch::Sender<Option<String>>,
    token: CancellationToken,
) {
    let removal = match desired::removal(&options.settings) {
        Ok(removal) => Arc::new(removal),
        Err(error) => {
            tracing::error!(error, "watchers are not installed on runtimes");
            return;
        }
    };
    let (goal, goals) = watch::channel(<(GoalRevision, Goal)>::default());
    let known = kymas.known();
    let context = Arc::new(Context::new(
        options,
        (goals.clone(), removal),
        known.clone(),
    ));
    let (unresponsive, changes) = mpsc::unbounded_channel();
    let own = Arc::clone(&context);
    let ids = stream::select(received(changes), kymas.resumed());
    let others = ids.filter_map(move |id| ready(own.reference_of(&id)));
    let (lacking_condition, left) = (kymas.lacking_condition(), kymas.left());
    let (own, resync) = (Arc::clone(&context), context.options.settings.resync);
    let resynced = resynced(known.store, resync, move |kyma| own.is_resynced(kyma));
    let others = stream::select(others, resynced);
    let queue = kymas.queue(goals, others, context.starts.clone());
    let queue = queue.take_until(token.clone().cancelled_owned());
    let left = left.take_until(token.clone().cancelled_owned());
    let reconciles = Arc::clone(&context).reconcile_all(queue, left, token.clone());
    let heartbeats = heartbeats::run(
        &context,
        gateway.clone(),
        unresponsive,
        acknowledged,
        token.clone(),
    );
    tokio::join!(
        // Boxed without its type, which is nested too deeply for the compiler.
        reconciles.boxed(),
        heartbeats.boxed(),
        token.run_until_cancelled(context.write_conditions(lacking_condition)),
        token.run_until_cancelled(desired::run(&context.options, gateway, goal, &context)),
    );
}

impl Context {
    fn new(
        options: RuntimeWatcherOptions,
        (goal, removal): (watch::Receiver<(GoalRevision, Goal)>, Arc<DesiredWatcher>),
        kymas: KnownKymas,
    ) -> Self {
        let (client, settings) = (&options.client, &options.settings);
        let metrics = &options.metrics;
        let limiter = |size, name| RequestLimiter::new(size, SLOW_AFTER, metrics.limit(name));
        Self {
            control_plane: options.salt.control_plane(),
            client_factory: ClientFactory::new(
                client.clone(),
                &settings.namespace,
                options.fleet.clone(),
            ),
            limits: ConnectionLimits {
                handshakes: limiter(MAX_HANDSHAKES, "handshakes"),
                connections: limiter(MAX_CONNECTIONS, "connections"),
            },
            writes: limiter(MAX_WRITES, "writes"),
            kcp: limiter(MAX_KCP_RECONCILES, "kcp"),
            certificates: Api::namespaced(client.clone(), &settings.certificate_namespace),
            bootstrappers: Api::namespaced(client.clone(), &settings.namespace),
            claims: Claims::default(),
            heartbeats: Heartbeats::new(settings.heartbeats.clone()),
            goal,
            removal,
            kymas,
            starts: ReconcileStarts::new(CONCURRENCY),
            removals: Semaphore::new(REMOVALS),
            runtimes: Mutex::default(),
            changed: watch::channel(()).0,
            kcp_failures: LogLimit::new(LOG_INTERVAL),
            options,
        }
    }

    async fn reconcile_all(
        self: Arc<Self>,
        queue: impl Stream<Item = Result<ObjectRef<KymaView>, Infallible>> + Send,
        left: impl Stream<Item = LeftWatcher> + Send,
        token: CancellationToken,
    ) {
        let reconciles = applier(
            |kyma, context| Box::pin(start(kyma, context)),
            |kyma: Arc<KymaView>, error, context: Arc<Self>| context.failed_on_kcp(&kyma, error),
            Arc::clone(&self),
            self.kymas.store.clone(),
            queue,
            Concurrency::default(),
        );
        let (gone, removals) = mpsc::unbounded_channel();
        // Removals are separate from reconciles, which continue while a runtime cannot be reached.
        let left = left.filter_map(|it| ready(self.begin_removal_named(it)));
        let removals = stream::select(received(removals), left);
        let removals = removals.for_each_concurrent(None, |left| {
            let (context, token) = (Arc::clone(&self), token.clone());
            async move {
                token.run_until_cancelled(context.remove(left)).await;
            }
        });
        let context = Arc::clone(&self);
        let reconciles = reconciles.for_each(move |result| {
            // The applier returns this error for a queued Kyma that does not exist.
            if let Err(Error::ObjectNotFound(kyma)) = result {
                context.starts.forget(&kyma.name);
                if let Some(left) = context.begin_removal_of(&kyma.name) {
                    // The receiver exists as long as the sender.
                    let _ = gone.send(left);
                }
            }
            ready(())
        });
        tokio::join!(reconciles, removals);
    }

    /// Returns the Kyma to which a runtime belongs, if any.
    fn reference_of(&self, id: &str) -> Option<ObjectRef<KymaView>> {
        let kyma = self.runtimes().owners.get(id).cloned();
        let namespace = &self.options.settings.namespace;
        kyma.map(|it| ObjectRef::new(&it).within(namespace))
    }

    /// Returns whether a Kyma is reconciled again without a change.
    fn is_resynced(&self, kyma: &str) -> bool {
        let runtimes = self.runtimes();
        runtimes.states.get(kyma).is_some_and(|it| it.is_resynced)
    }

    fn runtimes(&self) -> MutexGuard<'_, Runtimes> {
        self.runtimes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reconciles a Kyma when it has a permit.
async fn start(kyma: Arc<KymaView>, context: Arc<Context>) -> kube::Result<Action> {
    let started = context.starts.start(&kyma, &context.kymas.store).await;
    let Some((_permit, kyma, trigger)) = started else {
        return Ok(Action::await_change());
    };
    // Boxed, because retries of thousands of Kymas may wait for a permit.
    in_a_task(Box::pin(reconcile::reconcile(
        kyma,
        trigger,
        Arc::clone(&context),
    )))
    .await
}

/// Runs a reconcile as a task, which is aborted when the future is dropped. The applier polls all reconciles whenever
/// one of them is woken. Each reconcile waits for some fifty responses; as a task it wakes the applier once.
async fn in_a_task(
    reconcile: impl Future<Output = kube::Result<Action>> + Send + 'static,
) -> kube::Result<Action> {
    match AbortOnDropHandle::new(tokio::spawn(reconcile)).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process terminates.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Returns a stream of the items of a channel, until its sender is dropped.
fn received<T: Send>(channel: mpsc::UnboundedReceiver<T>) -> impl Stream<Item = T> + Send {
    stream::unfold(channel, |mut channel| async move {
        let item = channel.recv().await?;
        Some((item, channel))
    })
}

impl Runtimes {
    /// Returns the state of a Kyma, which is created if there is none.
    fn state(&mut self, kyma: &str, id: Option<&RuntimeId>) -> &mut RuntimeState {
        let name = self.name(kyma, id);
        self.states.entry(name).or_default()
    }

    /// Returns the name of a Kyma, shared with the owner of its runtime.
    fn name(&self, kyma: &str, id: Option<&RuntimeId>) -> Arc<str> {
        let owner = id.and_then(|it| self.owners.get(it));
        let owner = owner.filter(|it| ***it == *kyma);
        owner.map_or_else(|| kyma.into(), Arc::clone)
    }

    /// Removes the runtime ID of a Kyma without a state.
    fn take_noted(&mut self, kyma: &str) -> Option<RuntimeId> {
        let noted = self.noted.remove(kyma);
        if self.noted.is_empty() {
            // All runtimes were noted if the goal was unknown for a time.
            self.noted.shrink_to_fit();
        }
        noted
    }
}

impl Drop for Context {
    /// Resets the metrics: a replica that is not the leader reports 0.
    fn drop(&mut self) {
        self.options.metrics.show(&RuntimeCounts::default());
    }
}
