//! The fallback policy: a MutatingAdmissionPolicy and its binding, with which the API server adapts Pods while no replica
//! of the webhook responds. `policy::admission` decides which changes it contains.
//!
//! - The leader keeps both objects in the state of the active revision. Changes and deletions by other clients are reverted,
//!   with backoff.
//! - The webhook configuration owns both objects, so that each way to uninstall removes them. Without a webhook configuration
//!   they are not created.
//! - No policy exists for a document that changes no Pod, or that requires a policy larger than the API server evaluates. The
//!   second case is logged.
//! - Each replica watches the objects and checks with a dry run that the API server evaluates them, so that reasons can state
//!   that the policy was active.
//! - If the policy is disabled, the leader deletes both objects at the start of its term.
//!
//! Permissions: `mutatingadmissionpolicies` and `mutatingadmissionpolicybindings` of this name: create (by server-side
//! apply, so that `resourceNames` limits it), delete, get, list, patch, update, watch; only `delete` if the policy is
//! disabled. The webhook configuration: get.

mod plan;
mod reconcile;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::names::FALLBACK_POLICY;
use component_base::backoff::spread;
use component_base::metrics::register;
use component_base::readiness::Readiness;
use component_base::telemetry::error_chain;
use component_base::watch::{WatchMetrics, watch_object};
use futures::StreamExt as _;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::sleep;

use self::plan::{Desired, GROUP_VERSION, KINDS, ObservedObjects};
use crate::WRITE_BACKOFF;
use crate::dry_run::evaluates;
use crate::snapshot::{ActiveRevision, SnapshotStore};

/// Interval of requests to an API server that does not serve the kinds. Its flags only change with an upgrade.
const DISCOVERY_INTERVAL: Duration = Duration::from_mins(1);

/// Interval of dry runs that check whether the policy is still evaluated.
const EVALUATION_INTERVAL: Duration = Duration::from_mins(5);

/// Pause after a failed discovery.
const DISCOVERY_RETRY: Duration = Duration::from_secs(5);

/// Metrics of the fallback policy. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub struct FallbackMetrics {
    wanted: Gauge,
    active: Gauge,
}

impl FallbackMetrics {
    /// Registers `fallback_policy_wanted` and `fallback_policy_active`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let wanted = "Whether there is to be a MutatingAdmissionPolicy: it is switched on, and the active configuration changes Pods (1)";
        let active = "Whether the API server evaluates the MutatingAdmissionPolicy of the active configuration (1)";
        Self {
            wanted: register(registry, "fallback_policy_wanted", wanted),
            active: register(registry, "fallback_policy_active", active),
        }
    }
}

/// Keeps the policy in the desired state. Clones share the observed state.
#[derive(Clone)]
pub struct FallbackPolicy {
    client: Client,
    snapshots: SnapshotStore,
    readiness: Readiness,
    watches: WatchMetrics,
    metrics: FallbackMetrics,
    settings: Arc<FallbackSettings>,
    observed: watch::Sender<ObservedObjects>,
}

/// Settings that do not change while the process runs.
#[derive(Clone, Debug)]
pub struct FallbackSettings {
    /// Whether the policy is enabled.
    pub enabled: bool,
    /// The product namespace.
    pub namespace: String,
    /// Name of the MutatingWebhookConfiguration that owns the objects.
    pub webhook_configuration: String,
}

impl FallbackPolicy {
    /// Creates the state. No request is sent before one of its futures runs.
    #[must_use]
    pub fn new(
        client: Client,
        snapshots: SnapshotStore,
        (readiness, watches): (Readiness, WatchMetrics),
        metrics: FallbackMetrics,
        settings: FallbackSettings,
    ) -> Self {
        metrics.wanted.set(i64::from(settings.enabled));
        Self {
            client,
            snapshots,
            readiness,
            watches,
            metrics,
            settings: Arc::new(settings),
            observed: watch::Sender::default(),
        }
    }

