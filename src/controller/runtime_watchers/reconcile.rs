//! One reconcile of the watcher on one runtime.

use std::sync::Arc;
use std::time::Duration;

use api::bootstrapper::RuntimeBootstrapper;
use api::kcp::{
    ACCEPT_CLUSTER_UID_ANNOTATION, OWNER_CONFIG_MAP, RUNTIME_ID, WATCHER_FIELD_MANAGER,
};
use futures::future::try_join_all;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use policy::certificates::NAME_SUFFIX;
use policy::sync::identity::{IdentityRecord, Owner};
use policy::sync::managed_fields::is_lifecycle_manager;
use policy::sync::plan::Blocked;
use policy::sync::plan::watcher::{
    DesiredWatcher, ObservedWatcher, WatcherContext, WatcherPlan, WatcherState, is_ours,
    plan_watcher,
};
use policy::sync::status::Reason;
use policy::sync::target::Target;
use serde_json::Value;

use super::Context;
use super::certificate::{
    CERTIFICATE_PENDING, Certificate, zeroize_action, zeroize_secrets, zeroize_unshared,
};
use super::desired::Goal;
use super::report::{Outcome, Retry};
use crate::access::{KubeconfigSecret, unreached};
use crate::clients::{CallError, ManagedFields, Remote, RuntimeId};
use crate::kyma::{KymaView, Trigger};
use crate::runtime_objects::{Read, Writer, cluster_uid, namespace_state, read};

/// Delay of a reconcile while the watcher is being removed from the runtime, which an earlier Kyma represented, and of a removal while
/// the runtime is reconciled.
pub(super) const REMOVAL_PAUSE: Duration = Duration::from_secs(2);

/// Number of attempts that wait for the first certificate of a runtime, about 15 seconds. A watcher does not start
/// without a certificate, and thousands of new runtimes would need many connections.
const CERTIFICATE_ATTEMPTS: u32 = 4;

/// Allows any version that the API server has cached. With an outdated kubeconfig the reconcile fails, and is repeated.
const ANY_VERSION: Option<&str> = Some("0");

/// Reconciles the runtime of one Kyma.
///
/// # Errors
/// A request to KCP failed.
pub(super) async fn reconcile(
    kyma: Arc<KymaView>,
    trigger: Trigger,
    context: Arc<Context>,
) -> kube::Result<Action> {
    let name = kyma.name_any();
    let id = kyma.runtime_id();
    let Some(_reconciling) = context.begin_reconcile(id) else {
        return Ok(Action::requeue(REMOVAL_PAUSE));
    };
    let (goal_revision, goal) = context.goal.borrow().clone();
    let revision = goal_revision.number;
    let is_left = kyma.is_bootstrapper() && !kyma.has_domain();
    let is_deleted = kyma.meta().deletion_timestamp.is_some() || is_left;
    let is_wanted = matches!(&goal, Goal::Watcher(desired, _) if !desired.is_removed());
    let (desired, bundle) = match goal {
        _ if is_deleted => (Arc::clone(&context.removal), Arc::from("")),
        // The known state of the runtime stays.
        Goal::Unknown(None) => {
            context.note(&name, kyma.runtime_id());
            return Ok(Action::await_change());
        }
        Goal::Unknown(Some(reason)) => {
            // The watcher may be installed. Its removal, if the Kyma is deleted before the goal is known, needs the owner.
            let _ = context.own(&name, kyma.runtime_id());
            let outcome = Outcome::new(reason, String::new(), Retry::AtChange);
            return Ok(context.finish(&kyma, outcome, revision).await);
        }
        Goal::Watcher(desired, bundle) => (desired, bundle),
    };
    let outcome = match context.own(&name, kyma.runtime_id()) {
        Ok(None) => {
            let message = format!("label {RUNTIME_ID} missing");
            Outcome::new("RuntimeIDMissing", message, Retry::AtChange)
        }
        Err(other) => {
            let message = format!("label {RUNTIME_ID} is shared with Kyma {other}");
            let reason = Reason::RuntimeIDConflict.name();
            Outcome::new(reason, message, Retry::Failed(None))
        }
        Ok(Some(id)) => {
            let runtime = Runtime {
                context: &context,
                kyma: &name,
                was_installed: context.was_installed(&name, &id, revision),
                has_manifests: trigger == Trigger::All
                    && context.has_manifests(&name, &id, goal_revision),
                id,
                desired: &desired,
                is_deleted,
                accepted: kyma.accepted_cluster(),
            };
            let outcome = runtime.synchronize(&bundle).await?;
            if is_left && is_wanted && outcome.is_removed() {
                outcome.without_domain()
            } else {
                outcome
            }
        }
    };
    Ok(context.finish(&kyma, outcome, revision).await)
}

