//! The desired state of all runtimes, from the Watchers and the gateway on KCP, and the number of runtimes in the
//! status of each Watcher.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::watcher::Watcher;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use component_base::telemetry::error_chain;
use component_base::watch::{WatchChange, changes, watch_with_backoff};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::Config;
use kube::{Api, Resource as _, ResourceExt as _};
use policy::change::{Endpoint, configuration, entry_name};
use policy::sync::manifests::Installation;
use policy::sync::plan::watcher::DesiredWatcher;
use policy::watchers::{
    HEARTBEAT_MANAGER, RuntimeCounts, WebhookEntries, is_for_heartbeats, runtimes_status,
    webhook_entries,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Context, RuntimeWatcherOptions, RuntimeWatcherSettings};
use crate::RECONCILE_BACKOFF;
use crate::certificates::{GatewayReceiver, GatewayStatus};
use crate::requests::Answer as _;

/// Renders the manifests of the watcher for the address of the gateway. The error is human-readable.
pub type Render = Arc<dyn Fn(&str) -> Result<Vec<Value>, String> + Send + Sync>;

/// Minimum interval between two writes of the status of Watchers.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

/// Time after a start in which a gateway without a certificate is not reported, because its state is being read.
const GATEWAY_LIMIT: Duration = Duration::from_secs(10);

/// Time without a Watcher after which the watcher is removed from all runtimes. A Watcher that is deleted and created again
/// does not reinstall it everywhere, and a deletion by mistake can be corrected.
pub const REMOVAL_DELAY: Duration = Duration::from_mins(1);

/// Desired state of all runtimes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Goal {
    /// No runtime is changed, for this reason; `None` if the reason is not known yet either.
    Unknown(Option<&'static str>),
    /// The watcher, which may have to be removed, and the CAs that it trusts, as PEM in base64.
    Watcher(Arc<DesiredWatcher>, Arc<str>),
}

/// Numbers of a goal, which increase with each change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GoalRevision {
    /// Number of the goal.
    pub(super) number: u64,
    /// Number of the first goal since which the manifests are the same.
    pub(super) manifests: u64,
}

impl Goal {
    fn has_manifests_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Watcher(own, _), Self::Watcher(other, _)) => own.has_manifests_of(other),
            _ => false,
        }
    }
}

impl Default for Goal {
    fn default() -> Self {
        Self::Unknown(None)
    }
}

/// Returns the desired state of a runtime from which the watcher is removed.
///
/// # Errors
/// The manifests are invalid.
pub(super) fn removal(settings: &RuntimeWatcherSettings) -> Result<DesiredWatcher, String> {
    // The names of the objects do not depend on the address.
    let installation = installation(settings, "removed.invalid")?;
    DesiredWatcher::new(
        &settings.skr_namespace,
        installation,
        None,
        (Vec::new(), ""),
    )
    .map_err(|error| error_chain(&error))
}

fn installation(
    settings: &RuntimeWatcherSettings,
    address: &str,
) -> Result<Arc<Installation>, String> {
    let manifests = (settings.render)(address)?;
    let installation = Installation::new(manifests).map_err(|error| error_chain(&error))?;
    Ok(Arc::new(installation))
}

struct Desired<'a> {
    options: &'a RuntimeWatcherOptions,
    api: Api<Watcher>,
    watchers: BTreeMap<String, DeserializeGuard<Watcher>>,
    is_listed: bool,
    /// Since when there is no Watcher.
    empty_since: Option<Instant>,
    entries: WebhookEntries,
    removal: Arc<DesiredWatcher>,
    /// The time by which the state of the gateway has been read, if it has a certificate.
    gateway_limit: Instant,
    /// The manifests for the last address.
    installation: Option<(String, Arc<Installation>)>,
    /// The Watchers whose last status was not written: number of attempts, and the time of the next one.
    failures: HashMap<String, (u32, Instant)>,
}