    /// Observes the objects, in each replica, until the caller drops the future.
    pub async fn watch(&self) {
        if !self.settings.enabled {
            return std::future::pending().await;
        }
        let condition = self.readiness.check("fallback-policy");
        condition.ready();
        loop {
            match self.is_served().await {
                Ok(true) => break,
                Ok(false) => {
                    condition.detail("API server does not serve MutatingAdmissionPolicies");
                    sleep(DISCOVERY_INTERVAL).await;
                }
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "failed to discover APIs");
                    sleep(DISCOVERY_RETRY).await;
                }
            }
        }
        let report = async {
            let mut changes = self.changes();
            let mut reported = None;
            loop {
                let desired = Desired::of(&changes.seen(self), &self.settings.namespace);
                let is_wanted = !matches!(desired, Desired::Nothing);
                self.metrics.wanted.set(i64::from(is_wanted));
                match &desired {
                    Desired::TooLarge(error) => condition.detail(error.to_string()),
                    _ => condition.ready(),
                }
                let stored = desired.stored_revision(&self.observed.borrow());
                let stored = stored.map(str::to_owned);
                if stored != reported {
                    self.set_active(false);
                    reported.clone_from(&stored);
                }
                tokio::select! {
                    () = changes.next(self) => {}
                    () = self.follow_evaluation(stored) => {}
                }
            }
        };
        tokio::join!(self.follow(0), self.follow(1), report);
    }

    fn set_active(&self, is_active: bool) {
        self.metrics.active.set(i64::from(is_active));
        self.snapshots.set_fallback_policy(is_active);
    }

    /// Checks with dry runs whether the API server evaluates the policy, some seconds after it was stored and then
    /// periodically. Never ends.
    async fn follow_evaluation(&self, revision: Option<String>) {
        let Some(revision) = revision else {
            return std::future::pending().await;
        };
        let mut attempt = 0;
        let mut is_active = false;
        loop {
            match evaluates(&self.client, &self.settings.namespace, &revision).await {
                Ok(now) => {
                    if now != is_active {
                        tracing::info!(revision, evaluated = now, "MutatingAdmissionPolicy");
                    }
                    is_active = now;
                    self.set_active(now);
                }
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "dry run of the MutatingAdmissionPolicy failed");
                }
            }
            if is_active {
                attempt = 0;
                sleep(spread(EVALUATION_INTERVAL, fastrand::u64(..))).await;
            } else {
                sleep(WRITE_BACKOFF.delay(attempt, fastrand::u64(..))).await;
                attempt = attempt.saturating_add(1);
            }
        }
    }

    /// Returns whether the API server serves the kinds in their stable version.
    async fn is_served(&self) -> Result<bool, kube::Error> {
        match self.client.list_api_group_resources(GROUP_VERSION).await {
            Ok(list) => Ok(KINDS
                .iter()
                .all(|kind| list.resources.iter().any(|it| it.kind == *kind))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Watches one of the objects. The watch does not affect readiness, because the webhook works without the policy.
    async fn follow(&self, index: usize) {
        let readiness = Readiness::new(self.watches.clone());
        let condition = readiness.check(format!("fallback policy: {}", KINDS[index]));
        let mut objects = pin!(watch_object(self.api(index), FALLBACK_POLICY, condition));
        while let Some(object) = objects.next().await {
            self.observe(index, object);
        }
    }

    fn observe(&self, index: usize, object: Option<DynamicObject>) {
        let observed = object.into();
        self.observed.send_modify(|it| it[index] = observed);
    }

    fn api(&self, index: usize) -> Api<DynamicObject> {
        let (group, version) = GROUP_VERSION.split_once('/').unwrap_or_default();
        let kind = GroupVersionKind::gvk(group, version, KINDS[index]);
        // The plural forms are regular.
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    fn changes(&self) -> Changes {
        Changes {
            observed: self.observed.subscribe(),
            revisions: self.snapshots.changes(),
            active: self.snapshots.active(),
        }
    }
}

/// State on which a decision was based, and the signals for the next decision.
struct Changes {
    observed: watch::Receiver<ObservedObjects>,
    revisions: watch::Receiver<u64>,
    active: Arc<ActiveRevision>,
}

impl Changes {
    /// Returns the active revision. Later changes end the next wait.
    fn seen(&mut self, policy: &FallbackPolicy) -> Arc<ActiveRevision> {
        self.observed.mark_unchanged();
        self.active = policy.snapshots.active();
        Arc::clone(&self.active)
    }

    /// Waits for a change of the objects or of the active revision. A changed Namespace does not end the wait.
    async fn next(&mut self, policy: &FallbackPolicy) {
        loop {
            let active = policy.snapshots.active();
            if !Arc::ptr_eq(&active, &self.active) {
                self.active = active;
                return;
            }
            tokio::select! {
                _ = self.observed.changed() => return,
                _ = self.revisions.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