/// Removes the watcher from a runtime that the Kyma represented.
///
/// # Errors
/// A request to KCP failed.
pub(super) async fn remove(context: &Context, kyma: &str, id: &str) -> kube::Result<Outcome> {
    let runtime = Runtime {
        context,
        kyma,
        id: RuntimeId::new(id),
        desired: &context.removal,
        is_deleted: true,
        was_installed: false,
        has_manifests: false,
        accepted: None,
    };
    runtime.synchronize("").await
}

struct Runtime<'a> {
    context: &'a Context,
    kyma: &'a str,
    id: RuntimeId,
    desired: &'a DesiredWatcher,
    /// Whether the Kyma is deleted, or was deleted and its RuntimeBootstrapper has no domain.
    is_deleted: bool,
    /// Whether the last reconcile found the same watcher installed, so that other clients made all differences.
    was_installed: bool,
    /// Whether the last reconcile found the manifests of the desired watcher, and only the goal has changed since. Then they are not
    /// read: a changed Watcher concerns the webhook configuration alone, on thousands of runtimes. What other clients change is found
    /// by the resync and by heartbeats.
    has_manifests: bool,
    /// UID of the cluster that an operator accepted by an annotation of the Kyma.
    accepted: Option<&'a String>,
}

impl Runtime<'_> {
    /// Installs or removes the watcher as desired. `bundle` is the CAs, as PEM in base64.
    async fn synchronize(&self, bundle: &str) -> kube::Result<Outcome> {
        let factory = &self.context.client_factory;
        let certificate = async {
            if self.desired.is_removed() {
                return Ok(Err(CERTIFICATE_PENDING));
            }
            self.context
                .certificate(self.kyma, &self.id, self.desired, bundle)
                .await
        };
        let kcp = &self.context.kcp;
        let permit = kcp.acquire().await;
        let reads = async {
            futures::try_join!(
                self.context.bootstrapper(self.kyma, &self.id),
                certificate,
                factory.read_kubeconfig(&self.id, ANY_VERSION),
            )
        };
        // Boxed, because most reconciles wait and do not need the memory yet or any more.
        let (resource, certificate, kubeconfig) = kcp.run(permit, Box::pin(reads)).await?;
        let is_paused = resource.as_ref().is_some_and(|it| it.spec.paused);
        let outcome = if is_paused && !self.desired.is_removed() {
            if let Ok(secret) = certificate {
                zeroize_unshared(secret);
            }
            let message = "spec.paused is true".to_owned();
            Outcome::new(Reason::Paused.name(), message, Retry::AtResync)
        } else if self.awaits_certificate(&certificate) {
            self.pending(CERTIFICATE_PENDING, Retry::Progressing)
        } else {
            let outcome = self.synchronize_with(certificate, kubeconfig, resource.as_deref());
            outcome.await
        };
        Ok(outcome.with_resource(resource))
    }

    /// Returns whether the runtime is not contacted yet, because it has no certificate and had none before.
    fn awaits_certificate(&self, certificate: &Certificate) -> bool {
        let runtimes = self.context.runtimes();
        let is_new = runtimes
            .states
            .get(self.kyma)
            .is_none_or(|it| it.settled.is_none() && it.attempts < CERTIFICATE_ATTEMPTS);
        let is_pending = certificate.as_ref().err() == Some(&CERTIFICATE_PENDING);
        is_new && is_pending && !self.desired.is_removed()
    }

    fn pending(&self, reason: &'static str, retry: Retry) -> Outcome {
        Outcome::new(reason, format!("Secret {}{NAME_SUFFIX}", self.kyma), retry)
    }

    async fn synchronize_with(
        &self,
        certificate: Certificate,
        kubeconfig: KubeconfigSecret,
        resource: Option<&RuntimeBootstrapper>,
    ) -> Outcome {
        if kubeconfig.is_absent() && self.desired.is_removed() {
            // The runtime does not exist any more, or did not exist yet.
            return Outcome::removed(self.is_deleted);
        }
        let limits = &self.context.limits;
        // Acquired after KCP has responded: a reconcile that waits for KCP needs no permit.
        let permit = limits.handshakes.acquire().await;
        let remote = match self.context.client_factory.client(&self.id, kubeconfig) {
            Ok(remote) => {
                remote.with_managed_fields(ManagedFields::IfOwnedBy(is_lifecycle_manager))
            }
            Err(error) => return Outcome::unreachable(&error, None),
        };
        let planned = async {
            let permit = limits.connect(permit, &remote).await?;
            let read = Box::pin(self.read(&remote, certificate, resource));
            limits.connections.run(permit, read).await
        };
        let (plan, missing) = match planned.await {
            Ok(planned) => planned,
            Err(error) => return Outcome::unreachable(&unreached(&error), error.retry_after()),
        };
        let writes = &self.context.writes;
        let permit = writes.acquire().await;
        let write = Box::pin(self.write(&remote, plan, missing));
        writes.run(permit, write).await
    }

    /// Returns the plan, and why there is no certificate.
    async fn read(
        &self,
        remote: &Remote,
        certificate: Certificate,
        resource: Option<&RuntimeBootstrapper>,
    ) -> Result<(WatcherPlan, Option<&'static str>), CallError> {
        let mut observed = self.observe(remote).await?;
        let plan = self.plan(&observed, certificate.as_ref().ok(), resource);
        zeroize_secrets(&mut observed.live);
        // The objects of a runtime take most of the memory of its reconcile.
        drop(observed);
        // From here on only the plan owns the Secret, so that the serialized bytes are not cached for other runtimes.
        let missing = certificate.map(zeroize_unshared).err();
        Ok((plan, missing))
    }

    async fn write(
        &self,
        remote: &Remote,
        plan: WatcherPlan,
        missing: Option<&'static str>,
    ) -> Outcome {
        if let Some(blocked) = plan.blocked {
            return Outcome::blocked(&blocked);
        }
        let writer = Writer {
            remote,
            manager: WATCHER_FIELD_MANAGER,
            count: |action: &_, is_ok| self.context.options.metrics.wrote(action, is_ok),
        };
        let mut done = Vec::new();
        let written = writer.apply(&plan.steps, &mut done).await;
        let is_unchanged = done.is_empty();
        // The ownership ConfigMap has no effect on reviews.
        let targets = || done.iter().map(policy::sync::plan::Action::target);
        let are_webhooks_unchanged = targets().all(|it| it.name() == OWNER_CONFIG_MAP);
        let is_restored =
            self.was_installed && targets().any(|it| self.desired.is_configuration(it));
        if !is_unchanged {
            // `Debug` of an action is its verb and path.
            tracing::info!(kyma = self.kyma, writes = ?done, "objects of watcher on runtime written");
        }
        drop(done);
        plan.steps.into_iter().flatten().for_each(zeroize_action);
        let is_removal = self.desired.is_removed();
        match (written, plan.state, missing) {
            (Err(failure), ..) => Outcome::failed(&failure),
            (Ok(()), state, Some(reason))
                if !is_removal
                    && (state == WatcherState::Installed
                        || state == WatcherState::Progressing && is_unchanged) =>
            {
                self.pending(reason, Retry::AtResync)
            }
            (Ok(()), WatcherState::Installed, None) if is_restored => Outcome::restored(),
            (Ok(()), WatcherState::Installed, None) => {
                let heartbeats = &self.context.heartbeats;
                // A webhook configuration that was just written may not be effective yet.
                let remote = are_webhooks_unchanged.then_some(remote);
                let namespace = self.desired.namespace();
                heartbeats.judge(remote, &self.id, namespace).await
            }
            (Ok(()), state, _) => Outcome::of_state(&state, is_removal),
        }
    }

    fn plan(
        &self,
        observed: &ObservedWatcher,
        certificate: Option<&Arc<Value>>,
        resource: Option<&RuntimeBootstrapper>,
    ) -> WatcherPlan {
        let id = self.id.as_str();
        let claims = &self.context.claims;
        let cluster = observed.cluster.as_deref();
        let claimed_by = cluster.and_then(|cluster| claims.claim(cluster, &self.id));
        let owner = Owner {
            runtime_id: id.to_owned(),
            control_plane: self.context.control_plane.clone(),
        };
        let status = resource.and_then(|it| it.status.as_ref());
        let accepted = resource.and_then(|it| it.annotations().get(ACCEPT_CLUSTER_UID_ANNOTATION));
        let context = WatcherContext {
            reviews: self.context.heartbeats.reviews(&self.id),
            nonce: &fastrand::u64(..).to_string(),
            owner: &owner,
            record: IdentityRecord {
                recorded_uid: status.and_then(|it| it.cluster_uid.as_deref()),
                accepted_uid: self.accepted.or(accepted).map(String::as_str),
                claimed_by: claimed_by.as_deref(),
            },
        };
        let plan = plan_watcher(context, self.desired, certificate, observed);
        match (&plan.blocked, cluster) {
            (Some(Blocked::Identity(_)), Some(cluster)) => claims.withdraw(cluster, id),
            (None, Some(cluster)) => claims.release_others(cluster, id),
            _ => {}
        }
        plan
    }

    /// Reads the runtime in one round trip. A second one is necessary if an earlier version of the controller left objects, or if
    /// other clients have removed what a reconcile without the manifests relies on.
    async fn observe(&self, remote: &Remote) -> Result<ObservedWatcher, CallError> {
        let desired = self.desired;
        let marker = Target::config_map(desired.namespace(), OWNER_CONFIG_MAP);
        let targets = if self.has_manifests {
            desired.variable_targets()
        } else {
            desired.targets()
        };
        let (cluster, namespace, marker, found) = futures::try_join!(
            cluster_uid(remote),
            namespace_state(remote, desired.namespace()),
            read(remote, &marker),
            read_all(remote, &targets),
        )?;
        let mut observed = ObservedWatcher {
            cluster,
            namespace,
            has_manifests: self.has_manifests,
            ..ObservedWatcher::default()
        };
        match marker {
            Read::Found(marker) => observed.marker = marker,
            Read::Forbidden(permission) => observed.unread.push(permission),
        }
        add(&mut observed, found);
        if observed.has_manifests && !observed.is_intact(desired) {
            observed.has_manifests = false;
            let manifests = &desired.targets() - &targets;
            add(&mut observed, read_all(remote, &manifests).await?);
        }
        // Clients of the runtime can add large objects to the inventory. Therefore objects are read sequentially, and
        // objects of other clients are dropped.
        for target in desired.obsolete(observed.marker.as_ref()) {
            match read(remote, &target).await? {
                Read::Found(live) => {
                    let ours = live.filter(is_ours);
                    observed.live.extend(ours.map(|it| (target, it)));
                }
                Read::Forbidden(permission) => observed.unread.push(permission),
            }
        }
        Ok(observed)
    }
}

