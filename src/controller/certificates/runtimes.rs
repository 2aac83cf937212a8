//! One Certificate for the runtime of each Kyma, and of each RuntimeBootstrapper without one.
//!
//! Changes of a Kyma, its Certificate or the bundle of CAs start a reconcile. Every Kyma is reconciled again after
//! [`RESYNC`]. If a Kyma no longer exists, its Certificate and its Secret are deleted, also if the Kyma was deleted
//! while no replica was the leader.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::kcp::CONTROLLER_FIELD_MANAGER;
use component_base::telemetry::{LogLimit, error_chain};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config as Concurrency, Error};
use kube::runtime::events::{Event as KubeEvent, EventType};
use kube::{Api, ResourceExt as _};
use policy::certificates::{
    CertificateError, CertificateInfo, Kyma, NAME_SUFFIX, is_current, may_be_outdated,
    runtime_certificate,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    CERT_MANAGER_API_NOT_SERVED, CertificateOptions, GatewayReceiver, IssuedGateway, RESYNC, RETRY,
};
use crate::RECONCILE_BACKOFF;
use crate::kube_events::publish_event;
use crate::kyma::{KnownKymas, KymaView, Kymas, ReconcileStarts, keep_earlier_ids, resynced};
use crate::secret::ZeroizedSecret;

mod deletion;

use deletion::FINALIZERS;

#[cfg(test)]
pub(super) use deletion::ISSUANCE;

/// Maximum number of concurrent reconciles.
const CONCURRENCY: usize = 16;

/// State of a certificate of an earlier CA that cert-manager has not renewed within the grace period of the newest one.
const RENEWAL_OVERDUE: &str = "RenewalOverdue";

/// Minimum interval between log lines about equal failures of Kymas.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// State and clients that all reconciles share.
struct Context {
    options: CertificateOptions,
    certificates: Api<DynamicObject>,
    secrets: Api<Secret>,
    kymas: KnownKymas,
    /// Limit of concurrent deletions.
    deletions: Semaphore,
    /// The CA that currently issues certificates, once the bundle contains it.
    current: GatewayReceiver,
    starts: ReconcileStarts,
    states: Mutex<HashMap<String, State>>,
    /// Certificates that are being deleted, with the time at which this leader found it, until no Secret of them can follow.
    unfinished: Mutex<HashMap<String, Instant>>,
    log: LogLimit,
}

/// The state of the Certificate of a Kyma.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    failures: u32,
    error: Option<&'static str>,
    /// Whether the last reconcile succeeded, so that the next one follows a change or the resync.
    is_resynced: bool,
    /// End of the validity in Unix seconds, if cert-manager has issued it.
    not_after: Option<i64>,
    /// Start of the validity of a certificate, and the SHA-256 of the CA that issued it. The certificate does not have to
    /// be read again. Two CAs may have been added to the bundle in the same second.
    of_newest_ca: Option<(i64, [u8; 32])>,
}

/// Reconciles the Certificates of all Kymas until the token is canceled.
pub(super) async fn run(
    options: CertificateOptions,
    kymas: Kymas,
    current: GatewayReceiver,
    token: CancellationToken,
) {
    let known = kymas.known();
    let store = known.store.clone();
    let context = Arc::new(Context::new(options, known, current.clone()));
    let own = Arc::clone(&context);
    let resynced = resynced(store.clone(), RESYNC, move |kyma| own.is_resynced(kyma));
    let queue = kymas.queue(current, resynced, context.starts.clone());
    let reconciles = applier(
        |kyma, context| Box::pin(start(kyma, context)),
        |kyma: Arc<KymaView>, error, context: Arc<Context>| context.failed(&kyma.name_any(), error),
        Arc::clone(&context),
        store,
        queue.take_until(token.clone().cancelled_owned()),
        Concurrency::default(),
    );
    // No limit of concurrency: a clean-up that waits does not prevent reconciles from starting.
    let clean_ups = reconciles.for_each_concurrent(None, |result| {
        let (context, token) = (Arc::clone(&context), token.clone());
        async move {
            // The applier returns this error for a queued Kyma that does not exist.
            if let Err(Error::ObjectNotFound(kyma)) = result {
                context.starts.forget(&kyma.name);
                token
                    .run_until_cancelled(context.clean_up(&kyma.name))
                    .await;
            }
        }
    });
    clean_ups.await;
}