/// Computes the goal at every change until the future is dropped, and writes the number of runtimes to each Watcher.
pub(super) async fn run(
    options: &RuntimeWatcherOptions,
    mut gateway: GatewayReceiver,
    goal: watch::Sender<(GoalRevision, Goal)>,
    context: &Context,
) {
    let mut desired = Desired::new(options, Arc::clone(&context.removal));
    let mut changes = pin!(desired.watch());
    let mut states = context.changed.subscribe();
    let mut next_status = Instant::now();
    let mut is_status_due = false;
    let mut is_starting = true;
    loop {
        let removal = desired.removal_pending();
        tokio::select! {
            Some(change) = changes.next() => {
                desired.apply(change);
                is_status_due = true;
            }
            Ok(()) = gateway.changed() => {}
            () = sleep_until(desired.gateway_limit), if is_starting => is_starting = false,
            () = sleep_until(removal.unwrap_or(next_status)), if removal.is_some() => {}
            Ok(()) = states.changed() => {
                is_status_due = true;
                continue;
            }
            () = sleep_until(next_status), if is_status_due => {
                context.show();
                is_status_due = false;
                // If there are no counts yet, the end of the first list changes the states and triggers this branch again.
                if desired.is_listed && let Some(counts) = context.counts() {
                    is_status_due = !desired.write_statuses(&counts).await;
                }
                next_status = Instant::now() + STATUS_INTERVAL;
                continue;
            }
        }
        context.heartbeats.expect(desired.has_heartbeats());
        let issued = gateway.borrow_and_update().clone();
        let now = desired.goal(&issued);
        goal.send_if_modified(|(revision, before)| {
            let is_new = *before != now;
            if is_new {
                revision.number += 1;
                if !now.has_manifests_of(before) {
                    revision.manifests = revision.number;
                }
                *before = now;
                is_status_due = true;
            }
            is_new
        });
    }
}

impl<'a> Desired<'a> {
    fn new(options: &'a RuntimeWatcherOptions, removal: Arc<DesiredWatcher>) -> Self {
        Self {
            api: Api::namespaced(options.client.clone(), &options.settings.namespace),
            options,
            watchers: BTreeMap::new(),
            is_listed: false,
            empty_since: None,
            entries: WebhookEntries::default(),
            removal,
            gateway_limit: Instant::now() + GATEWAY_LIMIT,
            installation: None,
            failures: HashMap::new(),
        }
    }

    fn watch(&self) -> impl Stream<Item = WatchChange<DeserializeGuard<Watcher>>> + Send + use<> {
        let check = self.options.readiness.check("runtime-watchers-watch");
        let namespace = &self.options.settings.namespace;
        let api = Api::namespaced(self.options.client.clone(), namespace);
        changes(watch_with_backoff(api, Config::default(), check))
    }

    fn apply(&mut self, change: WatchChange<DeserializeGuard<Watcher>>) {
        // KCP may accept a status for the changed Watcher.
        match &change {
            WatchChange::Put(watcher) => drop(self.failures.remove(&watcher.name_any())),
            WatchChange::Removed(name) => drop(self.failures.remove(name)),
            WatchChange::Listed => {}
        }
        match change {
            WatchChange::Put(watcher) => drop(self.watchers.insert(watcher.name_any(), watcher)),
            WatchChange::Removed(name) => drop(self.watchers.remove(&name)),
            WatchChange::Listed => self.is_listed = true,
        }
        let readable = self.watchers.values().filter_map(|it| it.0.as_ref().ok());
        self.entries = webhook_entries(readable);
    }

    fn goal(&mut self, gateway: &GatewayStatus) -> Goal {
        if !self.is_listed {
            return Goal::default();
        }
        match self.try_goal(gateway) {
            Ok(goal) => goal,
            Err(error) => {
                tracing::error!(error, "failed to compute the watcher of runtimes");
                Goal::Unknown(Some("InvalidManifests"))
            }
        }
    }