type Found = Vec<(Target, Read)>;

async fn read_all(
    remote: &Remote,
    targets: &std::collections::BTreeSet<Target>,
) -> Result<Found, CallError> {
    let reads = targets
        .iter()
        .map(|target| async move { Ok((target.clone(), read(remote, target).await?)) });
    try_join_all(reads).await
}

fn add(observed: &mut ObservedWatcher, found: Found) {
    for (target, read) in found {
        match read {
            Read::Found(live) => observed.live.extend(live.map(|it| (target, it))),
            Read::Forbidden(permission) => observed.unread.push(permission),
        }
    }
}

impl Context {
    /// Stores that a runtime belongs to a Kyma, and releases the previous runtime of the Kyma. Returns `None` if the
    /// Kyma has no runtime ID. Returns the other Kyma as error if the runtime belongs to another Kyma.
    fn own(&self, kyma: &str, id: Option<&RuntimeId>) -> Result<Option<RuntimeId>, Arc<str>> {
        let id = id.filter(|it| !it.as_str().is_empty());
        let mut runtimes = self.runtimes();
        let noted = runtimes.take_noted(kyma);
        let state = runtimes.states.get(kyma);
        let before = state.and_then(|it| it.id.clone()).or(noted);
        if before.as_ref() != id
            && let Some(before) = before
            && runtimes.owners.get(&before).is_some_and(|it| **it == *kyma)
        {
            runtimes.owners.remove(&before);
            self.claims.release(before.as_str());
        }
        let Some(id) = id else { return Ok(None) };
        let owner = runtimes.owners.entry(id.clone());
        let owner = owner.or_insert_with(|| kyma.into());
        if **owner == *kyma {
            return Ok(Some(id.clone()));
        }
        Err(Arc::clone(owner))
    }

    /// Stores the runtime of a Kyma before the goal is known: its watcher may be installed, and is removed if the Kyma is deleted
    /// until then.
    fn note(&self, kyma: &str, id: Option<&RuntimeId>) {
        let Ok(Some(id)) = self.own(kyma, id) else {
            return;
        };
        let mut runtimes = self.runtimes();
        if let Some(state) = runtimes.states.get_mut(kyma) {
            state.id = Some(id);
        } else {
            let name = runtimes.name(kyma, Some(&id));
            runtimes.noted.insert(name, id);
        }
    }

    /// Returns the runtime that belongs to a Kyma.
    pub(super) fn owned_by(&self, kyma: &str) -> Option<RuntimeId> {
        let runtimes = self.runtimes();
        let id = runtimes.states.get(kyma).and_then(|it| it.id.as_ref());
        let id = id.or_else(|| runtimes.noted.get(kyma))?;
        let is_owner = runtimes.owners.get(id).is_some_and(|it| **it == *kyma);
        is_owner.then(|| id.clone())
    }
}