/// Reconciles a Kyma when it has a permit.
async fn start(kyma: Arc<KymaView>, context: Arc<Context>) -> kube::Result<Action> {
    let started = context.starts.start(&kyma, &context.kymas.store).await;
    let Some((_permit, kyma, _)) = started else {
        return Ok(Action::await_change());
    };
    // Boxed, because retries of thousands of Kymas may wait for a permit.
    Box::pin(reconcile(&kyma, &context)).await
}

async fn reconcile(kyma: &KymaView, context: &Context) -> kube::Result<Action> {
    let kyma_object = kyma.kyma();
    let name = &kyma_object.name;
    let desired = match runtime_certificate(&kyma_object, &context.options.settings.certificates) {
        Ok(desired) => desired,
        Err(error) => {
            context.report(kyma, &error).await;
            let certificate = format!("{name}{NAME_SUFFIX}");
            // A Certificate without a domain belongs to an earlier Kyma. If the Kyma still exists, its Certificate
            // stays, because watchers still send events, unless its deletion has begun.
            let left = if kyma.is_bootstrapper() && error == CertificateError::SKRDomainMissing {
                context.delete(&certificate).await?
            } else {
                context.continue_deletion(&certificate).await?
            };
            return Ok(left.map_or_else(Action::await_change, Action::requeue));
        }
    };
    match context.synchronize(&kyma_object, desired).await {
        Ok(mut state) => {
            state.is_resynced = true;
            context.set_state(name, state);
            Ok(Action::await_change())
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            let reason = if status.is_forbidden() {
                "Forbidden"
            } else {
                CERT_MANAGER_API_NOT_SERVED
            };
            let failures = context.failures(name);
            context.set_state(
                name,
                State {
                    error: Some(reason),
                    failures: failures + 1,
                    ..State::default()
                },
            );
            if let Some(suppressed) = context.log.permit() {
                let error = status.message;
                tracing::warn!(
                    reason,
                    error,
                    suppressed,
                    "failed to write Certificates, retrying"
                );
            }
            // Thousands of Kymas may wait for cert-manager.
            Ok(Action::requeue(RETRY.delay(failures, fastrand::u64(..))))
        }
        Err(error) => Err(error),
    }
}

impl Context {
    fn new(options: CertificateOptions, kymas: KnownKymas, current: GatewayReceiver) -> Self {
        let namespace = &options.settings.certificates.namespace;
        Self {
            certificates: options.certificates(),
            secrets: Api::namespaced(options.client.clone(), namespace),
            kymas,
            deletions: Semaphore::new(CONCURRENCY),
            current,
            starts: ReconcileStarts::new(CONCURRENCY),
            states: Mutex::default(),
            unfinished: Mutex::default(),
            log: LogLimit::new(LOG_INTERVAL),
            options,
        }
    }

    /// Writes the Certificate if it differs, and renews it if a CA before the newest one has issued it.
    async fn synchronize(&self, kyma: &Kyma, mut desired: Value) -> kube::Result<State> {
        let name = format!("{}{NAME_SUFFIX}", kyma.name);
        let live = self.certificates.get_opt(&name).await?;
        if let Some(live) = &live {
            // The Kyma was created again after the deletion had begun.
            self.release(live, &FINALIZERS).await?;
            if live.metadata.deletion_timestamp.is_some() {
                // The next reconcile creates the Certificate.
                self.unfinished().remove(&name);
                return Ok(State::default());
            }
            keep_earlier_ids(&mut desired, live);
        }
        let live = live.map(|it| (json!(it), it));
        let Some((content, live)) = live.filter(|(content, _)| is_current(&desired, content))
        else {
            let parameters = PatchParams::apply(CONTROLLER_FIELD_MANAGER).force();
            let patch = Patch::Apply(&desired);
            self.certificates.patch(&name, &parameters, &patch).await?;
            self.options.metrics.wrote("apply");
            tracing::info!(kyma = kyma.name, "Certificate written");
            return Ok(State::default());
        };
        let time = |key: &str| {
            let text = content.pointer(&format!("/status/{key}"))?.as_str()?;
            text.parse::<Timestamp>().ok().map(Timestamp::as_second)
        };
        let before = self.states().get(&kyma.name).copied();
        let mut of_newest_ca = before.and_then(|it| it.of_newest_ca);
        let not_before = time("notBefore");
        let current = self.current.borrow().clone();
        let mut error = None;
        if let Ok(current) = current
            && may_be_outdated(not_before, current.ca_added)
        {
            let known = not_before.map(|it| (it, current.ca.sha256()));
            if of_newest_ca != known && self.is_of_earlier_ca(&name, &current).await? {
                self.options.renew(&live).await?;
                error = self.is_overdue(&current).then_some(RENEWAL_OVERDUE);
            } else {
                of_newest_ca = known;
            }
        }
        Ok(State {
            error,
            not_after: time("notAfter"),
            of_newest_ca,
            ..State::default()
        })
    }