    fn try_goal(&mut self, gateway: &GatewayStatus) -> Result<Goal, String> {
        // The Watcher for heartbeats reports on the other Watchers, so it does not count.
        let is_wanted = |it: &DeserializeGuard<Watcher>| {
            let own = it.0.as_ref().is_ok_and(is_for_heartbeats);
            it.meta().deletion_timestamp.is_none() && !own
        };
        if !self.watchers.values().any(is_wanted) {
            self.empty_since.get_or_insert_with(Instant::now);
            if self.removal_pending().is_some() {
                return Ok(Goal::Unknown(None));
            }
            return Ok(Goal::Watcher(Arc::clone(&self.removal), Arc::from("")));
        }
        self.empty_since = None;
        let gateway = match gateway {
            Ok(gateway) => gateway,
            Err(reason) => {
                let is_known = self.gateway_limit <= Instant::now();
                return Ok(Goal::Unknown(is_known.then_some(*reason)));
            }
        };
        let named = self.options.settings.address.clone();
        let address = named.or_else(|| Some(gateway.address.as_ref()?.to_string()));
        let Some(address) = address else {
            return Ok(Goal::Unknown(Some("GatewayAddressUnknown")));
        };
        let bundle = &gateway.bundle;
        let installation = self.installation(&address)?;
        let namespace = &self.options.settings.skr_namespace;
        let webhooks = self.webhooks(bundle)?;
        let unreadable = self.watchers.values().filter(|it| it.0.is_err());
        let kept = unreadable.map(|it| {
            let namespace = it.namespace().unwrap_or_default();
            entry_name(&namespace, &it.name_any())
        });
        let bundle = STANDARD.encode(&**bundle);
        let kept = (kept.collect(), bundle.as_str());
        let desired = DesiredWatcher::new(namespace, installation, Some(webhooks), kept);
        let desired = desired.map_err(|error| error_chain(&error))?;
        Ok(Goal::Watcher(Arc::new(desired), bundle.into()))
    }

    /// Returns the time of the removal of the watcher from all runtimes, while it is in the future.
    fn removal_pending(&self) -> Option<Instant> {
        let time = self.empty_since? + self.options.settings.removal_delay;
        (Instant::now() < time).then_some(time)
    }

    /// Returns whether watchers have a route for heartbeats to this controller.
    fn has_heartbeats(&self) -> bool {
        let mut entries = self.entries.registrations.iter();
        entries.any(|it| it.watcher.manager.as_str() == HEARTBEAT_MANAGER)
    }

    fn installation(&mut self, address: &str) -> Result<Arc<Installation>, String> {
        if let Some((known, installation)) = &self.installation
            && known == address
        {
            return Ok(Arc::clone(installation));
        }
        let installation = installation(&self.options.settings, address)?;
        self.installation = Some((address.to_owned(), Arc::clone(&installation)));
        Ok(installation)
    }

    fn webhooks(&self, bundle: &str) -> Result<Value, String> {
        let settings = &self.options.settings;
        let endpoint = Endpoint {
            namespace: &settings.skr_namespace,
            authorities: Some(bundle.as_bytes()),
            timeout_seconds: settings.review_timeout_seconds,
        };
        configuration(&self.entries.registrations, &endpoint).map_err(|error| error_chain(&error))
    }

    /// Writes the statuses that differ. Returns whether all statuses were written. The write for a Watcher that KCP
    /// rejects is repeated after a backoff, and does not delay others.
    async fn write_statuses(&mut self, counts: &RuntimeCounts) -> bool {
        let mut is_complete = true;
        let now = Timestamp::now().strftime("%FT%TZ").to_string();
        for watcher in self.watchers.values().filter_map(|it| it.0.as_ref().ok()) {
            let key = (watcher.namespace().unwrap_or_default(), watcher.name_any());
            let rejected = self.entries.rejected.iter().find(|(it, _)| *it == key);
            let rejected = rejected.map(|(_, error)| error);
            let Some(status) = runtimes_status(watcher, rejected, counts, &now) else {
                // The controller of routes writes the status first.
                is_complete &= watcher.status.is_some();
                continue;
            };
            let (attempts, due) = self.failures.get(&key.1).copied().unzip();
            if due.is_some_and(|it| Instant::now() < it) {
                is_complete = false;
                continue;
            }
            // With the resource version as precondition, a status that was not observed is not overwritten.
            let patch = json!({
                "metadata": { "resourceVersion": watcher.resource_version() },
                "status": { "conditions": status.conditions },
            });
            let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
            let patched = self.api.patch_status(&key.1, &parameters, &patch).await;
            let Err(error) = patched.unless_gone() else {
                self.failures.remove(&key.1);
                continue;
            };
            is_complete = false;
            let is_conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
            let error = error_chain(&error);
            let name = key.1;
            if is_conflict {
                // The watch returns the other change.
                tracing::debug!(watcher = name, error, "failed to write status of Watcher");
                continue;
            }
            tracing::warn!(
                watcher = name,
                error,
                "failed to write status of Watcher, backing off"
            );
            let attempts = attempts.unwrap_or_default();
            let delay = RECONCILE_BACKOFF.delay(attempts, fastrand::u64(..));
            self.failures
                .insert(name, (attempts + 1, Instant::now() + delay));
        }
        is_complete
    }
}