    /// Returns whether a certificate of an earlier CA should have been renewed: after the grace period the gateway may serve with a
    /// certificate of the newest CA.
    fn is_overdue(&self, current: &IssuedGateway) -> bool {
        let passed = Timestamp::now()
            .as_second()
            .saturating_sub(current.ca_added);
        u64::try_from(passed).is_ok_and(|it| it >= self.options.settings.grace_period.as_secs())
    }

    /// Returns whether the certificate in a Secret names another CA as its issuer. Returns `false` for a missing or
    /// invalid Secret, which cert-manager repairs.
    async fn is_of_earlier_ca(&self, name: &str, current: &IssuedGateway) -> kube::Result<bool> {
        let secret = self.secrets.get_opt(name).await?.map(ZeroizedSecret);
        let certificate = secret
            .as_ref()
            .and_then(|it| it.data.as_ref()?.get("tls.crt"));
        let certificate = certificate.and_then(|it| CertificateInfo::first(&it.0).ok());
        Ok(certificate.is_some_and(|it| !it.is_issued_by(&current.ca)))
    }

    /// Reports a Kyma that gets no certificate, once for each reason.
    async fn report(&self, kyma: &KymaView, error: &CertificateError) {
        let (name, reason) = (kyma.name_any(), error.reason());
        let state = State {
            error: Some(reason),
            ..State::default()
        };
        if self
            .set_state(&name, state)
            .is_some_and(|it| it.error == Some(reason))
        {
            return;
        }
        let text = error.to_string();
        tracing::warn!(
            kyma = name,
            reason,
            error = text,
            "no certificate for runtime"
        );
        // No Event for a RuntimeBootstrapper: its condition `WatcherInstalled` contains the reason, and a new runtime
        // has no Kyma yet.
        if kyma.is_bootstrapper() {
            return;
        }
        let event = KubeEvent {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(text),
            action: "IssueCertificate".to_owned(),
            secondary: None,
        };
        let (client, reporter) = (self.options.client.clone(), self.options.reporter.clone());
        publish_event(client, reporter, event, kyma.reference()).await;
    }

    /// Returns the backoff of a failed reconcile, and logs the failure.
    fn failed(&self, name: &str, error: &kube::Error) -> Action {
        let error = error_chain(error);
        if let Some(suppressed) = self.log.permit() {
            tracing::warn!(
                kyma = name,
                error,
                suppressed,
                "failed to reconcile Certificate, backing off"
            );
        }
        let mut states = self.states();
        let state = states.entry(name.to_owned()).or_default();
        let delay = RECONCILE_BACKOFF.delay(state.failures, fastrand::u64(..));
        state.failures += 1;
        state.is_resynced = false;
        state.error = Some("RequestFailed");
        drop(states);
        self.show();
        Action::requeue(delay)
    }

    fn is_resynced(&self, name: &str) -> bool {
        self.states().get(name).is_some_and(|it| it.is_resynced)
    }

    /// Returns the number of consecutive failures of a Kyma.
    fn failures(&self, name: &str) -> u32 {
        self.states().get(name).map_or(0, |it| it.failures)
    }

    fn set_state(&self, name: &str, state: State) -> Option<State> {
        let before = self.states().insert(name.to_owned(), state);
        if before != Some(state) {
            self.show();
        }
        before
    }

    fn show(&self) {
        let states = self.states();
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for state in states.values() {
            let name = match *state {
                State {
                    error: Some(error), ..
                } => error,
                State {
                    not_after: Some(_), ..
                } => "Issued",
                State {
                    not_after: None, ..
                } => "Pending",
            };
            *counts.entry(name).or_default() += 1;
        }
        let earliest = states.values().filter_map(|it| it.not_after).min();
        self.options.metrics.show_runtimes(&counts, earliest);
    }

    fn states(&self) -> MutexGuard<'_, HashMap<String, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unfinished(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Context {
    /// Resets the metrics: a replica that is not the leader reports 0.
    fn drop(&mut self) {
        self.options.metrics.show_runtimes(&BTreeMap::new(), None);
    }
}
